"""The messages between the control plane and its clients.

Answers and the controllers' reports are msgspec structs: one definition gives the encoder, the
strict decoder and the OpenAPI schema. Requests of people are validated by pydantic at the public routes.
"""

from datetime import datetime
from typing import Annotated, Any

import msgspec

from lcm.domain.capacity import Capacity
from lcm.domain.idle import ControllerTerms, PauseGuard
from lcm.domain.lablet.claim import ports_of
from lcm.domain.launch import InstanceId, LaunchSpec, WorkerId
from lcm.domain.license import License, LicenseDebt, LicenseOperation, LicenseStatus, LicenseTerms
from lcm.domain.lifecycle import DesiredStatus, WorkerStatus
from lcm.domain.load_history import HistoryRange
from lcm.domain.pause import Extraction, PauseReason
from lcm.domain.readiness import CmlAttempt
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
    Discovered,
    HistoryEntry,
    Hold,
    Instance,
    SystemInfo,
    Worker,
)

API_KEY_HEADER = "X-API-Key"
SERVICE_HEADER = "X-LCM-Service"
WORKER_CONTROLLER = "worker-controller"
RESOURCE_SCHEDULER = "resource-scheduler"
LABLET_CONTROLLER = "lablet-controller"
CONTROL_PLANE = "control-plane"
"""Names of services: each controller has epochs of its own; control planes are peers of each other."""
EPOCH_HEADER = "X-LCM-Epoch"
PROBLEM_TYPE_PREFIX = "urn:lcm:problem:"
MAX_SYSTEM_INFO = 50


class LicenseView(msgspec.Struct, frozen=True, kw_only=True):
    """The public view of a worker's license: whether a token is pending, never which one."""

    declared: bool
    status: LicenseStatus
    tier: str | None
    pending_operation: LicenseOperation | None
    pending_token: bool
    operation_in_progress: bool
    attempts: int
    last_error: str
    changed_at: datetime | None
    terms: LicenseTerms
    """What is set on CML for its license besides, as last requested."""

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
            terms=license.terms,
        )


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """The public view of a worker."""

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
    """The user name that LCM uses on the worker's CML; null: the fleet's login."""
    cml_certificate_sha256: str | None
    """The pinned certificate: LCM sends nothing to a server with another one."""
    cml_refused_certificate_sha256: str | None
    """The certificate that CML presents instead of the pinned one; an admin may accept it."""
    cml_system_info: SystemInfo
    """What CML reports of itself, besides version and readiness."""
    cml_health: CmlHealth | None
    """The result of CML's own health check."""
    cml_license: CmlLicense | None
    """What CML reports of its license."""
    imported: bool
    file_set: str | None
    """The set of fleet files that it was created from."""
    is_trusted: bool
    """Whether its CML may get LCM's login: LCM launched it, or an admin adopted it."""
    discovered: Discovered | None
    """Where the instance was found, if LCM did not launch it, and who adopted it."""
    labs_count: int | None
    ws_connected: bool
    ws_status: MonitorState | None
    last_activity_at: datetime | None
    is_idle_detection_enabled: bool
    target_pause_at: datetime | None
    hold: Hold | None
    pause_reason: PauseReason | None
    config_extraction: Extraction | None
    """Of the configurations of its nodes, before the stop of this pause; null if none was requested."""
    last_paused_at: datetime | None
    last_paused_by: str | None
    last_resumed_at: datetime | None
    sessions: tuple[str, ...]
    nominations: dict[str, datetime]
    """Waiting lablet sessions that count on it, and when they are expected to take it."""
    ports: tuple[int, ...]
    """The ports that lablet sessions have of it."""
    declared_capacity: Capacity | None
    allocated_capacity: Capacity
    drain_started_at: datetime | None
    drain_deadline_at: datetime | None
    license: LicenseView
    possible_actions: tuple[Action, ...]

    @staticmethod
    def of(worker: Worker) -> "WorkerView":
        instance, cml, pause = worker.instance, worker.cml, worker.pause
        return WorkerView(
            id=worker.id,
            name=worker.name,
            template_name=worker.template_name,
            aws_region=worker.aws_region,
            tags=worker.tags,
            created_at=worker.created_at,
            created_by=worker.created_by,
            updated_at=worker.updated_at,
            version=worker.version,
            generation=worker.generation,
            desired_status=worker.desired_status,
            status=worker.status,
            status_reason=worker.status_reason,
            ec2_instance_id=instance.id,
            instance_type=instance.type,
            ami_id=instance.ami_id,
            ami_name=instance.ami_name,
            ami_description=instance.ami_description,
            ami_creation_date=instance.ami_creation_date,
            public_ip=instance.public_ip,
            private_ip=instance.private_ip,
            cml_version=cml.version,
            cml_ready=cml.is_ready,
            cml_username=cml.login.username if cml.login else None,
            cml_certificate_sha256=cml.certificate_sha256,
            cml_refused_certificate_sha256=cml.refused_certificate_sha256,
            cml_system_info=cml.system_info,
            cml_health=cml.health,
            cml_license=cml.license,
            imported=worker.imported,
            file_set=worker.file_set,
            is_trusted=worker.is_trusted,
            discovered=worker.discovered,
            labs_count=cml.labs_count,
            ws_connected=worker.connection.is_connected,
            ws_status=worker.connection.status,
            last_activity_at=worker.activity.last_at,
            is_idle_detection_enabled=worker.is_idle_detection_enabled,
            target_pause_at=pause.due_at,
            hold=worker.hold,
            pause_reason=pause.reason,
            config_extraction=pause.extraction,
            last_paused_at=pause.last_paused_at,
            last_paused_by=pause.last_paused_by,
            last_resumed_at=pause.last_resumed_at,
            sessions=worker.sessions,
            nominations=worker.nominations,
            ports=tuple(sorted(ports_of(worker.claims))),
            declared_capacity=worker.declared_capacity,
            allocated_capacity=worker.allocated_capacity,
            drain_started_at=pause.since if pause.is_draining else None,
            drain_deadline_at=pause.until,
            license=LicenseView.of(worker.license),
            possible_actions=tuple(sorted(possible_actions(worker))),
        )


class WorkerPage(msgspec.Struct, frozen=True, kw_only=True):
    """Workers by name; `next` is the cursor of the next page."""

    items: list[WorkerView]
    next: str | None = None


class WorkerRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Whole records, for controllers."""

    items: list[Worker]


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """The status changes of a worker, oldest first."""

    items: tuple[HistoryEntry, ...]


class CmlAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How the CML of a worker is reached now, without a password."""

    worker_id: WorkerId
    host: str
    port: int
    url: str
    version: str | None
    username: str | None
    """The user name that LCM uses on it; null: that of the fleet."""
    certificate_sha256: str | None
    """The digest of the pinned certificate; null as long as none is."""


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


class HistoryPoint(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The mean load in one interval; None is unknown."""

    at: float
    """The begin of the interval, in seconds since 1970."""
    cpu_utilization: float | None
    """Percent, like the two below."""
    memory_utilization: float | None
    disk_utilization: float | None
    network_in_bytes: float | None
    """Per second, like the one below."""
    network_out_bytes: float | None


class LoadHistory(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's load over a range of time, oldest first, without intervals of which nothing is known."""

    worker_id: WorkerId
    range: HistoryRange
    since: float
    """In seconds since 1970, like the next."""
    until: float
    step_seconds: int
    """The length of an interval."""
    gap_seconds: int
    """Between points further apart than this the load is unknown."""
    points: list[HistoryPoint]


class LabList(msgspec.Struct, frozen=True, kw_only=True):
    """The labs on a worker, as last observed."""

    items: list[LabRecord]


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """The latest activity on a worker, newest first."""

    worker_id: WorkerId
    last_activity_at: datetime | None
    last_activity_check_at: datetime | None
    recent_activity_events: tuple[ActivityEvent, ...]


class TemplateList(msgspec.Struct, frozen=True, kw_only=True):
    """Templates, cheapest first."""

    items: list[WorkerTemplate]


class TemplateSource(msgspec.Struct, frozen=True, kw_only=True):
    """A template, and what people changed of it."""

    template: WorkerTemplate
    """With the changes: what new workers get."""
    file: WorkerTemplate
    """As the templates file says."""
    changed: list[str]
    """The fields that people changed."""


class RegionView(msgspec.Struct, frozen=True, kw_only=True):
    """A region for new workers."""

    name: str
    is_default: bool


class RegionList(msgspec.Struct, frozen=True, kw_only=True):
    items: list[RegionView]


class CmlPlace(msgspec.Struct, frozen=True, kw_only=True):
    """At which of a worker's addresses people reach its CML."""

    uses_private_ip: bool = False
    """Otherwise at the public one; without that at the private one."""
    port: int = 443


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """The signed-in principal."""

    id: str
    """The owner of the lablet sessions that the principal creates."""
    actor: str
    role: str
    cml: CmlPlace = CmlPlace()


class DeviceClient(msgspec.Struct, frozen=True, kw_only=True):
    """What a program without a browser signs people in with, by OAuth's device grant (RFC 8628)."""

    issuer: str
    client_id: str
    scope: str


class SignInWays(msgspec.Struct, frozen=True, kw_only=True):
    """How people can sign in."""

    identity_provider: str | None
    """Its host; `GET /api/session/oidc` leads there. None: only with a token or a link."""
    device: DeviceClient | None = None
    """For `lcm login --device`. None: with a token."""


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
    """The possible actions, if the request was refused because of a worker's status."""
    errors: list[FieldError] = []
    """The invalid fields."""


# Reports of controllers. `expected_version` makes a report a compare-and-set: it is refused if the
# record changed since the controller read it.


class StatusReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The new status of a worker, with its reason."""

    status: WorkerStatus
    reason: str
    expected_version: int
    observed: bool = False
    """Whether the change was observed in EC2 and not made by LCM."""
    instance: Instance | None = None
    """The instance of the worker, if it is new."""


class RecordVersion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The version of the record that the controller is about to act on."""

    expected_version: int


class LaunchIntentRecorded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The launch that the controller is about to request of EC2."""

    spec: LaunchSpec
    expected_version: int


class LaunchIntentWithdrawn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The intended instance is gone, or EC2 `refused` the launch and it never existed."""

    reason: str
    expected_version: int
    refused: bool = False


class InstanceReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The worker's instance, with its present addresses."""

    instance: Instance
    expected_version: int


class CmlReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The state of the worker's CML, as it reports it."""

    ready: bool
    version: str | None = None
    certificate_sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")] | None = None
    """The one that it presents: the first is pinned, another one is refused until a person accepts it."""
    system_info: Annotated[SystemInfo, msgspec.Meta(max_length=MAX_SYSTEM_INFO)] | None = None
    """As in `system_information`. An omitted `system_info`, `health` or `license` keeps its stored value."""
    health: CmlHealth | None = None
    license: CmlLicense | None = None
    license_changed_at: datetime | None = None
    """As in the record before CML was asked: if its license has changed since, what CML reported of it is
    outdated and not stored."""
    attempt: CmlAttempt | None = None
    """What the last attempt met that did not find CML ready; sent once the wait has taken a minute."""


class ActivityReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Activity on one worker, in the order of observation.

    `stream` names the observer's run and `last_sequence` counts its events for this worker up to the last
    one here: repeated events are recognised and count once.
    """

    worker_id: WorkerId
    activity_events: list[ActivityEvent]
    source: SampleSource
    stream: str
    last_sequence: int


class LiveReports(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The telemetry of all workers since the last report, in one request to save overhead."""

    samples: list[Sample] = []
    lab_stats: list[LabStats] = []
    lab_changes: list[LabChange] = []
    activity: list[ActivityReport] = []


class LiveReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """The number of accepted and dropped reports; those of unknown or stopped workers are dropped."""

    accepted: int
    dropped: int


# The same reports for one worker each.


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
    """Activity on the worker in the path; with a stream, repeats are recognised by their number."""

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
    """A change of a lab on the worker in the path; without `at` it happened now."""

    event: str
    element_type: str
    element_id: str
    lab_id: str
    data: dict[str, str] = {}
    at: Moment | None = None


class WebSocketReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The state of the websocket to a worker, and since when."""

    connected: bool
    status: MonitorState
    reason: str = ""
    connected_at: Moment | None = None
    disconnected_at: Moment | None = None
    stream: str = ""
    """The observer's run; a late report of the same run with a lower `sequence` is dropped."""
    sequence: int = 0


class TelemetryEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of CML's `telemetry/events`."""

    category: str
    timestamp: datetime
    data: dict[str, Any] = {}


class IdleCheckRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An idle check; `raw_telemetry_events` is null if CML could not be read.

    `asked_at` is when CML was read: old telemetry proves nothing. Without it, now.
    `is_cml_not_ready` says that CML was not ready then.
    """

    force_check: bool = False
    raw_telemetry_events: list[TelemetryEvent] | None = None
    asked_at: Moment | None = None
    suppress_auto_pause: bool = False
    is_cml_not_ready: bool = False


class IdleCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an idle check."""

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
    """The guard that prevents a pause now; null if none does."""
    next_check_at: datetime | None = None
    error: str | None = None


class IdleStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The idle status of a worker."""

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


class LicenseReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The result of a license operation."""

    reason: str = ""
    tier: str | None = None
    is_free: bool = False
    """CML reports that it holds no license."""
    is_held: bool = False
    """CML reports that it is registered."""
    expected_version: int | None = None
    """The version of the record that an observation is about."""
    is_debt: bool = False
    """The controller gives up although the license is not known to be released: it becomes a debt."""


class LicenseToken(msgspec.Struct, frozen=True, kw_only=True):
    """The token to register a worker with, for the worker controller alone, and what to set there besides."""

    token: str
    terms: LicenseTerms = LicenseTerms()

    def __repr__(self) -> str:
        return "LicenseToken(…)"


class CmlCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's own login, for the worker controller alone."""

    username: str
    password: str
    secret_ref: str
    """The name of the password in the record: a late answer may be of an older login."""

    def __repr__(self) -> str:
        return f"CmlCredentials({self.username!r}, …)"


class LicenseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a token of the fleet is set, for workers without one of their own, and its terms."""

    has_token: bool
    terms: LicenseTerms = LicenseTerms()


class LicenseDebts(msgspec.Struct, frozen=True, kw_only=True):
    """Licenses that terminated workers may still hold, oldest first."""

    items: list[LicenseDebt]


class ScaleUpRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Placement found no capacity: add workers of this template, all or none."""

    template: str
    reason: str
    aws_region: str | None = None
    count: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
    licensed: bool = False
    key: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None
    """Makes it safe to send this request again: the same key never adds workers twice."""


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A scaling decision of a controller."""

    event: AuditEvent
    reason: str
    worker_id: str | None = None


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """Scaling decisions, newest first; `next` is the cursor of the next page."""

    items: list[AuditEntry]
    next: str | None = None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a worker has its status and what happens next, in sentences; codes are for programs."""

    worker_id: WorkerId
    status: WorkerStatus
    desired_status: DesiredStatus
    code: str
    summary: str
    holding: list["Reason"]
    next: list["Reason"]


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """One reason for a worker's status, or one next event."""

    code: str
    text: str
    at: datetime | None = None


class CostLine(msgspec.Struct, frozen=True, kw_only=True):
    """Costs: per hour now, of the month, and the savings of the month by pauses."""

    key: str
    usd_per_hour: float
    """Of the instances that run, without disks."""
    usd_this_month: float
    """With those disks whose cost is known."""
    usd_saved_this_month: float
    running_hours_this_month: float
    paused_hours_this_month: float
    usd_disk_this_month: float | None = None
    """What of it the disks cost, of stopped workers too; null: of none the size and the price are known."""
    disk_hours_this_month: float = 0.0
    unknown_disks: int = 0
    """Workers with a disk in the month whose size or price is not known: it is not in the cost."""


class CostDay(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a day (UTC)."""

    day: str
    """As in 2026-11-05."""
    usd: float
    """With those disks whose cost is known."""
    usd_disk: float
    usd_saved: float


class CostReport(msgspec.Struct, frozen=True, kw_only=True):
    """Costs in US dollars of a calendar month (UTC), the present one so far; prices are those of the
    templates, and those of disks are in the region configs."""

    month: str
    total: CostLine
    by_worker: list[CostLine]
    by_template: list[CostLine]
    by_region: list[CostLine]
    months: list[str] = []
    """The months that are known, newest first."""
    days: list[CostDay] = []
    """Each day of the month up to today."""
    usd_of_unknown_day: float = 0.0
    """What of the month's cost is in none of the days: only the sum is kept of months before the last one in
    which a worker was used."""


class LeadershipClaim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A won election: its key revision, and the identity of the coordination store."""

    service: str
    cluster_id: str
    revision: int
    instance_id: str
    terms: ControllerTerms | None = None
    """What the control plane enforces for it; refused if the control plane is set otherwise."""


class LeadershipGrant(msgspec.Struct, frozen=True, kw_only=True):
    """The epoch to send with every write."""

    epoch: int
    answered_at: datetime | None = None
    """By the control plane's clock; None from a version without it."""
