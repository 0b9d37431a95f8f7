"""FAILED: LCM gave up. Only a request of a person leads out: retry, or delete."""

from lcm.domain.lifecycle import TERMINATING, DesiredStatus
from lcm.worker_controller.decisions import Decision, Move, Nothing, Situation


def decide(situation: Situation) -> Decision:
    if situation.worker.desired_status is DesiredStatus.TERMINATED:
        return Move(TERMINATING, "desired status is terminated")
    return Nothing()
