"""Writes the marker of a session into the notes of a topology before it is imported.

The text is read and written as YAML events: no value is interpreted, so that none changes. Comments are lost;
CML does not keep them either.
"""

from typing import Any, Final

import yaml

from lcm.domain.lablet.marked_yaml import NULL
from lcm.domain.lablet.marker import Marker, mark_notes, notes_line

_LOADER: Final[Any] = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_DUMPER: Final[Any] = getattr(yaml, "CDumper", yaml.Dumper)
_UNBROKEN: Final = 1 << 30


def mark_topology(text: str, marker: Marker) -> str:
    """The topology, which must be valid, with the line of the marker in its notes."""
    events = list(yaml.parse(text, _LOADER))
    root = next(at for at, event in enumerate(events) if isinstance(event, yaml.MappingStartEvent))
    notes = [_scalar("notes"), _scalar(notes_line(marker))]
    lab = [_scalar("lab"), yaml.MappingStartEvent(None, None, True), *notes, yaml.MappingEndEvent()]
    entries, end = _entries(events, root)
    if "lab" not in entries:
        events[end:end] = lab
    elif isinstance(events[entries["lab"].start], yaml.MappingStartEvent):
        _mark_lab(events, entries["lab"].start, marker, notes)
    else:
        events[entries["lab"]] = lab[1:]
    emitted: str = yaml.emit(events, Dumper=_DUMPER, width=_UNBROKEN, allow_unicode=True)
    return emitted


def _mark_lab(events: list[Any], lab: int, marker: Marker, notes: list[Any]) -> None:
    entries, end = _entries(events, lab)
    if "notes" not in entries:
        events[end:end] = notes
        return
    before = events[entries["notes"].start]
    is_text = isinstance(before, yaml.ScalarEvent) and (before.style or before.value not in NULL)
    text = mark_notes(before.value if is_text else "", marker)
    events[entries["notes"]] = [_scalar(text, getattr(before, "anchor", None))]


def _scalar(text: str, anchor: str | None = None) -> Any:
    return yaml.ScalarEvent(anchor, None, (False, True), text, style='"')


def _entries(events: list[Any], mapping: int) -> tuple[dict[str, slice], int]:
    """Where the values of a mapping stand by name, and where it ends."""
    entries = {}
    at = mapping + 1
    while not isinstance(events[at], yaml.MappingEndEvent):
        value = _after(events, at)
        end = _after(events, value)
        entries[getattr(events[at], "value", "")] = slice(value, end)
        at = end
    return entries, at


def _after(events: list[Any], at: int) -> int:
    """Where the next node begins after the one that begins here."""
    depth = 0
    while True:
        depth += isinstance(events[at], yaml.CollectionStartEvent)
        depth -= isinstance(events[at], yaml.CollectionEndEvent)
        at += 1
        if depth == 0:
            return at
