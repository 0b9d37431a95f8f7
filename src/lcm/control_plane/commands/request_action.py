"""A person asks something of a worker: start, stop, delete, retry."""

from lcm.control_plane.context import ControlPlane
from lcm.domain.worker import Action, Worker, refresh, request


async def request_action(control_plane: ControlPlane, worker_id: str, action: Action, *, by: str) -> Worker:
    """Record the wish and answer at once; effects follow. Asking twice changes nothing."""
    now = control_plane.clock.now()
    return await control_plane.workers.change(
        worker_id, lambda worker: request(worker, action, by=by, now=now)
    )


async def request_refresh(control_plane: ControlPlane, worker_id: str) -> Worker:
    """Have the controller look at everything about a worker again."""
    now = control_plane.clock.now()
    return await control_plane.workers.change(worker_id, lambda worker: refresh(worker, now=now))
