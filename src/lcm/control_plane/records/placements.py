"""The decision records: what the scheduler decided about each session, newest first, within bounds.

A report is one document, so that a cycle that places hundreds of sessions costs one write.
"""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec
import structlog

from lcm.control_plane.store.port import Document, Fence, FenceBroken, Store
from lcm.core.clock import Clock
from lcm.core.ids import Ids
from lcm.domain.errors import Fenced
from lcm.domain.lablet.decision import DecisionRecord, Outcome, is_repeated

log = structlog.get_logger(__name__)

KIND: Final = "placement"
MOST: Final = 10_000
KEPT_FOR: Final = timedelta(days=30)


class _Report(msgspec.Struct, frozen=True):
    items: tuple[DecisionRecord, ...]


class Found(NamedTuple):
    """A page of records, and the cursor of the next."""

    items: list[DecisionRecord]
    next: str | None


_decoder = msgspec.json.Decoder(_Report)


class PlacementLog:
    """Append-only; the oldest reports are removed."""

    def __init__(self, store: Store, clock: Clock, ids: Ids, *, most: int = MOST) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._most = most
        self._newest: dict[str, DecisionRecord] | None = None
        """The newest record of each session, as far as this process knows."""
        self._sizes: dict[str, int] = {}
        """How many records each report has, by its id: the oldest first."""

    async def append(self, items: tuple[DecisionRecord, ...], *, fence: Fence | None = None) -> None:
        """Store what is new: a new leader reports what waits again, and so does one without an answer."""
        newest = await self._load() if self._newest is None else self._newest
        fresh = tuple(item for item in items if not _is_known(newest.get(item.session_id), item))
        if not fresh:
            return
        report_id = self._next_id()
        document = Document(KIND, report_id, 1, msgspec.json.encode(_Report(fresh)))
        try:
            await self._store.insert(document, fence)
        except FenceBroken:
            raise Fenced("a newer leader exists; stop acting and campaign again") from None
        newest.update((item.session_id, item) for item in fresh)
        self._sizes[report_id] = len(fresh)
        await self._make_room()

    async def newest(
        self,
        *,
        session_id: str | None = None,
        worker_id: str | None = None,
        before: str | None,
        limit: int,
        among: Collection[str] | None = None,
    ) -> Found:
        """Return records, newest first; `among` names the sessions of which they may be."""
        found: list[tuple[str, DecisionRecord]] = []
        for document in reversed(await self._store.list_all(KIND)):
            if before is not None and document.id > before.partition("/")[0]:
                continue
            items = self._read(document)
            for index in range(len(items) - 1, -1, -1):
                cursor, item = f"{document.id}/{index:03}", items[index]
                is_wanted = session_id in (None, item.session_id) and worker_id in (None, item.worker_id)
                is_shown = among is None or item.session_id in among
                if is_wanted and is_shown and (before is None or cursor < before):
                    found.append((cursor, item))
            if len(found) > limit:
                break
        rest = found[limit - 1][0] if len(found) > limit else None
        return Found([item for _, item in found[:limit]], rest)

    def _next_id(self) -> str:
        """Return an id after all that this process knows, whatever the clock does."""
        newest = next(reversed(self._sizes), "").split("-")
        stamp, number = _stamp(self._clock.now()), 0
        if stamp <= newest[0]:
            stamp, number = newest[0], int(newest[1]) + 1
        return f"{stamp}-{number:06}-{self._ids.new_id()[:8]}"

    async def _load(self) -> dict[str, DecisionRecord]:
        newest: dict[str, DecisionRecord] = {}
        self._sizes = {}
        for document in await self._store.list_all(KIND):
            items = self._read(document)
            self._sizes[document.id] = len(items)
            newest.update((item.session_id, item) for item in items)
        self._newest = newest
        return newest

    async def _make_room(self) -> None:
        oldest = next(iter(self._sizes))
        cutoff = _stamp(self._clock.now() - KEPT_FOR)
        if oldest >= cutoff and sum(self._sizes.values()) <= self._most:
            return
        await self._load()  # other control planes add reports too
        left = sum(self._sizes.values())
        for report_id, size in sorted(self._sizes.items()):
            if report_id >= cutoff and left <= self._most * 9 // 10:
                break
            await self._store.delete(KIND, report_id, 1)
            left -= size
        await self._load()

    def _read(self, document: Document) -> tuple[DecisionRecord, ...]:
        """Return the records of a report; an unreadable one must not hide the others."""
        try:
            return _decoder.decode(document.body).items
        except msgspec.MsgspecError as error:
            log.error("unreadable placement report skipped", report=document.id, error=str(error))
            return ()


def _is_known(before: DecisionRecord | None, item: DecisionRecord) -> bool:
    """A placement is recorded each time: a session may be placed on the same worker twice."""
    return before is not None and item.outcome is not Outcome.ASSIGN and is_repeated(before, item)


def _stamp(moment: datetime) -> str:
    return f"{moment:%Y%m%dT%H%M%S.%f}"
