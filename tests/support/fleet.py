"""A whole LCM in one event loop: real commands, publisher, kv and reconciler; only ports are in memory."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from lcm.control_plane.api.services import ControlPlane
from lcm.control_plane.commands.claim_leadership import claim_leadership, fence_for
from lcm.control_plane.commands.clean_up import clean_up
from lcm.control_plane.commands.create_worker import create_worker
from lcm.control_plane.commands.detect_idle import detect_idle
from lcm.control_plane.commands.drain_worker import scale_down_worker
from lcm.control_plane.commands.import_workers import import_workers
from lcm.control_plane.commands.launch_intent import record_launch_intent, withdraw_launch_intent
from lcm.control_plane.commands.license_worker import license_token, report_license
from lcm.control_plane.commands.report_details import report_cml, report_instance
from lcm.control_plane.commands.report_status import report_status
from lcm.control_plane.commands.request_action import request_action
from lcm.control_plane.policies import Policies
from lcm.control_plane.queries.workers import list_workers
from lcm.control_plane.records import discovery_settings
from lcm.control_plane.replication.publisher import Publisher
from lcm.control_plane.store.memory import MemoryStore
from lcm.core.clock import Clock
from lcm.core.configuration import read_yaml
from lcm.core.health import Health
from lcm.core.hosted_service import run_services
from lcm.core.ids import Ids, RandomIds
from lcm.core.kv.memory import MemoryKv
from lcm.core.telemetry import Telemetry
from lcm.core.timeouts import timeout
from lcm.defaults import BUILT_IN
from lcm.domain.discovery import DiscoverySettings, FoundInstance
from lcm.domain.errors import CertificateChanged, NotFound, Unreachable
from lcm.domain.idle import ControllerTerms, IdlePolicy
from lcm.domain.launch import InstanceId, LaunchSpec, WorkerId
from lcm.domain.license import LicenseOperation
from lcm.domain.lifecycle import WorkerStatus
from lcm.domain.readiness import CmlAttempt
from lcm.domain.scaling import AuditEvent
from lcm.domain.template import RegionConfig, WorkerTemplate
from lcm.domain.worker import Action, Instance, SystemInfo, Worker
from lcm.rest.fleet import BulkImport, BulkImportResult, Cleanup, CleanupResult
from lcm.rest.schemas import (
    CmlReport,
    IdleCheck,
    IdleCheckRequest,
    InstanceReport,
    LaunchIntentRecorded,
    LaunchIntentWithdrawn,
    LeadershipClaim,
    LicenseReport,
    LicenseToken,
    StatusReport,
    TelemetryEvent,
)
from lcm.worker_controller.main import WorkerController, assemble_controller, election_of
from lcm.worker_controller.ports import CloudProvider, CmlSystemInformation, MonitorTarget
from lcm.worker_controller.settings import WorkerControllerSettings
from support.control_plane import control_plane_over
from support.core import Link
from support.memory_cloud import MemoryCloud
from support.memory_licensing import MemoryLicensing
from support.virtual_time import VirtualClock

REGION = RegionConfig(region="us-east-1", security_group_ids=("sg-1",), subnet_id="subnet-1", key_name="k")
TEMPLATES = BUILT_IN / "worker_templates.yaml"
SERVICE = "worker-controller"


class DirectControlPlane:
    """The worker controller's port to the control plane, without HTTP in between."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self.epoch = 0
        self.is_reachable = True
        self.before: Callable[[str], None] = lambda _: None
        """Called with the name of each call that changes a record; raise to disturb it."""
        self.after: Callable[[str], None] = lambda _: None
        """The same once it is done, and once the token of a license was read."""

    async def list_resources(self, *, include_terminated: bool = False) -> Sequence[Worker]:
        self._answer()
        return await list_workers(self._plane.records, include_terminated=include_terminated)

    async def get_discovery_settings(self) -> DiscoverySettings:
        self._answer()
        return (await discovery_settings.read(self._plane.records.store)).settings()

    async def bulk_import(self, found: Sequence[FoundInstance]) -> BulkImportResult:
        self._answer()
        bulk = BulkImport(instances=list(found))
        return await import_workers(
            self._plane.records, self._plane.policies, bulk, by=SERVICE, fence=self._fence()
        )

    async def clean_up(self, cleanup: Cleanup) -> CleanupResult:
        self._answer()
        return await clean_up(self._plane.records, cleanup)

    async def fetch_single_resource(self, worker_id: str) -> Worker | None:
        self._answer()
        try:
            return await self._plane.records.workers.get(worker_id)
        except NotFound:
            return None

    async def get_worker_template(self, name: str) -> WorkerTemplate | None:
        self._answer()
        return await self._plane.records.templates.find(name)

    async def claim_leadership(
        self, cluster_id: str, revision: int, instance_id: str, terms: ControllerTerms | None = None
    ) -> int:
        self._answer()
        claim = LeadershipClaim(
            service=SERVICE,
            cluster_id=cluster_id,
            revision=revision,
            instance_id=instance_id,
            terms=terms,
        )
        own_terms = self._plane.policies.own_terms
        self.epoch = (await claim_leadership(self._plane.records, claim, own_terms)).epoch
        return self.epoch

    async def update_status(
        self,
        worker: Worker,
        status: WorkerStatus,
        reason: str,
        *,
        observed: bool = False,
        instance: Instance | None = None,
    ) -> Worker:
        self._answer()
        report = StatusReport(
            status=status,
            reason=reason,
            expected_version=worker.version,
            observed=observed,
            instance=instance,
        )
        self.before("update_status")
        reported = await report_status(
            self._plane.records, self._plane.policies, worker.id, report, by=SERVICE, fence=self._fence()
        )
        self.after("update_status")
        return reported

    async def verify(self, worker: Worker) -> Worker:
        self._answer()
        self.before("verify")
        verified = await self._plane.records.workers.verify(
            worker.id, expected_version=worker.version, fence=self._fence()
        )
        self.after("verify")
        return verified

    async def record_launch_intent(self, worker: Worker, spec: LaunchSpec) -> Worker:
        self._answer()
        plan = LaunchIntentRecorded(spec=spec, expected_version=worker.version)
        self.before("record_launch_intent")
        promised = await record_launch_intent(self._plane.records, worker.id, plan, fence=self._fence())
        self.after("record_launch_intent")
        return promised

    async def withdraw_launch_intent(self, worker: Worker, reason: str, *, refused: bool = False) -> Worker:
        self._answer()
        voided = LaunchIntentWithdrawn(reason=reason, expected_version=worker.version, refused=refused)
        return await withdraw_launch_intent(self._plane.records, worker.id, voided, fence=self._fence())

    async def report_instance(self, worker: Worker, instance: Instance) -> Worker:
        self._answer()
        report = InstanceReport(instance=instance, expected_version=worker.version)
        return await report_instance(
            self._plane.records, self._plane.policies, worker.id, report, fence=self._fence()
        )

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
        self._answer()
        report = CmlReport(
            ready=ready,
            version=version,
            certificate_sha256=certificate_sha256,
            system_info=system_info,
            attempt=attempt,
        )
        return await report_cml(
            self._plane.records, self._plane.policies, worker.id, report, fence=self._fence()
        )

    async def report_certificate(self, worker: Worker, presented_sha256: str) -> Worker:
        self._answer()
        report = CmlReport(ready=worker.cml.is_ready, certificate_sha256=presented_sha256)
        return await report_cml(
            self._plane.records, self._plane.policies, worker.id, report, fence=self._fence()
        )

    async def detect_worker_idle(self, worker: Worker, request: IdleCheckRequest) -> IdleCheck:
        self._answer()
        return await detect_idle(
            self._plane.records,
            self._plane.caches,
            self._plane.policies,
            worker.id,
            request,
            fence=self._fence(),
        )

    async def report_license(
        self, worker: Worker, step: str, operation: LicenseOperation, report: LicenseReport
    ) -> Worker:
        self._answer()
        reported = await report_license(
            self._plane.records, worker.id, step, operation, report, fence=self._fence()
        )
        self.after("report_license")
        return reported

    async def get_license_token(self, worker: Worker) -> LicenseToken:
        self._answer()
        token = await license_token(self._plane.records, worker.id)
        self.after("get_license_token")
        return token

    async def drain_worker(self, worker: Worker) -> Worker:
        self._answer()
        await self._plane.records.clock.sleep(0.01)  # meanwhile other are judged
        return await scale_down_worker(
            self._plane.records,
            self._plane.caches,
            self._plane.policies,
            worker.id,
            by=SERVICE,
            fence=self._fence(),
        )

    async def record_scaling_audit(self, event: AuditEvent, reason: str, worker_id: WorkerId) -> None:
        self._answer()
        await self._plane.records.audit.record(event, by=SERVICE, reason=reason, worker_id=worker_id)

    def _fence(self) -> Any:
        return fence_for(SERVICE, self.epoch)

    def _answer(self) -> None:
        if not self.is_reachable:
            raise Unreachable("control plane: no answer")


class MemoryCml:
    """A CML server on every running instance; it answers once it has booted."""

    def __init__(self, cloud: MemoryCloud, boot_seconds: float = 30.0) -> None:
        self._cloud = cloud
        self._boot_seconds = boot_seconds
        self.certificate = "a" * 64
        self.version = "2.9.1+build.7"
        self.system_info: SystemInfo = {"oui": "52:54:00:00:00:00"}

    async def get_system_information(self, host: str, pinned_sha256: str | None) -> CmlSystemInformation:
        instance = self._cloud.instance_at(host)
        if instance is None or instance.running_since is None:
            raise Unreachable(f"CML at {host}: connection refused")
        if pinned_sha256 not in (None, self.certificate):
            raise CertificateChanged(f"{host} shows another certificate", self.certificate)
        uptime = self._cloud.clock.monotonic() - instance.running_since
        is_ready = uptime >= self._boot_seconds
        return CmlSystemInformation(self.version, is_ready, self.certificate, self.system_info)


class MemoryMonitors:
    """Monitors nothing, records the calls, and serves prepared telemetry of each worker."""

    def __init__(self) -> None:
        self.watched: dict[WorkerId, MonitorTarget] = {}
        self.asked: list[MonitorTarget] = []
        self.stops: list[str] = []
        self.forgotten: list[WorkerId] = []
        self.runs = 0
        self.telemetry: dict[WorkerId, list[TelemetryEvent] | None] = {}
        self.looks = 0
        self.measured: list[WorkerId] = []
        self._known: set[WorkerId] = set()
        self.is_giving_up = False
        """Every connection fails as soon as it is made."""
        self.refusing: set[WorkerId] = set()
        """Workers whose servers present another certificate."""

    async def run(self) -> None:
        self.runs += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.watched.clear()

    def ensure_monitoring(self, target: MonitorTarget) -> None:
        self.watched[target.worker_id] = target
        self.asked.append(target)

    def is_monitoring(self, worker_id: WorkerId) -> bool:
        return worker_id in self.watched and not self.is_giving_up

    def is_certificate_refused(self, worker_id: WorkerId) -> bool:
        return worker_id in self.refusing

    def seconds_since_measurement(self, worker_id: WorkerId) -> float | None:
        return 0.0 if worker_id in self._known else None

    def request_measurement(self, worker_id: WorkerId) -> None:
        self.measured.append(worker_id)
        self._known.add(worker_id)

    def has_activity_log(self, worker_id: WorkerId) -> bool:
        return worker_id in self.watched

    def stop_monitoring(self, worker_id: WorkerId, reason: str) -> None:
        if self.watched.pop(worker_id, None):
            self.stops.append(reason)

    def forget(self, worker_id: WorkerId) -> None:
        self.forgotten.append(worker_id)

    async def fetch_telemetry(self, worker_id: WorkerId) -> Sequence[TelemetryEvent] | None:
        self.looks += 1
        return self.telemetry.get(worker_id, [])


class Fleet:
    """People, the control plane, one or more worker controllers, and a cloud."""

    def __init__(
        self,
        settings: WorkerControllerSettings | None = None,
        *regions: RegionConfig,
        store: MemoryStore | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        idle: IdlePolicy | None = None,
    ) -> None:
        self.regions = {region.region: region for region in regions or (REGION,)}
        self.clock = clock or VirtualClock()
        self.ids = ids or RandomIds(random.Random(1))
        self.cloud = MemoryCloud(self.clock)
        self.provider: CloudProvider | None = None
        """The controllers' port to EC2, if it is not the cloud itself."""
        self.cml = MemoryCml(self.cloud)
        self.licensing = MemoryLicensing()
        self.monitors = MemoryMonitors()
        self.kv = MemoryKv(self.clock, self.ids)
        self.link = Link(self.kv, self.clock)
        """The controllers' link to the coordination store."""
        self.store = store or MemoryStore()
        self.publisher = Publisher(self.store, self.kv, clock=self.clock, health=Health(self.clock))
        self.plane = control_plane_over(
            self.store,
            clock=self.clock,
            ids=self.ids,
            policies=Policies(
                regions=tuple(self.regions),
                default_region=next(iter(self.regions)),
                idle=idle or IdlePolicy(),
            ),
            publisher=self.publisher,
        )
        self.workers, self.templates = self.plane.records.workers, self.plane.records.templates
        self.settings = settings or WorkerControllerSettings()
        self.ports: list[DirectControlPlane] = []
        self.controllers: list[WorkerController] = []
        self.commits: list[Worker] = []
        self._followed: dict[str, int] = {}
        self._changed = asyncio.Event()
        self.workers.subscribe(self._on_commit)

    async def seed(self) -> None:
        await self.templates.seed(read_yaml(TEMPLATES))

    @asynccontextmanager
    async def running(self, controllers: int = 1) -> AsyncIterator["Fleet"]:
        await self.seed()
        for number in range(controllers):
            self.add_controller(f"controller-{number}")
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(
                run_services(self.kv, self.publisher, *(one.service for one in self.controllers))
            )
            while not any(controller.election.is_leader for controller in self.controllers):
                await self.clock.sleep(0.1)
            yield self
            task.cancel()

    def add_controller(self, instance_id: str) -> WorkerController:
        port = DirectControlPlane(self.plane)
        telemetry, health = Telemetry(), Health(self.clock)
        election = election_of(
            self.settings,
            self.link,
            clock=self.clock,
            telemetry=telemetry,
            health=health,
            instance_id=instance_id,
        )
        controller = assemble_controller(
            self.settings,
            self.regions,
            election,
            control_plane=port,
            cloud=self.provider or self.cloud,
            cml=self.cml,
            licensing=self.licensing,
            kv=self.link,
            clock=self.clock,
            telemetry=telemetry,
            health=health,
            monitors=self.monitors,
        )
        self.ports.append(port)
        self.controllers.append(controller)
        return controller

    async def past_the_first_sweep(self) -> None:
        """Wait for the first resync of a new leader; later reconciles have reasons of their own."""
        await self.clock.sleep(10)

    @property
    def leader(self) -> WorkerController:
        return next(controller for controller in self.controllers if controller.election.is_leader)

    async def create(self, name: str = "lab", template: str = "metal", region: str | None = None) -> Worker:
        return await create_worker(
            self.plane.records,
            self.plane.policies,
            name=name,
            template_name=template,
            aws_region=region,
            tags={},
            by="ann",
        )

    async def running_worker(self, name: str = "lab") -> Worker:
        worker = await self.create(name)
        return await self.until(worker, WorkerStatus.RUNNING)

    async def ask(self, worker: Worker, action: Action) -> Worker:
        return await request_action(self.plane.records, worker.id, action, by="ann")

    async def get(self, worker: Worker) -> Worker:
        return await self.workers.get(worker.id)

    async def until(self, worker: Worker, status: WorkerStatus, within_seconds: float = 1_200) -> Worker:
        """Follow the worker's status from where it was last followed to, until this one."""
        async with timeout(within_seconds):
            while True:
                self._changed.clear()
                for position in range(self._followed.get(worker.id, 0), len(self.commits)):
                    commit = self.commits[position]
                    if commit.id == worker.id and commit.status is status:
                        self._followed[worker.id] = position + 1
                        return commit
                await self._changed.wait()

    def life_of(self, worker: Worker) -> list[str]:
        """The statuses it went through, in order."""
        statuses = [commit.status.value for commit in self.commits if commit.id == worker.id]
        return [status for status, _ in itertools.groupby(statuses)]

    def effects(self) -> list[str]:
        """The calls that changed something at EC2, in order."""
        changing = {"launch_instance", "start_instance", "stop_instance", "terminate_instance"}
        return [call.operation for call in self.cloud.calls if call.operation in changing]

    def instance_id(self, worker: Worker) -> InstanceId:
        [instance] = self.cloud.live_instances(worker.id)
        return instance.id

    def _on_commit(self, before: Worker | None, after: Worker) -> None:
        self.commits.append(after)
        self._changed.set()
