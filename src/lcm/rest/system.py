"""What the processes of LCM report of themselves, and the whole as people see it."""

from datetime import datetime
from typing import Annotated, Final

import msgspec

from lcm.domain.telemetry import MonitorState

REPORT_SECONDS: Final = 10.0
"""How often a process reports itself."""
MAX_ORPHANS: Final = 200
"""The most orphans that are shown one by one."""

_Text = Annotated[str, msgspec.Meta(max_length=4_000)]
_Texts = Annotated[tuple[_Text, ...], msgspec.Meta(max_length=100)]


class ControllerState(msgspec.Struct, frozen=True, kw_only=True):
    """What a controller does now."""

    is_leader: bool
    epoch: int | None
    coordination: _Text
    """`elected`, or `alone` when no coordination store is configured."""
    is_watching: bool
    """Whether it watches the coordination store; otherwise it polls."""
    last_reconciliation: datetime | None
    in_progress: int
    waiting: int
    """Resources that are due and wait for a slot."""
    scheduled: int
    """Resources to be reconciled again later."""
    retrying: int
    """Resources whose last reconcile failed."""


class OrphanView(msgspec.Struct, frozen=True, kw_only=True):
    """An instance with our tags that no record owns."""

    instance_id: _Text
    region: _Text
    state: _Text
    kind: _Text
    worker_id: _Text
    detail: _Text


class RegionScan(msgspec.Struct, frozen=True, kw_only=True):
    """The last search of a region for instances without a worker."""

    region: _Text
    at: datetime
    error: _Text
    """Why it failed; empty if it did not."""
    found: int
    imported: int


class FleetFinds(msgspec.Struct, frozen=True, kw_only=True):
    """What the leading worker controller found in EC2 besides the workers."""

    scans: Annotated[tuple[RegionScan, ...], msgspec.Meta(max_length=100)]
    orphans: Annotated[tuple[OrphanView, ...], msgspec.Meta(max_length=MAX_ORPHANS)]
    orphan_count: int
    may_terminate: bool
    """Whether orphans are terminated, or only reported."""
    dry_run_reasons: dict[str, str]
    """Why orphans of a region are only reported at present."""


class ProcessReport(msgspec.Struct, frozen=True, kw_only=True):
    """One process, as it is now. A newer version may send more than an older one reads."""

    service: Annotated[str, msgspec.Meta(pattern=r"^[a-z-]{1,40}$")]
    instance_id: _Text
    version: _Text
    started_at: datetime
    loop_lag_seconds: float
    """How late the event loop ran its timers, the worst of ten seconds."""
    frozen: _Texts
    """What is missing; a controller starts, stops and terminates nothing meanwhile."""
    silent_loops: _Texts
    controller: ControllerState | None = None
    """Null for a control plane."""
    finds: FleetFinds | None = None
    """Null for all but the leading worker controller."""


class ProcessView(msgspec.Struct, frozen=True, kw_only=True):
    """A process with its last report."""

    report: ProcessReport
    reported_at: datetime
    is_silent: bool
    """Whether three reports in a row are missing."""


class LeaderView(msgspec.Struct, frozen=True, kw_only=True):
    """The newest leader of a service, and by which right."""

    service: str
    instance_id: str | None
    """Null until one has led."""
    epoch: int
    since: datetime | None
    is_reporting: bool
    """Whether this instance reports that it leads."""


class SystemProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that needs a person, in a sentence; the code is for programs."""

    code: str
    text: str


class AdoptedWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker whose instance was found, not launched by LCM."""

    worker_id: str
    name: str
    is_trusted: bool
    """It was adopted; without that its CML gets no login, license or sessions."""


class SystemView(msgspec.Struct, frozen=True, kw_only=True):
    """How LCM itself is doing."""

    at: datetime
    problems: list[SystemProblem]
    leaders: list[LeaderView]
    processes: list[ProcessView]
    monitors: dict[MonitorState, int]
    """Running workers by the state of their WebSocket."""
    adopted: list[AdoptedWorker]
    finds: FleetFinds | None
    """Null until the leading worker controller has reported."""
