"""A person requests a run of a lab."""

import uuid
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Records
from lcm.control_plane.records.possibility import refuse_impossible, refuse_unknown_region
from lcm.domain.errors import Conflict, KeyReused
from lcm.domain.idempotency import KeyedRequest, refuse_other_content
from lcm.domain.lablet import session as sessions
from lcm.domain.lablet.audit import LabletEvent
from lcm.domain.lablet.definition import LabletDefinition
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.timeslot import Timeslot

Judge = Callable[[LabletSession], Awaitable[None]]
"""Judges a session that is not recorded yet; raises what refuses it."""


async def admit_all(_: LabletSession) -> None:
    """Refuse nothing."""


async def create_session(
    records: Records,
    policies: Policies,
    definition: LabletDefinition,
    *,
    owner_id: str,
    by: str | None = None,
    timeslot: Timeslot | None = None,
    region: str | None = None,
    reservation_id: str | None = None,
    priority: int | None = None,
    request: KeyedRequest | None = None,
    judge: Judge = admit_all,
) -> LabletSession:
    """Record one session. With an idempotency key a repeated request returns the one it created.

    Nothing is recorded of a session that can never be placed, or that `judge` refuses.
    """
    refuse_unknown_region(policies, region)
    created = await _find_created(records, request, reservation_id)
    if created is not None:
        return created
    session = sessions.create_session(
        definition,
        session_id=_keyed_id(request) if request else records.ids.new_id(),
        owner_id=owner_id,
        now=records.clock.now(),
        timeslot=timeslot,
        reservation_id=reservation_id,
        region=region,
        priority=priority,
        request_digest=request.content if request else None,
        lab_takes=records.lab_times.expected(definition.lab_yaml_hash),
        policy=policies.times,
    )
    await refuse_impossible(records, policies, session.demand)
    await judge(session)
    if reservation_id is not None:
        session = await _reserve(records, reservation_id, session)
    return await _add(records, session, by=by or owner_id, request=request)


async def retry_session(
    records: Records, policies: Policies, failed: LabletSession, *, by: str
) -> LabletSession:
    """Record a new session in place of a failed one. Its id follows from that one: a repeat finds it."""
    retried = sessions.retry_session(
        failed,
        session_id=sessions.retry_id(failed.id),
        by=by,
        now=records.clock.now(),
        policy=policies.times,
    )
    existing = await find_session(records, retried.id)
    if existing is not None:
        return existing
    await refuse_impossible(records, policies, retried.demand)
    try:
        return await record_session(records, retried, by=by)
    except Conflict:
        existing = await find_session(records, retried.id)
        if existing is None:
            raise
        return existing


async def find_session(records: Records, session_id: str) -> LabletSession | None:
    """Return the session, live or archived."""
    return await records.sessions.find(session_id) or await records.archived_sessions.find(session_id)


async def record_session(records: Records, session: LabletSession, *, by: str) -> LabletSession:
    """Add the session and audit it. Raises Conflict if there is one of its id."""
    added = await records.sessions.add(session)
    await records.lablet_audit.note(
        LabletEvent.SESSION_CREATED,
        by=by,
        reason=f"{session.definition_name} {session.definition_version}",
        session=added,
    )
    return added


async def _find_created(
    records: Records, request: KeyedRequest | None, reservation_id: str | None
) -> LabletSession | None:
    """Return the session that this request created when it was sent the first time."""
    if request is None:
        return None
    created = await find_session(records, _keyed_id(request))
    if created is not None:
        refuse_other_content(created.request_digest, request)
    elif reservation_id is not None:
        # It may have taken over the id of a request that ended after it took the reservation.
        holder = await records.session_reservations.holder(reservation_id)
        held = await find_session(records, holder) if holder is not None else None
        created = held if held is not None and held.request_digest == request.content else None
    return created


async def _reserve(records: Records, reservation_id: str, session: LabletSession) -> LabletSession:
    """Take the reservation for the session. Raises Conflict if it has one."""
    holder = await records.session_reservations.take(reservation_id, session.id)
    if holder == session.id:
        return session
    if await find_session(records, holder) is not None:
        raise _reserved(reservation_id, holder)
    # The request that took the reservation ended before it recorded its session.
    return replace(session, id=holder)


async def _add(
    records: Records, session: LabletSession, *, by: str, request: KeyedRequest | None
) -> LabletSession:
    try:
        return await record_session(records, session, by=by)
    except Conflict:
        existing = await find_session(records, session.id)
        if existing is None:
            raise
        if request is not None and existing.request_digest == request.content:
            return existing
        if session.reservation_id is not None:
            raise _reserved(session.reservation_id, existing.id) from None
        raise KeyReused("this Idempotency-Key was used for another request; choose a new key") from None


def _reserved(reservation_id: str, session_id: str) -> Conflict:
    return Conflict(
        f"reservation {reservation_id!r} has session {session_id} already; use another reservation id"
    )


def _keyed_id(request: KeyedRequest) -> str:
    return str(uuid.uuid5(uuid.UUID(hex=request.key, version=4), "lablet-session/0"))
