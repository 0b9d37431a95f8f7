"""The lab records: one document for each lab, changed only by compare-and-set.

They are read once and kept in memory, because the control plane is their only writer; a write whose
outcome is unknown makes the next one read again. Other control planes send what they wrote through the feed.
The labs of a worker are removed when its instance is gone, and once more when the records are first read, in
case of a crash in between.
"""

import asyncio
from collections import Counter
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
from lcm.domain.lablet.listed_lab import LabAction, LabKind
from lcm.domain.launch import WorkerId
from lcm.domain.telemetry import LabChange, LabRecord, LabStats, lab_after, undiscovered_lab

log = structlog.get_logger(__name__)

KIND: Final = "lab"
MAX_LABS_PER_WORKER: Final = 200
MAX_ID_LENGTH: Final = 100
MAX_ATTEMPTS: Final = 8
MAX_DELETED: Final = 1_000
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)

Listener = Callable[[Sequence[LabChange], LabRecord | None, LabRecord | None], None]
"""Called with the changes of a lab (none if discovery or a request changed it), and its record before and
after."""


class Labs:
    """The labs on all workers."""

    def __init__(self, store: Store, workers: Workers) -> None:
        self._store = store
        self._workers = workers
        self._known: dict[str, dict[str, tuple[int, LabRecord]]] = {}
        self._deleted: dict[str, datetime] = {}
        """When labs were deleted; the latest `MAX_DELETED` only."""
        self._removed: dict[str, datetime] = {}
        """When the removal of labs that are gone was requested of LCM; the latest `MAX_DELETED` only."""
        self._is_loaded = False
        self._loading = asyncio.Lock()
        self._received_while_loading: list[tuple[str, str, int, LabRecord | None]] = []
        self._invalidations = 0
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    @property
    def count(self) -> int:
        return sum(len(labs) for labs in self._known.values())

    def by_kind(self) -> Counter[str]:
        """Count the labs that are known by now by whose they are."""
        return Counter(str(lab.kind or "undiscovered") for lab in self._all())

    def leaked(self) -> Counter[str]:
        """Count the leaked labs: those that LCM removes, and those that it leaves to people."""
        leaked = [lab for lab in self._all() if lab.kind is LabKind.LEAKED]
        kept = sum(lab.leak_kept != "" for lab in leaked)
        return Counter(removed=len(leaked) - kept, kept=kept)

    def _all(self) -> list[LabRecord]:
        return [record for labs in self._known.values() for _, record in labs.values()]

    async def unknown(self, reported: Sequence[LabStats]) -> list[LabStats]:
        """Return the stats of labs without a record; late stats of a deleted lab do not count."""
        await self._load()
        return [
            stats
            for stats in reported
            if stats.lab_id not in self._known.get(stats.worker_id, {})
            and stats.collected_at > self._deleted.get(_document_id(stats.worker_id, stats.lab_id), _LONG_AGO)
        ]

    async def of(self, worker_id: str) -> list[LabRecord]:
        """Return the labs of a worker by title, then by id."""
        await self._load()
        return sorted(self.now_of(worker_id), key=lambda lab: (lab.title or "", lab.lab_id))

    def now_of(self, worker_id: str) -> list[LabRecord]:
        """Return them at this moment, for a decision that must not wait; `of` has read them before."""
        return [record for _, record in self._known.get(worker_id, {}).values()]

    async def find(self, worker_id: str, lab_id: str) -> LabRecord | None:
        await self._load()
        return self._known.get(worker_id, {}).get(lab_id, (0, None))[1]

    async def list_all(self) -> list[LabRecord]:
        """Return the labs of all workers."""
        await self._load()
        return self._all()

    def was_deleted_after(self, worker_id: str, lab_id: str, moment: datetime) -> bool:
        """Return whether a lab was deleted later than an observation that shows it."""
        return self._deleted.get(_document_id(worker_id, lab_id), _LONG_AGO) > moment

    def removal_requested_at(self, worker_id: str, lab_id: str) -> datetime | None:
        """Return since when LCM was to remove a lab that is gone; None if a person did, or long ago."""
        return self._removed.get(_document_id(worker_id, lab_id))

    async def revise(
        self,
        worker_id: str,
        lab_id: str,
        decide: Callable[[LabRecord | None], LabRecord | None],
        *,
        fence: Fence | None = None,
    ) -> LabRecord | None:
        """Change the record of one lab in one compare-and-set; None from `decide` removes it."""
        await self._change(worker_id, lab_id, (), decide, fence)
        return await self.find(worker_id, lab_id)

    async def change(
        self, worker_id: str, lab_id: str, changes: Sequence[LabChange], *, fence: Fence
    ) -> bool:
        """Apply these changes of one lab in one compare-and-set; return False for one lab too many."""
        return await self._change(worker_id, lab_id, changes, lambda known: lab_after(known, changes), fence)

    async def add_discovered(self, worker_id: WorkerId, lab_id: str, *, at: datetime, fence: Fence) -> None:
        """Add a lab that was unknown until now, marked for discovery."""
        await self._change(
            worker_id, lab_id, (), lambda known: known or undiscovered_lab(worker_id, lab_id, at=at), fence
        )

    async def _change(
        self,
        worker_id: str,
        lab_id: str,
        changes: Sequence[LabChange],
        decide: Callable[[LabRecord | None], LabRecord | None],
        fence: Fence | None,
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
            if changes or after != before:
                for listener in self._listeners:
                    listener(changes, before, after)
            return True
        raise Conflict(f"several reports change lab {lab_id} at once; try again")

    def version_of(self, worker_id: str, lab_id: str) -> int:
        """Return the version of the cached record; 0 if there is none."""
        return self._known.get(worker_id, {}).get(lab_id, (0, None))[0]

    def learn(self, worker_id: str, lab_id: str, version: int, record: LabRecord | None) -> bool:
        """Take over what another control plane wrote; return False if a newer version is known already."""
        if not self._is_loaded:
            if self._loading.locked():  # the running read may return older records
                self._received_while_loading.append((worker_id, lab_id, version, record))
            return True
        known = self._known.setdefault(worker_id, {})
        if record is None:
            self._forget(worker_id, lab_id)
        elif self.version_of(worker_id, lab_id) < version:
            known[lab_id] = (version, record)
        else:
            return False
        return True

    def drop(self, worker_id: str) -> None:
        """Drop the labs of a worker from memory: another control plane removes their records."""
        self._known.pop(worker_id, None)

    def invalidate(self) -> None:
        """Read everything again before the next answer: others may have written meanwhile."""
        self._is_loaded = False
        self._invalidations += 1

    def note_deletion(self, change: LabChange) -> None:
        """Remember the deletion, so that older reports of this lab are ignored."""
        document_id = _document_id(change.worker_id, change.lab_id)
        self._deleted.pop(document_id, None)
        self._deleted[document_id] = change.at
        if len(self._deleted) > MAX_DELETED:
            del self._deleted[next(iter(self._deleted))]

    async def forget_worker(self, worker_id: str) -> None:
        """Remove the labs of a worker whose instance is gone."""
        try:
            await self._load()
        except StoreUnavailable as error:
            log.warning(
                "lab records not removed; the next start removes them", worker_id=worker_id, error=str(error)
            )
        await self._remove_all_of(worker_id)

    async def _remove_all_of(self, worker_id: str) -> None:
        for lab_id, (version, record) in self._known.pop(worker_id, {}).items():
            try:
                await self._store.delete(KIND, _document_id(worker_id, lab_id), version)
            except (StoreUnavailable, VersionConflict) as error:
                log.warning(
                    "lab record not removed; the next start removes it", lab_id=lab_id, error=str(error)
                )
            for listener in self._listeners:
                listener((), record, None)

    async def _write(
        self,
        worker_id: str,
        lab_id: str,
        version: int,
        before: LabRecord | None,
        after: LabRecord | None,
        fence: Fence | None,
    ) -> None:
        if after == before:
            return
        document_id = _document_id(worker_id, lab_id)
        try:
            if after is None:
                await self._store.delete(KIND, document_id, version)
                self._forget(worker_id, lab_id)
                return
            document = Document(KIND, document_id, version + 1, msgspec.json.encode(after))
            await (self._store.replace if before else self._store.insert)(document, fence)
        except StoreUnavailable:
            await self._reread_or_forget(worker_id, lab_id)
            raise
        self._known.setdefault(worker_id, {})[lab_id] = (version + 1, after)

    async def _reread_or_forget(self, worker_id: str, lab_id: str) -> None:
        """Read a record whose write has an unknown outcome: the cache must not differ from the store."""
        try:
            await self._reread(worker_id, lab_id)
        except StoreUnavailable:
            self._is_loaded = False

    async def _reread(self, worker_id: str, lab_id: str) -> None:
        document = await self._store.get(KIND, _document_id(worker_id, lab_id))
        if document is None:
            self._forget(worker_id, lab_id)
        else:
            record = _decoder.decode(document.body)
            self._known.setdefault(worker_id, {})[lab_id] = (document.version, record)

    def _forget(self, worker_id: str, lab_id: str) -> None:
        """Drop a record that is gone. What CML reports of a lab may come after its removal."""
        _, record = self._known.get(worker_id, {}).pop(lab_id, (0, None))
        if record is None or record.request is None or record.request.action is not LabAction.REMOVE:
            return
        self._removed[_document_id(worker_id, lab_id)] = record.request.asked_at
        if len(self._removed) > MAX_DELETED:
            del self._removed[next(iter(self._removed))]

    async def _load(self) -> None:
        if self._is_loaded:
            return
        async with self._loading:
            if self._is_loaded:
                return
            invalidations, self._received_while_loading = self._invalidations, []
            alive = {worker.id for worker in await self._workers.list_live() if worker.may_have_instance}
            known: dict[str, dict[str, tuple[int, LabRecord]]] = {}
            for document in await self._store.list_all(KIND):
                try:
                    record = _decoder.decode(document.body)
                except msgspec.MsgspecError as error:
                    log.error("unreadable lab record skipped", lab=document.id, error=str(error))
                    continue
                known.setdefault(record.worker_id, {})[record.lab_id] = (document.version, record)
            for worker_id, labs in self._known.items():
                for lab_id in labs.keys() - known.get(worker_id, {}).keys():
                    self._forget(worker_id, lab_id)
            self._known = known
            self._is_loaded = True
            for received in self._received_while_loading:
                self.learn(*received)
            self._is_loaded = invalidations == self._invalidations
        for worker_id in sorted(known.keys() - alive):
            await self._remove_all_of(worker_id)


def _document_id(worker_id: str, lab_id: str) -> str:
    return f"{worker_id}/{lab_id}"


_decoder = msgspec.json.Decoder(LabRecord)
