"""The worker record.

It changes by pure functions from record to record, which the control plane calls inside a compare-and-set;
no other process changes a worker. Requests of people are in `requests`, status changes in `transitions`,
the claims of sessions in `lablet.admission`, observations in `observed`, the states of a pause in `pause`.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Literal

import msgspec

from lcm.domain.capacity import Capacity
from lcm.domain.cost import MonthlyUse, Stretch
from lcm.domain.idempotency import KeyedRequest
from lcm.domain.lablet.claim import Claim, Reserve, allocated
from lcm.domain.lablet.listed_lab import LabSummary
from lcm.domain.launch import (
    InstanceId,
    LaunchIntent,
    WorkerId,
)
from lcm.domain.license import FREE_REGISTRATIONS, License, is_due
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
from lcm.domain.pause import Pause
from lcm.domain.readiness import CmlWait
from lcm.domain.telemetry import ActivityEvent, ActivityMark, MonitorState

HISTORY_LIMIT = 100
"""Entries of `state_history` kept with the record; the newest ones win."""


COMING_UP = (PENDING, PROVISIONING, STARTING)

SystemInfo = dict[str, str | int | float | bool | None]
"""CML's system information besides its version."""

USER_INITIATED_CODES = ("Client.UserInitiatedShutdown", "Client.InstanceInitiatedShutdown")
"""EC2's state reason codes of an instance that a user ended, from outside or from inside."""


class Action(StrEnum):
    """What people can request of a worker."""

    START = "start"
    STOP = "stop"
    DRAIN = "drain"
    CANCEL_DRAIN = "cancel-drain"
    DELETE = "delete"
    RETRY = "retry"


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """A person's request to keep the worker running until then, used or not."""

    until: datetime
    by: str
    reason: str = ""


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "from", "target": "to"}):
    """One line of a worker's timeline."""

    source: WorkerStatus | None
    target: WorkerStatus
    by: str
    """The name that was shown then; several may have the same, and OIDC names change."""
    reason: str
    at: datetime
    principal_id: str | None = None
    """Who it was; None: LCM itself, or a line from before ids were kept."""

    @property
    def is_arrival(self) -> bool:
        """Whether the status changed; otherwise the entry only records a reason."""
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
    """The client token of the launch that created it, if there was one."""
    owner_id: str | None = None
    """The AWS account that it belongs to."""
    vpc_id: str | None = None
    subnet_id: str | None = None
    tags: dict[str, str] = {}

    @property
    def is_gone(self) -> bool:
        """Whether it can never run again."""
        return self.state in {"shutting-down", "terminated"}

    @property
    def was_terminated_by_ec2(self) -> bool:
        """Whether EC2 terminated it for a reason of its own: an internal error, a volume limit."""
        return self.is_gone and self.state_reason_code not in (None, *USER_INITIATED_CODES)

    @property
    def has_address(self) -> bool:
        return bool(self.public_ip or self.private_ip)


class CmlHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The result of CML's own health check; None is unknown."""

    valid: bool | None = None
    is_licensed: bool | None = None
    is_enterprise: bool | None = None
    failing: tuple[str, ...] = ()
    """The checks that fail, as `<host>: <check>`."""

    @property
    def lacks_kvm(self) -> bool:
        """Whether CML finds that it cannot run virtual machines with KVM."""
        return any(check.endswith(": kvm_vmx_enabled") for check in self.failing)


class CmlLicense(msgspec.Struct, frozen=True, kw_only=True):
    """CML's report of its license; never a token."""

    registration_status: str | None = None
    authorization_status: str | None = None
    product_license: str | None = None


class CmlLogin(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's own CML account for LCM, instead of the fleet's; its password is a secret, not in here."""

    username: str
    secret_ref: str
    """The name of the password in the vault; a new password has a new name."""


class Launches(msgspec.Struct, frozen=True, kw_only=True):
    """The launches of a worker."""

    generation: int = 0
    """Counts them; the client token of a launch is made from it."""
    unattended: int = 0
    """Launches since the last request of a person."""
    intent: LaunchIntent | None = None
    """The present launch, recorded before RunInstances."""


class WorkerInstance(msgspec.Struct, frozen=True, kw_only=True):
    """The EC2 instance that belongs to a worker, as last reported."""

    id: InstanceId | None = None
    type: str | None = None
    ami_id: str | None = None
    ami_name: str | None = None
    ami_description: str | None = None
    ami_creation_date: str | None = None
    public_ip: str | None = None
    private_ip: str | None = None

    def address(self, *, use_private_ip: bool) -> str | None:
        """Where it is reached; without a public address at the private one."""
        if use_private_ip:
            return self.private_ip
        return self.public_ip or self.private_ip


class Discovered(msgspec.Struct, frozen=True, kw_only=True):
    """Where an instance was found that LCM did not launch, and who adopted it."""

    owner_id: str | None = None
    """The AWS account that it belongs to."""
    vpc_id: str | None = None
    subnet_id: str | None = None
    adopted_at: datetime | None = None
    """None: its CML gets no credential."""
    adopted_by: str | None = None


class CmlDefinitions(msgspec.Struct, frozen=True, kw_only=True):
    """What nodes of labs can be on a worker, by id."""

    node_definitions: tuple[str, ...] = ()
    images: tuple[str, ...] = ()


class Cml(msgspec.Struct, frozen=True, kw_only=True):
    """CML on a worker, as last reported, and the login that LCM uses there."""

    version: str | None = None
    is_ready: bool = False
    wait: CmlWait | None = None
    """The wait for it to become ready, once that has taken a minute."""
    certificate_sha256: str | None = None
    """The pinned one: a server with any other is sent nothing."""
    refused_certificate_sha256: str | None = None
    """The one that the server presents instead, until a person accepts it."""
    login: CmlLogin | None = None
    system_info: SystemInfo = {}
    health: CmlHealth | None = None
    license: CmlLicense | None = None
    labs_count: int | None = None
    lab_discovery_requested_at: datetime | None = None
    labs: LabSummary = LabSummary()
    """What the newest discovery of its labs means for placement."""
    definitions: CmlDefinitions | None = None
    """None as long as they have not been read, or if there are more than the record takes."""

    @property
    def reports_license(self) -> bool:
        """Whether its last report of its license does not say that it holds none."""
        return self.license is not None and self.license.registration_status not in FREE_REGISTRATIONS


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """The controller's WebSocket connection to a worker."""

    status: MonitorState | None = None
    reason: str = ""
    connected_at: datetime | None = None
    disconnected_at: datetime | None = None
    published: bool | None = None
    """Which was published last, `worker.ws.connected` or `.disconnected`; a reconnect is neither (D-7)."""
    mark: ActivityMark | None = None

    @property
    def is_connected(self) -> bool:
        return self.status is MonitorState.CONNECTED


class WorkerActivity(msgspec.Struct, frozen=True, kw_only=True):
    """The activity on a worker, as far as it was reported."""

    last_at: datetime | None = None
    checked_at: datetime | None = None
    recent_events: tuple[ActivityEvent, ...] = ()
    """Newest first."""
    listed_since: datetime | None = None
    """Activity events up to here were dropped for newer ones; None while the list is complete."""
    mark: ActivityMark | None = None


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """One CML server: its desired status and its observed status."""

    form: Literal[2]
    """The form of the record; the control plane translates records of form 1, which had no parts."""
    id: WorkerId
    name: str
    template_name: str
    aws_region: str
    tags: dict[str, str] = {}
    retired_tags: tuple[str, ...] = ()
    """Tags that people removed, newest last."""
    created_at: datetime
    created_by: str
    updated_at: datetime

    version: int = 1
    """Counts every commit of this record."""
    generation: int = 1
    """Counts every change of the desired state."""
    desired_status: DesiredStatus = DesiredStatus.RUNNING
    status: WorkerStatus = PENDING
    status_reason: str = ""
    pending_since: datetime | None = None
    """When the way from PENDING to RUNNING began; None once it has ended."""
    provisioning_timeout_minutes: float | None = None
    """How long that way may take; None: as the fleet's setting says."""

    launch: Launches = Launches()
    instance: WorkerInstance = WorkerInstance()
    cml: Cml = Cml()
    connection: Connection = Connection()
    activity: WorkerActivity = WorkerActivity()
    pause: Pause = Pause()
    license: License = License()

    is_idle_detection_enabled: bool = True
    hold: Hold | None = None

    state_history: tuple[HistoryEntry, ...] = ()
    use: tuple[MonthlyUse, ...] = ()
    """How long it ran and was paused, by month."""

    claims: tuple[Claim, ...] = ()
    """What lablet sessions take of it."""
    nominations: dict[str, datetime] = {}
    """Waiting sessions that count on it, and when they are expected to take it."""
    freed_ports: dict[int, datetime] = {}
    """Ports of claims released a moment ago; they are granted last."""
    declared_capacity: Capacity | None = None
    """Its total capacity; None if its template is not known."""
    reserve: Reserve = Reserve()
    """What sessions may not take of it."""
    refresh_requested_at: datetime | None = None

    imported: bool = False
    """Found, not launched by LCM: never launched again, never terminated as an orphan."""
    file_set: str | None = None
    """The set of fleet files that it was created from; pruning that set deletes no other workers."""
    discovered: Discovered | None = None
    """None: launched by LCM, or imported when every import was trusted."""

    purge_when_terminated: bool = False
    """The record is to be purged once the instance is terminated."""

    request_digest: str | None = None
    """Digest of the request under the idempotency key from which this worker's id was derived."""
    recent_requests: tuple[KeyedRequest, ...] = ()
    """The last requests with an idempotency key that were applied to this worker."""

    @property
    def is_trusted(self) -> bool:
        """Whether its CML may get a credential: LCM launched it, or it was adopted. A tag proves nothing."""
        return self.discovered is None or self.discovered.adopted_at is not None

    @property
    def sessions(self) -> tuple[str, ...]:
        """The lablet sessions placed on it; while there is one, LCM does not stop it automatically."""
        return tuple(claim.session_id for claim in self.claims if not claim.is_retained)

    @property
    def allocated_capacity(self) -> Capacity:
        """What its claims take in all."""
        return allocated(self.claims)

    @property
    def has_unresolved_launch(self) -> bool:
        """Whether there is a launch intent without a known instance: it may exist."""
        return self.launch.intent is not None and self.instance.id is None

    @property
    def arrival(self) -> HistoryEntry | None:
        """The entry of the timeline with which its present status began."""
        return next((line for line in reversed(self.state_history) if line.is_arrival), None)

    @property
    def came_up_at(self) -> datetime | None:
        """When a launch or start made it RUNNING; None if it became RUNNING in another way."""
        arrival = self.arrival
        if self.status is not RUNNING or arrival is None or arrival.source not in COMING_UP:
            return None
        return arrival.at

    @property
    def status_since(self) -> datetime:
        """When it entered its present status."""
        return self.arrival.at if self.arrival else self.created_at

    def stretch_until(self, now: datetime) -> Stretch:
        """The time in its present status, for its cost."""
        return Stretch(
            status=self.status,
            was_paused=self.pause.is_automatic,
            has_instance=self.instance.id is not None,
            since=self.status_since,
            until=now,
        )

    @property
    def may_have_instance(self) -> bool:
        is_over = self.status is TERMINATED
        return not is_over and (self.instance.id is not None or self.launch.intent is not None)

    @property
    def is_live(self) -> bool:
        """Whether it is monitored, so that reports of its load and labs are accepted."""
        return self.status in (RUNNING, DRAINING)

    @property
    def is_being_paused(self) -> bool:
        """Whether an automatic pause is in progress that activity would still cancel."""
        return self.pause.is_automatic and self.desired_status is DesiredStatus.STOPPED and self.is_live

    @property
    def has_license(self) -> bool:
        """Whether the pool counts a license for it as far as known: LCM requested it, or CML reported it."""
        return self.license.may_be_held or self.cml.reports_license

    @property
    def may_hold_license(self) -> bool:
        """Whether the pool may count a license for it: it has one, or a CML that has not been asked."""
        has_cml = (self.imported or self.cml.version is not None) and self.status is not TERMINATED
        return self.has_license or (has_cml and self.cml.license is None)

    @property
    def is_license_due(self) -> bool:
        """Whether it stays RUNNING with CML ready and lacks the license it is declared to have."""
        stays = self.status is RUNNING and self.desired_status is DesiredStatus.RUNNING
        return stays and self.is_trusted and self.cml.is_ready and is_due(self.license)


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
    reserve: Reserve | None = None,
    licensed: bool = False,
    provisioning_timeout_minutes: float | None = None,
    file_set: str | None = None,
) -> Worker:
    """The record of a newly requested worker."""
    reason = "created"
    return Worker(
        form=2,
        id=worker_id,
        name=name,
        template_name=template_name,
        aws_region=aws_region,
        tags=dict(tags),
        created_at=now,
        created_by=by,
        updated_at=now,
        pending_since=now,
        provisioning_timeout_minutes=provisioning_timeout_minutes,
        status_reason=reason,
        state_history=(HistoryEntry(source=None, target=PENDING, by=by, reason=reason, at=now),),
        request_digest=request_digest,
        declared_capacity=declared_capacity,
        reserve=reserve or Reserve(),
        license=License(declared=licensed),
        file_set=file_set,
    )


def extend_history(
    worker: Worker, target: WorkerStatus, *, by: str, reason: str, now: datetime
) -> tuple[HistoryEntry, ...]:
    """The timeline with one more entry. Where it is cut, the start of the present status is kept."""
    entry = HistoryEntry(source=worker.status, target=target, by=by, reason=reason, at=now)
    lines = (*worker.state_history, entry)
    newest = lines[-HISTORY_LIMIT:]
    if len(newest) == len(lines) or any(line.is_arrival for line in newest):
        return newest
    arrival = next((line for line in reversed(lines) if line.is_arrival), newest[0])
    return (arrival, *newest[1:])
