"""The audit logs: why the fleet grew or shrank, and what happened to lablet sessions.

Each has a bound of its own, so that a busy one never pushes out the entries of the other.
"""

import hashlib
from datetime import datetime
from typing import Any, Final

import structlog

from lcm.control_plane.store.bounded_log import BoundedLog, entry_id
from lcm.control_plane.store.port import Store, StoreUnavailable, VersionConflict
from lcm.core.clock import Clock
from lcm.core.ids import Ids
from lcm.domain.lablet.audit import LabletAuditEntry, LabletEvent
from lcm.domain.lablet.session import LabletSession
from lcm.domain.scaling import AuditEntry, AuditEvent
from lcm.domain.worker import Worker

log = structlog.get_logger(__name__)

KIND: Final = "audit"
LABLET_KIND: Final = "lablet-audit"
PIECE: Final = 100
"""How many entries are read at a time."""


class _Stamps:
    """The time and the id of a new entry."""

    def __init__(self, clock: Clock, ids: Ids) -> None:
        self._clock = clock
        self._ids = ids

    def new(self) -> dict[str, Any]:
        now = self._clock.now()
        return {"id": entry_id(now, self._ids.new_id()), "at": now}


class AuditLog:
    """The scaling audit log."""

    def __init__(self, store: Store, clock: Clock, ids: Ids, max_entries: int = 5_000) -> None:
        self._log = BoundedLog(store, KIND, AuditEntry, max_entries)
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

    async def piece(self, before: str | None, limit: int) -> tuple[list[AuditEntry], str | None]:
        """Return some entries below this id, newest first, and below which to go on; None at the end."""
        return await self._log.piece(before, limit)

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

    async def since(self, moment: datetime) -> list[AuditEntry]:
        """Return the entries from this moment on, newest first. No older piece of the log is read."""
        found, before = await self._log.piece(None, PIECE)
        while before is not None and found and found[-1].at >= moment:
            older, before = await self._log.piece(before, PIECE)
            found += older
        return [entry for entry in found if entry.at >= moment]


class LabletAuditLog:
    """The audit log of lablet definitions and sessions."""

    def __init__(self, store: Store, clock: Clock, ids: Ids, max_entries: int = 50_000) -> None:
        self._log = BoundedLog(store, LABLET_KIND, LabletAuditEntry, max_entries)
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
            id=entry_id(at, digest),
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

    async def piece(self, before: str | None, limit: int) -> tuple[list[LabletAuditEntry], str | None]:
        """Return some entries below this id, newest first, and below which to go on; None at the end."""
        return await self._log.piece(before, limit)

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
