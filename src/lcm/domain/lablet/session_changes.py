"""A pure function for every row of the table in `states`: how one run of a lab changes.

The control plane calls them inside a compare-and-set. A change without a row raises IllegalTransition, a row
whose condition does not hold raises Conflict; nothing else changes the status of a session.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec.structs import replace

from lcm.domain.errors import Conflict, IllegalTransition, InvalidTimeslot
from lcm.domain.lablet.claim import Claim
from lcm.domain.lablet.definition import Collect
from lcm.domain.lablet.ending import next_warning_at
from lcm.domain.lablet.lab import NOT_CLEANED, NOT_PROBED, cut
from lcm.domain.lablet.session import (
    LabletSession,
    Nomination,
    Placement,
    SessionDesiredStatus,
    SessionHistoryEntry,
    WaitCode,
    WaitsFor,
)
from lcm.domain.lablet.states import (
    COLLECTING,
    ENDED,
    ENDED_BY,
    GRADING,
    INSTANTIATING,
    OWNS_LAB,
    PENDING_SCHEDULING,
    READY,
    RUNNING,
    SCHEDULED,
    STOPPING,
    WITHOUT_CLAIM,
    EndReason,
    SessionStatus,
    allowed_targets,
    is_allowed,
)
from lcm.domain.lablet.timeslot import DEFAULTS, TimeslotPolicy

HISTORY_LIMIT: Final = 50
MAX_REASON_BYTES: Final = 200
"""How much of a reason the history keeps; `status_reason` has all of it."""
MAX_RETRIES: Final = 35
TRIED_AT_ONCE: Final = 3
"""So many workers are tried one after the other before the first pause."""
LONGEST_BACKOFF: Final = timedelta(seconds=60)
BOOKED_PACE: Final = timedelta(seconds=300)
"""How often a booked session is tried when its retries are used up."""
AVOIDED_FOR: Final = timedelta(minutes=10)
"""A worker that failed a session is its last choice for this long."""
REPLACED_IF_LEFT: Final = timedelta(minutes=15)
"""A session that was READY is placed again only if this much of its time is left."""

TIMESLOT_MISSED: Final = "timeslot_missed"
"""Why a session ends that no worker had room for in time."""


def _move(
    session: LabletSession,
    target: SessionStatus,
    *,
    by: str,
    reason: str,
    now: datetime,
    is_worker_lost: bool = False,
    **changes: Any,
) -> LabletSession:
    if not is_allowed(session.status, target, is_worker_lost=is_worker_lost):
        allowed = allowed_targets(session.status, is_worker_lost=is_worker_lost)
        raise IllegalTransition(session.status, target, allowed)
    kept = cut(reason, MAX_REASON_BYTES)
    entry = SessionHistoryEntry(source=session.status, target=target, by=by, reason=kept, at=now)
    history = (*session.state_history, entry)[-HISTORY_LIMIT:]
    if target in ENDED:
        changes |= {"ended_at": now, "nominated": None, "waits_for": None, "next_try_at": None}
    return replace(
        session,
        status=target,
        status_reason=reason,
        state_history=history,
        generation=session.generation + 1,
        updated_at=now,
        **changes,
    )


# Before a worker has the claim.


def open_window(
    session: LabletSession,
    *,
    now: datetime,
    lab_takes: timedelta = timedelta(),
    policy: TimeslotPolicy = DEFAULTS,
) -> LabletSession:
    """Let the scheduler look for a worker; refused before the lead time.

    What was learned since the booking about how long its lab takes only raises its lead.
    """
    if session.timeslot is not None and now < session.timeslot.opens_at(policy):
        raise Conflict(
            f"the window opens at {session.timeslot.opens_at(policy).isoformat()}; wait until then"
        )
    return _move(
        session,
        PENDING_SCHEDULING,
        by="control plane",
        reason="the window is open",
        now=now,
        lab_lead=max(session.lab_lead, min(policy.lead, lab_takes)),
    )


def is_missed(session: LabletSession, *, now: datetime, policy: TimeslotPolicy = DEFAULTS) -> bool:
    """Whether the timeslot of a session that has no worker is lost."""
    if session.timeslot is None or session.status not in WITHOUT_CLAIM:
        return False
    return session.timeslot.is_missed(
        now,
        coming_at=session.nominated.ready_at if session.nominated else None,
        minutes=session.latest_start_minutes,
        policy=policy,
    )


def end_unplaced(session: LabletSession, *, now: datetime) -> LabletSession:
    """End a session that has no worker, as was requested. Its placement must be withdrawn first."""
    if session.status not in WITHOUT_CLAIM:
        raise IllegalTransition(session.status, "an ended status", allowed_targets(session.status))
    if session.end_reason is None:
        raise Conflict("the end of the session is not requested")
    if session.placement is not None:
        raise Conflict(
            f"worker {session.placement.worker_id} may hold a claim; release it and withdraw the placement"
        )
    return _move(
        session,
        ENDED_BY[session.end_reason],
        by=session.end_asked_by or "control plane",
        reason=session.end_text,
        now=now,
    )


def next_boundary(
    session: LabletSession, *, now: datetime, policy: TimeslotPolicy = DEFAULTS
) -> datetime | None:
    """When time alone changes the session next: its window opens, it is missed, it is warned, it is over."""
    slot = session.timeslot
    if session.is_ended:
        return None
    if slot is not None and session.status in WITHOUT_CLAIM:
        moments = (
            slot.opens_at(policy),
            min(slot.start + policy.grace, slot.end),
            slot.latest_start(session.latest_start_minutes, policy),
        )
        return min((moment for moment in moments if moment > now), default=None)
    if session.ends_at is None:
        return None
    return next_warning_at(session, now=now, policy=policy) or session.ends_at + policy.grace


def begin_placement(session: LabletSession, worker_id: str, *, epoch: int, now: datetime) -> LabletSession:
    """Record the intent to claim a worker, before the claim. Repeating it changes nothing."""
    if session.status is not PENDING_SCHEDULING:
        raise IllegalTransition(session.status, SCHEDULED, allowed_targets(session.status))
    if session.desired_status is SessionDesiredStatus.TERMINATED:
        raise Conflict("the end of the session is requested; do not place it")
    if session.placement is not None:
        if session.placement.worker_id == worker_id:
            return session
        raise Conflict(
            f"an earlier placement names worker {session.placement.worker_id}; finish or withdraw that one"
        )
    attempt = session.attempt + 1
    placement = Placement(worker_id=worker_id, attempt=attempt, at=now, epoch=epoch)
    return replace(session, attempt=attempt, placement=placement, updated_at=now)


def withdraw_placement(session: LabletSession, *, attempt: int, now: datetime) -> LabletSession:
    """Forget a placement of which the worker holds no claim. Repeating it changes nothing."""
    if session.placement is None or session.placement.attempt != attempt:
        return session
    if session.status is not PENDING_SCHEDULING:
        raise Conflict(f"the session is {session.status}; its claim is in use")
    return replace(session, placement=None, updated_at=now)


def schedule(
    session: LabletSession, *, attempt: int, ports: Mapping[str, int], now: datetime
) -> LabletSession:
    """Confirm the placement whose claim the worker holds. Repeating it changes nothing."""
    placement = session.placement
    if placement is None or placement.attempt != attempt:
        raise Conflict(f"attempt {attempt} is not the placement of this session; release its claim")
    if session.status is SCHEDULED:
        return session
    if session.desired_status is SessionDesiredStatus.TERMINATED:
        raise Conflict("the end of the session is requested; release its claim")
    return _move(
        session,
        SCHEDULED,
        by="resource scheduler",
        reason=f"placed on worker {placement.worker_id}",
        now=now,
        worker_id=placement.worker_id,
        ports=dict(ports),
        scheduled_at=now,
        nominated=None,
        waits_for=None,
        next_try_at=None,
    )


def record_failed_placement(
    session: LabletSession, *, worker_id: str, reason: str, now: datetime, max_retries: int = MAX_RETRIES
) -> LabletSession:
    """Count a failed command and wait before the next.

    A session without a timeslot fails when the retries are used up; a booked one is tried until it is missed.
    """
    if session.status is not PENDING_SCHEDULING:
        raise Conflict(f"the session is {session.status}; there is no placement to fail")
    failed = replace(_delayed(session, worker_id, now, max_retries), placement=None, updated_at=now)
    if failed.place_attempts >= max_retries and session.timeslot is None:
        text = f"placement_retries: {reason}"
        asked = request_end(failed, EndReason.FAILED, by="control plane", reason=text, now=now)
        return end_unplaced(asked, now=now)
    return failed


def _delayed(
    session: LabletSession, worker_id: str, now: datetime, max_retries: int = MAX_RETRIES
) -> LabletSession:
    attempts = session.place_attempts + 1
    late = attempts - TRIED_AT_ONCE
    backoff = timedelta() if late < 0 else min(LONGEST_BACKOFF, timedelta(seconds=2 ** min(late, 10)))
    avoided = {worker: until for worker, until in session.avoided_workers.items() if until > now}
    return replace(
        session,
        place_attempts=attempts,
        next_try_at=now + (BOOKED_PACE if attempts >= max_retries else backoff),
        avoided_workers={**avoided, worker_id: now + AVOIDED_FOR},
    )


def nominate(session: LabletSession, nomination: Nomination | None, *, now: datetime) -> LabletSession:
    """Record the worker that is expected to take the session, or that there is none."""
    if session.nominated == nomination:
        return session
    if session.status is not PENDING_SCHEDULING:
        raise Conflict(f"the session is {session.status}; only a waiting one is nominated")
    return replace(session, nominated=nomination, updated_at=now)


def wait(session: LabletSession, code: WaitCode, text: str, *, now: datetime) -> LabletSession:
    """Record why the session waits; the same reason keeps its time."""
    if session.status not in WITHOUT_CLAIM:
        raise Conflict(f"the session is {session.status}; it waits for nothing")
    before = session.waits_for
    if before is not None and (before.code, before.text) == (code, text):
        return session
    since = before.since if before is not None and before.code is code else now
    return replace(session, waits_for=WaitsFor(code=code, text=text, since=since), updated_at=now)


# With a claim.


def unschedule(
    session: LabletSession,
    *,
    reason: str,
    now: datetime,
    is_worker_lost: bool,
    is_claim_retained: bool = False,
    can_replace_lost: bool = True,
    max_retries: int = MAX_RETRIES,
) -> LabletSession:
    """Look for another worker. The claim must be released before, or retained if a lab may exist.

    Once it was READY, only a lost worker is a reason, once, if enough time is left.
    """
    if session.worker_id is None:
        raise IllegalTransition(session.status, PENDING_SCHEDULING, allowed_targets(session.status))
    if session.lab is not None and not is_claim_retained:
        raise Conflict("the session may own a lab; retain its claim before")
    if session.desired_status is SessionDesiredStatus.TERMINATED:
        raise Conflict("the end of the session is requested; stop it instead")
    was_ready = session.status in (READY, RUNNING)
    if was_ready and is_worker_lost and not _can_be_replaced(session, now, can_replace_lost):
        raise Conflict("the session is not placed again; stop it as failed")
    moved = _move(
        _delayed(session, session.worker_id, now, max_retries),
        PENDING_SCHEDULING,
        by="lablet controller",
        reason=reason,
        now=now,
        is_worker_lost=is_worker_lost,
        placement=None,
        worker_id=None,
        ports={},
        ready_at=None,
        # From now on a claim that is retained is one of an older attempt.
        attempt=session.attempt + is_claim_retained,
        lab=None,
        steps={},
        nodes={},
        probed=NOT_PROBED,
        cleanup=NOT_CLEANED,
        restarts_wanted=0,
        replacements=session.replacements + was_ready,
    )
    return replace(moved, next_try_at=now) if was_ready else moved


def _can_be_replaced(session: LabletSession, now: datetime, can_replace_lost: bool) -> bool:
    has_time = session.ends_at is None or session.ends_at - now >= REPLACED_IF_LEFT
    return can_replace_lost and session.replacements == 0 and has_time


def instantiate(session: LabletSession, *, now: datetime, policy: TimeslotPolicy = DEFAULTS) -> LabletSession:
    """Begin the import of the lab, when it is due."""
    due_at = session.lab_due_at(policy.lab_lead)
    if session.status is SCHEDULED and due_at is not None and now < due_at:
        raise Conflict("the lab is not due yet; repeat shortly before the timeslot")
    if session.status is SCHEDULED and session.desired_status is SessionDesiredStatus.TERMINATED:
        raise Conflict("the end of the session is requested; stop it instead")
    return _move(session, INSTANTIATING, by="lablet controller", reason="the lab is due", now=now)


def become_ready(session: LabletSession, *, now: datetime) -> LabletSession:
    """Every node of the lab has booted."""
    return _move(
        session, READY, by="lablet controller", reason="every node has booted", now=now, ready_at=now
    )


def run(session: LabletSession, *, now: datetime, is_used: bool = False) -> LabletSession:
    """Begin the use: when the timeslot begins, at the first access, without a timeslot at once."""
    is_early = session.timeslot is not None and now < session.timeslot.start and not is_used
    if session.status is READY and is_early:
        raise Conflict("the timeslot has not begun and the lab is not used; repeat at its start")
    return _move(
        session, RUNNING, by="lablet controller", reason="the session began", now=now, started_at=now
    )


def request_end(
    session: LabletSession, why: EndReason, *, by: str, reason: str, now: datetime
) -> LabletSession:
    """Request the end of a session. It is not placed after that; the first request counts."""
    if session.desired_status is SessionDesiredStatus.TERMINATED:
        return session
    if session.is_ended:
        raise IllegalTransition(session.status, STOPPING, allowed_targets(session.status))
    return replace(
        session,
        desired_status=SessionDesiredStatus.TERMINATED,
        end_reason=why,
        end_text=reason,
        end_asked_by=by,
        end_asked_at=now,
        generation=session.generation + 1,
        updated_at=now,
    )


def is_over(session: LabletSession, *, now: datetime, grace: timedelta = timedelta()) -> bool:
    """Whether the time of a session with a claim has passed."""
    is_live = session.status in (SCHEDULED, *OWNS_LAB)
    return is_live and session.ends_at is not None and now >= session.ends_at + grace


def collect(session: LabletSession, *, now: datetime) -> LabletSession:
    """Collect configurations before the lab is removed."""
    if session.status is RUNNING and session.collect is Collect.NONE:
        raise Conflict("the definition collects nothing; stop the session")
    return _move(session, COLLECTING, by="lablet controller", reason="it ends", now=now)


def grade(session: LabletSession, *, now: datetime) -> LabletSession:
    """Hand what was collected to the grading service."""
    return _move(session, GRADING, by="lablet controller", reason="collected", now=now)


def stop(session: LabletSession, why: EndReason, *, reason: str, now: datetime) -> LabletSession:
    """Begin the removal of the lab. An end that was requested before keeps its reason."""
    return _move(
        session,
        STOPPING,
        by="lablet controller",
        reason=reason,
        now=now,
        desired_status=SessionDesiredStatus.TERMINATED,
        end_reason=session.end_reason or why,
    )


def finish(session: LabletSession, *, is_lab_gone: bool, claim: Claim | None, now: datetime) -> LabletSession:
    """End a session of which nothing is left: no lab, and no claim but a retained one of an older attempt."""
    if session.status is not STOPPING or session.end_reason is None:
        raise IllegalTransition(session.status, "an ended status", allowed_targets(session.status))
    if not is_lab_gone:
        raise Conflict("the lab is not proven gone; observe its worker again")
    if claim is not None and not (claim.is_retained and claim.attempt < session.attempt):
        raise Conflict("the worker still holds the claim; release it first")
    return _move(
        session,
        ENDED_BY[session.end_reason],
        by="control plane",
        reason=session.status_reason,
        now=now,
        placement=None,
    )


def abandon(session: LabletSession, *, by: str, reason: str, now: datetime) -> LabletSession:
    """End a session whose lab may exist, as a person decided. The claim must be retained before.

    The claim belongs to an older attempt from now on; what removes leaked labs releases it.
    """
    if session.status is not STOPPING or session.end_reason is None:
        raise IllegalTransition(session.status, "an ended status", allowed_targets(session.status))
    if session.cleanup.proof is not None:
        raise Conflict("its lab is proven gone; the session ends by itself in a moment")
    return _move(
        session,
        ENDED_BY[session.end_reason],
        by=by,
        reason=f"abandoned: {reason}",
        now=now,
        attempt=session.attempt + 1,
        placement=None,
        cleanup=replace(session.cleanup, is_abandoned=True),
    )


def extend(
    session: LabletSession,
    end: datetime,
    *,
    now: datetime,
    may_exceed: bool = False,
    policy: TimeslotPolicy = DEFAULTS,
) -> LabletSession:
    """Book a later end, within the duration that the definition allows. Raises InvalidTimeslot."""
    if session.timeslot is None or session.status in (COLLECTING, GRADING, STOPPING, *ENDED):
        raise Conflict("only a booked session that has not ended can be extended; create another one")
    if session.desired_status is SessionDesiredStatus.TERMINATED:
        raise Conflict("the end of the session is requested; create another one")
    timeslot = session.timeslot.extended(end)
    if end <= now:
        raise InvalidTimeslot("the new end is in the past; choose a later one")
    if end > now + policy.max_booking:
        raise InvalidTimeslot(
            f"the new end is more than {policy.max_booking.days} days ahead; choose an earlier one"
        )
    if timeslot.duration > timedelta(minutes=session.max_duration_minutes) and not may_exceed:
        raise InvalidTimeslot(
            f"the definition allows {session.max_duration_minutes} minutes; choose an earlier end"
        )
    return replace(session, timeslot=timeslot, generation=session.generation + 1, updated_at=now)
