"""The worker record.

It changes by pure functions from record to record, which the control plane calls inside a compare-and-set;
nobody else changes a worker. What people ask for is in `wishes`, what becomes of it in `transitions`, who is
placed on it in `sessions`, what it tells of itself in `news`.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from lcm.domain.capacity import Capacity
from lcm.domain.cost import MonthlyUse
from lcm.domain.idempotency import KeyedRequest
from lcm.domain.launch import (
    InstanceId,
    LaunchIntent,
    WorkerId,
)
from lcm.domain.license import License, is_due
from lcm.domain.lifecycle import (
    DRAINING,
    PENDING,
    PROVISIONING,
    RUNNING,
    STARTING,
    TERMINATED,
    DesiredStatus,
    WorkerStatus,
)
from lcm.domain.telemetry import ActivityEvent, ActivityMark, MonitorState

HISTORY_LIMIT = 100
"""Entries of `state_history` kept with the record; the newest ones win."""


COMING_UP = (PENDING, PROVISIONING, STARTING)

SystemInfo = dict[str, str | int | float | bool | None]
"""What a CML server tells of itself besides its version."""

ENDED_BY_PEOPLE = ("Client.UserInitiatedShutdown", "Client.InstanceInitiatedShutdown")
"""EC2's codes for an instance that somebody ended, from outside or from inside."""


class Action(StrEnum):
    """What people can do to a worker."""

    START = "start"
    STOP = "stop"
    DRAIN = "drain"
    CANCEL_DRAIN = "cancel-drain"
    DELETE = "delete"
    RETRY = "retry"


class PauseReason(StrEnum):
    """Why a worker was stopped last."""

    IDLE_TIMEOUT = "idle_timeout"
    MANUAL = "manual"
    EXTERNAL = "external"


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody wants the worker left running, used or not, until then."""

    until: datetime
    by: str
    reason: str = ""


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "from", "target": "to"}):
    """One line of a worker's timeline."""

    source: WorkerStatus | None
    target: WorkerStatus
    by: str
    reason: str
    at: datetime

    @property
    def is_arrival(self) -> bool:
        """Whether the status changed; otherwise it is a note."""
        return self.source is not self.target


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """An EC2 instance as EC2 describes it."""

    id: InstanceId
    region: str
    state: str
    instance_type: str
    image_id: str
    private_ip: str | None = None
    public_ip: str | None = None
    state_reason: str | None = None
    state_reason_code: str | None = None
    client_token: str | None = None
    """The launch that made it, if its launcher named one."""
    tags: dict[str, str] = {}

    @property
    def is_gone(self) -> bool:
        """Whether it can never run again."""
        return self.state in {"shutting-down", "terminated"}

    @property
    def was_given_up_by_ec2(self) -> bool:
        """Whether it ended for a reason of EC2's own: an internal error, a volume limit."""
        return self.is_gone and self.state_reason_code not in (None, *ENDED_BY_PEOPLE)

    @property
    def has_address(self) -> bool:
        return bool(self.public_ip or self.private_ip)


class CmlHealth(msgspec.Struct, frozen=True, kw_only=True):
    """What CML's own health check says; None is unknown."""

    valid: bool | None = None
    is_licensed: bool | None = None
    is_enterprise: bool | None = None
    failing: tuple[str, ...] = ()
    """The checks that fail, as `<host>: <check>`."""


class CmlLicense(msgspec.Struct, frozen=True, kw_only=True):
    """What CML says about its licence; never a token."""

    registration_status: str | None = None
    authorization_status: str | None = None
    product_license: str | None = None


class CmlLogin(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's own account for LCM, instead of the fleet's; its password is a secret and not in here."""

    username: str
    secret_ref: str
    """Names the password where secrets are kept; a new password has a new name."""


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """One CML server: what people want (`desired_status`) and what is true (`status`)."""

    id: WorkerId
    name: str
    template_name: str
    aws_region: str
    tags: dict[str, str] = {}
    retired_tags: tuple[str, ...] = ()
    """Tags it had once and must not have any more, newest last."""
    created_at: datetime
    created_by: str
    updated_at: datetime

    version: int = 1
    """Counts every commit of this record."""
    generation: int = 1
    """Counts every change of what people want."""
    desired_status: DesiredStatus = DesiredStatus.RUNNING
    status: WorkerStatus = PENDING
    status_reason: str = ""
    pending_since: datetime | None = None
    """Start of the way from PENDING to RUNNING; None once it is over."""

    launch_generation: int = 0
    unattended_launches: int = 0
    launch: LaunchIntent | None = None

    ec2_instance_id: InstanceId | None = None
    instance_type: str | None = None
    ami_id: str | None = None
    ami_name: str | None = None
    ami_description: str | None = None
    ami_creation_date: str | None = None
    public_ip: str | None = None
    private_ip: str | None = None

    cml_version: str | None = None
    cml_ready: bool = False
    cml_certificate_sha256: str | None = None
    cml_login: CmlLogin | None = None
    cml_system_info: SystemInfo = {}
    cml_health: CmlHealth | None = None
    cml_license: CmlLicense | None = None
    labs_count: int | None = None
    lab_discovery_requested_at: datetime | None = None

    ws_connected: bool = False
    ws_status: MonitorState | None = None
    ws_reason: str = ""
    ws_connected_at: datetime | None = None
    ws_disconnected_at: datetime | None = None
    ws_told_connected: bool | None = None
    """Which was told last, `worker.ws.connected` or `.disconnected`: a reconnection tells neither (D-7)."""
    ws_mark: ActivityMark | None = None

    last_activity_at: datetime | None = None
    last_activity_check_at: datetime | None = None
    recent_activity_events: tuple[ActivityEvent, ...] = ()
    """Newest first."""
    activity_listed_since: datetime | None = None
    """Signs of people up to here gave way to newer ones; None while the list has all of them."""
    activity_mark: ActivityMark | None = None

    state_history: tuple[HistoryEntry, ...] = ()
    use: tuple[MonthlyUse, ...] = ()
    """How long it ran and was paused, by month."""

    is_idle_detection_enabled: bool = True
    hold: Hold | None = None
    target_pause_at: datetime | None = None
    """When it will be paused unless somebody uses it."""
    pause_decided_at: datetime | None = None
    """An automatic pause was decided then and waits for its second look."""
    pause_reason: PauseReason | None = None
    last_paused_at: datetime | None = None
    last_paused_by: str | None = None
    last_resumed_at: datetime | None = None
    auto_pause_count: int = 0
    manual_pause_count: int = 0
    auto_resume_count: int = 0
    manual_resume_count: int = 0

    sessions: tuple[str, ...] = ()
    """Lablet sessions placed on it; while there is one, nothing stops it by itself."""
    session_needs: dict[str, Capacity] = {}
    """What was promised to each of them, as far as it was said."""
    declared_capacity: Capacity | None = None
    """What it can carry; None if its template is not known."""
    allocated_capacity: Capacity = Capacity()
    """What is promised to sessions."""
    license: License = License()
    drain_started_at: datetime | None = None
    drain_deadline_at: datetime | None = None
    """A drain that is not over by then is ended by a stop."""
    refresh_requested_at: datetime | None = None

    imported: bool = False
    """Not launched by LCM, only found: never launched anew, never swept away."""

    purge_when_terminated: bool = False
    """Nobody wants the record kept once the machine is gone."""

    request_digest: str | None = None
    """What was asked for under the idempotency key that made this worker's id."""
    recent_requests: tuple[KeyedRequest, ...] = ()
    """The last requests with an idempotency key that were carried out on this worker."""

    @property
    def has_unresolved_launch(self) -> bool:
        """A launch was promised and its instance is not known yet: it may exist."""
        return self.launch is not None and self.ec2_instance_id is None

    @property
    def arrival(self) -> HistoryEntry | None:
        """How it entered its present status."""
        return next((line for line in reversed(self.state_history) if line.is_arrival), None)

    @property
    def came_up_at(self) -> datetime | None:
        """When it came to run, however long that was waited for; None if it did not come up, but back."""
        arrival = self.arrival
        if self.status is not RUNNING or arrival is None or arrival.source not in COMING_UP:
            return None
        return arrival.at

    @property
    def status_since(self) -> datetime:
        """When it entered its present status."""
        return self.arrival.at if self.arrival else self.created_at

    @property
    def may_have_instance(self) -> bool:
        is_over = self.status is TERMINATED
        return not is_over and (self.ec2_instance_id is not None or self.launch is not None)

    @property
    def is_live(self) -> bool:
        """Whether somebody watches it, so that reports of its load and labs can be true."""
        return self.status in (RUNNING, DRAINING)

    @property
    def is_drain_cut_short(self) -> bool:
        """Whether somebody asked for a stop while sessions were waited for."""
        is_limited = self.status is DRAINING and self.drain_deadline_at is not None
        return is_limited and self.drain_deadline_at == self.last_paused_at

    @property
    def is_license_due(self) -> bool:
        """Whether it stays, its CML can be asked, and a license it should have is missing."""
        stays = self.status is RUNNING and self.desired_status is DesiredStatus.RUNNING
        return stays and self.cml_ready and is_due(self.license)


def new_worker(
    *,
    worker_id: WorkerId,
    name: str,
    template_name: str,
    aws_region: str,
    tags: Mapping[str, str],
    by: str,
    now: datetime,
    request_digest: str | None = None,
    declared_capacity: Capacity | None = None,
    licensed: bool = False,
) -> Worker:
    """A worker that people have just asked for."""
    reason = "created"
    return Worker(
        id=worker_id,
        name=name,
        template_name=template_name,
        aws_region=aws_region,
        tags=dict(tags),
        created_at=now,
        created_by=by,
        updated_at=now,
        pending_since=now,
        status_reason=reason,
        state_history=(HistoryEntry(source=None, target=PENDING, by=by, reason=reason, at=now),),
        request_digest=request_digest,
        declared_capacity=declared_capacity,
        license=License(declared=licensed),
    )


def remember(
    worker: Worker, target: WorkerStatus, *, by: str, reason: str, now: datetime
) -> tuple[HistoryEntry, ...]:
    """The timeline with one more line. Where it is cut, the arrival at the present status stays."""
    entry = HistoryEntry(source=worker.status, target=target, by=by, reason=reason, at=now)
    lines = (*worker.state_history, entry)
    newest = lines[-HISTORY_LIMIT:]
    if len(newest) == len(lines) or any(line.is_arrival for line in newest):
        return newest
    arrival = next((line for line in reversed(lines) if line.is_arrival), newest[0])
    return (arrival, *newest[1:])
