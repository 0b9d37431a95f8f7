"""Step 1: the desired status, requested by people or set by an automatic pause."""

from lcm.domain.lifecycle import STOPPING, TERMINATING, DesiredStatus
from lcm.domain.worker import Worker
from lcm.worker_controller.decisions import Move


def decide(worker: Worker) -> Move | None:
    """The move to a desired status other than running; None if there is none."""
    if worker.desired_status is DesiredStatus.TERMINATED:
        return Move(TERMINATING, "desired status is terminated")
    if worker.desired_status is DesiredStatus.STOPPED:
        return Move(STOPPING, "idle" if worker.pause.is_automatic else "desired status is stopped")
    return None
