"""The files that are kept of ended labs, each a document of its own, compressed.

One is stored before the session names it. A crash between the two leaves a file that the next try replaces,
or that goes with its session.
"""

from typing import Final

import msgspec

from lcm.control_plane.store.port import Document, Fence, FenceBroken, Store, VersionConflict
from lcm.domain.errors import Conflict, Fenced
from lcm.domain.lablet.evidence import unpack
from lcm.domain.lablet.session import LabletSession

KIND: Final = "lablet-evidence"


class _File(msgspec.Struct, frozen=True):
    packed: bytes


_decoder = msgspec.json.Decoder(_File)


class EvidenceFiles:
    """The evidence of all sessions, live and archived."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def keep(self, session_id: str, n: int, packed: bytes, *, fence: Fence) -> None:
        """Store a file in place of the one before, which no session names."""
        before = await self._store.get(KIND, _id(session_id, n))
        version = before.version + 1 if before is not None else 1
        document = Document(KIND, _id(session_id, n), version, msgspec.json.encode(_File(packed)))
        try:
            await (self._store.replace if before else self._store.insert)(document, fence)
        except VersionConflict:
            raise Conflict("another request stores this evidence; repeat it") from None
        except FenceBroken:
            raise Fenced("a newer leader exists; stop acting and campaign again") from None

    async def find(self, session_id: str, n: int) -> bytes | None:
        document = await self._store.get(KIND, _id(session_id, n))
        return None if document is None else unpack(_decoder.decode(document.body).packed)

    async def forget(self, session: LabletSession) -> None:
        """Remove what is kept of a session, named by it or not. Repeating it changes nothing."""
        document = await self._store.get(KIND, _id(session.id, session.lab_generation))
        if document is None:
            return
        try:
            await self._store.delete(KIND, document.id, document.version)
        except VersionConflict:
            return


def _id(session_id: str, n: int) -> str:
    return f"{session_id}/{n}"
