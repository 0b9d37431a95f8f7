"""The worker controller: wiring, no logic. Start reading here, then `reconciler.py`, then a step.

Makes EC2 instances what the records say. Talks to the control plane (REST), the coordination store,
EC2 and CML's system API; it keeps no state of its own.
"""

import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from lcm.cml.connection import CmlConnections
from lcm.core.chance import Ids, operating_system_chance
from lcm.core.clock import Clock
from lcm.core.health import Health
from lcm.core.hosted_service import HostedService
from lcm.core.kv.port import Kv
from lcm.core.telemetry import LoopLagMonitor, Telemetry
from lcm.domain.template import RegionConfig
from lcm.rest.client import ControlPlaneClient, HttpTransport
from lcm.web.server import HttpServer
from lcm.worker_controller.adapters.cml_system import CmlSystemSpiClient
from lcm.worker_controller.adapters.ec2 import Ec2Provider, Ec2Settings
from lcm.worker_controller.http import Operations, register_metrics
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
    telemetry, health = Telemetry(), Health(clock)
    api_key = settings.control_plane_api_key.get_secret_value()

    def epoch() -> int:
        return reconciler.leadership.epoch if reconciler.leadership else 0

    def check() -> None:
        reconciler.check_leadership()

    async with (
        HttpTransport(settings.control_plane_api_url) as transport,
        Ec2Provider(
            ec2, regions, clock=clock, chance=operating_system_chance(), before_effect=check
        ) as cloud,
        CmlConnections(settings.cml_port) as cml,
    ):
        reconciler = WorkerReconciler(
            settings,
            regions,
            control_plane=ControlPlaneClient(transport, api_key, service="worker-controller", epoch=epoch),
            cloud=cloud,
            cml=CmlSystemSpiClient(cml),
            kv=kv,
            clock=clock,
            telemetry=telemetry,
            health=health,
            instance_id=_instance_id(settings, ids),
        )
        register_metrics(telemetry, reconciler)
        operations = Operations(reconciler, health, telemetry, api_key)
        server = HttpServer("worker-controller", operations.app(), settings.host, settings.port)
        yield WorkerControllerProcess(
            services=(server, reconciler, LoopLagMonitor(telemetry, clock)),
            url=server.url,
            port=server.port,
            reconciler=reconciler,
        )


def _instance_id(settings: WorkerControllerSettings, ids: Ids) -> str:
    if settings.worker_controller_instance_id != "auto":
        return settings.worker_controller_instance_id
    return f"{socket.gethostname()}-{ids.new_id()[:8]}"
