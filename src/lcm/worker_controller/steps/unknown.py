"""UNKNOWN: EC2 reported a state that LCM does not know; observe until it reports a known one."""

from lcm.domain.lifecycle import TERMINATED, TERMINATING, UNKNOWN, DesiredStatus, status_of_ec2_state
from lcm.domain.observation import Absent, Known, Unknown
from lcm.worker_controller.decisions import Decision, Move, Situation, Wait


def decide(situation: Situation) -> Decision:
    match situation.observation:
        case Known(instance) if status_of_ec2_state(instance.state) is not UNKNOWN:
            if situation.worker.desired_status is DesiredStatus.TERMINATED and not instance.is_gone:
                return Move(TERMINATING, "desired status is terminated", observed=True)
            return Move(status_of_ec2_state(instance.state), f"EC2 reports {instance.state}", observed=True)
        case Known(instance):
            return Wait(f"EC2 reports {instance.state!r}")
        case Absent(proof):
            return Move(TERMINATED, f"there is no instance: {proof}", observed=True)
        case Unknown(reason):
            return Wait(reason)
