"""Which session has recorded which lab, in memory: asked for every activity that is reported of a lab."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from lcm.domain.lablet.session import LabletSession


class LabOwners:
    """Read once; commits keep it current, those of other control planes through the feed."""

    def __init__(self, read_all: Callable[[], Awaitable[Sequence[LabletSession]]]) -> None:
        self._read_all = read_all
        self._by_lab: dict[str, LabletSession] = {}
        self._is_loaded = False
        self._loading = asyncio.Lock()

    async def load(self) -> None:
        """Read the records, unless that was done."""
        async with self._loading:
            if not self._is_loaded:
                for session in await self._read_all():
                    self.learn(session)
                self._is_loaded = True

    def of(self, lab_id: str) -> LabletSession | None:
        """Return the session that recorded this lab the last time, also after it has ended."""
        return self._by_lab.get(lab_id)

    def learn(self, session: LabletSession) -> None:
        """Take over a record that is newer."""
        lab_id = session.lab.lab_id if session.lab is not None else None
        if lab_id is None:
            return
        known = self._by_lab.get(lab_id)
        if known is None or known.id != session.id or known.version < session.version:
            self._by_lab[lab_id] = session

    def on_session_commit(self, _: LabletSession | None, after: LabletSession) -> None:
        self.learn(after)

    def on_session_purge(self, session: LabletSession) -> None:
        lab_id = session.lab.lab_id if session.lab is not None else None
        if lab_id is not None:
            self._by_lab.pop(lab_id, None)

    def invalidate(self) -> None:
        """Read again: commits may have happened unseen."""
        self._is_loaded = False
