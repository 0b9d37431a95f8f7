"""Lists of lablet sessions and classes, for the people who may see them."""

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime

import msgspec

from lcm.control_plane.access.roles import Principal, Role
from lcm.control_plane.records.groups import Records
from lcm.domain.errors import NotFound
from lcm.domain.lablet.batch import LabletBatch
from lcm.domain.lablet.session import LabletSession, retry_id, seat_id
from lcm.domain.lablet.states import ENDED, FAILED, SessionStatus
from lcm.rest.lablets import LabletSessionPage, LabletSessionView
from lcm.rest.scheduling import BatchView


class SessionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions are wanted; an empty field admits all."""

    statuses: Collection[SessionStatus] = ()
    owner: str | None = None
    definition: str | None = None
    """A name or an id."""
    worker_id: str | None = None
    batch_id: str | None = None
    since: datetime | None = None
    """Only sessions that last beyond this moment."""
    until: datetime | None = None
    """Only sessions that begin before this moment."""
    include_ended: bool = False

    @property
    def wants_ended(self) -> bool:
        return self.include_ended or not ENDED.isdisjoint(self.statuses)

    def admits(self, session: LabletSession) -> bool:
        if session.status not in self.statuses and (self.statuses or session.is_ended > self.include_ended):
            return False
        if self.definition not in (None, session.definition_name, session.definition_id):
            return False
        if self.batch_id is not None and (session.batch is None or session.batch.id != self.batch_id):
            return False
        is_theirs = self.owner in (None, session.owner_id)
        return is_theirs and self.worker_id in (None, session.worker_id) and self._is_in_time(session)

    def _is_in_time(self, session: LabletSession) -> bool:
        end = session.ended_at or session.ends_at
        is_late_enough = self.since is None or end is None or end > self.since
        return is_late_enough and (self.until is None or session.due_at < self.until)


async def list_sessions(records: Records, person: Principal, wanted: SessionFilter) -> list[LabletSession]:
    """Return the sessions that this person may see, newest first; ended ones only on request."""
    sessions = {session.id: session for session in await records.sessions.list_all()}
    if wanted.wants_ended:
        for archived in await records.archived_sessions.list_all():
            sessions.setdefault(archived.id, archived)
    found = [each for each in sessions.values() if may_see(person, each) and wanted.admits(each)]
    return sorted(found, key=_cursor, reverse=True)


def page_of_sessions(sessions: list[LabletSession], *, limit: int, after: str | None) -> LabletSessionPage:
    """Return the page of sessions after the cursor of the previous page."""
    if after is not None:
        sessions = [session for session in sessions if _cursor(session) < after]
    page = sessions[:limit]
    rest = _cursor(page[-1]) if len(sessions) > limit else None
    return LabletSessionPage(items=[LabletSessionView.of(session) for session in page], next=rest)


def may_see(person: Principal, session: LabletSession) -> bool:
    """Whether the session is this person's, or the person operates the fleet."""
    return person.role >= Role.OPERATOR or session.owner_id == person.id


async def visible_session(records: Records, person: Principal, session_id: str) -> LabletSession:
    """Return the session, live or archived; that of another owner is not found."""
    session = await records.sessions.find(session_id) or await records.archived_sessions.find(session_id)
    if session is None or not may_see(person, session):
        raise NotFound(f"there is no lablet session {session_id!r}; list yours with GET /api/lablet-sessions")
    return session


async def visible_ids(records: Records, person: Principal) -> Collection[str] | None:
    """Return the sessions that this person may see; None for those of all."""
    if person.role >= Role.OPERATOR:
        return None
    return {each.id for each in await list_sessions(records, person, SessionFilter(include_ended=True))}


async def view_of_batch(records: Records, person: Principal, batch: LabletBatch) -> BatchView:
    """Return the class with those of its sessions that this person may see."""
    sessions = [each for each in await sessions_of(records, batch) if may_see(person, each)]
    if not sessions and person.role < Role.OPERATOR and batch.creator_id != person.id:
        raise NotFound(f"there is no class {batch.id!r} with a session of yours")
    return BatchView(
        id=batch.id,
        name=batch.name,
        size=len(batch.owners),
        is_all_or_nothing=batch.is_all_or_nothing,
        definition_name=batch.definition.name,
        definition_version=batch.definition.version,
        timeslot=batch.timeslot,
        counts=Counter(session.status for session in sessions),
        sessions=[LabletSessionView.of(session) for session in sessions],
    )


async def sessions_of(records: Records, batch: LabletBatch) -> list[LabletSession]:
    """Return the sessions of a class by seat, each with those that repeat it."""
    live = {session.id: session for session in await records.sessions.list_all()}
    found: list[LabletSession] = []
    for index in range(len(batch.owners)):
        found += await _with_retries(records, live, seat_id(batch.id, index))
    return found


async def batch_to_hand_out(records: Records, person: Principal, batch_id: str) -> LabletBatch:
    """Return the class, if this person may see every seat of it: an operator, or its creator."""
    batch = await records.batches.find(batch_id)
    if batch is None or (person.role < Role.OPERATOR and batch.creator_id != person.id):
        raise NotFound(f"there is no class {batch_id!r} of yours; its creator and operators see all seats")
    return batch


async def _with_retries(
    records: Records, live: dict[str, LabletSession], session_id: str
) -> Iterable[LabletSession]:
    found: list[LabletSession] = []
    while (session := live.get(session_id) or await records.archived_sessions.find(session_id)) is not None:
        found.append(session)
        if session.status is not FAILED:
            break
        session_id = retry_id(session_id)
    return found


def _cursor(session: LabletSession) -> str:
    """Return a cursor that sorts like the list."""
    return f"{session.created_at:%Y%m%dT%H%M%S.%f} {session.id}"
