"""The control plane: wiring, no logic. Start reading here.

Owns the records. Talks to its store and the coordination store, never to AWS or CML.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog
from fastapi import FastAPI

from lcm.control_plane.access.identity import BearerVerifier, Identity, IdentityKeeper
from lcm.control_plane.access.oidc import FetchDocument, OidcVerifier
from lcm.control_plane.access.rate_limit import Buckets
from lcm.control_plane.access.roles import AccessKeys
from lcm.control_plane.access.sealing import CannotOpen, KeyFile, SecretBox
from lcm.control_plane.access.secrets import Vault
from lcm.control_plane.api.app import build_app
from lcm.control_plane.api.dependencies import Services
from lcm.control_plane.api.operations import Operations
from lcm.control_plane.commands.auto_license import AutoLicense
from lcm.control_plane.context import ControlPlane, Policies
from lcm.control_plane.records.commit_log import log_commit
from lcm.control_plane.records.templates import Templates
from lcm.control_plane.replication.feed_client import FeedClient, OpenFeed
from lcm.control_plane.replication.kv_watch import KvWatch
from lcm.control_plane.replication.publisher import Publisher
from lcm.control_plane.settings import DEFAULT_REQUESTS_PER_SECOND, ControlPlaneSettings
from lcm.control_plane.store.port import Store
from lcm.control_plane.store.sqlite import SqliteStore
from lcm.control_plane.streaming.hub import EventHub
from lcm.control_plane.streaming.outbox import SEND_BUFFER_BYTES, SUBSCRIBER_BYTES
from lcm.core.clock import Clock
from lcm.core.configuration import ConfigurationError, read_yaml
from lcm.core.health import Health
from lcm.core.hosted_service import HostedService
from lcm.core.ids import Ids
from lcm.core.kv.port import Kv
from lcm.core.redaction import redactor
from lcm.core.telemetry import LoopLagMonitor, Telemetry
from lcm.web.server import HttpServer

log = structlog.get_logger(__name__)

FOLLOWERS_FIRST_SECONDS = 0.5
"""Where planes follow each other, a changed key is only looked at if its news has not come by then."""
BURST_SECONDS = 5.0
"""So much of a principal's rate may be used at once."""


@dataclass(frozen=True)
class ControlPlaneParts:
    """A control plane put together: the application that answers, the loop that publishes, the stream."""

    app: FastAPI
    plane: ControlPlane
    publisher: Publisher
    peers: KvWatch
    followers: tuple[FeedClient, ...]
    hub: EventHub
    templates: Templates
    telemetry: Telemetry
    identity_keeper: IdentityKeeper
    auto_license: AutoLicense


@dataclass(frozen=True)
class Limits:
    """How much is kept for the stream's readers, how often they hear that nothing happened, and how often
    the coordination store is looked at."""

    event_buffer: int = 1_000
    event_backlog_bytes: int = SUBSCRIBER_BYTES
    heartbeat_seconds: float = 30.0
    publish_sweep_seconds: float = 5.0


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
    vault: Vault,
    policies: Policies | None = None,
    key_prefix: str = "/lcm",
    issuer: BearerVerifier | None = None,
    requests_per_second: float = DEFAULT_REQUESTS_PER_SECOND,
    limits: Limits | None = None,
    others: Sequence[str] = (),
    open_feed: OpenFeed | None = None,
) -> ControlPlaneParts:
    """Everything but the engines: the same parts on SQLite and HTTP, or in a simulation."""
    telemetry, health, limits = Telemetry(), Health(clock), limits or Limits()
    plane = ControlPlane.over(
        store,
        clock=clock,
        ids=ids,
        regions=regions,
        default_region=default_region,
        vault=vault,
        policies=policies,
    )
    hub = EventHub(
        clock,
        ids,
        plane.worker_cache,
        newest_samples=plane.live.newest,
        heartbeat_seconds=limits.heartbeat_seconds,
        buffer_size=limits.event_buffer,
        subscriber_bytes=limits.event_backlog_bytes,
    )
    plane.workers.subscribe(log_commit)
    plane.workers.subscribe(hub.on_worker_commit)
    plane.labs.subscribe(hub.on_lab_change)
    plane.templates.subscribe(hub.on_template)
    plane.live.subscribe(hub.on_sample, hub.on_lab_stats)
    publisher = Publisher(
        store,
        plane.workers,
        kv,
        clock=clock,
        health=health,
        on_found=hub.on_worker_found,
        key_prefix=key_prefix,
        sweep_seconds=limits.publish_sweep_seconds,
    )
    followers = tuple(FeedClient(url, open_feed, plane, hub, clock) for url in others if open_feed)
    peers = KvWatch(
        plane.workers,
        kv,
        clock=clock,
        is_known=plane.worker_cache.knows,
        known_ids=plane.worker_cache.ids,
        on_found=hub.on_worker_found,
        on_gone=hub.on_worker_gone,
        key_prefix=key_prefix,
        patience_seconds=FOLLOWERS_FIRST_SECONDS if followers else 0.0,
    )
    telemetry.gauge(
        "lcm_control_plane_peer_followed",
        "1 while what happens at another control plane is heard of here.",
        lambda: [(int(follower.is_following), {"peer": follower.address}) for follower in followers],
    )
    _register_metrics(telemetry, plane, hub)
    identity = Identity(keys, store, clock, issuer)
    telemetry.counter(
        "lcm_access_refused_total",
        "Requests without a valid token (401), the role (403), or within the rate (429).",
        lambda: [(count, {"status": str(status)}) for status, count in identity.refusals.items()],
    )
    rate = Buckets(clock, per_second=requests_per_second, burst=int(requests_per_second * BURST_SECONDS))
    app = build_app(Services(plane, hub, identity), telemetry, Operations(health, publisher), rate)
    keeper = IdentityKeeper(identity, clock, health)
    return ControlPlaneParts(
        app,
        plane,
        publisher,
        peers,
        followers,
        hub,
        plane.templates,
        telemetry,
        keeper,
        AutoLicense(plane, health),
    )


def _register_metrics(telemetry: Telemetry, plane: ControlPlane, hub: EventHub) -> None:
    """What /metrics shows of the stream and of what is live; read when somebody looks."""
    checks, policy = plane.idle_checks, plane.policies.idle
    alarm_after = policy.alarm_after
    if alarm_after is not None:
        telemetry.gauge(
            "lcm_idle_checks_overdue_workers",
            "Running workers that nobody asked about for too long.",
            lambda: [(checks.overdue(plane.clock.now(), alarm_after), {})],
        )
    telemetry.gauge(
        "lcm_idle_unconfirmed_workers",
        "Workers that are kept for longer than the idle timeout only because their CML cannot be asked.",
        lambda: [(checks.unconfirmed(plane.clock.now(), policy.timeout), {})],
    )
    telemetry.gauge("lcm_sse_subscribers", "Open event streams.", lambda: [(hub.subscriber_count, {})])
    telemetry.gauge("lcm_sse_channels", "Different filters in use.", lambda: [(hub.channel_count, {})])
    telemetry.counter("lcm_sse_resets_total", "Streams that had to start afresh.", lambda: [(hub.resets, {})])
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
    settings: ControlPlaneSettings,
    kv: Kv,
    clock: Clock,
    ids: Ids,
    regions: tuple[str, ...],
    fetch_document: FetchDocument,
    peer_feed: Callable[[str, str], AsyncGenerator[bytes, None]] | None = None,
) -> AsyncIterator[ControlPlaneProcess]:
    """Open the store and put everything together; run the services to bring it to life.

    `fetch_document` is only used to read the keys of the identity provider, `peer_feed` (address, key) to
    follow other control planes, if any are configured.
    """
    oidc = settings.oidc()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    given_key = settings.control_plane_api_key
    keys = AccessKeys.load_or_create(
        settings.data_dir / "keys.json", given_key.get_secret_value() if given_key else None
    )
    for key in (keys.viewer, keys.operator, keys.admin, keys.controller):
        redactor.protect(key)
    async with _store(settings, clock, ids) as store:
        vault = await _open_vault(settings, store)
        parts = assemble(
            store,
            kv,
            keys,
            clock=clock,
            ids=ids,
            regions=regions,
            default_region=settings.aws_region,
            vault=vault,
            policies=settings.policies(),
            key_prefix=settings.etcd_key_prefix,
            issuer=OidcVerifier(oidc, fetch_document, clock) if oidc else None,
            requests_per_second=settings.api_requests_per_second,
            others=settings.control_plane_peers,
            open_feed=(lambda address: peer_feed(address, keys.controller)) if peer_feed else None,
        )
        if settings.worker_templates_auto_seed:
            config = read_yaml(settings.worker_templates_config_path)
            log.info("templates seeded", count=await parts.templates.seed(config))
        server = HttpServer(
            "control-plane",
            parts.app,
            settings.host,
            settings.port,
            before_stop=partial(_end_streams, parts),
            send_buffer_bytes=SEND_BUFFER_BYTES,
        )
        peers = (parts.peers,) if settings.uses_etcd else ()
        with _announced(settings.data_dir / "control-plane.url", server.url):
            yield ControlPlaneProcess(
                services=(
                    server,
                    parts.publisher,
                    *peers,
                    *parts.followers,
                    parts.identity_keeper,
                    parts.auto_license,
                    LoopLagMonitor(parts.telemetry, clock),
                ),
                url=server.url,
                port=server.port,
                keys=keys,
            )


def _end_streams(parts: ControlPlaneParts) -> None:
    parts.hub.close()
    parts.plane.news.close()


@contextmanager
def _announced(path: Path, url: str) -> Iterator[None]:
    """Commands that have only the data directory find the address there, while there is one."""
    path.write_text(f"{url}\n")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


async def _open_vault(settings: ControlPlaneSettings, store: Store) -> Vault:
    """With its keys; finishes a rotation that was cut off, and refuses keys that do not fit."""
    if settings.lcm_secret_key is not None:
        vault = Vault(store, SecretBox.parse(settings.lcm_secret_key.get_secret_value()))
    else:
        key_file = KeyFile(settings.data_dir / "secret-keys.json")
        vault = Vault(store, key_file.load_or_create(), key_file)
    try:
        await vault.finish_rotation()
    except CannotOpen as error:
        raise ConfigurationError(
            f"the secret key does not fit the stored secrets: {error}; restore LCM_SECRET_KEY or"
            " secret-keys.json as they were"
        ) from None
    return vault


def _store(settings: ControlPlaneSettings, clock: Clock, ids: Ids) -> AbstractAsyncContextManager[Store]:
    if settings.store_url is not None:
        from lcm.control_plane.store.mongodb import MongoStore  # not needed by `lcm up`, and slow to load

        return MongoStore(settings.store_url.get_secret_value(), clock, ids)
    return SqliteStore(settings.data_dir / "lcm.db")
