"""The lablet sessions: those that are live or ended a moment ago, and the archive of the others.

The scheduler reads all sessions again and again, so those that ended leave that list: a copy goes to the
archive first, then the original goes. A crash between the two leaves both, and the next sweep removes one.
"""

from typing import Final

import msgspec
from msgspec.structs import replace

from lcm.control_plane.access.roles import Principal
from lcm.control_plane.records.collection import Collection
from lcm.control_plane.records.signing import signed
from lcm.control_plane.store.port import Document, Store, VersionConflict
from lcm.domain.errors import Conflict
from lcm.domain.lablet.session import LabletSession

KIND: Final = "lablet-session"
ARCHIVE: Final = "ended-lablet-session"
RESERVATION: Final = "lablet-reservation"

_decoder = msgspec.json.Decoder(LabletSession)


def decode_session(document: Document) -> LabletSession:
    """Return the record of a document of this kind."""
    return _decoder.decode(document.body)


class _Reservation(msgspec.Struct, frozen=True):
    session_id: str


_reservation_decoder = msgspec.json.Decoder(_Reservation)


class LabletSessions(Collection[LabletSession]):
    """The sessions that are not archived."""

    kind = KIND
    noun = "lablet session"
    listed_at = "/api/lablet-sessions"

    def read(self, document: Document) -> tuple[bytes, LabletSession]:
        return document.body, decode_session(document)

    def sign(self, before: LabletSession | None, after: LabletSession, person: Principal) -> LabletSession:
        known = before.state_history if before is not None else ()
        return replace(after, state_history=signed(known, after.state_history, person))

    def accept(self, before: LabletSession, after: LabletSession) -> LabletSession:
        if before.is_ended and replace(after, recent_requests=before.recent_requests) == before:
            return before
        if before.is_ended:
            raise Conflict(f"lablet session {before.id} has ended ({before.status}); create another one")
        return after


class ArchivedSessions(Collection[LabletSession]):
    """The sessions that ended some time ago; nothing changes them."""

    kind = ARCHIVE
    noun = "lablet session"
    listed_at = "/api/lablet-sessions"

    def read(self, document: Document) -> tuple[bytes, LabletSession]:
        return document.body, decode_session(document)


class SessionReservations:
    """Which session a reservation id belongs to; recorded before the session, so that no two share one."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def take(self, reservation_id: str, session_id: str) -> str:
        """Return the session of the reservation: the given one, unless another has it already."""
        body = msgspec.json.encode(_Reservation(session_id))
        try:
            await self._store.insert(Document(RESERVATION, reservation_id, 1, body))
        except VersionConflict:
            document = await self._store.get(RESERVATION, reservation_id)
            if document is not None:
                return _reservation_decoder.decode(document.body).session_id
            raise Conflict(f"reservation {reservation_id!r} changed meanwhile; try again") from None
        return session_id

    async def holder(self, reservation_id: str) -> str | None:
        """Return the session of the reservation; its record may be missing after a crash."""
        document = await self._store.get(RESERVATION, reservation_id)
        return None if document is None else _reservation_decoder.decode(document.body).session_id

    async def release(self, reservation_id: str, session_id: str) -> None:
        """Forget the reservation of a session whose record is removed. Repeating it changes nothing."""
        document = await self._store.get(RESERVATION, reservation_id)
        if document is None or _reservation_decoder.decode(document.body).session_id != session_id:
            return
        try:
            await self._store.delete(RESERVATION, reservation_id, document.version)
        except VersionConflict:
            return
