"""The lablet controller: wiring, no logic. Start reading here, then `reconciler.py`, then a step.

Runs the labs of placed sessions on their workers and removes them. It talks to the control plane (REST), the
coordination store and CML's labs API, and keeps no state of its own.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from lcm.cml.connection import CmlConnections
from lcm.cml.sessions import CmlSessions, server_of
from lcm.core.clock import Clock
from lcm.core.controller import WatchTriggeredHostedService, Work
from lcm.core.election import Election, ElectionWin, LeaderElectionConfig
from lcm.core.health import Health
from lcm.core.hosted_service import HostedService, supervise
from lcm.core.ids import Ids
from lcm.core.key_watch import KeyWatch, WatchConfig
from lcm.core.kv.port import Change, ChangeKind, Kv
from lcm.core.loop import ReconcileLoop, ReconciliationConfig
from lcm.core.telemetry import LoopLagMonitor, Telemetry
from lcm.domain.lablet.session import LabletSession
from lcm.lablet_controller.adapters.cml_labs import CmlLabsClient, LabLimits
from lcm.lablet_controller.adapters.tcp_probe import TcpProbe
from lcm.lablet_controller.admin import lablet_operations
from lcm.lablet_controller.discovery import LabDiscovery
from lcm.lablet_controller.extraction import ConfigExtraction
from lcm.lablet_controller.gate import LabGate
from lcm.lablet_controller.lab_requests import LabRequests
from lcm.lablet_controller.observer import LabObserver
from lcm.lablet_controller.ports import CmlLabs, ControlPlane, PortProbe
from lcm.lablet_controller.reconciler import STEPS, LabletReconciler
from lcm.lablet_controller.settings import LabletControllerSettings
from lcm.lablet_controller.stats import Stats
from lcm.rest.client import HttpTransport
from lcm.rest.lablet_client import LabletClient
from lcm.rest.plane_clock import PlaneClock
from lcm.rest.schemas import LABLET_CONTROLLER
from lcm.web.operations import KeyCheck, MetricsPage
from lcm.web.server import HttpServer

KEEP_ALIVE_SECONDS: float = 5.0
"""A lab needs many calls in a row, each of which would begin with a TLS handshake. Shorter than CML waits, so
that no request is sent on a connection that CML is about to close."""
LANDS_WITHIN: float = 2.0
"""An import without an answer may make its lab within so many times its limit."""


@dataclass(frozen=True)
class LabletController:
    """A lablet controller put together: the service that runs it and what it counts."""

    service: WatchTriggeredHostedService[LabletSession]
    reconciler: LabletReconciler
    discovery: LabDiscovery
    requests: LabRequests
    stats: Stats


@dataclass(frozen=True)
class LabletControllerProcess:
    """What a caller needs to know of a lablet controller that is about to run."""

    services: tuple[HostedService, ...]
    url: str
    port: int
    election: Election


def election_of(
    settings: LabletControllerSettings,
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
        service_name=LABLET_CONTROLLER,
        call_timeout_seconds=settings.etcd_call_timeout_seconds,
    )
    return Election(
        config,
        kv,
        clock=clock,
        health=health,
        trace_ids=telemetry.trace_ids,
        fatal=LabletReconciler.fatal,
    )


def assemble_lablets(
    settings: LabletControllerSettings,
    election: Election,
    *,
    control_plane: ControlPlane,
    labs: CmlLabs,
    kv: Kv | None,
    clock: Clock,
    plane_clock: PlaneClock,
    telemetry: Telemetry,
    health: Health,
    port_probe: PortProbe | None = None,
) -> LabletController:
    """Everything but the connections: the same parts over CML, or in a simulation.

    Whatever is judged by times that the control plane recorded is judged by `plane_clock`.
    """
    stats = Stats(telemetry)
    telemetry.gauge(
        "lablet_controller_leader",
        "1 on the lablet controller that leads, 0 on a standby.",
        lambda: [(int(election.is_leader), {})],
    )
    observer = LabObserver(
        labs, control_plane, plane_clock, lands_within_seconds=LANDS_WITHIN * settings.cml_lab_timeout
    )
    gate = LabGate(labs, control_plane, observer.fleet_id, election.check)
    find_server = partial(server_of, use_private_ip=settings.use_private_ip_for_monitoring)
    discovery = LabDiscovery(
        control_plane, labs, find_server, clock, health, stats, settings.labs_refresh_interval
    )
    requests = LabRequests(
        control_plane,
        labs,
        gate,
        find_server,
        clock,
        health,
        stats,
        settings.lab_action_timeout,
        ConfigExtraction(control_plane, labs, gate, find_server),
    )
    reconciler = LabletReconciler(
        control_plane,
        observer,
        gate,
        find_server,
        plane_clock,
        stats,
        lab_lead=timedelta(minutes=settings.lab_start_minutes),
        start_timeout=timedelta(seconds=settings.lab_start_timeout),
        restarts_stopped_labs=settings.restart_stopped_labs,
        port_probe=port_probe,
    )
    loop = ReconcileLoop(
        reconciler,
        ReconciliationConfig(interval_seconds=settings.reconcile_interval),
        clock=clock,
        telemetry=telemetry,
        health=health,
    )
    watch = KeyWatch(
        WatchConfig(
            prefix=f"{settings.etcd_key_prefix}/instances/",
            debounce_seconds=settings.watch_debounce_seconds,
            call_timeout_seconds=settings.etcd_call_timeout_seconds,
        ),
        kv,
        clock=clock,
        wakes=concerns_a_lab,
        fatal=reconciler.fatal,
    )

    async def claim_epoch(win: ElectionWin) -> int:
        return await control_plane.claim_leadership(win.cluster_id, win.revision, win.instance_id)

    def supervised(work: Work, name: str) -> Work:
        return partial(supervise, work, name=name, clock=clock, fatal=reconciler.fatal)

    def reset() -> None:
        for part in (reconciler, discovery, requests):
            part.reset()

    service = WatchTriggeredHostedService(
        LABLET_CONTROLLER,
        loop,
        election,
        watch,
        claim_epoch,
        while_leading={
            "lab-discovery": supervised(discovery.run, "lab-discovery"),
            "lab-requests": supervised(requests.run, "lab-requests"),
        },
        reset=reset,
    )
    return LabletController(service, reconciler, discovery, requests, stats)


def concerns_a_lab(change: Change) -> bool:
    """A session that has a worker, whose lab has settled, or whose desired status changed.

    One that waits is the scheduler's.
    """
    if change.kind is ChangeKind.DELETE or change.key.endswith(("/desired_state", "/lab")):
        return True
    return any(f'"{status}"'.encode() in change.value for status in STEPS)


@asynccontextmanager
async def lablet_controller_process(
    settings: LabletControllerSettings, kv: Kv | None, clock: Clock, ids: Ids
) -> AsyncIterator[LabletControllerProcess]:
    """Open the connections and put everything together; run the services to bring it to life."""
    telemetry, health = Telemetry(ids), Health(clock)
    plane_clock = PlaneClock(clock)
    election = election_of(
        settings,
        kv,
        clock=clock,
        telemetry=telemetry,
        health=health,
        instance_id=settings.instance_id,
    )
    api_key = settings.control_plane_api_key.get_secret_value()
    limits = LabLimits(import_seconds=settings.cml_lab_timeout, changes_per_worker=settings.starts_per_worker)
    async with (
        HttpTransport(settings.control_plane_api_url, tls=settings.tls.client_context()) as transport,
        CmlConnections(
            settings.cml_port,
            settings.cml_request_timeout_seconds,
            settings.cml_tls,
            keep_alive_seconds=KEEP_ALIVE_SECONDS,
            proxy=settings.cml_proxy,
        ) as cml,
    ):
        control_plane = LabletClient(
            transport,
            api_key,
            service=LABLET_CONTROLLER,
            epoch=lambda: election.epoch,
            plane_clock=plane_clock,
        )
        sessions = CmlSessions(
            cml,
            settings.cml_credentials,
            control_plane,
            clock,
            is_pinned=settings.cml_tls.is_pinned,
            login_seconds=settings.cml_login_timeout_seconds,
        )
        lablets = assemble_lablets(
            settings,
            election,
            control_plane=control_plane,
            labs=CmlLabsClient(sessions.of, plane_clock, limits),
            port_probe=TcpProbe() if settings.probe_ports else None,
            kv=kv,
            clock=clock,
            plane_clock=plane_clock,
            telemetry=telemetry,
            health=health,
        )
        operations = lablet_operations(
            lablets.service,
            lablets.stats,
            health,
            MetricsPage(telemetry, clock, settings.metrics_token.get_secret_value()),
            KeyCheck(api_key, clock),
        )
        lag = LoopLagMonitor(telemetry, clock)
        reporter = operations.reporter(control_plane.report_process, clock, lag)
        server = HttpServer(
            LABLET_CONTROLLER, operations.app(), settings.host, settings.port, tls=settings.tls
        )
        server.register_metrics(telemetry)
        yield LabletControllerProcess(
            services=(server, lablets.service, lag, reporter),
            url=server.url,
            port=server.port,
            election=election,
        )
