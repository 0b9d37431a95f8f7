"""Decode CML's WebSocket frames. No sockets, no tasks: bytes go in, reports come out.

Most frames only repeat the load of a worker. So a frame of statistics is recognised by its first bytes and
kept undecoded; it is decoded when it is read, or once per report interval. Only frames of changes are
decoded at once. Invalid frames are counted and ignored. Counters are plain integers, read at each scrape.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

import msgspec

from lcm.domain.launch import WorkerId
from lcm.domain.telemetry import (
    ActivityEvent,
    LabChange,
    LabStats,
    LinkStats,
    NodeStats,
    Sample,
    SampleSource,
)

SYSTEM_STATS: Final = "system_stats"
LAB_STATS: Final = "lab_stats"
STATE_CHANGE: Final = "state_change"
LAB_EVENT: Final = "lab_event"
LAB_ELEMENT_EVENT: Final = "lab_element_event"
UNKNOWN: Final = "unknown"
GARBAGE: Final = "garbage"
EVENT_TYPES: Final = (
    SYSTEM_STATS,
    LAB_STATS,
    STATE_CHANGE,
    LAB_EVENT,
    LAB_ELEMENT_EVENT,
    UNKNOWN,
    GARBAGE,
)

MAX_LABS: Final = 256
"""Labs of one worker whose newest statistics are kept; the one that was silent longest is dropped."""
LAB_IS_RUNNING_SECONDS: Final = 30.0
"""A running lab sends statistics every 3.3 s; one that was silent this long is not running."""

SYSTEM_STATS_HEAD: Final = b'{"event_type":"system_stats"'
_SYSTEM_STATS_HEAD_END: Final = len(SYSTEM_STATS_HEAD)
_LAB_STATS_HEAD: Final = b'{"event_type":"lab_stats","lab_id":"'
_LAB_ID_END: Final = len(_LAB_STATS_HEAD) + 36
_GARBAGE_ERRORS: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""Not JSON, not UTF-8 (which msgspec reports as a ValueError), nested too deeply."""

_Id = Annotated[str, msgspec.Meta(max_length=64)]
_Word = Annotated[str, msgspec.Meta(max_length=64)]
_Text = Annotated[str, msgspec.Meta(max_length=1024)]


class _Cpu(msgspec.Struct, frozen=True, gc=False):
    percent: float | None = None


class _Room(msgspec.Struct, frozen=True, gc=False):
    used: float | None = None
    total: float | None = None

    @property
    def percent(self) -> float | None:
        if self.used is None or not self.total or self.total < 0:
            return None
        return _percent(100 * self.used / self.total)


class _Domains(msgspec.Struct, frozen=True, gc=False):
    running_nodes: int | None = None


class _HostLoad(msgspec.Struct, frozen=True, gc=False):
    dominfo: _Domains | None = None


class _Host(msgspec.Struct, frozen=True, gc=False):
    stats: _HostLoad | None = None


class _Whole(msgspec.Struct, frozen=True, gc=False):
    cpu: _Cpu | None = None
    memory: _Room | None = None
    disk: _Room | None = None


class SystemStats(msgspec.Struct, frozen=True, gc=False):
    """The load of a CML system; WebSocket and REST send the same."""

    all: _Whole
    computes: dict[str, _Host] = {}

    @property
    def nodes_count(self) -> int | None:
        """Running nodes of all hosts; None if no host reports them."""
        values = [
            host.stats.dominfo.running_nodes
            for host in self.computes.values()
            if host.stats and host.stats.dominfo and host.stats.dominfo.running_nodes is not None
        ]
        return sum(values) if values else None

    def sample(
        self,
        worker_id: WorkerId,
        at: datetime,
        source: SampleSource,
        labs_count: int | None = None,
    ) -> Sample:
        whole = self.all
        return Sample(
            worker_id=worker_id,
            collected_at=at,
            source=source,
            cpu_utilization=_percent(whole.cpu.percent) if whole.cpu else None,
            memory_utilization=whole.memory.percent if whole.memory else None,
            disk_utilization=whole.disk.percent if whole.disk else None,
            labs_count=labs_count,
            nodes_count=self.nodes_count,
        )


def _head_of(lab_id: str) -> bytes:
    """The first bytes of a frame of this lab's statistics."""
    return _LAB_STATS_HEAD + lab_id.encode()


def _percent(value: float | None) -> float | None:
    """Clamp to 0 … 100: CML's rounding can exceed 100."""
    return None if value is None else round(min(max(value, 0.0), 100.0), 2)


class _SystemStatsFrame(msgspec.Struct, frozen=True, gc=False):
    data: SystemStats


class LabLoad(msgspec.Struct, frozen=True, gc=False):
    """The load of a lab."""

    nodes: dict[_Id, NodeStats] = {}
    links: dict[_Id, LinkStats] = {}


class _LabStatsFrame(msgspec.Struct, frozen=True, gc=False):
    lab_id: _Id
    data: LabLoad


class _ChangeDetails(msgspec.Struct, frozen=True):
    """The fields of a change that are reported."""

    state: _Word | None = None
    title: _Text | None = None
    lab_title: _Text | None = None
    label: _Text | None = None
    node_definition: _Text | None = None
    owner: _Text | None = None
    node: _Id | None = None
    interface_a: _Id | None = None
    interface_b: _Id | None = None

    def as_data(self) -> dict[str, str]:
        if self is _NO_DETAILS:
            return {}
        values = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        if "lab_title" in values:
            values["title"] = values.pop("lab_title")
        return values


_NO_DETAILS: Final = _ChangeDetails()


class _Frame(msgspec.Struct, frozen=True):
    event_type: str
    lab_id: _Id | None = None
    event: _Word = ""
    element_type: _Word = "lab"
    element_id: _Id | None = None
    data: msgspec.Raw = msgspec.Raw()
    """Decoded only for changes; it borrows the frame, so it must not be kept."""


_frame = msgspec.json.Decoder(_Frame)
_system_stats = msgspec.json.Decoder(SystemStats)
_system_stats_frame = msgspec.json.Decoder(_SystemStatsFrame)
_lab_stats_frame = msgspec.json.Decoder(_LabStatsFrame)
_details = msgspec.json.Decoder(_ChangeDetails | None)

_ELEMENTS: Final = frozenset({"lab", "node", "interface", "link"})


_ACTIVITY: Final = {
    ("lab", "STARTED"): "start_lab",
    ("lab", "STOPPED"): "stop_lab",
    ("node", "QUEUED"): "queue_node",
    ("node", "STARTED"): "start_node",
}
"""Only people start and stop labs and nodes; booting happens without them."""


def activity_of(change: LabChange) -> ActivityEvent | None:
    """The activity event that a change stands for, if any."""
    category = _ACTIVITY.get((change.element_type, change.event.upper()))
    if category is None:
        return None
    element_id = change.element_id if change.element_type != "lab" else None
    return ActivityEvent(category=category, at=change.at, lab_id=change.lab_id, element_id=element_id)


def read_system_stats(body: bytes) -> SystemStats | None:
    """The answer of GET system_stats; None if it is invalid."""
    try:
        return _system_stats.decode(body)
    except _GARBAGE_ERRORS:
        return None


class FrameCounts:
    """Frames by kind, in plain integers: updated for every frame."""

    __slots__ = EVENT_TYPES

    def __init__(self) -> None:
        self.system_stats = 0
        self.lab_stats = 0
        self.state_change = 0
        self.lab_event = 0
        self.lab_element_event = 0
        self.unknown = 0
        self.garbage = 0

    def by_kind(self) -> dict[str, int]:
        return {kind: getattr(self, kind) for kind in EVENT_TYPES}

    @property
    def total(self) -> int:
        return sum(self.by_kind().values())


class _Newest:
    """The newest frame of one kind, undecoded, and when its content was last reported."""

    __slots__ = ("at", "payload", "reported_at", "reported_frame_at")

    def __init__(self) -> None:
        self.payload: bytes | None = None
        self.at = float("-inf")
        self.reported_at = float("-inf")
        self.reported_frame_at = float("-inf")

    def is_due(self, now: float, interval_seconds: float) -> bool:
        if now - self.reported_at < interval_seconds:
            return False
        return self.payload is not None and self.at > self.reported_frame_at

    def report(self, now: float) -> None:
        self.reported_at = now
        self.reported_frame_at = self.at


class LiveProtocol:
    """The frames of one worker. `feed` takes every frame; the other methods read what was received."""

    __slots__ = (
        "_began_at",
        "_labs",
        "_monotonic",
        "_now",
        "_on_change",
        "_other_at",
        "_stats",
        "_worker_id",
        "counts",
        "report_due_at",
    )

    def __init__(
        self,
        worker_id: WorkerId,
        monotonic: Callable[[], float],
        now: Callable[[], datetime],
        on_change: Callable[[LabChange], None],
        counts: FrameCounts | None = None,
    ) -> None:
        self._worker_id = worker_id
        self._monotonic = monotonic
        self._now = now
        self._on_change = on_change
        self._stats = _Newest()
        self._labs: dict[bytes, _Newest] = {}
        """By the first bytes of a lab's frames."""
        self.counts = counts if counts is not None else FrameCounts()
        """A caller's own counts continue those of an earlier connection."""
        self._other_at = float("-inf")
        self._began_at = 0.0
        self.report_due_at = float("-inf")
        """Before this moment there is nothing to report."""

    def begin(self) -> None:
        """Start a new connection."""
        self._began_at = self._monotonic()

    def feed(self, payload: bytes) -> bool:
        """Take a frame; return whether it is valid. Never raises. Called for every frame: keep it short."""
        if payload[:_SYSTEM_STATS_HEAD_END] == SYSTEM_STATS_HEAD:
            self.counts.system_stats += 1
            newest = self._stats
        else:
            lab = self._labs.get(payload[:_LAB_ID_END])
            if lab is None:
                return self._decode(payload)  # a change, a new lab, or an id that is no UUID
            self.counts.lab_stats += 1
            newest = lab
        newest.payload = payload
        newest.at = self._monotonic()
        return True

    def _decode(self, payload: bytes) -> bool:
        """Decode frames of changes, and those that do not begin as CML's do."""
        counts = self.counts
        try:
            frame = _frame.decode(payload)
            match frame.event_type:
                case "state_change":
                    self._change(frame)
                    counts.state_change += 1
                case "system_stats":
                    self._keep(self._stats, payload)
                    counts.system_stats += 1
                case "lab_stats" if frame.lab_id is not None:
                    head = _head_of(frame.lab_id)
                    self._keep(self._labs.get(head) or self._new_lab(head), payload)
                    counts.lab_stats += 1
                case "lab_event":
                    self._change(frame)
                    counts.lab_event += 1
                case "lab_element_event":
                    self._change(frame)
                    counts.lab_element_event += 1
                case _:
                    counts.unknown += 1
        except _GARBAGE_ERRORS:
            counts.garbage += 1
            return False
        self._other_at = self._monotonic()
        return True

    def _keep(self, newest: _Newest, payload: bytes) -> None:
        newest.payload = payload
        newest.at = self._monotonic()

    def _new_lab(self, head: bytes) -> _Newest:
        if len(self._labs) >= MAX_LABS:
            del self._labs[min(self._labs, key=lambda known: self._labs[known].at)]
        lab = self._labs[head] = _Newest()
        self.report_due_at = float("-inf")
        return lab

    def _change(self, frame: _Frame) -> None:
        event, element_type, element_id = frame.event, frame.element_type.lower(), frame.element_id
        data = (_details.decode(frame.data) if frame.data else None) or _NO_DETAILS
        event = event.upper() if frame.event_type == STATE_CHANGE else event.lower()
        if frame.event_type == LAB_EVENT:
            element_type, element_id = "lab", frame.lab_id
            if event == "state":
                event = (data.state or "").upper()
        if not (event and frame.lab_id and element_id):
            raise ValueError("a change without an element")
        if element_type not in _ELEMENTS:
            return  # annotations and the like have no state
        if element_type == "lab" and event == "deleted":
            self._labs.pop(_head_of(frame.lab_id), None)
        self._on_change(
            LabChange(
                worker_id=self._worker_id,
                lab_id=frame.lab_id,
                element_type=element_type,
                element_id=element_id,
                event=event,
                at=self._now(),
                data=data.as_data(),
            )
        )

    # Readable at any time.

    @property
    def stats_at(self) -> float:
        """A cheap proof that the connection delivers: CML sends these every few seconds."""
        return self._stats.at

    @property
    def last_message_at(self) -> float | None:
        """Monotonic time of the last valid frame."""
        newest = max([self._stats.at, self._other_at, *(lab.at for lab in self._labs.values())])
        return newest if newest > float("-inf") else None

    @property
    def latest_system_stats(self) -> SystemStats | None:
        """The newest frame, decoded now."""
        frame: _SystemStatsFrame | None = self._read(self._stats, _system_stats_frame)
        return frame.data if frame is not None else None

    @property
    def labs_count(self) -> int:
        """Running labs."""
        seen_after = self._monotonic() - LAB_IS_RUNNING_SECONDS
        return sum(lab.at > seen_after for lab in self._labs.values())

    # Reports.

    def schedule_next_report(self, interval_seconds: float) -> None:
        """Set when the oldest report is due again; a new lab makes it due at once.

        A lab that is not running any more is forgotten; if it runs again, it counts as new.
        """
        seen_after = self._monotonic() - LAB_IS_RUNNING_SECONDS
        oldest, silent = self._stats.reported_at, []
        for head, lab in self._labs.items():
            if lab.at <= seen_after:
                silent.append(head)
            elif lab.reported_at < oldest:
                oldest = lab.reported_at
        for head in silent:
            del self._labs[head]
        self.report_due_at = oldest + interval_seconds

    def take_sample(self, interval_seconds: float) -> Sample | None:
        """The newest load, if it changed and the last report is old enough."""
        now = self._monotonic()
        if not self._stats.is_due(now, interval_seconds):
            return None
        stats = self.latest_system_stats
        if stats is None:
            return None
        is_first = self._stats.reported_at < self._began_at
        self._stats.report(now)
        # Right after the login no lab has sent statistics yet: zero is unknown then.
        labs_count = self.labs_count or (None if is_first else 0)
        collected_at = self._now() - timedelta(seconds=now - self._stats.at)
        return stats.sample(self._worker_id, collected_at, SampleSource.WEBSOCKET, labs_count)

    def take_lab_stats(self, interval_seconds: float) -> list[LabStats]:
        """The newest load of each lab for which the same holds."""
        now, wall_time = self._monotonic(), self._now()
        taken: list[LabStats] = []
        for lab in self._labs.values():
            if not lab.is_due(now, interval_seconds):
                continue
            frame: _LabStatsFrame | None = self._read(lab, _lab_stats_frame)
            if frame is None:
                continue
            lab.report(now)
            taken.append(
                LabStats(
                    worker_id=self._worker_id,
                    lab_id=frame.lab_id,
                    nodes=frame.data.nodes,
                    links=frame.data.links,
                    collected_at=wall_time - timedelta(seconds=now - lab.at),
                )
            )
        return taken

    def _read(self, newest: _Newest, decoder: "msgspec.json.Decoder[Any]") -> Any:
        """Decode the kept frame; an invalid one is dropped and counted as garbage."""
        if newest.payload is None:
            return None
        try:
            return decoder.decode(newest.payload)
        except _GARBAGE_ERRORS:
            newest.payload = None
            self.counts.garbage += 1
            return None
