"""Who is placed on a worker, and how much of it that takes."""

from datetime import datetime

from msgspec.structs import replace

from lcm.domain.capacity import Capacity, total
from lcm.domain.errors import Conflict
from lcm.domain.lifecycle import (
    DRAINING,
    RUNNING,
    DesiredStatus,
)
from lcm.domain.worker import Worker


def assign_session(
    worker: Worker, session_id: str, *, needs: Capacity | None = None, now: datetime
) -> Worker:
    """Place a session. Shares its compare-and-set with drain and pause: one of them comes first."""
    if session_id in worker.sessions:
        return worker
    is_open = worker.status is RUNNING and worker.desired_status is DesiredStatus.RUNNING
    if not is_open:
        raise Conflict(f"worker {worker.id} takes no session: it is {worker.status}, place it elsewhere")
    placed = replace(worker, sessions=(*worker.sessions, session_id), pause_decided_at=None, updated_at=now)
    return recalculate(
        replace(placed, session_needs={**worker.session_needs, session_id: needs or Capacity()})
    )


def release_session(worker: Worker, session_id: str, *, now: datetime) -> Worker:
    """Take a session away. The last one of a drain was waited for: that it is over wakes the controller."""
    left = tuple(session for session in worker.sessions if session != session_id)
    if left == worker.sessions:
        return worker
    is_drained = worker.status is DRAINING and not left
    return recalculate(
        replace(worker, sessions=left, generation=worker.generation + is_drained, updated_at=now)
    )


def recalculate(worker: Worker, declared: Capacity | None = None) -> Worker:
    """Promised is what the sessions that are there need, no more and no less; `declared` may be news."""
    needs = {session: worker.session_needs.get(session, Capacity()) for session in worker.sessions}
    return replace(
        worker,
        session_needs=needs,
        allocated_capacity=total(needs.values()),
        declared_capacity=declared or worker.declared_capacity,
    )
