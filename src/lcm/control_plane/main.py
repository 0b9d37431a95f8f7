"""The control plane: wiring, no logic. Start reading here.

Owns the records. Talks to its store and the coordination store, never to AWS or CML.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog
import yaml
from fastapi import FastAPI

from lcm.control_plane.access import AccessKeys
from lcm.control_plane.app import build_app
from lcm.control_plane.context import ACTIVITY_EVENTS_KEPT, ControlPlane
from lcm.control_plane.publisher import Publisher
from lcm.control_plane.routes.dependencies import Services
from lcm.control_plane.routes.operations import Operations
from lcm.control_plane.settings import ControlPlaneSettings
from lcm.control_plane.sse import SEND_BUFFER_BYTES, EventHub
from lcm.control_plane.store.port import Store
from lcm.control_plane.store.sqlite import SqliteStore
from lcm.control_plane.templates import Templates
from lcm.core.chance import Ids
from lcm.core.clock import Clock
from lcm.core.health import Health
from lcm.core.hosted_service import HostedService
from lcm.core.kv.port import Kv
from lcm.core.telemetry import LoopLagMonitor, Telemetry
from lcm.web.server import HttpServer

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class ControlPlaneParts:
    """A control plane put together: the application that answers, the loop that publishes, the stream."""

    app: FastAPI
    publisher: Publisher
    hub: EventHub
    telemetry: Telemetry


@dataclass(frozen=True)
class ControlPlaneProcess:
    """What a caller needs to know of a control plane that is about to run."""

    services: tuple[HostedService, ...]
    url: str
    port: int
    keys: AccessKeys


def assemble(
    store: Store,
    kv: Kv,
    keys: AccessKeys,
    *,
    clock: Clock,
    ids: Ids,
    regions: tuple[str, ...],
    default_region: str,
    key_prefix: str = "/lcm",
    activity_events_kept: int = ACTIVITY_EVENTS_KEPT,
) -> ControlPlaneParts:
    """Everything but the engines: the same parts on SQLite and HTTP, or in a simulation."""
    telemetry, health = Telemetry(), Health(clock)
    plane = ControlPlane.over(
        store,
        clock=clock,
        ids=ids,
        regions=regions,
        default_region=default_region,
        activity_events_kept=activity_events_kept,
    )
    hub = EventHub(clock, ids, plane.roster, newest_samples=plane.live.newest)
    plane.workers.subscribe(hub.on_worker_commit)
    plane.labs.subscribe(hub.on_lab_change)
    plane.live.subscribe(hub.on_sample, hub.on_lab_stats)
    publisher = Publisher(
        store,
        plane.workers,
        kv,
        clock=clock,
        health=health,
        on_found=hub.on_worker_found,
        key_prefix=key_prefix,
    )
    _register_metrics(telemetry, plane, hub)
    app = build_app(Services(plane, hub, keys), telemetry, Operations(health, publisher))
    return ControlPlaneParts(app, publisher, hub, telemetry)


def _register_metrics(telemetry: Telemetry, plane: ControlPlane, hub: EventHub) -> None:
    """What /metrics shows of the stream and of what is live; read when somebody looks."""
    telemetry.gauge("lcm_sse_subscribers", "Open event streams.", lambda: [(hub.subscriber_count, {})])
    telemetry.gauge("lcm_sse_channels", "Different filters in use.", lambda: [(hub.channel_count, {})])
    telemetry.counter("lcm_sse_resets_total", "Streams that read too slowly.", lambda: [(hub.resets, {})])
    telemetry.counter("lcm_sse_flushes_total", "Writes to all streams.", lambda: [(hub.flushes, {})])
    telemetry.counter(
        "lcm_sse_events_total",
        "Events published, by type; those in batches one by one.",
        lambda: [(count, {"event_type": kind}) for kind, count in hub.events.items()],
    )
    telemetry.counter(
        "lcm_sse_batches_total",
        "Batches published, by the type of their events.",
        lambda: [(count, {"event_type": kind}) for kind, count in hub.batches.items()],
    )
    telemetry.gauge(
        "lcm_live_workers", "Workers whose load is known.", lambda: [(plane.live.worker_count, {})]
    )
    telemetry.gauge("lcm_live_points", "Points kept for charts.", lambda: [(plane.live.point_count, {})])
    telemetry.gauge("lcm_lab_records", "Labs known on all workers.", lambda: [(plane.labs.count, {})])
    telemetry.counter(
        "lcm_live_reports_total",
        "Live reports of controllers, by kind; dropped if their worker does not run.",
        lambda: [
            (count, {"kind": kind, "outcome": outcome})
            for (kind, outcome), count in plane.live.reports.items()
        ],
    )


@asynccontextmanager
async def control_plane_process(
    settings: ControlPlaneSettings, kv: Kv, clock: Clock, ids: Ids, regions: tuple[str, ...]
) -> AsyncIterator[ControlPlaneProcess]:
    """Open the store and put everything together; run the services to bring it to life."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    given_key = settings.control_plane_api_key
    keys = AccessKeys.load_or_create(
        settings.data_dir / "keys.json", given_key.get_secret_value() if given_key else None
    )
    async with SqliteStore(settings.data_dir / "lcm.db") as store:
        if settings.worker_templates_auto_seed:
            config = yaml.safe_load(settings.worker_templates_config_path.read_text()) or {}
            log.info("templates seeded", count=await Templates(store).seed(config))
        parts = assemble(
            store,
            kv,
            keys,
            clock=clock,
            ids=ids,
            regions=regions,
            default_region=settings.aws_region,
            key_prefix=settings.etcd_key_prefix,
            activity_events_kept=settings.worker_activity_events_max_stored,
        )
        server = HttpServer(
            "control-plane",
            parts.app,
            settings.host,
            settings.port,
            before_stop=parts.hub.close,
            send_buffer_bytes=SEND_BUFFER_BYTES,
        )
        yield ControlPlaneProcess(
            services=(server, parts.publisher, LoopLagMonitor(parts.telemetry, clock)),
            url=server.url,
            port=server.port,
            keys=keys,
        )
