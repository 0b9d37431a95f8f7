"""What happened in the fleet: the timelines of workers and the audit logs, read as one list.

Nothing is stored twice: each entry is read from the log that owns it, so each log keeps its own bound.
Reading goes back piece by piece in all of them at once.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TypeVar

from lcm.control_plane.access.roles import Principal, Role
from lcm.control_plane.access.security_log import SecurityLog
from lcm.control_plane.records.groups import Caches, Records
from lcm.control_plane.records.timelines import TimelineEntry
from lcm.control_plane.store.bounded_log import entry_id
from lcm.domain.lablet.audit import LabletAuditEntry
from lcm.domain.scaling import AuditEntry
from lcm.domain.security import SecurityEntry
from lcm.rest.activity import ActivityEntry, ActivityKind, ActivityPage

PIECE: Final = 100
MAX_READ: Final = 5_000
"""Entries that one page looks at: a narrow filter answers with less, and where to go on."""

MAX_FIELDS: Final = 4
"""The fields of a change that are named; the security audit log has all of them."""

E = TypeVar("E")
Read = Callable[[str | None, int], Awaitable[tuple[list[ActivityEntry], str | None]]]


@dataclass(frozen=True)
class ActivityFilter:
    """What is wanted; None is everything."""

    kinds: Sequence[ActivityKind] = ()
    by: str | None = None
    """Part of a name, in either case."""
    about: str | None = None
    """Part of the name of a worker, or of the id of anything."""
    since: datetime | None = None
    until: datetime | None = None

    def takes(self, entry: ActivityEntry) -> bool:
        return (
            (self.until is None or entry.at < self.until)
            and (self.by is None or self.by.casefold() in entry.by.casefold())
            and (self.about is None or self._is_about(entry, self.about.casefold()))
        )

    def _is_about(self, entry: ActivityEntry, text: str) -> bool:
        places = (entry.worker_name, entry.worker_id, entry.session_id, entry.definition_id, entry.target)
        return any(text in place.casefold() for place in places if place is not None)


async def activity_page(
    records: Records,
    caches: Caches,
    security: SecurityLog,
    person: Principal,
    wanted: ActivityFilter,
    *,
    before: str | None,
    limit: int,
    max_read: int = MAX_READ,
) -> ActivityPage:
    """Return what this person may see: lablets from operators on, security from admins on."""
    before = _from(before, wanted.until)
    sources = [
        _Source(read, before)
        for kind, (role, read) in _logs(records, caches, security).items()
        if person.role >= role and (not wanted.kinds or kind in wanted.kinds)
    ]
    found: list[ActivityEntry] = []
    cursor = before
    for _ in range(max_read):
        heads = [(head.id, source) for source in sources if (head := await source.head()) is not None]
        if not heads:
            return ActivityPage(items=found, next=None)
        entry = max(heads, key=lambda head: head[0])[1].take()
        if wanted.since is not None and entry.at < wanted.since:
            return ActivityPage(items=found, next=None)
        if len(found) == limit:
            break
        cursor = entry.id
        if wanted.takes(entry):
            found.append(entry)
    return ActivityPage(items=found, next=cursor)


def _from(before: str | None, until: datetime | None) -> str | None:
    """Return the id below which entries are read: what is newer than wanted is not looked at."""
    if until is None:
        return before
    newest = entry_id(until.astimezone(UTC), "")
    return newest if before is None else min(before, newest)


@dataclass
class _Source:
    """A log that is read back in pieces."""

    read: Read
    before: str | None
    waiting: list[ActivityEntry] = field(default_factory=list)
    """What was read and not taken yet, the newest last."""
    is_at_end: bool = False

    async def head(self) -> ActivityEntry | None:
        while not self.waiting and not self.is_at_end:
            entries, self.before = await self.read(self.before, PIECE)
            self.waiting = entries[::-1]
            self.is_at_end = self.before is None
        return self.waiting[-1] if self.waiting else None

    def take(self) -> ActivityEntry:
        return self.waiting.pop()


def _logs(records: Records, caches: Caches, security: SecurityLog) -> dict[ActivityKind, tuple[Role, Read]]:
    def names(worker_id: str | None) -> str | None:
        known = caches.worker_cache.get(worker_id) if worker_id is not None else None
        return known.name if known is not None else None

    def of_scaling(entry: AuditEntry) -> ActivityEntry:
        return ActivityEntry(
            id=entry.id,
            at=entry.at,
            kind=ActivityKind.SCALING,
            event=entry.event,
            by=entry.by,
            text=entry.reason,
            worker_id=entry.worker_id,
            worker_name=names(entry.worker_id),
        )

    def of_lablet(entry: LabletAuditEntry) -> ActivityEntry:
        return ActivityEntry(
            id=entry.id,
            at=entry.at,
            kind=ActivityKind.LABLET,
            event=entry.event,
            by=entry.by,
            text=entry.reason,
            worker_id=entry.worker_id,
            worker_name=names(entry.worker_id),
            session_id=entry.session_id,
            definition_id=entry.definition_id,
        )

    return {
        ActivityKind.WORKER: (Role.VIEWER, _reading(caches.timelines.piece, _of_timeline)),
        ActivityKind.SCALING: (Role.VIEWER, _reading(records.audit.piece, of_scaling)),
        ActivityKind.LABLET: (Role.OPERATOR, _reading(records.lablet_audit.piece, of_lablet)),
        ActivityKind.CHANGE: (Role.ADMIN, _reading(security.changes, _of_change)),
        ActivityKind.REFUSAL: (Role.ADMIN, _reading(security.refusals, _of_refusal)),
    }


def _reading(
    piece: Callable[[str | None, int], Awaitable[tuple[list[E], str | None]]],
    translate: Callable[[E], ActivityEntry],
) -> Read:
    async def read(before: str | None, limit: int) -> tuple[list[ActivityEntry], str | None]:
        entries, rest = await piece(before, limit)
        return [translate(entry) for entry in entries], rest

    return read


def _of_timeline(entry: TimelineEntry) -> ActivityEntry:
    return ActivityEntry(
        id=entry.id,
        at=entry.line.at,
        kind=ActivityKind.WORKER,
        event=entry.line.target,
        by=entry.line.by,
        text=entry.line.reason,
        worker_id=entry.worker_id,
        worker_name=entry.name,
    )


def _of_change(entry: SecurityEntry) -> ActivityEntry:
    fields = sorted(entry.before.keys() | entry.after.keys())
    if len(fields) > MAX_FIELDS:
        fields = [*fields[:MAX_FIELDS], f"{len(fields) - MAX_FIELDS} more"]
    return ActivityEntry(
        id=entry.id,
        at=entry.at,
        kind=ActivityKind.CHANGE,
        event=entry.action,
        by=entry.principal_name or "unknown",
        text=f"{entry.target}: {', '.join(fields)}" if fields else entry.target,
        target=entry.target,
    )


def _of_refusal(entry: SecurityEntry) -> ActivityEntry:
    return ActivityEntry(
        id=entry.id,
        at=entry.at,
        kind=ActivityKind.REFUSAL,
        event=entry.action,
        by=entry.principal_name or "unknown",
        text=entry.reason or "",
        target=entry.target,
    )
