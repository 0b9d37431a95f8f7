"""What happened in the fleet, of all logs, on the wire."""

from datetime import datetime
from enum import StrEnum

import msgspec


class ActivityKind(StrEnum):
    """What recorded it."""

    WORKER = "worker"
    """The timeline of a worker."""
    SCALING = "scaling"
    """A decision about the size of the fleet."""
    LABLET = "lablet"
    """What happened to definitions, sessions and their labs."""
    CHANGE = "change"
    """What a person changed, in the security audit log."""
    REFUSAL = "refusal"
    """A credential that was refused."""


class ActivityEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened."""

    id: str
    """Ids sort by time."""
    at: datetime
    kind: ActivityKind
    event: str
    """The new status of a worker, the event of a log, or the request of a person."""
    by: str
    text: str
    worker_id: str | None = None
    worker_name: str | None = None
    session_id: str | None = None
    definition_id: str | None = None
    target: str | None = None
    """What a request changed, by kind and id."""


class ActivityPage(msgspec.Struct, frozen=True, kw_only=True):
    """Entries, newest first, and where to go on."""

    items: list[ActivityEntry]
    next: str | None
    """`before` of the next page; None if this is the last. A narrow filter may have short or empty pages."""
