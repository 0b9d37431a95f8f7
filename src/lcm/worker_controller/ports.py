"""What the worker controller needs from the outside, in its own words.

The consumer owns these; adapters translate and decide nothing. Every call is bounded in time by its
adapter, and raises only errors of `lcm.domain.errors`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from lcm.domain.discovery import DiscoverySettings, FoundInstance
from lcm.domain.launch import Ami, InstanceId, LaunchSpec, WorkerId
from lcm.domain.license import LicenseOperation
from lcm.domain.lifecycle import WorkerStatus
from lcm.domain.scaling import AuditEvent
from lcm.domain.telemetry import ActivityEvent
from lcm.domain.template import WorkerTemplate
from lcm.domain.worker import CmlHealth, CmlLicense, CmlLogin, Instance, SystemInfo, Worker
from lcm.rest.fleet import BulkImportResult, Cleanup, CleanupResult
from lcm.rest.schemas import (
    CmlCredentials,
    IdleCheck,
    IdleCheckRequest,
    LicenseReport,
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

    async def claim_leadership(self, cluster_id: str, revision: int, instance_id: str) -> int: ...

    async def update_status(
        self,
        worker: Worker,
        status: WorkerStatus,
        reason: str,
        *,
        observed: bool = False,
        instance: Instance | None = None,
    ) -> Worker: ...

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
        system_info: SystemInfo,
    ) -> Worker: ...

    async def detect_worker_idle(self, worker: Worker, request: IdleCheckRequest) -> IdleCheck: ...

    async def drain_worker(self, worker: Worker) -> Worker: ...

    async def record_scaling_audit(self, event: AuditEvent, reason: str, worker_id: WorkerId) -> None: ...

    async def report_license(
        self, worker: Worker, step: str, operation: LicenseOperation, report: LicenseReport
    ) -> Worker:
        """`start`, `complete` or `fail`."""
        ...

    async def get_license_token(self, worker: Worker) -> str: ...

    async def get_discovery_settings(self) -> DiscoverySettings: ...

    async def bulk_import(self, found: Sequence[FoundInstance]) -> BulkImportResult: ...

    async def clean_up(self, cleanup: Cleanup) -> CleanupResult: ...


class LiveControlPlane(Protocol):
    """What the control plane is told about running workers all the time, under our epoch."""

    async def list_resources(self) -> Sequence[Worker]: ...

    async def report_worker_metrics(self, reports: LiveReports) -> LiveReceipt:
        """Everything that came in, from all workers; what was told before counts once."""
        ...

    async def report_ws_status(self, worker_id: WorkerId, report: WebSocketReport) -> Worker: ...

    async def report_cml_health(
        self, worker: Worker, health: CmlHealth | None, license_: CmlLicense | None
    ) -> Worker:
        """What CML says about itself after a login; None is no news."""
        ...


class CloudProvider(Protocol):
    """EC2, as far as workers need it."""

    async def list_instances(self, region: str, tags: Mapping[str, str] | None = None) -> Sequence[Instance]:
        """Every instance of the region with all these tags, by default our discovery tag.

        Complete or not at all.
        """
        ...

    async def describe_instance(self, region: str, instance_id: InstanceId) -> Instance | None:
        """None once EC2 does not know the id: being gone is an answer, not an error."""
        ...

    async def describe_instances(self, region: str, instance_ids: Sequence[InstanceId]) -> Sequence[Instance]:
        """Those of them that EC2 knows; one it does not know never hides the others."""
        ...

    async def find_instances(self, region: str, worker_id: WorkerId) -> Sequence[Instance]:
        """Every instance that carries this worker's tag, terminated ones included while EC2 shows them."""
        ...

    async def launch_instance(self, spec: LaunchSpec, client_token: str) -> Instance:
        """Start one instance. The same token again gives the same instance, never a second.

        Raises LaunchLapsed if the token's instance is gone for good, LaunchRefused if nothing was
        launched and nothing will be, TokenMismatch if the token was used with other parameters.
        """
        ...

    async def start_instance(self, region: str, instance_id: InstanceId) -> None:
        """Ask for a start. Starting a running instance succeeds."""
        ...

    async def stop_instance(self, region: str, instance_id: InstanceId) -> None:
        """Ask for a stop. Stopping a stopped instance succeeds."""
        ...

    async def terminate_instance(self, region: str, instance_id: InstanceId) -> None:
        """Ask for termination. Terminating a terminated or unknown instance succeeds."""
        ...

    async def tag_instance(self, region: str, instance_id: InstanceId, tags: Mapping[str, str]) -> None:
        """Put these tags on it, over what it has by the same names."""
        ...

    async def untag_instance(self, region: str, instance_id: InstanceId, keys: Sequence[str]) -> None:
        """Take these tags off it. Taking off what is not there succeeds."""
        ...

    async def resolve_ami(self, region: str, name_pattern: str) -> Ami:
        """The newest image of that name. Raises ImageNotFound."""
        ...

    async def list_images(self, region: str, image_ids: Sequence[str]) -> Sequence[Ami]:
        """Those of the images that still exist and may be looked at."""
        ...


class CmlSystemInformation(NamedTuple):
    """What a CML server says about itself without a login."""

    version: str
    ready: bool
    certificate_sha256: str | None
    """None where certificates are not pinned."""
    more: SystemInfo
    """Whatever else it tells."""


class CmlSystem(Protocol):
    """CML's system API. Never its labs."""

    async def get_system_information(self, host: str, pinned_sha256: str | None) -> CmlSystemInformation:
        """Raises Unreachable while it boots, CertificateChanged if it shows another certificate."""
        ...


UNTOLD: Final = "CML removed the license, but could not tell Cisco"
"""The answer to a deregistration after which the server is free and the pool does not know it."""


class LicenseState(NamedTuple):
    """What a CML server says about its license."""

    is_registered: bool
    """Registered, and in compliance."""
    tier: str | None
    failure: str
    """Why the last registration failed; empty if it did not."""
    is_free: bool
    """It holds no license and is not about to get one."""


@dataclass(frozen=True)
class CmlServer:
    """The CML that a worker is now, and as whom we ask it."""

    worker_id: WorkerId
    instance_id: InstanceId | None
    host: str
    certificate_sha256: str | None
    login: CmlLogin | None
    """None: the fleet's."""


class LoginSource(Protocol):
    """Knows the passwords of workers that have a login of their own."""

    async def get_cml_login(self, worker_id: WorkerId) -> CmlCredentials: ...


class CmlLicensing(Protocol):
    """CML's licensing API. Every call raises Unreachable or CredentialsRefused if it cannot be asked."""

    async def state(self, server: CmlServer) -> LicenseState: ...

    async def register(self, server: CmlServer, token: str) -> str:
        """Ask for a registration, which takes its time. Why it was refused; empty if it was accepted."""
        ...

    async def deregister(self, server: CmlServer) -> str:
        """Give the license back. Why it is not known to be free; empty if it is."""
        ...


class WebSocketListener(Protocol):
    """Hears one WebSocket, on the event loop, possibly before `connect` has returned. Never raises."""

    @property
    def on_message(self) -> Callable[[bytes], object]:
        """Called with every whole message; the bytes are the listener's own. Looked up for each one."""
        ...

    def on_pong(self) -> None: ...

    def on_closed(self, code: int, reason: str) -> None:
        """The connection ended, once, unless we closed it. 1006: without a word of goodbye."""
        ...


class WebSocket(Protocol):
    """An open connection."""

    def send(self, text: bytes) -> None: ...

    def ping(self) -> None: ...

    def close(self) -> None:
        """End it now. The listener hears nothing more, whatever is still on its way."""
        ...


class WebSockets(Protocol):
    """The live feeds of CML servers."""

    async def connect(self, host: str, pinned_sha256: str | None, listener: WebSocketListener) -> WebSocket:
        """Open `/ws/ui`. Raises Unreachable, or CertificateChanged before anything of ours is sent.

        A message above MAX_MESSAGE_BYTES, in however many pieces, ends the connection with 1009.
        """
        ...


MAX_MESSAGE_BYTES = 1024 * 1024


@dataclass(frozen=True)
class ReportedActivity:
    """Signs of people that the record holds: these, and whatever there was before."""

    since: datetime
    events: tuple[ActivityEvent, ...] = ()


@dataclass(frozen=True)
class MonitorTarget:
    """The server to watch: another one, or the same by another address or login, is watched anew."""

    server: CmlServer
    cml_version: str | None
    reported: ReportedActivity = field(compare=False)
    """Where an account of this worker begins, if there is none yet."""

    @property
    def worker_id(self) -> WorkerId:
        return self.server.worker_id


class Monitors(Protocol):
    """The live connections to workers; exist only while we lead."""

    async def run(self) -> None:
        """Watch until cancelled; then close every connection at once."""
        ...

    def ensure_monitoring(self, target: MonitorTarget) -> None:
        """Watch this worker; a connection that was given up is tried again."""
        ...

    def is_watching(self, worker_id: WorkerId) -> bool:
        """Whether it is watched, by whatever means, and nothing was given up."""
        ...

    def measured_seconds_ago(self, worker_id: WorkerId) -> float | None:
        """When its load, health and licence were last asked for; None if never."""
        ...

    def measure_soon(self, worker_id: WorkerId) -> None:
        """Ask for them without waiting for the next round. Returns at once."""
        ...

    def has_account_of(self, worker_id: WorkerId) -> bool:
        """Whether what people did there is being counted since we lead."""
        ...

    def stop_monitoring(self, worker_id: WorkerId, reason: str) -> None:
        """Watch it no more. Stopping what is not watched is fine."""
        ...

    def forget(self, worker_id: WorkerId) -> None:
        """The worker is gone for good, and with it everything that was counted about it."""
        ...

    async def telemetry_of(self, worker_id: WorkerId) -> Sequence[TelemetryEvent] | None:
        """What people did on the worker lately, asked of CML just now; None if it could not be asked."""
        ...


class InstanceMetrics(NamedTuple):
    """What the cloud measures from outside; None is unknown. Percent, or bytes per second."""

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
