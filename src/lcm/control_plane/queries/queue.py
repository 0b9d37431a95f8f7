"""The sessions that wait, in the order of the queue."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from lcm.control_plane.policies import Policies
from lcm.control_plane.queries.scheduling import read_snapshot
from lcm.control_plane.records.groups import Caches, Records
from lcm.domain.lablet.cycle import queue_order
from lcm.domain.lablet.decision import Decision, Outcome
from lcm.domain.lablet.placement import PlacementEngine
from lcm.domain.lablet.replay import arrival_of, explain
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.snapshot import Snapshot
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
    now = records.clock.now()
    decisions = PlacementEngine.plan(snapshot, now).decisions
    shown = [
        session
        for session in sorted(snapshot.sessions, key=queue_order)
        if session.status is PENDING_SCHEDULING and is_shown(session)
    ]
    expected = expected_times(shown, decisions, snapshot, now)
    items = []
    for session in shown:
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
                likely_at=expected[session.id],
            )
        )
    return SchedulingQueue(items=items, is_scheduler_silent=records.scheduler.is_silent)


def expected_times(
    shown: Sequence[LabletSession], decisions: Mapping[str, Decision], snapshot: Snapshot, now: datetime
) -> dict[str, datetime | None]:
    """Return when each gets a worker. Where nothing is on the way only the first is estimated: it costs many
    plans."""
    expected = {session.id: arrival_of(decisions[session.id], now) for session in shown}
    lacking = (each for each in shown if expected[each.id] is None)
    first = next((each for each in lacking if decisions[each.id].outcome is not Outcome.IMPOSSIBLE), None)
    if first is not None and (eta := explain(decisions[first.id], snapshot, first, now).eta) is not None:
        expected[first.id] = eta.likely
    return expected
