"""FAILED: LCM gave up. Only people move it on: retry, or delete."""

from lcm.domain.lifecycle import TERMINATING, DesiredStatus
from lcm.worker_controller.decisions import Decision, Move, Nothing, Situation


def decide(situation: Situation) -> Decision:
    if situation.worker.desired_status is DesiredStatus.TERMINATED:
        return Move(TERMINATING, "people want it deleted")
    return Nothing("failed; a person must retry or delete it")
