"""What a discovery shows of a lab, and what is recorded of it: whose it is, what is requested of it."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from lcm.domain.capacity import Amount, Capacity
from lcm.domain.lablet.marker import Marker

MAX_NODES: Final = 500
MAX_TAG_PORTS: Final = 1_000

Text = Annotated[str, Meta(max_length=200)]
"""Untrusted: the controller cuts it off."""
CmlId = Annotated[str, Meta(min_length=1, max_length=100)]
Port = Annotated[int, Meta(ge=1, le=65_535)]


class LabKind(StrEnum):
    """Whose a lab is."""

    SESSION = "session"
    """A lablet session's; also while an import of that session is under way."""
    FOREIGN = "foreign"
    """Not LCM's: LCM itself never changes it."""
    ADOPTED = "adopted"
    """Of no session, and kept by people: LCM itself never changes it."""
    LEAKED = "leaked"
    """LCM's, by its marker, and of no session any more."""
    ORPHANED = "orphaned"
    """A session's, and CML has shown twice that it is gone."""


class LeakReason(StrEnum):
    """Why a lab with the marker of this fleet is no session's."""

    SESSION_UNKNOWN = "session_unknown"
    SESSION_ENDED = "session_ended"
    SESSION_MOVED_ON = "session_moved_on"
    """Its session has another import, or none on this worker."""
    DUPLICATE = "duplicate"
    """Its session has recorded another lab of the same import."""
    RECORD_OLDER = "record_older"
    """Its session has not begun this import yet: the records are older than the lab, as after a restore."""


KIND_MEANING: Final = {
    LabKind.SESSION: "A lablet session owns it.",
    LabKind.FOREIGN: "People made it; LCM itself never changes it.",
    LabKind.ADOPTED: "No session owns it and people keep it; LCM itself never changes it.",
    LabKind.LEAKED: "LCM made it, and no session owns it any more.",
    LabKind.ORPHANED: "A session owns it, and CML has shown twice that it is gone.",
}
LEAK_MEANING: Final = {
    LeakReason.SESSION_UNKNOWN: "LCM does not know the session that its marker names.",
    LeakReason.SESSION_ENDED: "Its session has ended.",
    LeakReason.SESSION_MOVED_ON: "Its session has another lab, or none on this worker.",
    LeakReason.DUPLICATE: "Its session has recorded another lab of the same import.",
    LeakReason.RECORD_OLDER: "The records of LCM are older than the lab, as after a restore of a backup.",
}


class LabMark(msgspec.Struct, frozen=True, kw_only=True):
    """The marker in the title and the notes of a lab, which agree."""

    session_id: Annotated[str, Meta(max_length=100)]
    generation: int
    fleet_id: Annotated[str, Meta(max_length=100)]

    @staticmethod
    def of(marker: Marker) -> "LabMark":
        return LabMark(**marker._asdict())


class LabAction(StrEnum):
    """What people, and the leak sweep, request of a lab."""

    START = "start"
    STOP = "stop"
    REMOVE = "remove"
    ADOPT = "adopt"
    """Keep it: LCM never removes it by itself."""
    DISOWN = "disown"
    """Let it be again what it is without its adoption."""


RECORDED_ONLY: Final = frozenset({LabAction.ADOPT, LabAction.DISOWN})
"""These change the record of a lab at once; the lablet controller carries out the others."""
KEPT_BY_PEOPLE: Final = frozenset({LabKind.FOREIGN, LabKind.ADOPTED})
"""LCM removes such a lab only for a person who types its title."""


class AdoptedAs(msgspec.Struct, frozen=True, kw_only=True):
    """The definition that an adopted lab is a lab of. Its needs never follow an edited definition."""

    definition_id: str
    name: str
    version: str
    needs: Capacity


class LabAdoption(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who decided that a lab is kept, and when."""

    by: str
    at: datetime
    definition: AdoptedAs | None = None
    """None: the person named none; the lab takes what its running nodes take."""


class LabRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An action that the lablet controller carries out."""

    action: LabAction
    asked_at: datetime
    by: str
    leak: LeakReason | None = None
    """The leak sweep requested it, and why; None: a person did."""
    title: str | None = None
    """The title that the person typed to remove a lab that is not LCM's."""
    error: str = ""
    """Of the last try."""
    is_over: bool = False
    """It failed and is not tried again."""


class ListedNode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A node of a lab, and what it needs while it runs."""

    id: CmlId
    label: Text = ""
    state: Text = ""
    cpu: Amount = 0.0
    memory_gb: Amount = 0.0
    x: float | None = None
    """Where it stands in the lab's picture, like the next."""
    y: float | None = None


class LabContents(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is inside a lab. It is read again only if the lab has changed."""

    nodes: Annotated[tuple[ListedNode, ...], Meta(max_length=MAX_NODES)] = ()
    tag_ports: Annotated[tuple[Port, ...], Meta(max_length=MAX_TAG_PORTS)] = ()
    """The outside ports in PATty's tags."""


class ListedLab(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A lab as CML describes it."""

    lab_id: CmlId
    title: Text
    state: Text
    owner: Text = ""
    """The name of the CML user."""
    node_count: Annotated[int, Meta(ge=0)] = 0
    modified_at: datetime | None = None
    mark: LabMark | None = None
    contents: LabContents | None = None
    """None: as reported before."""


class LabSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What the newest discovery of a worker's labs means for placement."""

    listed_at: datetime | None = None
    """When every lab was listed the last time."""
    is_partial: bool = False
    """LCM's account is no administrator of this CML: not all labs are seen, and none are removed."""
    foreign_ports: tuple[int, ...] = ()
    """Ports in the tags of labs that hold no claim."""
    foreign_load: Capacity = Capacity()
    """What the running nodes of those labs need."""
