"""DRAINING: no new sessions; stop when the present ones are over.

Nothing assigns sessions to workers yet, so a drain has nothing to wait for.
"""

from lcm.domain.lifecycle import RUNNING, STOPPING, TERMINATING, DesiredStatus
from lcm.worker_controller.decisions import Decision, Move, Situation


def decide(situation: Situation) -> Decision:
    match situation.worker.desired_status:
        case DesiredStatus.RUNNING:
            return Move(RUNNING, "the drain was cancelled")
        case DesiredStatus.TERMINATED:
            return Move(TERMINATING, "people want it deleted")
        case DesiredStatus.STOPPED:
            return Move(STOPPING, "no session is left")
