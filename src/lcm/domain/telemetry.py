"""Telemetry of a running worker from CML and CloudWatch: load, labs, activity."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec.structs import replace

from lcm.domain.lablet.listed_lab import LabAdoption, LabKind, LabMark, LabRequest, LeakReason
from lcm.domain.launch import WorkerId

Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with its zone: times that come from outside are compared with ours."""

Count = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | float
"""An int stays an int, for there are many: encoding an int costs a third of encoding a float."""


class MonitorState(StrEnum):
    """The state of the WebSocket connection to a worker."""

    CONNECTING = "connecting"
    AUTHENTICATING = "authenticating"
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"
    FAILED = "failed"
    DISCONNECTED = "disconnected"
    DISABLED = "disabled"


class SampleSource(StrEnum):
    """The source of a measurement."""

    WEBSOCKET = "websocket"
    REST = "rest"
    CLOUDWATCH = "cloudwatch"


class Sample(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """The load of one worker at one moment, from one source; None is unknown, never zero."""

    worker_id: WorkerId
    collected_at: Moment
    source: SampleSource
    cpu_utilization: float | None = None
    """Percent, like the two below."""
    memory_utilization: float | None = None
    disk_utilization: float | None = None
    network_in_bytes: float | None = None
    """Per second, like the three below."""
    network_out_bytes: float | None = None
    disk_read_bytes: float | None = None
    disk_write_bytes: float | None = None
    labs_count: int | None = None
    nodes_count: int | None = None


def merged(older: Sample, newer: Sample) -> Sample:
    """Both as one: what the newer one does not know is taken from the older one."""
    known = {name: value for name in newer.__struct_fields__ if (value := getattr(newer, name)) is not None}
    return msgspec.structs.replace(older, **known)


class NodeStats(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The load of one node of a lab."""

    cpu_usage: float | None = None
    """Percent, like the next."""
    ram_usage: float | None = None
    disk_usage: float | None = None
    """Megabytes."""


class LinkStats(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The traffic counters of a link of a lab."""

    readbytes: Count | None = None
    readpackets: Count | None = None
    writebytes: Count | None = None
    writepackets: Count | None = None
    drops: Count | None = None


class LabStats(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """The load of one lab at one moment."""

    worker_id: WorkerId
    lab_id: str
    nodes: dict[str, NodeStats]
    links: dict[str, LinkStats]
    collected_at: Moment


class LabChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of state of a lab or of an element in it.

    `event` is the new state, or created, modified, deleted; `data` is what CML sent with it (title, label).
    """

    worker_id: WorkerId
    lab_id: str
    element_type: str
    """lab, node, interface or link."""
    element_id: str
    event: str
    at: Moment
    data: dict[str, str] = {}


ACTIVITY_CATEGORIES: Final = frozenset(
    {
        "start_lab",
        "stop_lab",
        "create_lab",
        "import_lab",
        "export_lab",
        "wipe_lab",
        "delete_lab",
        "start_node",
        "stop_node",
        "queue_node",
        "boot_node",
        "wipe_node",
        "packet_capture",
        "user_activity",
    }
)
"""Categories of CML's telemetry that are activity of people; CML 2.9 has no {create,wipe,delete}_lab."""


class ActivityEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An activity of a person on a worker."""

    category: str
    """As CML's telemetry names it: start_lab, stop_lab, queue_node, start_node, …"""
    at: Moment
    lab_id: str | None = None
    element_id: str | None = None


class ActivityMark(msgspec.Struct, frozen=True, kw_only=True):
    """The last report of a stream, of activity or of connection states, that was recorded."""

    stream: str
    last_sequence: int


MAX_NODES_PER_LAB: Final = 500
MAX_TEXT: Final = 200
"""Characters kept of a title, a label or a state: they are untrusted input."""


class LabNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a lab, as far as it is known."""

    label: str | None = None
    state: str | None = None
    cpu: float = 0.0
    """What it needs while it runs, as far as discovery has read it, like the next."""
    memory_gb: float = 0.0
    x: float | None = None
    """Where it stands in the lab's picture, as far as discovery has read it, like the next."""
    y: float | None = None
    updated_at: datetime


class LabRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a lab on a worker."""

    worker_id: WorkerId
    lab_id: str
    title: str | None = None
    state: str | None = None
    nodes: dict[str, LabNode] = {}
    updated_at: datetime
    discovery_wanted: bool = False
    """It was first observed after its creation: the rest of it must be requested from CML."""

    kind: LabKind | None = None
    """Whose it is; None as long as no discovery has shown it."""
    session_id: str | None = None
    """The lablet session that owns it, or that its marker names."""
    leak: LeakReason | None = None
    leaked_since: datetime | None = None
    """The first of the uninterrupted full listings that showed it leaked."""
    leak_kept: str = ""
    """Why LCM does not remove it although it is leaked."""
    mark: LabMark | None = None
    owner: str = ""
    """The CML user who owns it."""
    node_count: int | None = None
    modified_at: datetime | None = None
    tag_ports: tuple[int, ...] = ()
    """The outside ports in the tags of its nodes."""
    first_seen_at: datetime | None = None
    """By discovery, like the next two."""
    last_seen_at: datetime | None = None
    """Known only while it is missing; otherwise the last listing of the worker showed it."""
    missing_since: datetime | None = None
    """The first full listing that lacked it."""
    request: LabRequest | None = None
    """What a person or the leak sweep requested of it."""
    adoption: LabAdoption | None = None
    """Who keeps it; it ends with the lab, or with its record."""


_LIFE: Final = frozenset({"created", "modified", "deleted"})


def lab_after(record: LabRecord | None, changes: Sequence[LabChange]) -> LabRecord | None:
    """The lab after these changes, in this order; None if it is deleted.

    A change that is older than the record of its element is ignored, so that a repeated report changes
    nothing.
    """
    for change in changes:
        record = _with_change(record, change)
    return record


def undiscovered_lab(worker_id: WorkerId, lab_id: str, *, at: datetime) -> LabRecord:
    """A running lab of which only the load is known yet: the rest must be requested from CML."""
    return LabRecord(worker_id=worker_id, lab_id=lab_id, updated_at=at, discovery_wanted=True)


def _with_change(record: LabRecord | None, change: LabChange) -> LabRecord | None:
    what = change.event.lower()
    is_lab = change.element_type == "lab"
    if record is None:
        if what == "deleted":
            return None
        is_whole = is_lab and what == "created"
        record = LabRecord(
            worker_id=change.worker_id,
            lab_id=change.lab_id,
            updated_at=change.at,
            discovery_wanted=not is_whole,
        )
    elif is_lab and change.at < record.updated_at:
        return record
    if is_lab:
        return None if what == "deleted" else _with_lab_change(record, change, what)
    if change.element_type == "node":
        return _with_node_change(record, change, what)
    return record


def _with_lab_change(record: LabRecord, change: LabChange, what: str) -> LabRecord:
    title = change.data.get("title") or change.data.get("lab_title")
    return replace(
        record,
        title=_clipped(title) or record.title,
        state=_clipped(change.data.get("state") if what in _LIFE else change.event) or record.state,
        updated_at=change.at,
    )


def _with_node_change(record: LabRecord, change: LabChange, what: str) -> LabRecord:
    known = record.nodes.get(change.element_id)
    if known is not None and change.at < known.updated_at:
        return record
    if what == "deleted":
        others = {node_id: node for node_id, node in record.nodes.items() if node_id != change.element_id}
        return replace(record, nodes=others)
    if known is None and len(record.nodes) >= MAX_NODES_PER_LAB:
        return record
    state = _clipped(change.data.get("state") if what in _LIFE else change.event)
    known = known or LabNode(updated_at=change.at)
    node = replace(
        known,
        label=_clipped(change.data.get("label")) or known.label,
        state=state or known.state,
        updated_at=change.at,
    )
    return replace(record, nodes={**record.nodes, change.element_id: node})


def _clipped(text: str | None) -> str | None:
    return text[:MAX_TEXT] if text else None
