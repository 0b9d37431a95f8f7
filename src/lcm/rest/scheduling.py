"""Definitions, bookings, previews and explanations, as people and the dashboard see them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from lcm.domain.capacity import Capacity
from lcm.domain.lablet.audit import LabletAuditEntry
from lcm.domain.lablet.decision import Candidate, DecisionRecord, Eta, NextEvent, Outcome
from lcm.domain.lablet.definition import DefinitionOptions, DefinitionStatus, Demand, LabletDefinition
from lcm.domain.lablet.filters import Label, Rejection
from lcm.domain.lablet.forecast import FitOfSlot as FitOfSlot
from lcm.domain.lablet.forecast import Forecast as Forecast
from lcm.domain.lablet.ports import PortSpec
from lcm.domain.lablet.session import Nomination, WaitCode
from lcm.domain.lablet.states import SessionStatus
from lcm.domain.lablet.timeslot import Timeslot
from lcm.domain.lablet.topology import TopologyNode
from lcm.rest.lablets import LabletSessionView

MAX_SEATS = 200


# Definitions.


class LabletDefinitionView(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a definition, without its topology."""

    id: str
    name: str
    version: str
    owner: str
    created_at: datetime
    status: DefinitionStatus
    lab_yaml_hash: str
    node_count: int
    demand: Demand
    computed_needs: Capacity
    options: DefinitionOptions
    has_access_login: bool
    """Whether people get a login for the nodes with their session."""
    file_set: str | None
    """The set of fleet files that it was created from."""

    @staticmethod
    def of(
        definition: LabletDefinition, *, has_access_login: bool, file_set: str | None = None
    ) -> "LabletDefinitionView":
        viewed = {name: getattr(definition, name) for name in _VIEWED}
        return LabletDefinitionView(**viewed, has_access_login=has_access_login, file_set=file_set)


_VIEWED = tuple(
    name for name in LabletDefinitionView.__struct_fields__ if name in LabletDefinition.__struct_fields__
)


class LabletDefinitionPage(msgspec.Struct, frozen=True, kw_only=True):
    items: list[LabletDefinitionView]
    next: str | None = None
    """The cursor of the next page."""


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a worker, or a worker of a template, could run a lab if it were empty."""

    kind: str
    """`worker` or `template`."""
    name: str
    is_possible: bool
    reason: str = ""
    """Why not."""
    usd_per_hour: float | None = None


class TopologyWarning(msgspec.Struct, frozen=True, kw_only=True):
    line: int | None
    text: str


class TopologyAnalysis(msgspec.Struct, frozen=True, kw_only=True):
    """What a topology needs, and where it can run. Nothing is stored."""

    title: str
    needs: Capacity
    nodes: tuple[TopologyNode, ...]
    link_count: int
    links: tuple[tuple[int, int], ...]
    """The places of both ends among the nodes."""
    ports: tuple[PortSpec, ...]
    unknown_definitions: tuple[str, ...]
    """Node definitions whose needs are not known: the author has to state the needs of the lab."""
    warnings: tuple[TopologyWarning, ...]
    fits: tuple[Fit, ...]
    median_ready_seconds: float | None = None
    """In which half of its newest labs were ready, from their import on; None if too few are known."""


# Sessions and classes.


class SessionCreated(msgspec.Struct, frozen=True, kw_only=True):
    session: LabletSessionView
    forecast: Forecast


class BatchView(msgspec.Struct, frozen=True, kw_only=True):
    """A class: its sessions, counted by status."""

    id: str
    name: str
    size: int
    is_all_or_nothing: bool
    definition_name: str
    definition_version: str
    timeslot: Timeslot | None
    counts: Mapping[SessionStatus, int]
    sessions: list[LabletSessionView]


class BatchCreated(msgspec.Struct, frozen=True, kw_only=True):
    batch: BatchView
    forecast: Forecast


# Why, when, and what would be.


class WorkerReasons(msgspec.Struct, frozen=True, kw_only=True):
    """Why one worker does not take the session now; empty reasons: it could."""

    worker_id: str
    worker_name: str
    reasons: tuple[Rejection, ...]


class SessionExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a session waits and when it gets a worker: what the next cycle of the scheduler does."""

    session_id: str
    status: SessionStatus
    outcome: Outcome | None
    """What the next cycle does; None if the session does not wait."""
    code: WaitCode | None
    text: str
    """One sentence for people."""
    since: datetime | None
    worker_id: str | None
    """The worker that it has, gets, or counts on."""
    nomination: Nomination | None = None
    position: int = 0
    """Its place among the sessions that wait, from 1."""
    ahead: int = 0
    workers: tuple[WorkerReasons, ...] = ()
    counts: Mapping[Label, int] = {}
    candidates: tuple[Candidate, ...] = ()
    next_event: NextEvent | None = None
    eta: Eta | None = None
    warnings: tuple[str, ...] = ()
    forecast: Forecast | None = None
    """Of a booking whose window is not open."""
    is_scheduler_silent: bool = False
    """No scheduler leads, or it has not reported for a minute: nothing is placed until one does."""


class PreviewRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What would happen with so many seats of a definition, or of stated needs, in a timeslot."""

    definition_id: str | None = None
    needs: Capacity | None = None
    """Instead of a definition."""
    count: Annotated[int, Meta(ge=1, le=MAX_SEATS)] = 1
    timeslot: Timeslot | None = None
    """None: as soon as possible."""
    is_all_or_nothing: bool = False
    aws_region: str | None = None


class PreviewedSeat(msgspec.Struct, frozen=True, kw_only=True):
    outcome: Outcome
    code: WaitCode | None
    text: str
    worker_id: str | None
    worker_name: str | None
    eta: Eta | None


class PlannedLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """Workers that would be requested."""

    template: str
    region: str
    count: int
    usd_per_hour: float


class SchedulingPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What would happen; nothing is recorded."""

    verdict: FitOfSlot
    text: str
    seats: tuple[PreviewedSeat, ...]
    placed: int
    """Seats that a worker takes at once."""
    waiting: int
    impossible: int
    brought_back: tuple[str, ...] = ()
    """Names of workers whose drain would be cancelled or that would be started."""
    launches: tuple[PlannedLaunch, ...] = ()
    usd_per_hour: float | None = 0.0
    """Of the workers that would be started and launched; None if the price of one is not known."""
    usd_total: float | None = None
    """For the whole timeslot; None without one, or if a price is not known."""
    candidates: tuple[Candidate, ...] = ()
    workers: tuple[WorkerReasons, ...] = ()
    forecast: Forecast


class QueueEntry(msgspec.Struct, frozen=True, kw_only=True):
    session: LabletSessionView
    outcome: Outcome
    code: WaitCode | None
    text: str
    position: int
    worker_id: str | None
    likely_at: datetime | None = None
    """When it likely gets a worker; None where nothing is on the way but for the first of those."""


class SchedulingQueue(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions that wait, in the order in which they are decided, and what the next cycle does."""

    items: list[QueueEntry]
    is_scheduler_silent: bool


class CalendarStep(msgspec.Struct, frozen=True, kw_only=True):
    """Demand and capacity at one moment."""

    at: datetime
    sessions: int
    demand: Capacity
    capacity: Capacity
    """Of the workers that exist."""
    workers_needed: int
    workers_possible: int


class CalendarEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A class, or one session that belongs to none."""

    id: str
    name: str
    is_batch: bool
    seats: int
    definition_name: str
    start: datetime
    end: datetime | None
    """None for a session without a timeslot that is not ready yet."""
    counts: Mapping[SessionStatus, int]


class SchedulingCalendar(msgspec.Struct, frozen=True, kw_only=True):
    steps: list[CalendarStep]
    entries: list[CalendarEntry]


class PlacementPage(msgspec.Struct, frozen=True, kw_only=True):
    """Decisions, newest first."""

    items: list[DecisionRecord]
    next: str | None = None


class PlacementReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Decisions of one cycle that are worth a record."""

    items: Annotated[tuple[DecisionRecord, ...], Meta(max_length=500)]


class LabletAuditPage(msgspec.Struct, frozen=True, kw_only=True):
    items: list[LabletAuditEntry]
    next: str | None = None
