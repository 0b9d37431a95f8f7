"""STOPPING: a stop was decided; request it until EC2 reports stopped."""

from lcm.domain.lifecycle import STOPPED, TERMINATING, DesiredStatus
from lcm.domain.observation import Absent, Known, Unknown
from lcm.worker_controller.decisions import Decision, Move, Situation, StopInstance, Wait, report_drift


def decide(situation: Situation) -> Decision:
    worker, observation = situation.worker, situation.observation
    if worker.desired_status is DesiredStatus.TERMINATED:
        return Move(TERMINATING, "deleted while it was stopping")
    match observation:
        case Absent(proof):
            return Move(STOPPED, f"there is no instance: {proof}")
        case Known(instance) if instance.state == "stopped":
            return Move(STOPPED, "EC2 reports stopped", instance=instance)
        case Known(instance) if instance.state == "running":
            return StopInstance(instance.id)
        case Known(instance) if instance.state in {"stopping", "pending"}:
            return situation.wait_for_ec2(instance.state)
        case Known(instance):
            return report_drift(instance, f"{instance.state} outside LCM")
        case Unknown(reason):
            return Wait(reason)
