"""The marker that LCM puts on its labs, and which labs are its own.

CML's titles are not unique, and people copy labs. So a lab says twice whose it is: in its title and in a
line of its notes. A lab is touched only if the session has recorded its id, or, as long as no id is recorded,
if both parts agree.
"""

import hashlib
import re
import uuid
from typing import Final, NamedTuple

MAX_TITLE_LENGTH: Final = 64
_TITLE: Final = re.compile(r"lcm-([0-9a-f]{12})-g([1-9][0-9]{0,8})(?: |\Z)")
_NOTES: Final = re.compile(
    r"lcm:session=(?P<session>[^;\s]{1,100});gen=(?P<gen>[1-9][0-9]{0,8});fleet=(?P<fleet>[^;\s]{1,100})"
)
_ANY_LINE: Final = re.compile(r"\s*lcm:session=")


class Marker(NamedTuple):
    """Whose lab it is: the session, the number of its import, and the LCM that imported it."""

    session_id: str
    generation: int
    fleet_id: str


class SeenLab(NamedTuple):
    """What a listing of CML says of a lab."""

    lab_id: str
    title: str
    notes: str


class LabOwner(NamedTuple):
    """A session that may own a lab on a worker."""

    marker: Marker
    recorded_id: str | None
    """The id of the lab, once the session has recorded it."""
    instance_id: str | None
    """The instance that the lab was imported on: another instance has none of its labs."""


def short_id(session_id: str) -> str:
    """The twelve digits by which a title names a session."""
    try:
        return uuid.UUID(session_id).hex[:12]
    except ValueError:
        return hashlib.sha256(session_id.encode(errors="replace")).hexdigest()[:12]


def lab_title(session_id: str, generation: int, definition_name: str) -> str:
    """The title of a lab; what CML has no room for is cut off."""
    words = " ".join(definition_name.split())
    return f"lcm-{short_id(session_id)}-g{generation} {words}"[:MAX_TITLE_LENGTH].rstrip()


def notes_line(marker: Marker) -> str:
    """The line of the notes that marks a lab."""
    return f"lcm:session={marker.session_id};gen={marker.generation};fleet={marker.fleet_id}"


def mark_notes(notes: str, marker: Marker) -> str:
    """The author's notes with this line. The line of an earlier life of the lab is taken out."""
    kept = [line for line in notes.splitlines() if not _ANY_LINE.match(line)]
    return "\n".join([*kept, notes_line(marker)])


def read_title(title: str) -> tuple[str, int] | None:
    """The digits of the session and the generation; None for a title of other labs."""
    match = _TITLE.match(title)
    return (match[1], int(match[2])) if match else None


def read_notes(notes: str) -> Marker | None:
    """The marker of the notes; None if there is none, or more than one."""
    lines = [line.strip() for line in notes.splitlines() if _ANY_LINE.match(line)]
    match = _NOTES.fullmatch(lines[0]) if len(lines) == 1 else None
    return Marker(match["session"], int(match["gen"]), match["fleet"]) if match else None


def marker_of(lab: SeenLab) -> Marker | None:
    """The marker of a lab whose title and notes agree."""
    marker = read_notes(lab.notes)
    if marker is None or read_title(lab.title) != (short_id(marker.session_id), marker.generation):
        return None
    return marker


def is_ours(lab: SeenLab, owner: LabOwner, instance_id: str | None) -> bool:
    """Whether the session owns this lab of this instance. Anything else is never touched.

    A recorded id counts alone, also if a person has renamed the lab since. Until an id is recorded both parts
    of the marker must be those of the session; a copy has them, but by then the id is recorded.
    """
    if owner.instance_id != instance_id:
        return False
    if owner.recorded_id is not None:
        return lab.lab_id == owner.recorded_id
    return marker_of(lab) == owner.marker
