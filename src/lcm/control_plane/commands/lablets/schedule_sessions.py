"""Places waiting sessions on workers, in three writes that a crash may separate anywhere.

1. The session names the worker and the attempt: it always knows where a claim could be.
2. The worker takes the claim, if it admits it in the same compare-and-set.
3. The session is SCHEDULED, if that placement is still its own; otherwise the claim is released.

The next try of a session finishes or withdraws what an earlier one left; `sweep_claims` finds the rest.
"""

from collections.abc import Sequence

import structlog

from lcm.control_plane.commands.together import all_of
from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Records
from lcm.control_plane.store.port import Fence
from lcm.core.clock import Clock
from lcm.domain.errors import (
    Conflict,
    Fenced,
    IllegalTransition,
    NoFreePort,
    NotFound,
    PlacementRefused,
    RequestError,
)
from lcm.domain.lablet.admission import claim, find_claim, release
from lcm.domain.lablet.audit import LabletEvent
from lcm.domain.lablet.ports import PortRange
from lcm.domain.lablet.session import LabletSession, SessionDesiredStatus
from lcm.domain.lablet.session_changes import (
    begin_placement,
    record_failed_placement,
    schedule,
    withdraw_placement,
)
from lcm.domain.lablet.states import PENDING_SCHEDULING
from lcm.domain.worker import Worker
from lcm.rest.lablets import PlacementOrder, PlacementResult

log = structlog.get_logger(__name__)


async def schedule_sessions(
    records: Records, policies: Policies, orders: Sequence[PlacementOrder], *, by: str, fence: Fence
) -> list[PlacementResult]:
    """Place each session on its worker; the result of each says what became of it.

    Every write is fenced. A former leader is refused also if no write is left to be made: it must not take
    the placements of its successor for its own.
    """
    await records.epochs.require_newest(fence)
    results: dict[str, PlacementResult] = {}
    begun: dict[str, list[LabletSession]] = {}
    for outcome in await all_of(_begin(records, order, fence) for order in orders):
        if isinstance(outcome, PlacementResult):
            results[outcome.session_id] = outcome
        elif outcome.placement is not None:
            begun.setdefault(outcome.placement.worker_id, []).append(outcome)
    placed = await all_of(
        _place(records, policies, worker_id, sessions, by, fence) for worker_id, sessions in begun.items()
    )
    results.update((result.session_id, result) for each in placed for result in each)
    return [results[order.session_id] for order in orders]


async def _begin(records: Records, order: PlacementOrder, fence: Fence) -> LabletSession | PlacementResult:
    """The first write; what an earlier attempt left is finished or withdrawn before."""
    try:
        session = await records.sessions.get(order.session_id)
        if session.placement is not None and session.placement.attempt != order.attempt:
            session = await settle_placement(records, session, fence=fence)
        if session.status is not PENDING_SCHEDULING and session.worker_id is not None:
            return PlacementResult.of(session)
        now = records.clock.now()

        def begin(current: LabletSession) -> LabletSession:
            begun = begin_placement(current, order.worker_id, epoch=fence.version, now=now)
            if begun.attempt != order.attempt:
                raise Conflict(f"attempt {order.attempt} is not the next one of the session; read it again")
            return begun

        return await records.sessions.change(order.session_id, begin, fence=fence)
    except Fenced:
        raise
    except RequestError as error:
        return PlacementResult.conflict(order.session_id, error)


async def _place(
    records: Records,
    policies: Policies,
    worker_id: str,
    sessions: Sequence[LabletSession],
    by: str,
    fence: Fence,
) -> list[PlacementResult]:
    """The second write for all sessions of a worker at once, then the third for each."""
    admission = _Admission(sessions, policies.ports, records.clock)
    try:
        worker = await records.workers.change(worker_id, admission, fence=fence)
    except (NotFound, Conflict) as error:
        return await all_of(
            _refuse(records, policies, session, worker_id, error, fence) for session in sessions
        )
    refusals = admission.refusals
    return await all_of(
        _refuse(records, policies, session, worker_id, refusals[session.id], fence)
        if session.id in refusals
        else _confirm(records, session, worker, by, fence)
        for session in sessions
    )


class _Admission:
    """Adds the claims of several sessions to a worker, those that it admits."""

    def __init__(self, sessions: Sequence[LabletSession], ports: PortRange, clock: Clock) -> None:
        self._sessions = sessions
        self._ports = ports
        self._clock = clock
        self.refusals: dict[str, RequestError] = {}

    def __call__(self, worker: Worker) -> Worker:
        self.refusals = {}
        now = self._clock.now()
        for session in self._sessions:
            try:
                worker = claim(
                    worker,
                    session.demand,
                    session_id=session.id,
                    attempt=session.attempt,
                    ends_at=session.ends_at,
                    ports=self._ports,
                    now=now,
                )
            except (PlacementRefused, NoFreePort) as error:
                self.refusals[session.id] = error
        return worker


async def _refuse(
    records: Records,
    policies: Policies,
    session: LabletSession,
    worker_id: str,
    error: RequestError,
    fence: Fence,
) -> PlacementResult:
    """Count the refusal, so that another worker comes first; the placement is withdrawn by it."""
    now, attempt = records.clock.now(), session.attempt

    def fail(current: LabletSession) -> LabletSession:
        is_own = current.placement is not None and current.placement.attempt == attempt
        if not is_own:
            return current
        return record_failed_placement(
            current, worker_id=worker_id, reason=str(error), now=now, max_retries=policies.max_retries
        )

    try:
        failed = await records.sessions.change(session.id, fail, fence=fence)
    except Conflict as changed:
        return PlacementResult.conflict(session.id, changed)
    await records.lablet_audit.note(
        LabletEvent.PLACEMENT_CONFLICT,
        by="control plane",
        reason=str(error),
        session=session,
        worker_id=worker_id,
    )
    has_used_retries = failed.place_attempts == policies.max_retries
    return PlacementResult.refused(session.id, error, has_used_retries=has_used_retries)


async def _confirm(
    records: Records, session: LabletSession, worker: Worker, by: str, fence: Fence | None
) -> PlacementResult:
    """The third write. A session that has moved on meanwhile gives its claim back at once."""
    held = find_claim(worker, session.id, session.attempt)
    if held is None:
        return PlacementResult.conflict(session.id, Conflict("the worker does not hold the claim any more"))
    now = records.clock.now()
    try:
        scheduled = await records.sessions.change(
            session.id,
            lambda current: schedule(current, attempt=held.attempt, ports=held.ports, now=now),
            fence=fence,
        )
    except (Conflict, IllegalTransition, NotFound) as error:
        await release_claim(records, worker.id, session.id, held.attempt)
        return PlacementResult.conflict(session.id, error)
    await records.lablet_audit.note(
        LabletEvent.PLACEMENT_ASSIGNED,
        by=by,
        reason=f"placed on {worker.name}, attempt {held.attempt}",
        session=scheduled,
        worker_id=worker.id,
    )
    return PlacementResult.of(scheduled)


async def settle_placement(
    records: Records, session: LabletSession, *, by: str = "control plane", fence: Fence | None = None
) -> LabletSession:
    """Finish a placement whose claim exists; withdraw one without a claim, or of a session that ends."""
    placement = session.placement
    if placement is None or session.status is not PENDING_SCHEDULING:
        return session
    worker = await records.workers.find(placement.worker_id)
    held = find_claim(worker, session.id, placement.attempt) if worker is not None else None
    if worker is not None and held is not None:
        if session.desired_status is not SessionDesiredStatus.TERMINATED:
            await _confirm(records, session, worker, by, fence)
            return await records.sessions.get(session.id)
        await release_claim(records, worker.id, session.id, held.attempt)
    now = records.clock.now()
    return await records.sessions.change(
        session.id,
        lambda current: withdraw_placement(current, attempt=placement.attempt, now=now),
        fence=fence,
    )


async def release_claim(
    records: Records, worker_id: str, session_id: str, attempt: int, *, fence: Fence | None = None
) -> None:
    """Take the claim off the worker; one that is gone with its worker needs nothing."""
    now = records.clock.now()
    try:
        await records.workers.change(
            worker_id, lambda worker: release(worker, session_id, attempt, now=now), fence=fence
        )
    except NotFound:
        log.info("claim gone with its worker", session_id=session_id, worker_id=worker_id)
