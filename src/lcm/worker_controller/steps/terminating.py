"""TERMINATING: ask EC2 until it says terminated; only then is the worker gone."""

from lcm.domain.lifecycle import TERMINATED
from lcm.domain.observation import Absent, Known, Unknown
from lcm.worker_controller.decisions import Decision, Move, Situation, TerminateInstance, Wait


def decide(situation: Situation) -> Decision:
    match situation.seen:
        case Absent(proof):
            return Move(TERMINATED, f"there is no instance: {proof}")
        case Known(instance) if instance.state == "terminated":
            return Move(TERMINATED, "EC2 reports terminated")
        case Known(instance) if instance.state == "shutting-down":
            return situation.wait_for_ec2(instance.state)
        case Known(instance):
            return TerminateInstance(instance.id)
        case Unknown(reason):
            return Wait(reason)
