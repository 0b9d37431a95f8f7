"""A lablet session comes to a worker or leaves it; drains and pauses see it in the same compare-and-set.

What is promised to sessions is part of the record, so that placement reads one number instead of counting.
"""

from lcm.control_plane.context import ControlPlane
from lcm.control_plane.store.port import Fence
from lcm.domain.capacity import Capacity, declared_by
from lcm.domain.sessions import assign_session, recalculate, release_session
from lcm.domain.worker import Worker


async def place_session(
    control_plane: ControlPlane,
    worker_id: str,
    session_id: str,
    *,
    needs: Capacity | None = None,
    fence: Fence | None = None,
) -> Worker:
    now = control_plane.clock.now()
    return await control_plane.workers.change(
        worker_id, lambda worker: assign_session(worker, session_id, needs=needs, now=now), fence=fence
    )


async def remove_session(
    control_plane: ControlPlane, worker_id: str, session_id: str, *, fence: Fence | None = None
) -> Worker:
    now = control_plane.clock.now()
    return await control_plane.workers.change(
        worker_id, lambda worker: release_session(worker, session_id, now=now), fence=fence
    )


async def recalculate_capacity(control_plane: ControlPlane, worker_id: str, *, fence: Fence) -> Worker:
    """Count again: what its template declares now, and what the sessions on it need."""
    worker = await control_plane.workers.get(worker_id)
    template = await control_plane.templates.find(worker.template_name)
    declared = declared_by(template) if template else None
    return await control_plane.workers.change(
        worker_id, lambda current: recalculate(current, declared), fence=fence
    )
