"""What a running worker does, as its CML and its cloud tell it: load, labs, signs of people."""

from datetime import datetime
from enum import StrEnum

import msgspec

from lcm.domain.launch import WorkerId


class MonitorState(StrEnum):
    """Where the live connection to a worker stands."""

    CONNECTING = "connecting"
    AUTHENTICATING = "authenticating"
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"
    FAILED = "failed"
    DISCONNECTED = "disconnected"
    DISABLED = "disabled"


class SampleSource(StrEnum):
    """Who measured."""

    WEBSOCKET = "websocket"
    REST = "rest"
    CLOUDWATCH = "cloudwatch"


class Sample(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The load of one worker at one moment, from one source; None is unknown, never zero."""

    worker_id: WorkerId
    collected_at: datetime
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


class NodeStats(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The load of one node of a lab."""

    cpu_usage: float | None = None
    """Percent, like the next."""
    ram_usage: float | None = None
    disk_usage: float | None = None
    """Megabytes."""


class LinkStats(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a link of a lab has carried so far."""

    readbytes: float | None = None
    readpackets: float | None = None
    writebytes: float | None = None
    writepackets: float | None = None
    drops: float | None = None


class LabStats(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The load of one lab at one moment."""

    worker_id: WorkerId
    lab_id: str
    nodes: dict[str, NodeStats]
    links: dict[str, LinkStats]
    collected_at: datetime


class LabChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A lab, or something in it, is now in another state.

    `event` is the new state, or created, modified, deleted; `data` is what CML told with it (title, label).
    """

    worker_id: WorkerId
    lab_id: str
    element_type: str
    """lab, node, interface or link."""
    element_id: str
    event: str
    at: datetime
    data: dict[str, str] = {}


class ActivityEvent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sign that somebody uses a worker."""

    category: str
    """As CML's telemetry names it: start_lab, stop_lab, queue_node, start_node, …"""
    at: datetime
    lab_id: str | None = None
    element_id: str | None = None
