"""The newest entries of the timelines of all workers, in memory, as one list.

The entries belong to the records, with which they are stored: this list is filled from them when it is first
read, and every commit keeps it current, of this control plane and of the others.
"""

import asyncio
import hashlib
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from lcm.control_plane.store.bounded_log import entry_id
from lcm.domain.worker import HistoryEntry, Worker

MAX_ENTRIES: Final = 20_000
MAX_UNREAD: Final = 5_000


class TimelineEntry(NamedTuple):
    """One line of the timeline of a worker."""

    id: str
    worker_id: str
    name: str
    line: HistoryEntry


def _key(entry: TimelineEntry) -> str:
    return entry.id


class Timelines:
    """Entries by id, and so by time."""

    def __init__(
        self, read_all: Callable[[], Awaitable[Sequence[Worker]]], max_entries: int = MAX_ENTRIES
    ) -> None:
        self._read_all = read_all
        self._max_entries = max_entries
        self._entries: list[TimelineEntry] = []
        self._unread: dict[str, Worker] = {}
        """The newest records that were committed since the list was read, by worker."""
        self._is_loaded = False
        self._loading = asyncio.Lock()

    async def piece(self, before: str | None, limit: int) -> tuple[list[TimelineEntry], str | None]:
        """Return some entries below this id, newest first, and below which to go on; None at the end."""
        await self._load()
        self._take_unread()
        end = len(self._entries) if before is None else bisect_left(self._entries, before, key=_key)
        found = self._entries[max(end - limit, 0) : end]
        return found[::-1], found[0].id if end > limit else None

    def on_worker_commit(self, _: Worker | None, after: Worker) -> None:
        """Keep the record until the list is read: a commit must cost next to nothing."""
        known = self._unread.get(after.id)
        if self._is_loaded and (known is None or known.version < after.version):
            self._unread[after.id] = after
            if len(self._unread) > MAX_UNREAD:
                self._take_unread()

    def _take_unread(self) -> None:
        for worker in self._unread.values():
            self._add_all(worker)
        self._unread.clear()

    def _add_all(self, worker: Worker) -> None:
        """Add what is not known yet of the timeline of a worker."""
        for line in reversed(worker.state_history):
            if not self._add(worker, line):
                break

    def invalidate(self) -> None:
        """Read the records again: commits of others may have been missed."""
        self._is_loaded = False

    async def _load(self) -> None:
        async with self._loading:
            if self._is_loaded:
                return
            self._is_loaded = True
            try:
                workers = await self._read_all()
            except BaseException:
                self._is_loaded = False
                raise
            for worker in workers:
                self._add_all(worker)

    def _add(self, worker: Worker, line: HistoryEntry) -> bool:
        """Return whether it is new."""
        text = f"{worker.id} {line.source} {line.target} {line.by} {line.reason}"
        unique = hashlib.sha256(text.encode()).hexdigest()
        entry = TimelineEntry(entry_id(line.at, unique), worker.id, worker.name, line)
        place = bisect_left(self._entries, entry.id, key=_key)
        if place < len(self._entries) and self._entries[place].id == entry.id:
            return False
        self._entries.insert(place, entry)
        if len(self._entries) > self._max_entries:
            del self._entries[: self._max_entries // 10]
        return True
