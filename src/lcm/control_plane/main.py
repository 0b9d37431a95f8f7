"""The control plane: wiring, no logic. Start reading here.

Owns the records. Talks to its store and the coordination store, never to AWS or CML.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import structlog
import yaml
from fastapi import FastAPI

from lcm.control_plane.access import AccessKeys
from lcm.control_plane.app import build_app
from lcm.control_plane.context import ControlPlane
from lcm.control_plane.peers import PeerWatch
from lcm.control_plane.publisher import Publisher
from lcm.control_plane.routes.dependencies import Services
from lcm.control_plane.routes.operations import Operations
from lcm.control_plane.settings import ControlPlaneSettings
from lcm.control_plane.sse import EventHub
from lcm.control_plane.store.port import Store
from lcm.control_plane.store.sqlite import SqliteStore
from lcm.control_plane.templates import Templates
from lcm.control_plane.workers import Workers
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
    peers: PeerWatch
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
) -> ControlPlaneParts:
    """Everything but the engines: the same parts on SQLite and HTTP, or in a simulation."""
    telemetry, health = Telemetry(), Health(clock)
    workers, templates = Workers(store), Templates(store)
    plane = ControlPlane(store, workers, templates, clock, ids, regions, default_region)
    hub = EventHub(clock, ids, snapshot=workers.list_all)
    workers.subscribe(hub.on_worker_commit)
    publisher = Publisher(
        store, workers, kv, clock=clock, health=health, on_found=hub.on_worker_found, key_prefix=key_prefix
    )
    peers = PeerWatch(workers, kv, clock=clock, on_found=hub.on_worker_found, key_prefix=key_prefix)
    telemetry.gauge("lcm_sse_subscribers", "Open event streams.", lambda: [(hub.subscriber_count, {})])
    telemetry.counter("lcm_sse_resets_total", "Streams that read too slowly.", lambda: [(hub.resets, {})])
    app = build_app(Services(plane, hub, keys), telemetry, Operations(health, publisher))
    return ControlPlaneParts(app, publisher, peers, hub, telemetry)


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
    async with _store(settings, clock, ids) as store:
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
        )
        server = HttpServer(
            "control-plane", parts.app, settings.host, settings.port, before_stop=parts.hub.close
        )
        peers = (parts.peers,) if settings.uses_etcd else ()
        yield ControlPlaneProcess(
            services=(server, parts.publisher, *peers, LoopLagMonitor(parts.telemetry, clock)),
            url=server.url,
            port=server.port,
            keys=keys,
        )


def _store(settings: ControlPlaneSettings, clock: Clock, ids: Ids) -> AbstractAsyncContextManager[Store]:
    if settings.store_url is not None:
        from lcm.control_plane.store.mongodb import MongoStore  # not needed by `lcm up`, and slow to load

        return MongoStore(settings.store_url.get_secret_value(), clock, ids)
    return SqliteStore(settings.data_dir / "lcm.db")
