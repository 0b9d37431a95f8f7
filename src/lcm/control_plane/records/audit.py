"""The scaling audit log: why the fleet grew or shrank, and why a request was refused."""

import msgspec
import structlog

from lcm.control_plane.store.port import Document, Store, StoreUnavailable
from lcm.core.clock import Clock
from lcm.core.ids import Ids
from lcm.domain.scaling import AuditEntry, AuditEvent
from lcm.domain.worker import Worker

log = structlog.get_logger(__name__)

KIND = "audit"

_decoder = msgspec.json.Decoder(AuditEntry)


class AuditLog:
    """Append-only and bounded: the oldest entries are removed."""

    def __init__(self, store: Store, clock: Clock, ids: Ids, max_entries: int = 5_000) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._max_entries = max_entries
        self._size: int | None = None

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
        now = self._clock.now()
        entry = AuditEntry(
            id=f"{now:%Y%m%dT%H%M%S.%f}-{self._ids.new_id()[:8]}",
            at=now,
            event=event,
            by=by,
            reason=reason,
            worker_id=worker_id,
            template_name=template_name,
            aws_region=aws_region,
        )
        await self._store.insert(Document(KIND, entry.id, 1, msgspec.json.encode(entry)))
        await self._make_room()
        return entry

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
        """Return the entries, newest first; ids sort by time."""
        entries = [entry for document in await self._store.list_all(KIND) if (entry := _readable(document))]
        return [
            entry
            for entry in sorted(entries, key=lambda entry: entry.id, reverse=True)
            if (event is None or entry.event is event)
            and (worker_id is None or entry.worker_id == worker_id)
            and (before is None or entry.id < before)
        ]

    async def _make_room(self) -> None:
        if self._size is None:
            self._size = len(await self._store.list_all(KIND)) - 1
        self._size += 1
        if self._size > self._max_entries:
            documents = await self._store.list_all(KIND)
            for document in documents[: len(documents) - self._max_entries * 9 // 10]:
                await self._store.delete(KIND, document.id, document.version)
            self._size = len(await self._store.list_all(KIND))


def _readable(document: Document) -> AuditEntry | None:
    """Return the entry, or None: one unreadable entry must not hide the others."""
    try:
        return _decoder.decode(document.body)
    except msgspec.MsgspecError as error:
        log.error("unreadable audit entry skipped", entry=document.id, error=str(error))
        return None
