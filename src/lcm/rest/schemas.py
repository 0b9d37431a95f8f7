"""What travels between the control plane and those who talk to it.

Answers and the controllers' reports are msgspec structs: one definition gives the encoder, the
strict decoder and the OpenAPI schema. What people send is checked by pydantic at the public routes.
"""

from datetime import datetime
from typing import Annotated, Any

import msgspec

from lcm.domain.capacity import Capacity
from lcm.domain.idle import PauseGuard
from lcm.domain.launch import InstanceId, LaunchSpec, WorkerId
from lcm.domain.license import License, LicenseDebt, LicenseOperation, LicenseStatus
from lcm.domain.lifecycle import DesiredStatus, WorkerStatus
from lcm.domain.requests import possible_actions
from lcm.domain.scaling import AuditEntry, AuditEvent
from lcm.domain.telemetry import (
    ActivityEvent,
    LabChange,
    LabRecord,
    LabStats,
    LinkStats,
    Moment,
    MonitorState,
    NodeStats,
    Sample,
    SampleSource,
)
from lcm.domain.template import WorkerTemplate
from lcm.domain.worker import (
    Action,
    CmlHealth,
    CmlLicense,
    HistoryEntry,
    Hold,
    Instance,
    PauseReason,
    SystemInfo,
    Worker,
)

API_KEY_HEADER = "X-API-Key"
SERVICE_HEADER = "X-LCM-Service"
EPOCH_HEADER = "X-LCM-Epoch"
PROBLEM_TYPE_PREFIX = "urn:lcm:problem:"
MAX_SYSTEM_INFO = 50


class LicenseView(msgspec.Struct, frozen=True, kw_only=True):
    """The license of a worker as people see it: whether a token waits, never which one."""

    declared: bool
    status: LicenseStatus
    tier: str | None
    pending_operation: LicenseOperation | None
    pending_token: bool
    operation_in_progress: bool
    attempts: int
    last_error: str
    changed_at: datetime | None

    @staticmethod
    def of(license: License) -> "LicenseView":
        return LicenseView(
            declared=license.declared,
            status=license.status,
            tier=license.tier,
            pending_operation=license.pending_operation,
            pending_token=license.token_ref is not None,
            operation_in_progress=license.operation_in_progress,
            attempts=license.attempts,
            last_error=license.last_error,
            changed_at=license.changed_at,
        )


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as people see it."""

    id: WorkerId
    name: str
    template_name: str
    aws_region: str
    tags: dict[str, str]
    created_at: datetime
    created_by: str
    updated_at: datetime
    version: int
    generation: int
    desired_status: DesiredStatus
    status: WorkerStatus
    status_reason: str
    ec2_instance_id: InstanceId | None
    instance_type: str | None
    ami_id: str | None
    ami_name: str | None
    ami_description: str | None
    ami_creation_date: str | None
    public_ip: str | None
    private_ip: str | None
    cml_version: str | None
    cml_ready: bool
    cml_username: str | None
    """As whom LCM asks its CML; null: with the fleet's login."""
    imported: bool
    labs_count: int | None
    ws_connected: bool
    ws_status: MonitorState | None
    last_activity_at: datetime | None
    is_idle_detection_enabled: bool
    target_pause_at: datetime | None
    hold: Hold | None
    pause_reason: PauseReason | None
    last_paused_at: datetime | None
    last_paused_by: str | None
    last_resumed_at: datetime | None
    sessions: tuple[str, ...]
    declared_capacity: Capacity | None
    allocated_capacity: Capacity
    drain_started_at: datetime | None
    drain_deadline_at: datetime | None
    license: LicenseView
    possible_actions: tuple[Action, ...]

    @staticmethod
    def of(worker: Worker) -> "WorkerView":
        shared = {name: getattr(worker, name) for name in _SHARED_FIELDS}
        return WorkerView(
            **shared,
            cml_username=worker.cml_login.username if worker.cml_login else None,
            license=LicenseView.of(worker.license),
            possible_actions=tuple(sorted(possible_actions(worker))),
        )


_DERIVED_FIELDS = ("cml_username", "license", "possible_actions")
_SHARED_FIELDS = [n for n in WorkerView.__struct_fields__ if n not in _DERIVED_FIELDS]


class WorkerPage(msgspec.Struct, frozen=True, kw_only=True):
    """Workers by name; `next` asks for the rest."""

    items: list[WorkerView]
    next: str | None = None


class WorkerRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Whole records, for controllers."""

    items: list[Worker]


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker came to be what it is, oldest first."""

    items: tuple[HistoryEntry, ...]


class LoadPoint(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The load at one moment, in percent; None is unknown."""

    at: float
    """Seconds since 1970."""
    cpu_utilization: float | None
    memory_utilization: float | None
    disk_utilization: float | None


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's load: the newest sample of each source, and the last points for a chart, oldest first."""

    worker_id: WorkerId
    samples: list[Sample]
    points: list[LoadPoint]


class LabList(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the labs on a worker."""

    items: list[LabRecord]


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """The newest signs of people on a worker, newest first."""

    worker_id: WorkerId
    last_activity_at: datetime | None
    last_activity_check_at: datetime | None
    recent_activity_events: tuple[ActivityEvent, ...]


class TemplateList(msgspec.Struct, frozen=True, kw_only=True):
    """Templates, cheapest first."""

    items: list[WorkerTemplate]


class RegionView(msgspec.Struct, frozen=True, kw_only=True):
    """A region workers can be put in."""

    name: str
    is_default: bool


class RegionList(msgspec.Struct, frozen=True, kw_only=True):
    items: list[RegionView]


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """Who is signed in."""

    actor: str
    role: str


class FieldError(msgspec.Struct, frozen=True, kw_only=True):
    field: str
    message: str


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An RFC 9457 problem document; `detail` says what to do."""

    type: str
    title: str
    status: int
    detail: str
    allowed: list[str] = []
    """What is possible instead, if the request was refused because of a worker's status."""
    errors: list[FieldError] = []
    """What is wrong with which field."""


# What controllers report. `expected_version` makes a report a compare-and-set: it is refused if the
# record changed since the controller read it.


class StatusReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker's status is now this, for this reason."""

    status: WorkerStatus
    reason: str
    expected_version: int
    observed: bool = False
    """Whether EC2 did it by itself."""
    instance: Instance | None = None
    """The instance this worker is, if that is news."""


class LaunchIntentRecorded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Promise this launch before it is asked of EC2."""

    spec: LaunchSpec
    expected_version: int


class LaunchIntentWithdrawn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The promised instance is gone for good, or was `refused` and never existed."""

    reason: str
    expected_version: int
    refused: bool = False


class InstanceReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The worker's instance, with its present addresses."""

    instance: Instance
    expected_version: int


class CmlReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the worker's CML says about itself."""

    ready: bool
    version: str | None = None
    certificate_sha256: str | None = None
    system_info: Annotated[SystemInfo, msgspec.Meta(max_length=MAX_SYSTEM_INFO)] | None = None
    """As `system_information` tells it. Like the next two: left out means no news."""
    health: CmlHealth | None = None
    license: CmlLicense | None = None


class ActivityReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Signs of people on one worker, in the order they were seen.

    `stream` names the observer's run and `last_sequence` counts its events for this worker up to the last
    one here: what was told before is recognised and counts once.
    """

    worker_id: WorkerId
    activity_events: list[ActivityEvent]
    source: SampleSource
    stream: str
    last_sequence: int


class LiveReports(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Whatever came in from all workers since the last report; sent together because that is cheap."""

    samples: list[Sample] = []
    lab_stats: list[LabStats] = []
    lab_changes: list[LabChange] = []
    activity: list[ActivityReport] = []


class LiveReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """What became of live reports; those of unknown or resting workers are dropped."""

    accepted: int
    dropped: int


# The same facts about one worker, for whoever reports them one at a time.


class MetricsReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sample of the worker in the path."""

    collected_at: Moment
    source: SampleSource
    cpu_utilization: float | None = None
    memory_utilization: float | None = None
    disk_utilization: float | None = None
    network_in_bytes: float | None = None
    network_out_bytes: float | None = None
    disk_read_bytes: float | None = None
    disk_write_bytes: float | None = None
    labs_count: int | None = None
    nodes_count: int | None = None


class ActivityEvents(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Signs of people on the worker in the path; with a stream, repeats are recognised by their number."""

    activity_events: list[ActivityEvent]
    source: SampleSource
    stream: str | None = None
    last_sequence: int = 0


class LabStatsReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The load of the lab in the path."""

    nodes: dict[str, NodeStats]
    links: dict[str, LinkStats]
    collected_at: Moment


class LabStateChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of a lab on the worker in the path; it happened now unless it says when."""

    event: str
    element_type: str
    element_id: str
    lab_id: str
    data: dict[str, str] = {}
    at: Moment | None = None


class WebSocketReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the live connection to a worker stands, and since when."""

    connected: bool
    status: MonitorState
    reason: str = ""
    connected_at: Moment | None = None
    disconnected_at: Moment | None = None
    stream: str = ""
    """Whose account this is: of its reports one with a lower `sequence` that comes later is dropped."""
    sequence: int = 0


class TelemetryEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of CML's `telemetry/events`."""

    category: str
    timestamp: datetime
    data: dict[str, Any] = {}


class IdleCheckRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Judge whether a worker is used; `raw_telemetry_events` is null if CML could not be asked.

    `asked_at` is when it was asked: what arrives late proves nothing. Without it, just now.
    """

    force_check: bool = False
    raw_telemetry_events: list[TelemetryEvent] | None = None
    asked_at: Moment | None = None
    suppress_auto_pause: bool = False


class IdleCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What came of judging whether a worker is used."""

    worker_id: WorkerId
    checked_at: datetime
    telemetry_fetched: bool
    activity_updated: bool
    idle_check_performed: bool
    auto_pause_triggered: bool
    is_idle: bool
    idle_minutes: float
    eligible_for_pause: bool
    in_snooze_period: bool
    guard: PauseGuard | None = None
    """What forbids a pause now; null if nothing does."""
    next_check_at: datetime | None = None
    error: str | None = None


class IdleStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker stands between use and pause."""

    worker_id: WorkerId
    is_idle_detection_enabled: bool
    is_idle: bool
    idle_minutes: float
    eligible_for_pause: bool
    in_snooze_period: bool
    guard: PauseGuard | None
    last_activity_at: datetime | None
    last_activity_check_at: datetime | None
    next_idle_check_at: datetime | None
    target_pause_at: datetime | None
    hold: Hold | None
    pause_reason: PauseReason | None
    last_paused_at: datetime | None
    last_paused_by: str | None
    last_resumed_at: datetime | None
    auto_pause_count: int
    manual_pause_count: int
    auto_resume_count: int
    manual_resume_count: int


class SessionChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A lablet session comes to a worker, which promises it what it needs."""

    session_id: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    needs: Capacity | None = None


class LicenseReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a license operation went."""

    reason: str = ""
    tier: str | None = None
    is_free: bool = False
    """CML says that it holds none."""
    is_debt: bool = False
    """The license is given up although it is not known to be free."""


class LicenseToken(msgspec.Struct, frozen=True, kw_only=True):
    """For the worker controller alone."""

    token: str

    def __repr__(self) -> str:
        return "LicenseToken(…)"


class CmlCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's own login, for the worker controller alone."""

    username: str
    password: str
    secret_ref: str
    """As the record names it: an answer to an older question is of another login."""

    def __repr__(self) -> str:
        return f"CmlCredentials({self.username!r}, …)"


class LicenseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Whether workers that are meant to be licensed can be, without being given a token each."""

    has_token: bool


class LicenseDebts(msgspec.Struct, frozen=True, kw_only=True):
    """Licenses that may still be in use by workers that are gone, oldest first."""

    items: list[LicenseDebt]


class ScaleUpRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Placement found no room: add a worker of this template."""

    template: str
    reason: str
    aws_region: str | None = None


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A controller did, or did not do, something about the size of the fleet."""

    event: AuditEvent
    reason: str
    worker_id: str | None = None


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """Scaling decisions, newest first; `next` asks for older ones."""

    items: list[AuditEntry]
    next: str | None = None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a worker is in its state and what happens next, in sentences; codes are for programs."""

    worker_id: WorkerId
    status: WorkerStatus
    desired_status: DesiredStatus
    code: str
    summary: str
    holding: list["Reason"]
    next: list["Reason"]


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that holds a worker where it is, or that will happen to it."""

    code: str
    text: str
    at: datetime | None = None


class CostLine(msgspec.Struct, frozen=True, kw_only=True):
    """What something costs: now per hour, this month so far, and what pausing saved this month."""

    key: str
    usd_per_hour: float
    usd_this_month: float
    usd_saved_this_month: float
    running_hours_this_month: float
    paused_hours_this_month: float


class CostReport(msgspec.Struct, frozen=True, kw_only=True):
    """Costs in US dollars of the calendar month (UTC); prices are those of the templates."""

    month: str
    total: CostLine
    by_worker: list[CostLine]
    by_template: list[CostLine]
    by_region: list[CostLine]


class LeadershipClaim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An election was won: with this key revision, in the store of this identity."""

    service: str
    cluster_id: str
    revision: int
    instance_id: str


class LeadershipGrant(msgspec.Struct, frozen=True, kw_only=True):
    """The epoch to send with every write."""

    epoch: int
