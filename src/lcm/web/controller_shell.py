"""The process around a controller that has no work yet: connections and services, put together once.

A controller says who it is by its `EmptyController`; everything else about such a process is the same.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from lcm.core.clock import Clock
from lcm.core.election import LeaderElectionConfig, instance_name
from lcm.core.health import Health
from lcm.core.hosted_service import HostedService
from lcm.core.ids import Ids
from lcm.core.kv.port import Kv
from lcm.core.reconciliation import ReconciliationConfig
from lcm.core.settings import ControllerSettings
from lcm.core.telemetry import LoopLagMonitor, Telemetry
from lcm.rest.client import HttpTransport
from lcm.web.empty_controller import EmptyController
from lcm.web.server import HttpServer


@dataclass(frozen=True)
class ControllerShell:
    """What a caller needs to know of a controller that is about to run."""

    services: tuple[HostedService, ...]
    url: str
    port: int
    instance_id: str


@asynccontextmanager
async def controller_shell(
    kind: type[EmptyController], settings: ControllerSettings, kv: Kv | None, clock: Clock, ids: Ids
) -> AsyncIterator[ControllerShell]:
    """Open the connections and put everything together; run the services to bring it to life."""
    telemetry = Telemetry()
    instance_id = instance_name(settings.instance_id, ids)
    controller = kind(
        ReconciliationConfig(metric_prefix=kind.metric_prefix),
        LeaderElectionConfig(
            election_key_prefix=settings.etcd_key_prefix,
            lease_ttl=settings.leader_lease_ttl,
            instance_id=instance_id,
            service_name=kind.name,
            call_timeout_seconds=settings.etcd_call_timeout_seconds,
        ),
        kv,
        clock=clock,
        telemetry=telemetry,
        health=Health(clock),
    )
    async with HttpTransport(settings.control_plane_api_url) as transport:
        controller.connect(transport, settings.control_plane_api_key.get_secret_value())
        server = HttpServer(kind.name, controller.app(), settings.host, settings.port)
        yield ControllerShell(
            services=(server, controller, LoopLagMonitor(telemetry, clock)),
            url=server.url,
            port=server.port,
            instance_id=instance_id,
        )
