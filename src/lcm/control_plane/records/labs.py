"""The lab records: one document for each lab, changed only by compare-and-set.

They are read once and kept in memory, because the control plane is their only writer; a write whose
outcome is not known makes the next one read again. Other control planes tell what they wrote. Labs of
workers that are gone are removed when the worker goes, and once more when the records are first read, for a
crash in between.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
import structlog

from lcm.control_plane.records.workers import Workers
from lcm.control_plane.store.port import (
    Document,
    Fence,
    FenceBroken,
    Store,
    StoreUnavailable,
    VersionConflict,
)
from lcm.domain.errors import Conflict, Fenced
from lcm.domain.launch import WorkerId
from lcm.domain.telemetry import LabChange, LabRecord, LabStats, lab_after, lab_met

log = structlog.get_logger(__name__)

KIND: Final = "lab"
MAX_LABS_PER_WORKER: Final = 200
MAX_ID_LENGTH: Final = 100
MAX_ATTEMPTS: Final = 8
MAX_DELETED: Final = 1_000
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)

Listener = Callable[[Sequence[LabChange], LabRecord | None, LabRecord | None], None]
"""Told what happened to a lab (nothing if it was only met), and its record before and after, if any."""


class Labs:
    """What is known of the labs on all workers."""

    def __init__(self, store: Store, workers: Workers) -> None:
        self._store = store
        self._workers = workers
        self._known: dict[str, dict[str, tuple[int, LabRecord]]] = {}
        self._deleted: dict[str, datetime] = {}
        """When labs were deleted, as far as that was lately."""
        self._is_loaded = False
        self._loading = asyncio.Lock()
        self._told_while_loading: list[tuple[str, str, int, LabRecord | None]] = []
        self._doubts = 0
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    @property
    def count(self) -> int:
        return sum(len(labs) for labs in self._known.values())

    async def unknown(self, heard: Sequence[LabStats]) -> list[LabStats]:
        """Those of labs that nobody knows; what is heard late of one that was deleted is no news."""
        await self._load()
        return [
            stats
            for stats in heard
            if stats.lab_id not in self._known.get(stats.worker_id, {})
            and stats.collected_at > self._deleted.get(_document_id(stats.worker_id, stats.lab_id), _LONG_AGO)
        ]

    async def of(self, worker_id: str) -> list[LabRecord]:
        """By title, then by id."""
        await self._load()
        labs = [record for _, record in self._known.get(worker_id, {}).values()]
        return sorted(labs, key=lambda lab: (lab.title or "", lab.lab_id))

    async def change(
        self, worker_id: str, lab_id: str, changes: Sequence[LabChange], *, fence: Fence
    ) -> bool:
        """Make these changes of one lab in one compare-and-set; False if it is one lab too many."""
        return await self._change(worker_id, lab_id, changes, lambda known: lab_after(known, changes), fence)

    async def meet(self, worker_id: WorkerId, lab_id: str, *, at: datetime, fence: Fence) -> None:
        """A lab was heard of that nobody knew: it alone is marked as one that somebody should look at."""
        await self._change(
            worker_id, lab_id, (), lambda known: known or lab_met(worker_id, lab_id, at=at), fence
        )

    async def _change(
        self,
        worker_id: str,
        lab_id: str,
        changes: Sequence[LabChange],
        decide: Callable[[LabRecord | None], LabRecord | None],
        fence: Fence,
    ) -> bool:
        await self._load()
        if not 0 < len(lab_id) <= MAX_ID_LENGTH:
            return False
        for _ in range(MAX_ATTEMPTS):
            version, before = self._known.get(worker_id, {}).get(lab_id, (0, None))
            after = decide(before)
            is_new = before is None and after is not None
            if is_new and len(self._known.get(worker_id, {})) >= MAX_LABS_PER_WORKER:
                return False
            try:
                await self._write(worker_id, lab_id, version, before, after, fence)
            except VersionConflict:
                await self._reread(worker_id, lab_id)
                continue
            except FenceBroken:
                raise Fenced("a newer leader exists; stop acting and campaign again") from None
            if after is None and changes:
                self.note_deletion(changes[-1])
            for listener in self._listeners:
                listener(changes, before, after)
            return True
        raise Conflict(f"lab {lab_id} is changed by many at once; try again")

    def version_of(self, worker_id: str, lab_id: str) -> int:
        """Of the record as it is known; 0 if there is none."""
        return self._known.get(worker_id, {}).get(lab_id, (0, None))[0]

    def learn(self, worker_id: str, lab_id: str, version: int, record: LabRecord | None) -> bool:
        """Another control plane wrote this; False if something newer is known already."""
        if not self._is_loaded:
            if self._loading.locked():  # what is being read may be older
                self._told_while_loading.append((worker_id, lab_id, version, record))
            return True
        known = self._known.setdefault(worker_id, {})
        if record is None:
            known.pop(lab_id, None)
        elif self.version_of(worker_id, lab_id) < version:
            known[lab_id] = (version, record)
        else:
            return False
        return True

    def drop(self, worker_id: str) -> None:
        """Another control plane removes the labs of this worker."""
        self._known.pop(worker_id, None)

    def invalidate(self) -> None:
        """Others may have written unheard: read everything again before the next answer."""
        self._is_loaded = False
        self._doubts += 1

    def note_deletion(self, change: LabChange) -> None:
        """What is heard of this lab from before this change says nothing any more."""
        document_id = _document_id(change.worker_id, change.lab_id)
        self._deleted.pop(document_id, None)
        self._deleted[document_id] = change.at
        if len(self._deleted) > MAX_DELETED:
            del self._deleted[next(iter(self._deleted))]

    async def forget_worker(self, worker_id: str) -> None:
        """The machine these labs were on is gone."""
        try:
            await self._load()
        except StoreUnavailable as error:
            log.warning("lab records stay until the next start", worker_id=worker_id, error=str(error))
        await self._remove_all_of(worker_id)

    async def _remove_all_of(self, worker_id: str) -> None:
        for lab_id, (version, record) in self._known.pop(worker_id, {}).items():
            try:
                await self._store.delete(KIND, _document_id(worker_id, lab_id), version)
            except (StoreUnavailable, VersionConflict) as error:
                log.warning("a lab record stays until the next start", lab_id=lab_id, error=str(error))
            for listener in self._listeners:
                listener((), record, None)

    async def _write(
        self,
        worker_id: str,
        lab_id: str,
        version: int,
        before: LabRecord | None,
        after: LabRecord | None,
        fence: Fence,
    ) -> None:
        if after == before:
            return
        document_id = _document_id(worker_id, lab_id)
        try:
            if after is None:
                await self._store.delete(KIND, document_id, version)
                self._known.get(worker_id, {}).pop(lab_id, None)
                return
            document = Document(KIND, document_id, version + 1, msgspec.json.encode(after))
            await (self._store.replace if before else self._store.insert)(document, fence)
        except StoreUnavailable:
            await self._reread_or_forget(worker_id, lab_id)
            raise
        self._known.setdefault(worker_id, {})[lab_id] = (version + 1, after)

    async def _reread_or_forget(self, worker_id: str, lab_id: str) -> None:
        """Whether the write happened cannot be told; what is kept must not contradict the store for ever."""
        try:
            await self._reread(worker_id, lab_id)
        except StoreUnavailable:
            self._is_loaded = False

    async def _reread(self, worker_id: str, lab_id: str) -> None:
        document = await self._store.get(KIND, _document_id(worker_id, lab_id))
        if document is None:
            self._known.get(worker_id, {}).pop(lab_id, None)
        else:
            record = _decoder.decode(document.body)
            self._known.setdefault(worker_id, {})[lab_id] = (document.version, record)

    async def _load(self) -> None:
        if self._is_loaded:
            return
        async with self._loading:
            if self._is_loaded:
                return
            doubts, self._told_while_loading = self._doubts, []
            alive = {worker.id for worker in await self._workers.list_all() if worker.may_have_instance}
            known: dict[str, dict[str, tuple[int, LabRecord]]] = {}
            for document in await self._store.list_all(KIND):
                try:
                    record = _decoder.decode(document.body)
                except msgspec.MsgspecError as error:
                    log.error("unreadable lab record left out", lab=document.id, error=str(error))
                    continue
                known.setdefault(record.worker_id, {})[record.lab_id] = (document.version, record)
            self._known = known
            self._is_loaded = True
            for told in self._told_while_loading:
                self.learn(*told)
            self._is_loaded = doubts == self._doubts
        for worker_id in sorted(known.keys() - alive):
            await self._remove_all_of(worker_id)


def _document_id(worker_id: str, lab_id: str) -> str:
    return f"{worker_id}/{lab_id}"


_decoder = msgspec.json.Decoder(LabRecord)
