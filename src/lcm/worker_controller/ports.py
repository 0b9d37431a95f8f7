"""The ports of the worker controller.

The consumer owns these; adapters translate and decide nothing. Every call is bounded in time by its
adapter, and raises only errors of `lcm.domain.errors`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol

from lcm.cml.sessions import CmlServer
from lcm.domain.diagnosis import Ingress, Subnet
from lcm.domain.discovery import DiscoverySettings, FoundInstance
from lcm.domain.idle import ControllerTerms
from lcm.domain.launch import Ami, InstanceId, InstanceTypeFacts, LaunchSpec, WorkerId
from lcm.domain.license import LicenseOperation, LicenseTerms
from lcm.domain.lifecycle import WorkerStatus
from lcm.domain.readiness import CmlAttempt
from lcm.domain.scaling import AuditEvent
from lcm.domain.telemetry import ActivityEvent
from lcm.domain.template import WorkerTemplate
from lcm.domain.worker import CmlHealth, CmlLicense, Instance, SystemInfo, Worker
from lcm.rest.fleet import BulkImportResult, Cleanup, CleanupResult
from lcm.rest.schemas import (
    IdleCheck,
    IdleCheckRequest,
    LicenseReport,
    LicenseToken,
    LiveReceipt,
    LiveReports,
    TelemetryEvent,
    WebSocketReport,
)


class ControlPlane(Protocol):
    """The records. Writes are compare-and-set on the version that was read, under our epoch:

    Conflict means read again, Fenced means stop acting, Unreachable means it may have happened.
    """

    async def list_resources(self, *, include_terminated: bool = False) -> Sequence[Worker]: ...

    async def fetch_single_resource(self, worker_id: str) -> Worker | None: ...

    async def get_worker_template(self, name: str) -> WorkerTemplate | None: ...

    async def claim_leadership(
        self, cluster_id: str, revision: int, instance_id: str, terms: ControllerTerms | None = None
    ) -> int: ...

    async def update_status(
        self,
        worker: Worker,
        status: WorkerStatus,
        reason: str,
        *,
        observed: bool = False,
        instance: Instance | None = None,
    ) -> Worker: ...

    async def verify(self, worker: Worker) -> Worker:
        """Prove that this copy is the newest record and this leader the newest; nothing is written."""
        ...

    async def record_launch_intent(self, worker: Worker, spec: LaunchSpec) -> Worker: ...

    async def withdraw_launch_intent(
        self, worker: Worker, reason: str, *, refused: bool = False
    ) -> Worker: ...

    async def report_instance(self, worker: Worker, instance: Instance) -> Worker: ...

    async def report_cml(
        self,
        worker: Worker,
        *,
        ready: bool,
        version: str | None,
        certificate_sha256: str | None,
        system_info: SystemInfo | None,
        attempt: CmlAttempt | None = None,
    ) -> Worker:
        """`attempt` is what the last attempt met that did not find CML ready, once that takes long."""
        ...

    async def report_certificate(self, worker: Worker, presented_sha256: str) -> Worker:
        """Report the certificate that CML presents instead of the pinned one."""
        ...

    async def detect_worker_idle(self, worker: Worker, request: IdleCheckRequest) -> IdleCheck: ...

    async def drain_worker(self, worker: Worker) -> Worker: ...

    async def record_scaling_audit(self, event: AuditEvent, reason: str, worker_id: WorkerId) -> None: ...

    async def report_license(
        self, worker: Worker, step: str, operation: LicenseOperation, report: LicenseReport
    ) -> Worker:
        """`start`, `complete` or `fail`; `observe` for what CML reports without an operation."""
        ...

    async def get_license_token(self, worker: Worker) -> LicenseToken: ...

    async def get_discovery_settings(self) -> DiscoverySettings: ...

    async def bulk_import(self, found: Sequence[FoundInstance]) -> BulkImportResult: ...

    async def clean_up(self, cleanup: Cleanup) -> CleanupResult: ...


class LiveControlPlane(Protocol):
    """The continuous reports about running workers to the control plane, under our epoch."""

    async def list_resources(self) -> Sequence[Worker]: ...

    async def report_worker_metrics(self, reports: LiveReports) -> LiveReceipt:
        """Report everything that was received, from all workers; what is reported twice counts once."""
        ...

    async def report_ws_status(self, worker_id: WorkerId, report: WebSocketReport) -> Worker: ...

    async def report_cml_health(
        self, worker: Worker, health: CmlHealth | None, license_: CmlLicense | None
    ) -> Worker:
        """Report CML's health and license; None is unchanged."""
        ...


class CloudProvider(Protocol):
    """EC2, as far as workers need it."""

    async def list_instances(self, region: str, tags: Mapping[str, str] | None = None) -> Sequence[Instance]:
        """Every instance of the region with all these tags, by default our discovery tag.

        Complete or not at all.
        """
        ...

    async def describe_instance(self, region: str, instance_id: InstanceId) -> Instance | None:
        """None once EC2 does not know the id: that is an answer, not an error."""
        ...

    async def describe_instances(self, region: str, instance_ids: Sequence[InstanceId]) -> Sequence[Instance]:
        """The instances that EC2 knows; an unknown id never hides the others."""
        ...

    async def find_instances(self, region: str, worker_id: WorkerId) -> Sequence[Instance]:
        """Every instance that carries this worker's tag, terminated ones included while EC2 shows them."""
        ...

    async def launch_instance(self, spec: LaunchSpec, client_token: str) -> Instance:
        """Start one instance. The same token again gives the same instance, never a second.

        Raises LaunchLapsed if the token's instance is terminated, LaunchRefused if nothing was
        launched and nothing will be, TokenMismatch if the token was used with other parameters.
        """
        ...

    async def start_instance(self, region: str, instance_id: InstanceId) -> None:
        """Request a start. Starting a running instance succeeds."""
        ...

    async def stop_instance(self, region: str, instance_id: InstanceId) -> None:
        """Request a stop. Stopping a stopped instance succeeds."""
        ...

    async def terminate_instance(self, region: str, instance_id: InstanceId) -> None:
        """Request termination. Terminating a terminated or unknown instance succeeds."""
        ...

    async def tag_instance(self, region: str, instance_id: InstanceId, tags: Mapping[str, str]) -> None:
        """Set these tags, replacing those of the same name."""
        ...

    async def untag_instance(self, region: str, instance_id: InstanceId, keys: Sequence[str]) -> None:
        """Remove these tags. Removing a missing tag succeeds."""
        ...

    async def resolve_ami(self, region: str, name_pattern: str, owners: Sequence[str]) -> Ami:
        """The newest AMI of that name, of one of these owners, that a worker can run. Raises ImageNotFound.

        An owner is an account id or `self`.
        """
        ...

    async def describe_instance_type(self, region: str, instance_type: str) -> InstanceTypeFacts:
        """What EC2 says of the type. Raises InstanceTypeUnfit if the region has none of this name."""
        ...

    async def list_images(self, region: str, image_ids: Sequence[str]) -> Sequence[Ami]:
        """The AMIs that still exist and may be read."""
        ...


class CallerIdentity(NamedTuple):
    """Whose the AWS credentials are."""

    account: str
    arn: str


class CloudInspection(Protocol):
    """What `lcm doctor` asks AWS besides what workers need. Nothing is ever changed."""

    async def caller_identity(self) -> CallerIdentity: ...

    async def clock_skew(self) -> timedelta | None:
        """How far this host's clock is ahead of AWS's at least; None if the answer has no time."""
        ...

    async def dry_run(self, region: str, action: str, instance_id: InstanceId | None) -> None:
        """Ask EC2 whether it would permit one of the actions below. Raises CredentialsRefused if not."""
        ...

    async def dry_run_launch(self, spec: LaunchSpec) -> None:
        """Ask EC2 whether it would permit this launch. Raises CredentialsRefused if not, LaunchRefused."""
        ...

    async def describe_subnets(self, region: str, subnet_ids: Sequence[str]) -> Sequence[Subnet]:
        """Those that exist."""
        ...

    async def describe_ingress(self, region: str, group_ids: Sequence[str]) -> Sequence[Ingress]:
        """The inbound rules of all these security groups. Raises LaunchRefused if one does not exist."""
        ...

    async def vcpus_in_use(self, region: str) -> int:
        """Those that count against the quota, of all on-demand instances of the account."""
        ...

    async def vcpus_of(self, region: str, instance_types: Sequence[str]) -> Mapping[str, int]:
        """The vCPUs of the types that the region has."""
        ...

    async def vcpu_quota(self, region: str) -> float: ...


READING_ACTIONS: Final = ("DescribeInstances", "DescribeImages", "DescribeInstanceTypes")
CHANGING_ACTIONS: Final = (
    "StartInstances",
    "StopInstances",
    "TerminateInstances",
    "CreateTags",
    "DeleteTags",
)
"""The policy permits them on tagged instances only, so only such a one can show whether it does."""


class CmlSystemInformation(NamedTuple):
    """What a CML server reports of itself without a login."""

    version: str
    ready: bool
    certificate_sha256: str | None
    """None where certificates are not pinned."""
    more: SystemInfo
    """All other fields."""


class CmlSystem(Protocol):
    """CML's system API. Never its labs."""

    async def get_system_information(self, host: str, pinned_sha256: str | None) -> CmlSystemInformation:
        """Raises Unreachable while it boots, NoCml if something else answers or CML has not booted, and
        CertificateChanged if it presents another certificate."""
        ...


POOL_NOT_NOTIFIED: Final = "CML removed the license, but could not notify Cisco"
"""The answer to a deregistration after which the server is free but the pool still counts it."""
HAS_NONE: Final = "CML has no license to deregister"
"""The answer to a deregistration of a server that is not registered, or not yet."""


class LicenseState(NamedTuple):
    """What a CML server reports of its license."""

    is_registered: bool
    """Registered, and in compliance."""
    tier: str | None
    failure: str
    """Why the last registration failed; empty if it did not."""
    is_free: bool
    """It holds no license and is not about to get one."""
    is_held: bool = False
    """It has a registration, in compliance or not."""
    node_feature: str | None = None
    """CML's id of the feature of more nodes; None if it has none."""
    node_count: int = 0
    """How many of that feature are in use."""
    ssms_url: str | None = None
    """The license server that it asks."""
    proxy_host: str | None = None
    proxy_port: int | None = None


class CmlLicensing(Protocol):
    """CML's licensing API. Every call raises Unreachable or CredentialsRefused if it cannot be made."""

    async def state(self, server: CmlServer) -> LicenseState: ...

    async def prepare(self, server: CmlServer, terms: LicenseTerms, state: LicenseState) -> str:
        """Set the way to the license server, then the product, where they differ from the state.

        CML takes the product only before a registration. Returns why it was refused; empty if it was not.
        """
        ...

    async def set_node_count(self, server: CmlServer, feature: str, count: int) -> str:
        """Request so many nodes more; CML takes that only once it is registered."""
        ...

    async def register(self, server: CmlServer, token: str, *, again: bool = False) -> str:
        """Request a registration, which takes its time. Returns why it was refused; empty if accepted.

        `again` replaces the registration that the server has.
        """
        ...

    async def deregister(self, server: CmlServer, *, within_seconds: float) -> str:
        """Deregister the license. Returns why it is not known to be free; empty if it is.

        CML answers once Cisco has: if Cisco cannot be reached, after a minute or two.
        """
        ...


class WebSocketListener(Protocol):
    """Receives from one WebSocket, on the event loop, possibly before `connect` returned. Never raises."""

    @property
    def on_message(self) -> Callable[[bytes], object]:
        """Called with every whole message; the bytes are the listener's own. Read anew for each one."""
        ...

    def on_pong(self) -> None: ...

    def on_closed(self, code: int, reason: str) -> None:
        """Called once when the connection ended, unless we closed it. 1006: without a close frame."""
        ...


class WebSocket(Protocol):
    """An open connection."""

    def send(self, text: bytes) -> None: ...

    def ping(self) -> None: ...

    def close(self) -> None:
        """Close it now. The listener is not called again, whatever still arrives."""
        ...


class WebSockets(Protocol):
    """The WebSocket feeds of CML servers."""

    async def connect(self, host: str, pinned_sha256: str | None, listener: WebSocketListener) -> WebSocket:
        """Open `/ws/ui`. Raises Unreachable, or CertificateChanged before anything is sent.

        A message above MAX_MESSAGE_BYTES, in however many pieces, ends the connection with 1009.
        """
        ...


MAX_MESSAGE_BYTES = 1024 * 1024


@dataclass(frozen=True)
class ReportedActivity:
    """Activity that the record holds: these events, and everything up to `since`."""

    since: datetime
    events: tuple[ActivityEvent, ...] = ()


@dataclass(frozen=True)
class MonitorTarget:
    """The server to monitor: another address, login or server gets a new monitor."""

    server: CmlServer
    cml_version: str | None
    reported: ReportedActivity = field(compare=False)
    """Where the activity log of this worker begins, if there is none yet."""

    @property
    def worker_id(self) -> WorkerId:
        return self.server.worker_id


class Monitors(Protocol):
    """The WebSocket connections to workers; they exist only on the leader."""

    async def run(self) -> None:
        """Monitor until cancelled; then close every connection at once."""
        ...

    def ensure_monitoring(self, target: MonitorTarget) -> None:
        """Monitor this worker; a FAILED connection is tried again."""
        ...

    def is_monitoring(self, worker_id: WorkerId) -> bool:
        """Whether it is monitored, by WebSocket or REST, and its connection is not FAILED."""
        ...

    def is_certificate_refused(self, worker_id: WorkerId) -> bool:
        """Whether its server presented another certificate than the pinned one when it was last called."""
        ...

    def seconds_since_measurement(self, worker_id: WorkerId) -> float | None:
        """Since the last read of its load, health and license; None if there was none."""
        ...

    def request_measurement(self, worker_id: WorkerId) -> None:
        """Read them without waiting for the next interval. Returns at once."""
        ...

    def has_activity_log(self, worker_id: WorkerId) -> bool:
        """Whether this leader counts the activity on it."""
        ...

    def stop_monitoring(self, worker_id: WorkerId, reason: str) -> None:
        """Stop monitoring. Stopping what is not monitored is fine."""
        ...

    def forget(self, worker_id: WorkerId) -> None:
        """Drop everything about a worker that is gone."""
        ...

    async def fetch_telemetry(self, worker_id: WorkerId) -> Sequence[TelemetryEvent] | None:
        """The newest activity in CML's telemetry, read now; None if it could not be read, or is off."""
        ...


class InstanceMetrics(NamedTuple):
    """Measurements of CloudWatch; None is unknown. Percent, or bytes per second."""

    cpu_utilization: float | None = None
    memory_utilization: float | None = None
    disk_utilization: float | None = None
    network_in_bytes: float | None = None
    network_out_bytes: float | None = None
    disk_read_bytes: float | None = None
    disk_write_bytes: float | None = None


class MetricsProvider(Protocol):
    """CloudWatch, as far as workers need it."""

    async def get_instance_metrics(
        self, region: str, instance_ids: Sequence[InstanceId]
    ) -> Mapping[InstanceId, InstanceMetrics]:
        """The newest five-minute values, in as few calls as possible.

        An instance without any data is left out: no data is unknown, never zero.
        """
        ...
