"""A person books a later end.

The worker's claim gets the new end first, judged in its compare-and-set: other sessions may count on the room
from the old end on. The session follows. A crash between the two leaves a claim with another end than its
session's; `repair_ends` copies the session's.
"""

from datetime import datetime

from lcm.control_plane.commands.lablets.create_session import find_session
from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Records
from lcm.control_plane.records.preconditions import UNCONDITIONAL, Preconditions
from lcm.domain.errors import Conflict, NextBooking, NotFound
from lcm.domain.idempotency import was_carried_out
from lcm.domain.lablet import admission
from lcm.domain.lablet.audit import LabletEvent
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.session_changes import extend
from lcm.domain.worker import Worker

NOUN = "lablet session"


async def extend_session(
    records: Records,
    policies: Policies,
    session_id: str,
    end: datetime,
    *,
    by: str,
    may_exceed: bool,
    preconditions: Preconditions = UNCONDITIONAL,
) -> LabletSession:
    """Book a later end. Raises NextBooking if a session that waits counts on the room."""
    now, request = records.clock.now(), preconditions.request

    def decide(current: LabletSession) -> LabletSession:
        return extend(current, end, now=now, may_exceed=may_exceed, policy=policies.times)

    current = await find_session(records, session_id)
    if current is None:
        raise NotFound(f"there is no {NOUN} {session_id!r}; list them with GET /api/lablet-sessions")
    if request is not None and was_carried_out(current.recent_requests, request):
        return current
    preconditions.refuse_other_version(current, noun=NOUN)
    wanted = decide(current)  # whatever is wrong with the request shows here, before anything changes
    if current.worker_id is not None:
        await _move_claim(records, policies, current, wanted)
    extended = await records.sessions.change(session_id, preconditions.guard(decide, noun=NOUN))
    await records.lablet_audit.note(
        LabletEvent.TIMESLOT_EXTENDED, by=by, reason=f"until {end.isoformat()}", session=extended
    )
    return extended


async def _move_claim(
    records: Records, policies: Policies, current: LabletSession, wanted: LabletSession
) -> None:
    now, teardown = records.clock.now(), policies.times.teardown
    old, new = current.ends_at, wanted.ends_at

    def decide(worker: Worker) -> Worker:
        counting = {
            at: session_id
            for session_id, at in worker.nominations.items()
            if session_id != current.id and old is not None and new is not None and old <= at < new + teardown
        }
        if counting:
            first = min(counting)
            raise NextBooking(
                f"session {counting[first]} is to take this room at {first.isoformat()};"
                f" choose an end at least {teardown.seconds // 60} minutes before that, or end earlier"
            )
        return admission.move_end(worker, current.id, current.attempt, new, now=now)

    await records.workers.change(current.worker_id or "", decide)


async def repair_ends(records: Records) -> None:
    """Give every claim the end of its session, where a crash left them apart."""
    sessions = {session.id: session for session in await records.sessions.list_all()}
    now = records.clock.now()
    for worker in await records.workers.list_live():
        for claim in worker.claims:
            session = sessions.get(claim.session_id)
            if session is None or session.is_ended or session.attempt != claim.attempt:
                continue
            if session.worker_id == worker.id and session.ends_at != claim.ends_at:
                await _copy_end(records, session, now)


async def _copy_end(records: Records, session: LabletSession, now: datetime) -> None:
    try:
        await records.workers.change(
            session.worker_id or "",
            lambda worker: admission.move_end(worker, session.id, session.attempt, session.ends_at, now=now),
        )
    except (Conflict, NotFound):
        return
