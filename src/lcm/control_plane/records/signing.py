"""Timelines say who it was: the id of the principal beside the name, which several people may have."""

from typing import TypeVar

from msgspec.structs import replace

from lcm.control_plane.access.roles import Principal
from lcm.domain.lablet.session import SessionHistoryEntry
from lcm.domain.worker import HistoryEntry

Line = TypeVar("Line", HistoryEntry, SessionHistoryEntry)


def signed(before: tuple[Line, ...], after: tuple[Line, ...], principal: Principal) -> tuple[Line, ...]:
    """Return the timeline with the id of this principal in the new lines that have its name."""
    known, theirs = frozenset(before), (principal.name, principal.id)
    return tuple(
        replace(line, principal_id=principal.id) if line not in known and line.by in theirs else line
        for line in after
    )
