"""Step 1: what people want, or what LCM wants on their behalf."""

from lcm.domain.lifecycle import STOPPING, TERMINATING, DesiredStatus
from lcm.domain.worker import PauseReason, Worker
from lcm.worker_controller.decisions import Move


def decide(worker: Worker) -> Move | None:
    """Where a running worker has to go; None if it is to go on running."""
    if worker.desired_status is DesiredStatus.TERMINATED:
        return Move(TERMINATING, "people want it deleted")
    if worker.desired_status is DesiredStatus.STOPPED:
        is_unused = worker.pause_reason is PauseReason.IDLE_TIMEOUT
        return Move(STOPPING, "nobody uses it" if is_unused else "people want it stopped")
    return None
