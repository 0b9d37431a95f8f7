"""The load of each worker over an hour, a day and a week, which survives a restart.

Samples add up in memory; every few minutes the intervals that are over are joined with what is stored, one
document for each worker and resolution. No sample is written by itself. Every control plane that hears of the
samples does this: a later one finds little to add. A crash loses what was measured since the last
write, unless another control plane heard of it too.

Stored: at most 51 kB for each worker. In memory: ten minutes and two longer intervals, about 25 kB for each
running worker.
"""

import asyncio
from collections.abc import Collection
from math import inf
from typing import Final

import structlog

from lcm.control_plane.store.port import Document, Store, StoreUnavailable, VersionConflict
from lcm.core.clock import Clock
from lcm.domain.load_history import RESOLUTIONS, HistoryRange, Interval, Resolution, Row, joined, unpacked
from lcm.domain.telemetry import Sample

log = structlog.get_logger(__name__)

FORM: Final = b"\x01"
"""The first byte of a document: another version of LCM may pack the rest in another way."""
RECENT_SECONDS: Final = 600
"""Samples may be so late; an interval that could not be stored in this time is lost."""
LATE_SECONDS: Final = 15
"""How long after its end an interval is stored: its last samples may still be on their way."""
WORKERS_AT_ONCE: Final = 20
"""One commit of the store takes the histories of many."""
MAX_ATTEMPTS: Final = 4


class _Recent:
    """The intervals of one worker at one resolution that may still change."""

    __slots__ = ("intervals", "resolution", "unsaved")

    def __init__(self, resolution: Resolution) -> None:
        self.resolution = resolution
        self.intervals: dict[int, Interval] = {}
        self.unsaved: set[int] = set()

    def add(self, sample: Sample, now: float, *, with_load: bool) -> None:
        number = self.resolution.interval_of(sample.collected_at.timestamp())
        interval = self.intervals.get(number)
        if interval is None:
            interval = self.intervals[number] = Interval()
            self.drop_past(now)
        interval.add(sample, with_load=with_load)
        self.unsaved.add(number)

    def drop_past(self, now: float) -> None:
        """Drop the intervals that no sample can change any more; those that could not be stored are lost."""
        oldest = self.resolution.interval_of(now - RECENT_SECONDS) - 1
        for number in [number for number in self.intervals if number < oldest]:
            del self.intervals[number]
            self.unsaved.discard(number)

    def take_unsaved(self, before: float) -> set[int]:
        """Return the intervals that ended before this time and are not stored as they are."""
        taken = {number for number in self.unsaved if (number + 1) * self.resolution.step_seconds <= before}
        self.unsaved -= taken
        return taken

    def packed(self, numbers: Collection[int]) -> list[bytes]:
        return [self.intervals[number].packed(number) for number in numbers]


class LoadHistories:
    """The histories of all workers that are not terminated."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._recent: dict[str, dict[HistoryRange, _Recent]] = {}

    def on_load(self, sample: Sample, is_point: bool) -> None:
        """Add a sample; its CPU, memory and disk only if they are a point of the worker's chart."""
        now = self._clock.now().timestamp()
        if sample.collected_at.timestamp() < now - RECENT_SECONDS:
            return
        recent = self._recent.get(sample.worker_id)
        if recent is None:
            recent = {span: _Recent(resolution) for span, resolution in RESOLUTIONS.items()}
            self._recent[sample.worker_id] = recent
        for each in recent.values():
            each.add(sample, now, with_load=is_point)

    async def rows_of(self, worker_id: str, span: HistoryRange) -> list[Row]:
        """Return the intervals of the range up to now, oldest first."""
        document = await self._store.get(kind_of(span), worker_id)
        recent = self._recent.get(worker_id, {}).get(span)
        added = recent.packed(recent.intervals) if recent is not None else []
        return list(unpacked(joined(_rows(document), added, self._oldest(span))))

    async def save(self, *, with_unfinished: bool = False) -> None:
        """Store every interval that is over, and `with_unfinished` the others too.

        Raises StoreUnavailable; what was not stored is stored by the next call.
        """
        now = self._clock.now().timestamp()
        before = inf if with_unfinished else now - LATE_SECONDS
        worker_ids = list(self._recent)
        for start in range(0, len(worker_ids), WORKERS_AT_ONCE):
            try:
                async with asyncio.TaskGroup() as tasks:
                    for worker_id in worker_ids[start : start + WORKERS_AT_ONCE]:
                        tasks.create_task(self._save_worker(worker_id, before))
            except ExceptionGroup as failures:
                raise failures.exceptions[0] from None

    def retain(self, worker_ids: Collection[str]) -> None:
        """Drop what is in memory of every other worker, and of those that were not measured lately."""
        now, kept = self._clock.now().timestamp(), set(worker_ids)
        for worker_id, recent in list(self._recent.items()):
            for each in recent.values():
                each.drop_past(now)
            if worker_id not in kept or not any(each.intervals for each in recent.values()):
                del self._recent[worker_id]

    async def stored_ids(self) -> list[str]:
        """Return the workers with a stored history. The shortest is written first and removed last."""
        return [document.id for document in await self._store.list_all(kind_of(HistoryRange.HOUR))]

    async def remove(self, worker_id: str) -> None:
        """Remove the history of a worker that is no more. What is written later, the next removal finds."""
        self._recent.pop(worker_id, None)
        for span in reversed(HistoryRange):
            document = await self._store.get(kind_of(span), worker_id)
            if document is not None:
                await self._store.delete(document.kind, document.id, document.version)

    async def _save_worker(self, worker_id: str, before: float) -> None:
        for span, each in self._recent.get(worker_id, {}).items():
            numbers = each.take_unsaved(before)
            if not numbers:
                continue
            try:
                await self._save(worker_id, span, each.packed(numbers))
            except BaseException:
                each.unsaved |= numbers & each.intervals.keys()
                raise

    async def _save(self, worker_id: str, span: HistoryRange, added: list[bytes]) -> None:
        """Join the intervals with what is stored; a write that was not confirmed may be repeated."""
        for _ in range(MAX_ATTEMPTS):
            document = await self._store.get(kind_of(span), worker_id)
            body = FORM + joined(_rows(document), added, self._oldest(span))
            try:
                if document is None:
                    await self._store.insert(Document(kind_of(span), worker_id, 1, body))
                elif body != document.body:
                    await self._store.replace(Document(kind_of(span), worker_id, document.version + 1, body))
            except VersionConflict:
                continue
            return
        raise StoreUnavailable(f"other control planes keep changing the load history of {worker_id}")

    def _oldest(self, span: HistoryRange) -> int:
        return RESOLUTIONS[span].oldest(self._clock.now().timestamp())


def kind_of(span: HistoryRange) -> str:
    """Return the kind of the documents of this range."""
    return f"load-history-{span}"


def _rows(document: Document | None) -> bytes:
    if document is None:
        return b""
    if document.body[:1] != FORM:
        log.warning("load history of another version dropped", kind=document.kind, worker_id=document.id)
        return b""
    return document.body[1:]
