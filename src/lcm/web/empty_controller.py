"""A controller that has no work yet: it is elected, claims its epoch, answers, and says that it does nothing.

The resource scheduler and the lablet controller are this until their work exists, so that a deployment can be
laid out, secured and monitored as it will be.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Never

import structlog

from lcm.core.clock import Clock
from lcm.core.controller import LeaderElectedHostedService
from lcm.core.election import Election, ElectionWin, LeaderElectionConfig, LeadershipLost, instance_name
from lcm.core.health import Health
from lcm.core.hosted_service import HostedService
from lcm.core.ids import Ids
from lcm.core.kv.port import Kv
from lcm.core.loop import ReconcileLoop, Reconciler, ReconciliationConfig
from lcm.core.results import ReconciliationResult
from lcm.core.settings import ControllerSettings
from lcm.core.telemetry import LoopLagMonitor, Telemetry
from lcm.domain.errors import Fenced
from lcm.rest.client import ControlPlaneClient, HttpTransport
from lcm.web.operations import ControllerOperations
from lcm.web.server import HttpServer

log = structlog.get_logger(__name__)


class NothingToReconcile(Reconciler[Never]):
    """Has no resources."""

    fatal = (LeadershipLost, Fenced)

    async def list_resources(self) -> Sequence[Never]:
        return ()

    async def fetch_single_resource(self, resource_id: str) -> None:
        return None

    async def reconcile_resource(self, resource: Never) -> ReconciliationResult:
        raise NotImplementedError

    def resource_id(self, resource: Never) -> str:
        raise NotImplementedError


@dataclass(frozen=True)
class EmptyControllerProcess:
    """What a caller needs to know of a controller that is about to run."""

    services: tuple[HostedService, ...]
    url: str
    port: int
    instance_id: str


@asynccontextmanager
async def empty_controller_process(
    name: str,
    metric_prefix: str,
    does: str,
    settings: ControllerSettings,
    kv: Kv | None,
    clock: Clock,
    ids: Ids,
) -> AsyncIterator[EmptyControllerProcess]:
    """Open the connections and put everything together; run the services to bring it to life."""
    telemetry, health = Telemetry(), Health(clock)
    reconciler = NothingToReconcile()
    election = Election(
        LeaderElectionConfig(
            election_key_prefix=settings.etcd_key_prefix,
            lease_ttl=settings.leader_lease_ttl,
            instance_id=instance_name(settings.instance_id, ids),
            service_name=name,
            call_timeout_seconds=settings.etcd_call_timeout_seconds,
        ),
        kv,
        clock=clock,
        health=health,
        trace_ids=telemetry.trace_ids,
        fatal=reconciler.fatal,
    )
    config = ReconciliationConfig(metric_prefix=metric_prefix)
    loop = ReconcileLoop(reconciler, config, clock=clock, telemetry=telemetry, health=health)
    api_key = settings.control_plane_api_key.get_secret_value()
    async with HttpTransport(settings.control_plane_api_url) as transport:
        control_plane = ControlPlaneClient(transport, api_key, service=name, epoch=lambda: election.epoch)

        async def claim_epoch(win: ElectionWin) -> int:
            epoch = await control_plane.claim_leadership(win.cluster_id, win.revision, win.instance_id)
            log.warning("leadership without work", service=name, does=does)
            return epoch

        service = LeaderElectedHostedService(name, loop, election, claim_epoch)
        facts = {"does": does}
        operations = ControllerOperations(
            service, health, telemetry, api_key, health_facts=lambda: facts, info_facts=lambda: facts
        )
        server = HttpServer(name, operations.app(), settings.host, settings.port)
        yield EmptyControllerProcess(
            services=(server, service, LoopLagMonitor(telemetry, clock)),
            url=server.url,
            port=server.port,
            instance_id=election.config.instance_id,
        )
