"""A lablet session comes to a worker or leaves it; drains and pauses see it in the same compare-and-set."""

from lcm.control_plane.context import ControlPlane
from lcm.domain.worker import Worker, assign_session, release_session


async def place_session(control_plane: ControlPlane, worker_id: str, session_id: str) -> Worker:
    now = control_plane.clock.now()
    return await control_plane.workers.change(
        worker_id, lambda worker: assign_session(worker, session_id, now=now)
    )


async def remove_session(control_plane: ControlPlane, worker_id: str, session_id: str) -> Worker:
    now = control_plane.clock.now()
    return await control_plane.workers.change(
        worker_id, lambda worker: release_session(worker, session_id, now=now)
    )
