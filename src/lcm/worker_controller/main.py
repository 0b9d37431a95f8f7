"""The worker controller: wiring, no logic. Start reading here, then `reconciler.py`, then a step.

Makes EC2 instances what the records say. Talks to the control plane (REST), the coordination store,
EC2 and CML's system API; it keeps no state of its own.
"""

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from lcm.cml.connection import CmlConnections, CmlTrust
from lcm.core.clock import Clock
from lcm.core.election import instance_name
from lcm.core.health import Health
from lcm.core.hosted_service import HostedService
from lcm.core.ids import Ids, operating_system_chance
from lcm.core.kv.port import Kv
from lcm.core.telemetry import LoopLagMonitor, OtlpExport, Telemetry
from lcm.domain.template import RegionConfig
from lcm.rest.client import ControlPlaneClient, HttpTransport
from lcm.web.server import HttpServer
from lcm.web.tracing import Traced
from lcm.worker_controller.adapters.cloudwatch import CloudWatchMetrics
from lcm.worker_controller.adapters.cml_licensing import CmlLicensingClient
from lcm.worker_controller.adapters.cml_system import CmlSystemSpiClient
from lcm.worker_controller.adapters.ec2 import Ec2Provider, Ec2Settings
from lcm.worker_controller.adapters.picows_websocket import PicowsWebSockets
from lcm.worker_controller.admin.http import Operations
from lcm.worker_controller.admin.metrics import register_metrics
from lcm.worker_controller.cml_sessions import CmlSessions
from lcm.worker_controller.monitoring.config import MonitoringConfig
from lcm.worker_controller.monitoring.service import (
    LiveMonitoring,
    assemble_monitoring,
    register_monitoring_metrics,
)
from lcm.worker_controller.reconciler import WorkerReconciler
from lcm.worker_controller.settings import WorkerControllerSettings


@dataclass(frozen=True)
class WorkerControllerProcess:
    """What a caller needs to know of a worker controller that is about to run."""

    services: tuple[HostedService, ...]
    url: str
    port: int
    reconciler: WorkerReconciler


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

    def epoch() -> int:
        return reconciler.leadership.epoch if reconciler.leadership else 0

    def check() -> None:
        reconciler.check_leadership()

    async with (
        HttpTransport(settings.control_plane_api_url) as transport,
        Ec2Provider(
            ec2, regions, clock=clock, chance=operating_system_chance(), before_effect=check
        ) as cloud,
        CloudWatchMetrics(ec2, regions, clock, operating_system_chance()) as cloud_metrics,
        CmlConnections(settings.cml_port, trust=settings.cml_worker_api_verify_ssl) as cml,
    ):
        control_plane = ControlPlaneClient(transport, api_key, service="worker-controller", epoch=epoch)
        sessions = CmlSessions(
            cml,
            settings.cml_credentials,
            control_plane,
            clock,
            is_pinned=settings.cml_worker_api_verify_ssl is CmlTrust.PIN,
        )
        monitoring = _monitoring(settings, control_plane, cml, sessions, cloud_metrics, clock, ids, health)
        reconciler = WorkerReconciler(
            settings,
            regions,
            control_plane=control_plane,
            cloud=cloud,
            cml=CmlSystemSpiClient(cml),
            licensing=CmlLicensingClient(sessions.of),
            kv=kv,
            clock=clock,
            telemetry=telemetry,
            health=health,
            instance_id=instance_name(settings.worker_controller_instance_id, ids),
            monitors=monitoring,
        )
        register_metrics(telemetry, reconciler)
        register_monitoring_metrics(telemetry, monitoring, clock)
        operations = Operations(
            reconciler,
            health,
            telemetry,
            api_key,
            metrics_collected=lambda: monitoring.metrics.collected,
            scale_down_enabled=settings.scale_down_enabled,
        )
        server = HttpServer(
            "worker-controller", Traced(operations.app(), telemetry.trace_ids), settings.host, settings.port
        )
        yield WorkerControllerProcess(
            services=(
                server,
                reconciler,
                LoopLagMonitor(telemetry, clock),
                *_exporters(settings, telemetry, clock),
            ),
            url=server.url,
            port=server.port,
            reconciler=reconciler,
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
    )
    return assemble_monitoring(
        config,
        control_plane=control_plane,
        websockets=PicowsWebSockets(cml.context, settings.cml_port),
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
