"""Assigns a lablet session to a worker or removes it; drains and pauses check it in the same compare-and-set.

The capacity allocated to sessions is part of the record, so that placement has nothing to count.
"""

from lcm.control_plane.records.groups import Records
from lcm.control_plane.store.port import Fence
from lcm.domain.capacity import Capacity, declared_by
from lcm.domain.sessions import assign_session, recalculate, release_session
from lcm.domain.worker import Worker


async def place_session(
    records: Records,
    worker_id: str,
    session_id: str,
    *,
    needs: Capacity | None = None,
    fence: Fence | None = None,
) -> Worker:
    now = records.clock.now()
    return await records.workers.change(
        worker_id, lambda worker: assign_session(worker, session_id, needs=needs, now=now), fence=fence
    )


async def remove_session(
    records: Records, worker_id: str, session_id: str, *, fence: Fence | None = None
) -> Worker:
    now = records.clock.now()
    return await records.workers.change(
        worker_id, lambda worker: release_session(worker, session_id, now=now), fence=fence
    )


async def recalculate_capacity(records: Records, worker_id: str, *, fence: Fence) -> Worker:
    """Recalculate what the template declares and what the sessions on the worker need."""
    worker = await records.workers.get(worker_id)
    template = await records.templates.find(worker.template_name)
    declared = declared_by(template) if template else None
    return await records.workers.change(
        worker_id, lambda current: recalculate(current, declared), fence=fence
    )
