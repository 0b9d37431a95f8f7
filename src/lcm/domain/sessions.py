"""The sessions placed on a worker, and the capacity allocated to them."""

from datetime import datetime

from msgspec.structs import replace

from lcm.domain.capacity import Capacity, total
from lcm.domain.errors import Conflict
from lcm.domain.lifecycle import (
    DRAINING,
    RUNNING,
    DesiredStatus,
)
from lcm.domain.pause import withdraw_decision
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
    placed = replace(
        worker,
        sessions=(*worker.sessions, session_id),
        session_needs={**worker.session_needs, session_id: needs or Capacity()},
        pause=withdraw_decision(worker.pause, now=now),
        updated_at=now,
    )
    return recalculate(placed)


def release_session(worker: Worker, session_id: str, *, now: datetime) -> Worker:
    """Remove a session. The end of the last one of a drain wakes the controller, which waits for it."""
    left = tuple(session for session in worker.sessions if session != session_id)
    if left == worker.sessions:
        return worker
    is_drained = worker.status is DRAINING and not left
    return recalculate(
        replace(worker, sessions=left, generation=worker.generation + is_drained, updated_at=now)
    )


def recalculate(worker: Worker, declared: Capacity | None = None) -> Worker:
    """Set the allocated capacity to what the present sessions need; `declared` replaces the declared one."""
    needs = {session: worker.session_needs.get(session, Capacity()) for session in worker.sessions}
    return replace(
        worker,
        session_needs=needs,
        allocated_capacity=total(needs.values()),
        declared_capacity=declared or worker.declared_capacity,
    )
