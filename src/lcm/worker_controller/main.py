"""The worker controller: wiring, no logic. Start reading here, then `reconciler.py`, then a step.

Makes EC2 instances what the records say. Talks to the control plane (REST), the coordination store,
EC2 and CML's system API; it keeps no state of its own.
"""

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from lcm.cml.connection import CmlConnections
from lcm.cml.session import Credentials
from lcm.cml.sessions import CmlSessions, server_of
from lcm.core.clock import Clock
from lcm.core.controller import WatchTriggeredHostedService, Work
from lcm.core.election import Election, ElectionWin, LeaderElectionConfig
from lcm.core.health import Health
from lcm.core.hosted_service import HostedService, supervise
from lcm.core.ids import Ids, operating_system_chance
from lcm.core.key_watch import KeyWatch, WatchConfig
from lcm.core.kv.port import Change, ChangeKind, Kv
from lcm.core.loop import ReconcileLoop, ReconciliationConfig
from lcm.core.network import own_address_towards
from lcm.core.telemetry import LoopLagMonitor, OtlpExport, Telemetry
from lcm.domain.template import RegionConfig, WorkerTemplate
from lcm.domain.worker import Worker
from lcm.rest.client import ControlPlaneClient, HttpTransport
from lcm.rest.schemas import WORKER_CONTROLLER
from lcm.web.operations import KeyCheck, MetricsPage
from lcm.web.server import HttpServer
from lcm.web.tracing import Traced
from lcm.worker_controller.adapters.cloudwatch import CloudWatchMetrics
from lcm.worker_controller.adapters.cml_licensing import CmlLicensingClient
from lcm.worker_controller.adapters.cml_system import CmlSystemSpiClient
from lcm.worker_controller.adapters.ec2 import Ec2Provider, Ec2Settings
from lcm.worker_controller.adapters.ec2_inspection import Ec2Inspection
from lcm.worker_controller.adapters.picows_websocket import PicowsWebSockets
from lcm.worker_controller.admin.http import worker_operations
from lcm.worker_controller.admin.metrics import register_metrics
from lcm.worker_controller.doctor import LaunchDoctor, LaunchSettings
from lcm.worker_controller.instances.launcher import Launcher
from lcm.worker_controller.instances.observer import InstanceObserver
from lcm.worker_controller.monitoring.config import MonitoringConfig
from lcm.worker_controller.monitoring.service import (
    LiveMonitoring,
    assemble_monitoring,
    register_monitoring_metrics,
)
from lcm.worker_controller.ports import CloudProvider, CmlLicensing, CmlSystem, ControlPlane, Monitors
from lcm.worker_controller.probe.collect import CmlProbe
from lcm.worker_controller.reconciler import LeadershipScope, WorkerReconciler
from lcm.worker_controller.running.idle import IdleChecker
from lcm.worker_controller.running.license import LicenseRegistrar
from lcm.worker_controller.running.pipeline import RunningPipeline
from lcm.worker_controller.running.scale_down import ScaleDown
from lcm.worker_controller.running.tags import Tagger
from lcm.worker_controller.settings import WorkerControllerSettings
from lcm.worker_controller.stats import Stats
from lcm.worker_controller.status_reports import StatusReports
from lcm.worker_controller.sweeps.discovery import Discovery
from lcm.worker_controller.sweeps.orphans import Orphans
from lcm.worker_controller.sweeps.retention import Retention


@dataclass(frozen=True)
class WorkerController:
    """A worker controller put together: the service that runs it, and the parts behind the admin pages."""

    service: WatchTriggeredHostedService[Worker]
    reconciler: WorkerReconciler
    stats: Stats

    @property
    def election(self) -> Election:
        return self.service.election

    @property
    def loop(self) -> ReconcileLoop[Worker]:
        return self.service.loop


@dataclass(frozen=True)
class WorkerControllerProcess:
    """What a caller needs to know of a worker controller that is about to run."""

    services: tuple[HostedService, ...]
    url: str
    port: int
    controller: WorkerController


def election_of(
    settings: WorkerControllerSettings,
    kv: Kv | None,
    *,
    clock: Clock,
    telemetry: Telemetry,
    health: Health,
    instance_id: str,
) -> Election:
    """Made first: every write carries its epoch, and every effect asks it for leave."""
    config = LeaderElectionConfig(
        election_key_prefix=settings.etcd_key_prefix,
        lease_ttl=settings.leader_lease_ttl,
        instance_id=instance_id,
        service_name=WORKER_CONTROLLER,
        call_timeout_seconds=settings.etcd_call_timeout_seconds,
    )
    return Election(
        config,
        kv,
        clock=clock,
        health=health,
        trace_ids=telemetry.trace_ids,
        fatal=WorkerReconciler.fatal,
    )


def assemble_controller(
    settings: WorkerControllerSettings,
    regions: Mapping[str, RegionConfig],
    election: Election,
    *,
    control_plane: ControlPlane,
    cloud: CloudProvider,
    cml: CmlSystem,
    licensing: CmlLicensing,
    kv: Kv | None,
    clock: Clock,
    telemetry: Telemetry,
    health: Health,
    monitors: Monitors | None = None,
) -> WorkerController:
    """Everything but the connections: the same parts on EC2 and CML, or in a simulation."""
    stats = Stats(telemetry)
    pipeline = _running_pipeline(settings, election, control_plane, cml, licensing, clock, stats, monitors)

    def new_scope(reconciler: WorkerReconciler) -> LeadershipScope:
        return LeadershipScope(
            InstanceObserver(cloud, clock, health, poll_seconds=settings.reconcile_interval),
            Launcher(control_plane, cloud, regions, settings.environment_tag, election.check, clock),
            Discovery(settings, regions, control_plane, cloud, cml, clock, health, new_orphans(reconciler)),
        )

    def new_orphans(reconciler: WorkerReconciler) -> Orphans:
        return Orphans(
            control_plane,
            cloud,
            clock,
            health,
            environment=settings.environment_tag,
            may_terminate=settings.orphan_termination_enabled,
            check_leadership=election.check,
            adopt=lambda worker_id: reconciler.loop.trigger(worker_id),
            forget=lambda worker_id: reconciler.loop.forget(worker_id),
        )

    reconciler = WorkerReconciler(
        control_plane,
        cloud,
        clock,
        election.check,
        new_scope,
        pipeline,
        pipeline.licenses,
        Tagger(cloud, regions, settings.environment_tag, election.check),
        stats,
        StatusReports(control_plane, stats, monitors, lambda worker_id: reconciler.loop.forget(worker_id)),
        wait_seconds=settings.wait_seconds,
        provisioning_timeout=settings.provisioning_timeout,
        monitors=monitors,
    )
    loop = ReconcileLoop(
        reconciler,
        ReconciliationConfig(
            interval_seconds=settings.reconcile_interval,
            polling_enabled=settings.reconcile_polling_enabled,
        ),
        clock=clock,
        telemetry=telemetry,
        health=health,
    )
    watch = KeyWatch(
        WatchConfig(
            prefix=f"{settings.etcd_key_prefix}/workers/",
            debounce_seconds=settings.watch_debounce_seconds,
            call_timeout_seconds=settings.etcd_call_timeout_seconds,
        ),
        kv,
        clock=clock,
        wakes=needs_reconcile,
        fatal=reconciler.fatal,
    )

    def supervised(work: Work, name: str) -> Work:
        return partial(supervise, work, name=name, clock=clock, fatal=reconciler.fatal)

    while_leading: dict[str, Work] = {}
    if settings.is_discovery_enabled:
        while_leading["discovery"] = supervised(lambda: reconciler.scope.discovery.run(), "discovery")
    if settings.cleanup_enabled:
        retention = Retention(settings, regions, control_plane, cloud, clock)
        while_leading["retention"] = supervised(retention.run, "retention")
    if monitors is not None:
        while_leading["monitors"] = monitors.run

    async def claim_epoch(win: ElectionWin) -> int:
        return await control_plane.claim_leadership(
            win.cluster_id, win.revision, win.instance_id, settings.terms
        )

    service = WatchTriggeredHostedService(
        "worker-reconciler",
        loop,
        election,
        watch,
        claim_epoch,
        while_leading=while_leading,
        reset=reconciler.reset,
    )
    return WorkerController(service, reconciler, stats)


def needs_reconcile(change: Change) -> bool:
    """Only a request wakes the loop: status keys are the echo of the controller's own reports."""
    return change.key.endswith(("/desired_state", "/license")) or change.kind is ChangeKind.DELETE


def _running_pipeline(
    settings: WorkerControllerSettings,
    election: Election,
    control_plane: ControlPlane,
    cml: CmlSystem,
    licensing: CmlLicensing,
    clock: Clock,
    stats: Stats,
    monitors: Monitors | None,
) -> RunningPipeline:
    use_private_ip = settings.use_private_ip_for_monitoring
    licenses = LicenseRegistrar(
        control_plane,
        licensing,
        lambda worker: server_of(worker, use_private_ip=use_private_ip),
        election.check,
        clock,
        stats.counts,
        stats.on_drift,
        settings.cml_deregistration_timeout_seconds,
    )
    idle = (
        IdleChecker(control_plane, monitors, settings.scale_down_enabled, clock, stats.counts)
        if monitors is not None and settings.worker_activity_detection_enabled
        else None
    )
    return RunningPipeline(
        control_plane,
        cml,
        clock,
        use_private_ip=use_private_ip,
        wait_seconds=settings.wait_seconds,
        metrics_interval_seconds=settings.metrics_poll_interval,
        count_drift=stats.on_drift,
        monitors=monitors,
        licenses=licenses,
        idle=idle,
        scale_down=ScaleDown(
            control_plane, settings.scale_down, clock, lambda: stats.running_workers, stats.counts
        ),
    )


@asynccontextmanager
async def worker_controller_process(
    settings: WorkerControllerSettings,
    regions: Mapping[str, RegionConfig],
    ec2: Ec2Settings,
    kv: Kv | None,
    clock: Clock,
    ids: Ids,
) -> AsyncIterator[WorkerControllerProcess]:
    """Open the connections and put everything together; run the services to bring it to life."""
    telemetry, health = Telemetry(ids), Health(clock)
    api_key = settings.control_plane_api_key.get_secret_value()
    ec2 = replace(ec2, account_id=settings.aws_account_id)
    election = election_of(
        settings,
        kv,
        clock=clock,
        telemetry=telemetry,
        health=health,
        instance_id=settings.worker_controller_instance_id,
    )
    async with (
        HttpTransport(settings.control_plane_api_url, tls=settings.tls.client_context()) as transport,
        Ec2Provider(
            ec2, regions, clock=clock, chance=operating_system_chance(), before_effect=election.check
        ) as cloud,
        CloudWatchMetrics(ec2, regions, clock, operating_system_chance()) as cloud_metrics,
        CmlConnections(
            settings.cml_port,
            settings.cml_request_timeout_seconds,
            settings.cml_tls,
            proxy=settings.cml_proxy,
        ) as cml,
    ):
        control_plane = ControlPlaneClient(
            transport, api_key, service=WORKER_CONTROLLER, epoch=lambda: election.epoch
        )
        sessions = CmlSessions(
            cml,
            settings.cml_credentials,
            control_plane,
            clock,
            is_pinned=settings.cml_tls.is_pinned,
            login_seconds=settings.cml_login_timeout_seconds,
        )
        monitoring = _monitoring(settings, control_plane, cml, sessions, cloud_metrics, clock, ids, health)
        controller = assemble_controller(
            settings,
            regions,
            election,
            control_plane=control_plane,
            cloud=cloud,
            cml=CmlSystemSpiClient(cml),
            licensing=CmlLicensingClient(sessions.of),
            kv=kv,
            clock=clock,
            telemetry=telemetry,
            health=health,
            monitors=monitoring,
        )
        register_metrics(
            telemetry,
            controller.service,
            controller.reconciler,
            metrics_collected=lambda: monitoring.metrics.collected,
        )
        register_monitoring_metrics(telemetry, monitoring, clock)
        operations = worker_operations(
            controller.service,
            controller.reconciler,
            health,
            MetricsPage(telemetry, clock, settings.metrics_token.get_secret_value()),
            KeyCheck(api_key, clock),
            metrics_collected=lambda: monitoring.metrics.collected,
            scale_down_enabled=settings.scale_down_enabled,
        )
        lag = LoopLagMonitor(telemetry, clock)
        reporter = operations.reporter(control_plane.report_process, clock, lag)
        server = HttpServer(
            "worker-controller",
            Traced(operations.app(), telemetry.trace_ids),
            settings.host,
            settings.port,
            tls=settings.tls,
        )
        server.register_metrics(telemetry)
        yield WorkerControllerProcess(
            services=(
                server,
                controller.service,
                lag,
                reporter,
                *_exporters(settings, telemetry, clock),
            ),
            url=server.url,
            port=server.port,
            controller=controller,
        )


@asynccontextmanager
async def launch_doctor(
    settings: WorkerControllerSettings,
    regions: Mapping[str, RegionConfig],
    templates: Sequence[WorkerTemplate],
    ec2: Ec2Settings,
    clock: Clock,
    source: str | None,
) -> AsyncIterator[LaunchDoctor]:
    """What examines the account instead of working in it; `source` is this host's address, as AWS sees it."""
    chance = operating_system_chance()
    async with (
        Ec2Inspection(ec2, regions, home_region=settings.aws_region, clock=clock, chance=chance) as cloud,
        CloudWatchMetrics(ec2, regions, clock, chance) as metrics,
        CmlConnections(
            settings.cml_port,
            settings.cml_request_timeout_seconds,
            settings.cml_tls,
            proxy=settings.cml_proxy,
        ) as cml,
    ):
        yield LaunchDoctor(
            LaunchSettings(
                regions=regions,
                templates=templates,
                account_id=settings.aws_account_id,
                environment=settings.environment_tag,
                cml_port=settings.cml_port,
                use_private_ip=settings.use_private_ip_for_monitoring,
                source=source,
            ),
            cloud,
            cloud,
            metrics,
            CmlSystemSpiClient(cml),
            own_address_towards,
        )


@asynccontextmanager
async def cml_probe(
    host: str, port: int, credentials: Credentials, clock: Clock, ids: Ids
) -> AsyncIterator[CmlProbe]:
    """What probes one CML server, without control plane or records; its certificate is pinned at once."""
    async with CmlConnections(port) as cml:
        yield CmlProbe(
            cml,
            PicowsWebSockets(cml.context, port),
            host,
            credentials,
            clock=clock,
            ids=ids,
            limits=MonitoringConfig(),
        )


def _monitoring(
    settings: WorkerControllerSettings,
    control_plane: ControlPlaneClient,
    cml: CmlConnections,
    sessions: CmlSessions,
    cloud_metrics: CloudWatchMetrics,
    clock: Clock,
    ids: Ids,
    health: Health,
) -> LiveMonitoring:
    config = MonitoringConfig(
        websocket_enabled=settings.cml_websocket_enabled,
        report_interval=settings.cml_websocket_metrics_report_interval,
        reconnect_max_interval=settings.cml_websocket_reconnect_max_interval,
        max_reconnect_attempts=settings.cml_websocket_max_reconnect_attempts,
        health_timeout=settings.cml_websocket_health_timeout,
        poll_interval=settings.metrics_poll_interval,
        telemetry_timeout=settings.cml_telemetry_timeout_seconds,
    ).following_health_timeout()
    return assemble_monitoring(
        config,
        control_plane=control_plane,
        websockets=PicowsWebSockets(
            cml.context,
            settings.cml_port,
            settings.cml_websocket_connect_timeout_seconds,
            settings.cml_proxy,
        ),
        sessions=sessions,
        cloud_metrics=cloud_metrics,
        clock=clock,
        ids=ids,
        chance=random.Random(ids.new_id()),  # noqa: S311 - it spreads reconnects, it guards nothing
        health=health,
    )


def _exporters(
    settings: WorkerControllerSettings, telemetry: Telemetry, clock: Clock
) -> tuple[HostedService, ...]:
    endpoint = settings.otel_exporter_otlp_endpoint
    return (OtlpExport(telemetry, endpoint, clock),) if endpoint else ()
