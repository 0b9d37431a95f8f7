"""When a waiting session is expected to get a worker: the same cycle, at moments at which something changes.

What is known to happen is replayed: claims that end, workers that come up, regions that may grow again,
windows that open. What is not known, such as sessions that end early, is not guessed.
"""

from bisect import bisect_left
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from lcm.domain.lablet.cycle import plan, queue_order, ready_times
from lcm.domain.lablet.decision import Decision, Eta, Explanation, NextEvent, Outcome
from lcm.domain.lablet.possibility import GONE
from lcm.domain.lablet.rooms import is_over_at
from lcm.domain.lablet.session import LabletSession, WaitCode
from lcm.domain.lablet.snapshot import Growth, PlacementWorker, Snapshot, Stage
from lcm.domain.lablet.states import PENDING, PENDING_SCHEDULING
from lcm.domain.lifecycle import WorkerStatus

MOMENTS: Final = 1024
"""So many coming events are replayed; each doubling costs one more cycle."""
VERIFIED: Final = 8
"""So many of them, from the first with a worker on, are checked at the time that they name."""


def snapshot_at(snapshot: Snapshot, moment: datetime, now: datetime) -> Snapshot:
    """What is known now about a later moment."""
    ready_at = ready_times(snapshot, now)
    return replace(
        snapshot,
        workers=tuple(_worker_at(each, moment, ready_at[each.id], snapshot) for each in snapshot.workers),
        sessions=tuple(_session_at(each, moment, snapshot) for each in snapshot.sessions),
        growth={region: growth_at(snapshot, region, moment, now) for region in snapshot.growth},
    )


def _worker_at(
    worker: PlacementWorker, moment: datetime, ready_at: datetime, snapshot: Snapshot
) -> PlacementWorker:
    claims = tuple(claim for claim in worker.claims if not is_over_at(claim, moment, snapshot.times))
    if worker.stage is Stage.COMING and ready_at <= moment:
        return replace(worker, claims=claims, status=WorkerStatus.RUNNING, is_ready=True)
    # A worker keeps the time at which it is ready: without it, each moment would begin a new estimate.
    return replace(worker, claims=claims, ready_at=ready_at if worker.stage is Stage.COMING else None)


def _session_at(session: LabletSession, moment: datetime, snapshot: Snapshot) -> LabletSession:
    if session.status is not PENDING or session.timeslot is None:
        return session
    is_open = session.timeslot.opens_at(snapshot.times) <= moment
    return replace(session, status=PENDING_SCHEDULING) if is_open else session


def growth_at(snapshot: Snapshot, region: str, moment: datetime, now: datetime) -> Growth:
    """How many workers a region may gain at a later moment: a refusal ends at its time."""
    growth = snapshot.growth[region]
    if moment <= now or growth.retry_at is None or growth.retry_at > moment:
        return growth
    if growth.max_workers is None:
        return Growth(count=max(1, growth.count))
    present = sum(worker.region == region and worker.status not in GONE for worker in snapshot.workers)
    count = max(growth.count, growth.max_workers - present)
    return Growth(count=count, max_workers=growth.max_workers, refusal=growth.refusal if not count else "")


def explain(decision: Decision, snapshot: Snapshot, session: LabletSession, now: datetime) -> Explanation:
    """The explanation of a decision with the next event and the expected time."""
    found = decision.explanation or Explanation()
    if decision.outcome in (Outcome.ASSIGN, Outcome.IMPOSSIBLE):
        return found
    events = _events(snapshot, session, now)
    return replace(
        found,
        next_event=_next_event(decision, snapshot, session, now) or (events[0] if events else None),
        eta=_eta(decision, snapshot, session, events, now),
    )


def _events(snapshot: Snapshot, session: LabletSession, now: datetime) -> list[NextEvent]:
    """What is known to happen, in its order."""
    teardown = snapshot.times.teardown
    ready_at = ready_times(snapshot, now)
    events = []
    for worker in snapshot.workers:
        if session.demand.region not in (None, worker.region):
            continue
        if worker.stage is Stage.COMING:
            events.append(NextEvent(what=f"worker {worker.name} is ready", at=ready_at[worker.id]))
        events += [
            NextEvent(what=f"room frees on worker {worker.name}", at=claim.ends_at + teardown)
            for claim in worker.claims
            if claim.ends_at is not None and not claim.is_retained
        ]
    for region, growth in snapshot.growth.items():
        if growth.retry_at is not None and session.demand.region in (None, region):
            events.append(NextEvent(what=f"region {region} may gain workers", at=growth.retry_at))
    own = _next_own_event(snapshot, session)
    events += [own] if own is not None else []
    return sorted((event for event in events if event.at > now), key=lambda each: (each.at, each.what))[
        :MOMENTS
    ]


def _next_own_event(snapshot: Snapshot, session: LabletSession) -> NextEvent | None:
    if session.status is PENDING and session.timeslot is not None:
        return NextEvent(what="its window opens", at=session.timeslot.opens_at(snapshot.times))
    if session.next_try_at is not None:
        return NextEvent(what="its placement is tried again", at=session.next_try_at)
    return None


def _next_event(
    decision: Decision, snapshot: Snapshot, session: LabletSession, now: datetime
) -> NextEvent | None:
    """What the decision itself waits for."""
    if decision.code in (WaitCode.WINDOW_NOT_OPEN, WaitCode.BACKOFF):
        return _next_own_event(snapshot, session)
    if decision.nomination is not None and decision.nomination.ready_at > now:
        names = {worker.id: worker.name for worker in snapshot.workers}
        name = names.get(decision.nomination.worker_id, "")
        is_release = decision.code is WaitCode.WAITS_FOR_RELEASE
        what = f"room frees on worker {name}" if is_release else f"worker {name} is ready"
        return NextEvent(what=what, at=decision.nomination.ready_at)
    if decision.launch_ready_at is not None:
        return NextEvent(what="a new worker is ready", at=decision.launch_ready_at)
    return None


def arrival_of(decision: Decision, moment: datetime) -> datetime | None:
    """When a decision of that moment gives the session a worker; None if it does not."""
    if decision.outcome is Outcome.ASSIGN:
        return moment
    if decision.nomination is not None:
        return max(moment, decision.nomination.ready_at)
    return decision.launch_ready_at


def _eta(
    decision: Decision,
    snapshot: Snapshot,
    session: LabletSession,
    events: list[NextEvent],
    now: datetime,
) -> Eta | None:
    likely, basis = _first_arrival(decision, _up_to(snapshot, session), session, events, now)
    if likely is None:
        return None
    alone = _at_the_earliest(replace(snapshot, sessions=(session,)))
    first = plan(alone, now).decisions[session.id]
    earliest, _ = _first_arrival(first, alone, session, _events(alone, session, now), now)
    return Eta(earliest=min(earliest or likely, likely), likely=likely, basis=basis)


def _at_the_earliest(snapshot: Snapshot) -> Snapshot:
    """The same, if every worker came up as soon as half of those before it."""
    return replace(
        snapshot,
        workers=tuple(replace(each, ready_at=each.early_at or each.ready_at) for each in snapshot.workers),
        templates=tuple(replace(each, boot=each.early_boot or each.boot) for each in snapshot.templates),
    )


def _up_to(snapshot: Snapshot, session: LabletSession) -> Snapshot:
    """Without what comes later in the queue than the session and its class: it changes nothing."""
    mates = [
        each
        for each in snapshot.sessions
        if each.id == session.id or (session.batch and each.batch and each.batch.id == session.batch.id)
    ]
    last = max(map(queue_order, mates))
    return replace(snapshot, sessions=tuple(each for each in snapshot.sessions if queue_order(each) <= last))


def _first_arrival(
    decision: Decision, snapshot: Snapshot, session: LabletSession, events: list[NextEvent], now: datetime
) -> tuple[datetime | None, str]:
    """The first event at which the session gets a worker, or one that comes. Later moments have more room.

    An expectation counts only if it still holds when its time comes: room that frees meanwhile may let a
    session that is ahead take what this one was nominated for.
    """
    arrivals: dict[datetime, datetime | None] = {}

    def arrival_at(moment: datetime) -> datetime | None:
        if moment not in arrivals:
            later = plan(snapshot_at(snapshot, moment, now), moment).decisions[session.id]
            arrivals[moment] = arrival_of(later, moment)
        return arrivals[moment]

    def holds(arrival: datetime | None) -> bool:
        return arrival is not None and arrival_at(arrival) is not None

    arrival = arrival_of(decision, now)
    if holds(arrival):
        return arrival, "from what its decision waits for"
    names: dict[datetime, str] = {}
    for event in events:
        names.setdefault(event.at, event.what)
    moments = list(names)
    index = bisect_left(moments, True, key=lambda moment: arrival_at(moment) is not None)
    for moment in moments[index : index + VERIFIED]:
        arrival = arrival_at(moment)
        if holds(arrival):
            return arrival, f"from known ends of sessions and ready times of workers: {names[moment]}"
    return None, ""
