"""The lablet sessions that are not archived, in memory: what every event stream begins with.

Commits of this process come from its own listeners, those of other control planes through the feed. A commit
that was never confirmed is found when the records are read again, a minute later at most.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

import msgspec

from lcm.core.clock import Clock
from lcm.domain.lablet.session import LabletSession
from lcm.rest.lablets import LabletSessionView

FRESH_SECONDS: Final = 60.0


class CachedSession(msgspec.Struct, frozen=True):
    """One session as a stream shows it."""

    id: str
    version: int
    owner_id: str
    worker_id: str | None
    lab_id: str | None
    view: bytes
    """The public view, encoded once for all subscribers."""

    @staticmethod
    def of(session: LabletSession) -> "CachedSession":
        view = msgspec.json.encode(LabletSessionView.of(session))
        lab_id = session.lab.lab_id if session.lab is not None else None
        return CachedSession(session.id, session.version, session.owner_id, session.worker_id, lab_id, view)


class SessionCache:
    """Read before the first stream, and again for a stream that begins a while later."""

    def __init__(self, read_all: Callable[[], Awaitable[Sequence[LabletSession]]], clock: Clock) -> None:
        self._read_all = read_all
        self._clock = clock
        self._known: dict[str, CachedSession] = {}
        self._read_at: float | None = None
        self._reading = asyncio.Lock()
        self._changed: set[str] = set()
        """The sessions that were committed or purged while the records were read."""

    async def load(self) -> None:
        """Read the records, unless that was done a moment ago."""
        async with self._reading:
            now = self._clock.monotonic()
            if self._read_at is not None and now - self._read_at < FRESH_SECONDS:
                return
            self._changed.clear()
            sessions = {session.id: session for session in await self._read_all()}
            for gone in self._known.keys() - sessions.keys() - self._changed:
                del self._known[gone]
            for session in sessions.values():
                if session.id in self._known or session.id not in self._changed:
                    self._learn(session)
            self._read_at = now

    async def session_of_lab(self, worker_id: str, lab_id: str) -> str | None:
        """Return the session that owns a lab; None for another lab."""
        await self.load()
        lab = (worker_id, lab_id)
        return next((each.id for each in self if (each.worker_id, each.lab_id) == lab), None)

    def invalidate(self) -> None:
        """Read again for the next stream: changes may have happened unseen."""
        self._read_at = None

    def on_session_commit(self, _: LabletSession | None, after: LabletSession) -> None:
        """Take over a record that is newer than the cached one."""
        self._changed.add(after.id)
        self._learn(after)

    def on_session_purge(self, session: LabletSession) -> None:
        self._changed.add(session.id)
        self._known.pop(session.id, None)

    def _learn(self, session: LabletSession) -> None:
        known = self._known.get(session.id)
        if known is None or known.version < session.version:
            self._known[session.id] = CachedSession.of(session)

    def __iter__(self) -> Iterator[CachedSession]:
        return iter(list(self._known.values()))
