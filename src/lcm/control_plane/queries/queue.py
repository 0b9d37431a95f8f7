"""The sessions that wait, in the order of the queue."""

from collections.abc import Callable

from lcm.control_plane.policies import Policies
from lcm.control_plane.queries.scheduling import read_snapshot
from lcm.control_plane.records.groups import Caches, Records
from lcm.domain.lablet.cycle import queue_order
from lcm.domain.lablet.placement import PlacementEngine
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.states import PENDING_SCHEDULING
from lcm.rest.lablets import LabletSessionView
from lcm.rest.scheduling import QueueEntry, SchedulingQueue


async def scheduling_queue(
    records: Records,
    policies: Policies,
    is_shown: Callable[[LabletSession], bool],
    *,
    caches: Caches | None = None,
) -> SchedulingQueue:
    """Return the entries that may be shown; positions count all."""
    snapshot = await read_snapshot(records, policies, caches=caches)
    decisions = PlacementEngine.plan(snapshot, records.clock.now()).decisions
    items = []
    for session in sorted(snapshot.sessions, key=queue_order):
        if session.status is not PENDING_SCHEDULING or not is_shown(session):
            continue
        decision = decisions[session.id]
        nomination = decision.nomination
        items.append(
            QueueEntry(
                session=LabletSessionView.of(session),
                outcome=decision.outcome,
                code=decision.code,
                text=decision.text,
                position=decision.position,
                worker_id=decision.worker_id or (nomination.worker_id if nomination is not None else None),
            )
        )
    return SchedulingQueue(items=items, is_scheduler_silent=records.scheduler.is_silent)
