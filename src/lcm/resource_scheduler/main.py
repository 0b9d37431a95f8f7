"""The resource scheduler: wiring, no logic. Start reading here, then `reconciler.py`, then `cycle.py`.

Places waiting lablet sessions on workers and requests the workers that are missing. It talks to the control
plane (REST) and the coordination store only, and keeps no state of its own.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from lcm.core.clock import Clock
from lcm.core.election import Election, ElectionWin, LeaderElectionConfig
from lcm.core.health import Health
from lcm.core.hosted_service import HostedService
from lcm.core.ids import Ids
from lcm.core.key_watch import KeyWatch, WatchConfig
from lcm.core.kv.port import Change, ChangeKind, Kv
from lcm.core.loop import ReconcileLoop, ReconciliationConfig
from lcm.core.telemetry import LoopLagMonitor, Telemetry
from lcm.domain.lablet.states import PENDING_SCHEDULING
from lcm.resource_scheduler.admin import scheduler_operations
from lcm.resource_scheduler.cycle import SchedulingCycle
from lcm.resource_scheduler.ports import ControlPlane
from lcm.resource_scheduler.reconciler import SchedulerReconciler
from lcm.resource_scheduler.service import SchedulerHostedService
from lcm.resource_scheduler.settings import ResourceSchedulerSettings
from lcm.resource_scheduler.stats import Stats
from lcm.rest.client import HttpTransport
from lcm.rest.scheduling_client import SchedulingClient
from lcm.rest.schemas import RESOURCE_SCHEDULER
from lcm.web.operations import KeyCheck, MetricsPage
from lcm.web.server import HttpServer


@dataclass(frozen=True)
class ResourceScheduler:
    """A scheduler put together: the service that runs it and what it counts."""

    service: SchedulerHostedService
    reconciler: SchedulerReconciler
    stats: Stats


@dataclass(frozen=True)
class ResourceSchedulerProcess:
    """What a caller needs to know of a scheduler that is about to run."""

    services: tuple[HostedService, ...]
    url: str
    port: int
    election: Election


def election_of(
    settings: ResourceSchedulerSettings,
    kv: Kv | None,
    *,
    clock: Clock,
    telemetry: Telemetry,
    health: Health,
    instance_id: str,
) -> Election:
    """Made first: every write carries its epoch."""
    config = LeaderElectionConfig(
        election_key_prefix=settings.etcd_key_prefix,
        lease_ttl=settings.leader_lease_ttl,
        instance_id=instance_id,
        service_name=RESOURCE_SCHEDULER,
        call_timeout_seconds=settings.etcd_call_timeout_seconds,
    )
    return Election(
        config,
        kv,
        clock=clock,
        health=health,
        trace_ids=telemetry.trace_ids,
        fatal=SchedulerReconciler.fatal,
    )


def assemble_scheduler(
    settings: ResourceSchedulerSettings,
    election: Election,
    *,
    control_plane: ControlPlane,
    kv: Kv | None,
    clock: Clock,
    telemetry: Telemetry,
    health: Health,
) -> ResourceScheduler:
    """Everything but the connections: the same parts over HTTP, or in a simulation."""
    stats = Stats(telemetry)
    telemetry.gauge(
        "resource_scheduler_leader",
        "1 on the resource scheduler that leads, 0 on a standby.",
        lambda: [(int(election.is_leader), {})],
    )
    reconciler = SchedulerReconciler(
        control_plane,
        SchedulingCycle(control_plane, clock, stats),
        clock,
        stats,
        scan_seconds=settings.timeslot_manager_interval_seconds,
        poll_seconds=settings.reconcile_interval,
    )
    loop = ReconcileLoop(
        reconciler,
        ReconciliationConfig(interval_seconds=settings.reconcile_interval),
        clock=clock,
        telemetry=telemetry,
        health=health,
    )

    def watch(folder: str) -> KeyWatch:
        return KeyWatch(
            WatchConfig(
                prefix=f"{settings.etcd_key_prefix}/{folder}/",
                debounce_seconds=settings.watch_debounce_seconds,
                call_timeout_seconds=settings.etcd_call_timeout_seconds,
            ),
            kv,
            clock=clock,
            wakes=waits_for_a_worker if folder == "instances" else may_give_room,
            fatal=reconciler.fatal,
        )

    async def claim_epoch(win: ElectionWin) -> int:
        return await control_plane.claim_leadership(win.cluster_id, win.revision, win.instance_id)

    service = SchedulerHostedService(
        loop, election, watch("instances"), watch("workers"), claim_epoch, reconciler
    )
    return ResourceScheduler(service, reconciler, stats)


def waits_for_a_worker(change: Change) -> bool:
    """A session that waits wakes the scheduler; what follows its placement does not."""
    is_put = change.kind is ChangeKind.PUT and change.key.endswith("/state")
    return is_put and f'"{PENDING_SCHEDULING}"'.encode() in change.value


def may_give_room(change: Change) -> bool:
    """A worker that changes its status, its size or its claims may take a session that waits."""
    return change.key.endswith(("/state", "/capacity"))


@asynccontextmanager
async def resource_scheduler_process(
    settings: ResourceSchedulerSettings, kv: Kv | None, clock: Clock, ids: Ids
) -> AsyncIterator[ResourceSchedulerProcess]:
    """Open the connections and put everything together; run the services to bring it to life."""
    telemetry, health = Telemetry(ids), Health(clock)
    election = election_of(
        settings,
        kv,
        clock=clock,
        telemetry=telemetry,
        health=health,
        instance_id=settings.instance_id,
    )
    api_key = settings.control_plane_api_key.get_secret_value()
    async with HttpTransport(settings.control_plane_api_url, tls=settings.tls.client_context()) as transport:
        control_plane = SchedulingClient(
            transport, api_key, service=RESOURCE_SCHEDULER, epoch=lambda: election.epoch
        )
        scheduler = assemble_scheduler(
            settings,
            election,
            control_plane=control_plane,
            kv=kv,
            clock=clock,
            telemetry=telemetry,
            health=health,
        )
        operations = scheduler_operations(
            scheduler.service,
            scheduler.reconciler,
            scheduler.stats,
            health,
            MetricsPage(telemetry, clock, settings.metrics_token.get_secret_value()),
            KeyCheck(api_key, clock),
        )
        lag = LoopLagMonitor(telemetry, clock)
        reporter = operations.reporter(control_plane.report_process, clock, lag)
        server = HttpServer(
            RESOURCE_SCHEDULER, operations.app(), settings.host, settings.port, tls=settings.tls
        )
        server.register_metrics(telemetry)
        yield ResourceSchedulerProcess(
            services=(server, scheduler.service, lag, reporter),
            url=server.url,
            port=server.port,
            election=election,
        )
