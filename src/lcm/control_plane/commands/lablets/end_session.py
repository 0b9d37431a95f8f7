"""Ends sessions: at a person's request, because their time is over, or because they can never be placed.

The request is recorded first; from then on the session is not placed any more. One that has no lab is ended
here, the others by the lablet controller, which removes the lab. What a crash interrupts, the session sweep
finishes.
"""

from datetime import datetime
from typing import Final

from lcm.control_plane.commands.lablets.schedule_sessions import release_claim, settle_placement
from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Records
from lcm.control_plane.records.preconditions import UNCONDITIONAL, Preconditions
from lcm.control_plane.store.port import Fence
from lcm.domain.errors import Conflict, NotFound
from lcm.domain.lablet import admission
from lcm.domain.lablet.audit import LabletEvent
from lcm.domain.lablet.session import LabletSession, SessionDesiredStatus
from lcm.domain.lablet.session_changes import (
    TIMESLOT_MISSED,
    end_unplaced,
    finish,
    is_missed,
    is_over,
    request_end,
    stop,
)
from lcm.domain.lablet.states import FAILED, SCHEDULED, STOPPING, WITHOUT_CLAIM, EndReason

NOUN: Final = "lablet session"


async def end_session(
    records: Records,
    session_id: str,
    why: EndReason,
    *,
    by: str,
    reason: str,
    fence: Fence | None = None,
    preconditions: Preconditions = UNCONDITIONAL,
) -> LabletSession:
    """Request the end; a repeated request changes nothing, nor does one for a session that has ended."""
    now = records.clock.now()

    def ask(current: LabletSession) -> LabletSession:
        return current if current.is_ended else request_end(current, why, by=by, reason=reason, now=now)

    try:
        asked = await records.sessions.change(session_id, preconditions.guard(ask, noun=NOUN), fence=fence)
    except NotFound:
        archived = await records.archived_sessions.find(session_id)
        if archived is None:
            raise
        return archived
    return await finish_ending(records, asked)


async def finish_ending(records: Records, session: LabletSession) -> LabletSession:
    """Carry out a requested end as far as no lab has to be removed for it. Repeating it changes nothing."""
    if session.desired_status is not SessionDesiredStatus.TERMINATED or session.is_ended:
        return session
    session = await settle_placement(records, session)
    now = records.clock.now()
    if session.status in WITHOUT_CLAIM:
        await audit_end(records, session)
        ended = await records.sessions.change(session.id, lambda current: end_unplaced(current, now=now))
        await _drop_nomination(records, session)
        return ended
    if session.status in (SCHEDULED, STOPPING) and session.lab is None:
        return await _end_without_lab(records, session, now)
    return session


async def audit_end(records: Records, session: LabletSession) -> None:
    """Audit how the session ends; nothing repeats it once the end is committed."""
    is_failed = session.end_reason is EndReason.FAILED
    last = session.state_history[-1]
    events = [LabletEvent.SESSION_FAILED if is_failed else LabletEvent.SESSION_ENDED]
    if session.end_text == TIMESLOT_MISSED:
        events.append(LabletEvent.TIMESLOT_MISSED)
    for event in events:
        await records.lablet_audit.record_end(
            event,
            session,
            by=session.end_asked_by or last.by,
            reason=session.end_text or session.status_reason,
            at=session.end_asked_at or last.at,
        )


async def _end_without_lab(records: Records, session: LabletSession, now: datetime) -> LabletSession:
    def begin(current: LabletSession) -> LabletSession:
        if current.status is not SCHEDULED:
            return current
        why = current.end_reason or EndReason.CANCELLED
        return stop(current, why, reason=current.end_text or str(why), now=now)

    session = await records.sessions.change(session.id, begin)
    if session.status is not STOPPING or session.lab is not None:
        return session
    if session.worker_id is not None:
        await release_claim(records, session.worker_id, session.id, session.attempt)
        await records.lablet_audit.note(
            LabletEvent.PLACEMENT_RELEASED,
            by="control plane",
            reason="the session ended without a lab",
            session=session,
            worker_id=session.worker_id,
        )
    await audit_end(records, session)
    return await records.sessions.change(
        session.id, lambda current: finish(current, is_lab_gone=True, claim=None, now=now)
    )


async def _drop_nomination(records: Records, session: LabletSession) -> None:
    """Remove the nomination from its worker; the sweep finds what is left of a crash."""
    if session.nominated is None:
        return
    try:
        await records.workers.change(
            session.nominated.worker_id,
            lambda worker: admission.nominate_worker(worker, {}, frozenset({session.id})),
        )
    except (NotFound, Conflict):
        return


async def reject_session(
    records: Records, session_id: str, *, reason: str, by: str, fence: Fence
) -> LabletSession:
    """Fail a session that can never be placed."""
    ended = await end_session(records, session_id, EndReason.FAILED, by=by, reason=reason, fence=fence)
    if ended.status is FAILED:
        await records.lablet_audit.note(LabletEvent.PLACEMENT_IMPOSSIBLE, by=by, reason=reason, session=ended)
    return ended


async def expire_session(
    records: Records, policies: Policies, session: LabletSession, *, by: str
) -> LabletSession:
    """End a session that missed its timeslot, or whose time is over; judged again in its compare-and-set."""
    now = records.clock.now()

    def judge(current: LabletSession) -> LabletSession:
        if is_missed(current, now=now, policy=policies.times):
            return request_end(current, EndReason.EXPIRED, by=by, reason=TIMESLOT_MISSED, now=now)
        if is_over(current, now=now, grace=policies.times.grace):
            why = EndReason.COMPLETED if current.ready_at else EndReason.EXPIRED
            return request_end(current, why, by=by, reason="timeslot_over", now=now)
        return current

    return await finish_ending(records, await records.sessions.change(session.id, judge))
