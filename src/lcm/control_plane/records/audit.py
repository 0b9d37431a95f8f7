"""The audit logs: why the fleet grew or shrank, and what happened to lablet sessions.

Each has a bound of its own, so that a busy one never pushes out the entries of the other.
"""

import asyncio
import hashlib
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
import structlog

from lcm.control_plane.store.port import Document, Store, StoreUnavailable, VersionConflict
from lcm.core.clock import Clock
from lcm.core.ids import Ids
from lcm.domain.lablet.audit import LabletAuditEntry, LabletEvent
from lcm.domain.lablet.session import LabletSession
from lcm.domain.scaling import AuditEntry, AuditEvent
from lcm.domain.worker import Worker

log = structlog.get_logger(__name__)

KIND: Final = "audit"
LABLET_KIND: Final = "lablet-audit"
REMOVED_TOGETHER: Final = 200
"""One commit of the store takes many that come together."""


class _Entry(Protocol):
    @property
    def id(self) -> str: ...


E = TypeVar("E", bound=_Entry)


class _Log(Generic[E]):
    """Append-only and bounded: the oldest tenth is removed when there are too many. Ids sort by time."""

    def __init__(self, store: Store, kind: str, entry: type[E], max_entries: int) -> None:
        self._store = store
        self._kind = kind
        self._decoder: msgspec.json.Decoder[E] = msgspec.json.Decoder(entry)
        self._max_entries = max_entries
        self._size: int | None = None
        """How many there were when they were last counted."""
        self._added = 0
        """How many this process has appended since."""
        self._is_making_room = False

    async def append(self, entry: E) -> E:
        await self._store.insert(Document(self._kind, entry.id, 1, msgspec.json.encode(entry)))
        self._added += 1
        if self._size is None or self._size + self._added > self._max_entries:
            await self._make_room()
        return entry

    async def newest(self) -> list[E]:
        """Return the readable entries, newest first."""
        documents = await self._store.list_all(self._kind)
        entries = [entry for document in documents if (entry := self._readable(document))]
        return sorted(entries, key=lambda entry: entry.id, reverse=True)

    async def _make_room(self) -> None:
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


def _entry_id(at: datetime, unique: str) -> str:
    """Ids sort by time."""
    return f"{at:%Y%m%dT%H%M%S.%f}-{unique[:8]}"


class _Stamps:
    """The time and the id of a new entry."""

    def __init__(self, clock: Clock, ids: Ids) -> None:
        self._clock = clock
        self._ids = ids

    def new(self) -> dict[str, Any]:
        now = self._clock.now()
        return {"id": _entry_id(now, self._ids.new_id()), "at": now}


class AuditLog:
    """The scaling audit log."""

    def __init__(self, store: Store, clock: Clock, ids: Ids, max_entries: int = 5_000) -> None:
        self._log = _Log(store, KIND, AuditEntry, max_entries)
        self._stamps = _Stamps(clock, ids)

    async def record(
        self,
        event: AuditEvent,
        *,
        by: str,
        reason: str,
        worker_id: str | None = None,
        template_name: str | None = None,
        aws_region: str | None = None,
    ) -> AuditEntry:
        return await self._log.append(
            AuditEntry(
                **self._stamps.new(),
                event=event,
                by=by,
                reason=reason,
                worker_id=worker_id,
                template_name=template_name,
                aws_region=aws_region,
            )
        )

    async def note(self, event: AuditEvent, worker: Worker, *, by: str, reason: str) -> None:
        """Audit what a controller reported of a worker. The report is accepted even if this fails."""
        try:
            await self.record(
                event,
                by=by,
                reason=reason,
                worker_id=worker.id,
                template_name=worker.template_name,
                aws_region=worker.aws_region,
            )
        except StoreUnavailable as error:
            log.warning(
                "audit entry not written", audit_event=str(event), worker_id=worker.id, error=str(error)
            )

    async def newest(
        self, *, event: AuditEvent | None = None, worker_id: str | None = None, before: str | None = None
    ) -> list[AuditEntry]:
        """Return the entries, newest first."""
        return [
            entry
            for entry in await self._log.newest()
            if (event is None or entry.event is event)
            and (worker_id is None or entry.worker_id == worker_id)
            and (before is None or entry.id < before)
        ]


class LabletAuditLog:
    """The audit log of lablet definitions and sessions."""

    def __init__(self, store: Store, clock: Clock, ids: Ids, max_entries: int = 50_000) -> None:
        self._log = _Log(store, LABLET_KIND, LabletAuditEntry, max_entries)
        self._stamps = _Stamps(clock, ids)

    async def note(
        self,
        event: LabletEvent,
        *,
        by: str,
        reason: str,
        session: LabletSession | None = None,
        definition_id: str | None = None,
        worker_id: str | None = None,
    ) -> None:
        """Audit what was committed. The commit stands even if this fails."""
        entry = LabletAuditEntry(
            **self._stamps.new(),
            event=event,
            by=by,
            reason=reason,
            session_id=session.id if session is not None else None,
            definition_id=definition_id or (session.definition_id if session is not None else None),
            worker_id=worker_id,
        )
        try:
            await self._log.append(entry)
        except StoreUnavailable as error:
            log.warning("audit entry not written", audit_event=str(event), error=str(error))

    async def record_end(
        self, event: LabletEvent, session: LabletSession, *, by: str, reason: str, at: datetime
    ) -> None:
        """Audit the end of a session before it is committed: a crash may repeat this, and never skip it.

        `at` is when the end was requested, from which the id follows: a repeated entry is the same one.
        """
        digest = hashlib.sha256(f"{session.id} {event}".encode()).hexdigest()
        entry = LabletAuditEntry(
            id=_entry_id(at, digest),
            at=at,
            event=event,
            by=by,
            reason=reason,
            session_id=session.id,
            definition_id=session.definition_id,
            worker_id=session.worker_id,
        )
        try:
            await self._log.append(entry)
        except VersionConflict:
            log.info("end audited already", session_id=session.id, audit_event=str(event))

    async def newest(
        self,
        *,
        event: LabletEvent | None = None,
        session_id: str | None = None,
        definition_id: str | None = None,
        worker_id: str | None = None,
        before: str | None = None,
    ) -> list[LabletAuditEntry]:
        """Return the entries, newest first."""
        return [
            entry
            for entry in await self._log.newest()
            if event in (None, entry.event)
            and session_id in (None, entry.session_id)
            and definition_id in (None, entry.definition_id)
            and worker_id in (None, entry.worker_id)
            and (before is None or entry.id < before)
        ]
