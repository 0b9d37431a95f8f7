"""Append-only logs in the store, each with a bound of its own: the oldest entries are removed."""

import asyncio
from contextlib import suppress
from datetime import datetime
from typing import Final, Generic, Protocol, TypeVar

import msgspec
import structlog

from lcm.control_plane.store.port import Document, Store, StoreUnavailable, VersionConflict

log = structlog.get_logger(__name__)

REMOVED_TOGETHER: Final = 200
"""One commit of the store takes many that come together."""


class Entry(Protocol):
    @property
    def id(self) -> str: ...


E = TypeVar("E", bound=Entry)


class BoundedLog(Generic[E]):
    """Append-only and bounded: the oldest tenth is removed when there are too many. Ids sort by time."""

    def __init__(self, store: Store, kind: str, entry: type[E], max_entries: int) -> None:
        self._store = store
        self._kind = kind
        self._decoder: msgspec.json.Decoder[E] = msgspec.json.Decoder(entry)
        self._max_entries = max_entries
        self._size: int | None = None
        """How many there were when they were last counted; None: they are counted at the next append."""
        self._added = 0
        """How many this process has appended since."""
        self._is_making_room = False

    async def append(self, entry: E) -> E:
        await self._store.insert(self.document(entry))
        self._added += 1
        if self._size is None or self._size + self._added > self._max_entries:
            await self.make_room()
        return entry

    def document(self, entry: E) -> Document:
        """Return the document of a new entry, for a commit that adds it together with a change."""
        return Document(self._kind, entry.id, 1, msgspec.json.encode(entry))

    async def newest(self) -> list[E]:
        """Return the readable entries, newest first."""
        documents = await self._store.list_all(self._kind)
        entries = [entry for document in documents if (entry := self._readable(document))]
        return sorted(entries, key=lambda entry: entry.id, reverse=True)

    async def piece(self, before: str | None, limit: int) -> tuple[list[E], str | None]:
        """Return some readable entries below this id, newest first, and below which to go on; None at the
        end."""
        documents = await self._store.list_newest(self._kind, before, limit)
        entries = [entry for document in documents if (entry := self._readable(document))]
        return entries, documents[-1].id if len(documents) == limit else None

    async def make_room(self) -> None:
        """Remove the oldest entries if there are too many. Of many appends at once one does this; an entry
        stands even if it fails."""
        if self._is_making_room:
            return
        self._is_making_room, self._added = True, 0
        try:
            documents = await self._store.list_all(self._kind)
            kept = self._max_entries * 9 // 10 if len(documents) > self._max_entries else len(documents)
            oldest = documents[: len(documents) - kept]
            for start in range(0, len(oldest), REMOVED_TOGETHER):
                async with asyncio.TaskGroup() as tasks:
                    for document in oldest[start : start + REMOVED_TOGETHER]:
                        tasks.create_task(self._remove(document))
            self._size = kept
        except* StoreUnavailable as failures:
            self._size = None
            log.warning("audit entries not removed", kind=self._kind, error=str(failures.exceptions[0]))
        finally:
            self._is_making_room = False

    async def _remove(self, document: Document) -> None:
        with suppress(VersionConflict):  # another control plane was faster
            await self._store.delete(self._kind, document.id, document.version)

    def _readable(self, document: Document) -> E | None:
        """Return the entry, or None: one unreadable entry must not hide the others."""
        try:
            return self._decoder.decode(document.body)
        except msgspec.MsgspecError as error:
            log.error("unreadable audit entry skipped", entry=document.id, error=str(error))
            return None


def entry_id(at: datetime, unique: str) -> str:
    """Ids sort by time."""
    return f"{at:%Y%m%dT%H%M%S.%f}-{unique[:8]}"
