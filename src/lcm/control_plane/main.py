"""The control plane: wiring, no logic. Start reading here.

The control plane owns the records. It calls its store and the coordination store, never AWS or CML.
"""

import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from fastapi import FastAPI

from lcm.control_plane.access.identity import (
    MAX_STREAMS_PER_PRINCIPAL,
    AccessLimits,
    BearerVerifier,
    Identity,
    IdentityKeeper,
    Provider,
)
from lcm.control_plane.access.oidc import FetchDocument, OidcVerifier
from lcm.control_plane.access.rate_limit import Buckets
from lcm.control_plane.access.roles import AccessKeys, write_private
from lcm.control_plane.access.sealing import CannotOpen, KeyFile, SecretBox
from lcm.control_plane.access.secrets import SecretStore
from lcm.control_plane.access.security_log import AuditedStore
from lcm.control_plane.access.services import ServiceKeys
from lcm.control_plane.api.app import build_app
from lcm.control_plane.api.operations import plane_operations
from lcm.control_plane.api.services import ControlPlane, Services
from lcm.control_plane.commands.auto_license import AutoLicense
from lcm.control_plane.commands.keep_load_history import LoadHistoryKeeper
from lcm.control_plane.commands.lablets.session_sweep import SessionSweep
from lcm.control_plane.policies import Policies
from lcm.control_plane.queries.fleet_metrics import CostFigures, register_fleet_metrics
from lcm.control_plane.records.commit_log import log_commit, log_session_commit
from lcm.control_plane.records.groups import Caches, Records
from lcm.control_plane.replication.feed import Feed
from lcm.control_plane.replication.feed_client import FeedClient, OpenFeed
from lcm.control_plane.replication.kv_watch import KvWatch
from lcm.control_plane.replication.publisher import CAPACITY_REFRESH_SECONDS, Publisher
from lcm.control_plane.settings import DEFAULT_REQUESTS_PER_SECOND, ControlPlaneSettings
from lcm.control_plane.store.port import Store
from lcm.control_plane.store.sqlite import SqliteStore
from lcm.control_plane.streaming.hub import HEARTBEAT_SECONDS, EventHub
from lcm.control_plane.streaming.outbox import SEND_BUFFER_BYTES, SUBSCRIBER_BYTES
from lcm.core.clock import Clock
from lcm.core.configuration import ConfigurationError, read_yaml
from lcm.core.health import Health
from lcm.core.hosted_service import HostedService
from lcm.core.ids import Ids
from lcm.core.kv.port import Kv
from lcm.core.redaction import redactor
from lcm.core.telemetry import WAIT_BUCKETS, LoopLagMonitor, Telemetry
from lcm.domain.template import RegionConfig
from lcm.domain.worker import Worker
from lcm.rest.schemas import CONTROL_PLANE, DeviceClient
from lcm.rest.system import ProcessReport
from lcm.web.operations import MetricsPage
from lcm.web.process_reports import ProcessReporter
from lcm.web.server import HttpServer

if TYPE_CHECKING:
    from lcm.control_plane.access.oidc_sign_in import PostForm

log = structlog.get_logger(__name__)

FEED_FIRST_SECONDS = 0.5
"""With peers configured, a changed key is read only if the replication feed has not reported it by then."""
BURST_SECONDS = 5.0
"""A principal may use the rate of this many seconds at once."""


@dataclass(frozen=True)
class ControlPlaneParts:
    """An assembled control plane: the application, the groups behind it and the services that run."""

    app: FastAPI
    plane: ControlPlane
    publisher: Publisher
    kv_watch: KvWatch
    feed_clients: tuple[FeedClient, ...]
    hub: EventHub
    telemetry: Telemetry
    identity: Identity
    identity_keeper: IdentityKeeper
    auto_license: AutoLicense
    session_sweep: SessionSweep
    load_history_keeper: LoadHistoryKeeper
    cost_figures: CostFigures
    health: Health


@dataclass(frozen=True)
class Limits:
    """Bounds of the event stream, and the intervals of its heartbeat and of the publisher's sweeps."""

    event_buffer: int = 1_000
    event_backlog_bytes: int = SUBSCRIBER_BYTES
    streams_per_principal: int = MAX_STREAMS_PER_PRINCIPAL
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    publish_sweep_seconds: float = 5.0
    capacity_refresh_seconds: float = CAPACITY_REFRESH_SECONDS


@dataclass(frozen=True)
class ControlPlaneProcess:
    """What a caller needs to know of a control plane that is about to run."""

    services: tuple[HostedService, ...]
    url: str
    port: int
    keys: AccessKeys
    service_keys: ServiceKeys


def build_control_plane(
    store: Store, *, secrets: SecretStore, policies: Policies, clock: Clock, ids: Ids
) -> ControlPlane:
    """Return the groups over one store; `subscribe` connects them."""
    records = Records.over(store, secrets, clock, ids)
    caches = Caches.over(records)
    return ControlPlane(records, caches, policies, Feed(ids, caches.metrics.newest))


def subscribe(plane: ControlPlane, hub: EventHub | None = None, publisher: Publisher | None = None) -> None:
    """Make every subscription of the process, in the order in which subscribers are called.

    The worker cache comes before the hub, which reads it. The feed repeats to other control planes what this
    one keeps in memory. Without a hub commits are not logged either.
    """
    records, caches, feed = plane.records, plane.caches, plane.feed
    cache = caches.worker_cache
    cache.subscribe_to_ends(caches.metrics.on_worker_end)
    cache.subscribe_to_ends(caches.idle_checks.on_worker_end)
    cache.subscribe_to_ends(caches.boot_times.on_worker_end)
    records.workers.subscribe(caches.boot_times.on_worker_commit)
    records.workers.subscribe(cache.on_worker_commit)
    records.workers.subscribe(caches.timelines.on_worker_commit)
    records.workers.subscribe_to_purges(cache.on_worker_purge)
    records.workers.subscribe(feed.on_worker_commit)
    records.sessions.subscribe(caches.sessions.on_session_commit)
    records.sessions.subscribe_to_purges(caches.sessions.on_session_purge)
    records.sessions.subscribe(feed.on_session_commit)
    records.sessions.subscribe(caches.session_stats.on_session_commit)
    records.sessions.subscribe_to_purges(caches.session_stats.forget)
    records.sessions.subscribe(records.lab_times.on_session_commit)
    records.sessions.subscribe(caches.lab_owners.on_session_commit)
    records.sessions.subscribe_to_purges(caches.lab_owners.on_session_purge)
    records.batches.subscribe(feed.on_batch_commit)
    records.definitions.subscribe(feed.on_definition_commit)
    records.labs.subscribe(partial(feed.on_lab_change, version_of=records.labs.version_of))
    records.templates.subscribe(feed.on_template)
    records.epochs.subscribe(feed.on_epoch)
    records.scheduler.subscribe(feed.on_scheduler)
    caches.metrics.subscribe(feed.on_sample, feed.on_lab_stats)
    caches.metrics.subscribe_to_load(records.load_histories.on_load)
    caches.idle_checks.subscribe(feed.on_idle_check)
    caches.processes.subscribe(feed.on_process)
    if hub is not None:
        records.workers.subscribe(log_commit)
        records.workers.subscribe(hub.on_worker_commit)
        records.sessions.subscribe(log_session_commit)
        records.sessions.subscribe(hub.on_session_commit)
        records.definitions.subscribe(hub.on_definition_commit)
        records.batches.subscribe(hub.on_batch_commit)
        records.labs.subscribe(hub.on_lab_change)
        records.templates.subscribe(hub.on_template)
        caches.metrics.subscribe(hub.on_sample, hub.on_lab_stats)
    if publisher is not None:
        records.workers.subscribe(publisher.on_worker_commit)
        records.workers.subscribe_to_purges(publisher.on_worker_purge)
        records.sessions.subscribe(publisher.on_session_commit)
        records.sessions.subscribe_to_purges(publisher.on_session_purge)
        records.labs.subscribe(publisher.on_lab_change)


def assemble(
    store: Store,
    kv: Kv,
    keys: AccessKeys,
    *,
    secrets: SecretStore,
    policies: Policies,
    clock: Clock,
    ids: Ids,
    key_prefix: str = "/lcm",
    issuer: BearerVerifier | None = None,
    requests_per_second: float = DEFAULT_REQUESTS_PER_SECOND,
    metrics_token: str = "",
    access_limits: AccessLimits | None = None,
    is_local: bool = False,
    limits: Limits | None = None,
    peers: Sequence[str] = (),
    open_feed: OpenFeed | None = None,
    services: ServiceKeys | None = None,
    provider: Provider | None = None,
    device_client: DeviceClient | None = None,
    requires_client_certificates: bool = False,
) -> ControlPlaneParts:
    """Put everything together but the engines: the same parts on SQLite and HTTP, or in a simulation."""
    telemetry, health, limits = Telemetry(), Health(clock), limits or Limits()
    plane = build_control_plane(store, secrets=secrets, policies=policies, clock=clock, ids=ids)
    records, caches = plane.records, plane.caches
    hub = EventHub(
        clock,
        ids,
        caches.worker_cache,
        session_cache=caches.sessions,
        session_stats=caches.session_stats,
        newest_samples=caches.metrics.newest,
        heartbeat_seconds=limits.heartbeat_seconds,
        buffer_size=limits.event_buffer,
        subscriber_bytes=limits.event_backlog_bytes,
    )

    def on_worker_found(worker: Worker) -> None:
        caches.timelines.on_worker_commit(None, worker)
        hub.on_worker_found(worker)

    publisher = Publisher(
        store,
        kv,
        clock=clock,
        health=health,
        on_found=on_worker_found,
        session_of_lab=caches.sessions.session_of_lab,
        key_prefix=key_prefix,
        sweep_seconds=limits.publish_sweep_seconds,
        capacity_refresh_seconds=limits.capacity_refresh_seconds,
    )
    subscribe(plane, hub, publisher)
    feed_clients = tuple(
        FeedClient(address, open_feed, own_feed=plane.feed, records=records, caches=caches, events=hub)
        for address in peers
        if open_feed
    )
    kv_watch = KvWatch(
        records.workers,
        kv,
        clock=clock,
        is_known=caches.worker_cache.knows,
        known_ids=caches.worker_cache.ids,
        on_found=on_worker_found,
        on_gone=hub.on_worker_gone,
        key_prefix=key_prefix,
        patience_seconds=FEED_FIRST_SECONDS if feed_clients else 0.0,
    )
    identity = Identity(
        keys,
        store,
        clock,
        issuer,
        streams_per_principal=limits.streams_per_principal,
        ids=ids,
        services=services,
        provider=provider,
        device_client=device_client,
        requires_client_certificates=requires_client_certificates,
        limits=access_limits,
    )
    session_sweep = SessionSweep(records, caches, policies, health)
    _register_metrics(telemetry, plane, hub, identity, feed_clients)
    _register_session_metrics(telemetry, plane, session_sweep)
    register_fleet_metrics(telemetry, caches)
    metrics = MetricsPage(telemetry, clock, metrics_token)
    rate = Buckets(clock, per_second=requests_per_second, burst=int(requests_per_second * BURST_SECONDS))
    return ControlPlaneParts(
        app=build_app(
            Services(plane, hub, identity),
            plane_operations(health, metrics, publisher),
            rate,
            is_local=is_local,
        ),
        plane=plane,
        publisher=publisher,
        kv_watch=kv_watch,
        feed_clients=feed_clients,
        hub=hub,
        telemetry=telemetry,
        identity=identity,
        identity_keeper=IdentityKeeper(identity, clock, health),
        auto_license=AutoLicense(records, caches, health),
        session_sweep=session_sweep,
        load_history_keeper=LoadHistoryKeeper(records, caches, health),
        cost_figures=CostFigures(records, policies, telemetry, health),
        health=health,
    )


def _register_metrics(
    telemetry: Telemetry,
    plane: ControlPlane,
    hub: EventHub,
    identity: Identity,
    feed_clients: Sequence[FeedClient],
) -> None:
    """Register the metrics of the control plane; each is computed when /metrics is read."""
    telemetry.gauge(
        "lcm_control_plane_peer_followed",
        "1 while the replication feed of another control plane is connected.",
        lambda: [(int(client.is_following), {"peer": client.address}) for client in feed_clients],
    )
    telemetry.counter(
        "lcm_access_refused_total",
        "Requests refused: no valid token (401), role too low (403), rate exceeded (429).",
        lambda: [(count, {"status": str(status)}) for status, count in identity.refusals.items()],
    )
    telemetry.counter(
        "lcm_access_wrong_secrets_total",
        "Tokens, sessions and keys that were sent and are not valid.",
        lambda: [(identity.guesses.total, {})],
    )
    _register_idle_metrics(telemetry, plane)
    _register_stream_metrics(telemetry, hub)
    metrics = plane.caches.metrics
    telemetry.gauge("lcm_live_workers", "Workers whose load is known.", lambda: [(metrics.worker_count, {})])
    telemetry.gauge("lcm_live_points", "Load points kept for charts.", lambda: [(metrics.point_count, {})])
    telemetry.gauge("lcm_lab_records", "Labs known on all workers.", lambda: [(plane.records.labs.count, {})])
    telemetry.counter(
        "lcm_live_reports_total",
        "Live reports of controllers, by kind; dropped if their worker does not run.",
        lambda: [
            (count, {"kind": kind, "outcome": outcome}) for (kind, outcome), count in metrics.reports.items()
        ],
    )


def _register_idle_metrics(telemetry: Telemetry, plane: ControlPlane) -> None:
    checks, policy, clock = plane.caches.idle_checks, plane.policies.idle, plane.records.clock
    alarm_after = policy.alarm_after
    if alarm_after is not None:
        telemetry.gauge(
            "lcm_idle_checks_overdue_workers",
            "Running workers whose idle check is overdue.",
            lambda: [(checks.overdue(clock.now(), alarm_after), {})],
        )
    telemetry.gauge(
        "lcm_idle_unconfirmed_workers",
        "Workers that run past the idle timeout only because their CML cannot be read.",
        lambda: [(checks.unconfirmed(clock.now(), policy.timeout), {})],
    )
    telemetry.gauge(
        "lcm_cml_not_ready_workers",
        "Running workers whose CML is not ready after CML_READY_TIMEOUT_SECONDS.",
        lambda: [(sum(worker.is_cml_overdue for worker in plane.caches.worker_cache), {})],
    )


def _register_session_metrics(telemetry: Telemetry, plane: ControlPlane, sweep: SessionSweep) -> None:
    stats, cache, clock = plane.caches.session_stats, plane.caches.worker_cache, plane.records.clock
    telemetry.gauge(
        "lcm_sessions",
        "Lablet sessions by status; ended ones until they are archived.",
        lambda: [(count, {"status": status}) for status, count in stats.by_status().items()],
    )
    telemetry.gauge(
        "lcm_sessions_waiting",
        "Lablet sessions that wait for a worker, by reason.",
        lambda: [(count, {"reason": code}) for code, count in stats.by_reason().items()],
    )
    stats.on_waited = telemetry.durations_by(
        "reason",
        "lcm_session_wait_seconds",
        "How long a lablet session waited for this reason, recorded when it no longer does.",
        WAIT_BUCKETS,
    ).record
    stats.on_ready = telemetry.durations_by(
        "definition",
        "lcm_session_ready_seconds",
        "From the start of a lablet session's import until every node of its lab has booted.",
        WAIT_BUCKETS,
    ).record
    telemetry.gauge(
        "lcm_sessions_ready_on_time_ratio",
        "Share of booked lablet sessions that were ready by the start of their timeslot, of those that were"
        " ready, missed it or failed since the start of this process.",
        lambda: [(ratio, {})] if (ratio := stats.on_time_ratio) is not None else [],
    )
    telemetry.counter(
        "lcm_sessions_missed_total",
        "Lablet sessions that ended because no worker had room in their timeslot.",
        lambda: [(stats.missed, {})],
    )
    telemetry.counter(
        "lcm_instance_state_transitions_total",
        "Changes of the status of lablet sessions.",
        lambda: [
            (count, {"from_state": source, "to_state": target})
            for (source, target), count in stats.transitions.items()
        ],
    )
    telemetry.gauge(
        "lcm_timeslots_active",
        "Timeslots that have begun and not ended, of sessions that have not ended.",
        lambda: [(stats.active_timeslots(clock.now()), {})],
    )
    telemetry.counter(
        "lcm_claims_stale_released_total",
        "Claims that the sweep released because their session does not use them.",
        lambda: [(sweep.claims.released, {})],
    )
    telemetry.gauge(
        "lcm_cleanup_owed",
        "Claims of labs that could not be proven gone when their session moved on or was abandoned.",
        lambda: [(sum(worker.claims_retained for worker in cache), {})],
    )
    labs = plane.records.labs
    telemetry.gauge(
        "lcm_labs",
        "Labs on all workers, by whose they are: session, foreign, leaked, orphaned, or not discovered yet.",
        lambda: [(count, {"kind": kind}) for kind, count in labs.by_kind().items()],
    )
    telemetry.gauge(
        "lcm_labs_leaked",
        "Labs that LCM made and no session has any more: those to be removed, and those kept for people.",
        lambda: [(count, {"outcome": outcome}) for outcome, count in labs.leaked().items()],
    )
    telemetry.gauge(
        "lcm_ports_used",
        "Ports of a running worker that claims hold.",
        lambda: [(worker.ports_used, {"worker_id": worker.id}) for worker in cache if worker.is_live],
    )


def _register_stream_metrics(telemetry: Telemetry, hub: EventHub) -> None:
    telemetry.gauge("lcm_sse_subscribers", "Open event streams.", lambda: [(hub.subscriber_count, {})])
    telemetry.gauge("lcm_sse_channels", "Different filters in use.", lambda: [(hub.channel_count, {})])
    telemetry.counter("lcm_sse_resets_total", "Event streams that were reset.", lambda: [(hub.resets, {})])
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


@asynccontextmanager
async def control_plane_process(
    settings: ControlPlaneSettings,
    kv: Kv,
    clock: Clock,
    ids: Ids,
    regions: Mapping[str, RegionConfig],
    fetch_document: FetchDocument,
    peer_feed: Callable[[str, str], AsyncGenerator[bytes, None]] | None = None,
    post_form: "PostForm | None" = None,
) -> AsyncIterator[ControlPlaneProcess]:
    """Open the store and assemble the process; the caller runs its services.

    `fetch_document` only reads the keys of the identity provider; `peer_feed` (address, key) opens the
    replication feed of another control plane, if any is configured; `post_form` lets people sign in at the
    identity provider.
    """
    oidc = settings.oidc()
    issuer = OidcVerifier(oidc, fetch_document, clock) if oidc else None
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    keys = AccessKeys.load_or_create(settings.data_dir / "keys.json")
    service_keys = settings.service_keys(keys.controller)
    for key in (keys.viewer, keys.operator, keys.admin, keys.controller, *service_keys.all()):
        redactor.protect(key)
    async with _store(settings, clock, ids) as plain_store:
        store = AuditedStore(plain_store, clock, ids)
        secrets = await _open_secrets(settings, store)
        parts = assemble(
            store,
            kv,
            keys,
            clock=clock,
            ids=ids,
            secrets=secrets,
            policies=settings.policies(regions),
            key_prefix=settings.etcd_key_prefix,
            issuer=issuer,
            provider=_provider(settings, issuer, post_form, clock),
            device_client=settings.device_client(),
            requests_per_second=settings.api_requests_per_second,
            metrics_token=settings.metrics_token.get_secret_value(),
            access_limits=settings.access_limits,
            is_local=settings.is_local,
            limits=Limits(capacity_refresh_seconds=settings.capacity_refresh_interval_seconds),
            peers=settings.control_plane_peers,
            open_feed=(
                (lambda address: peer_feed(address, service_keys.sent_by(CONTROL_PLANE)))
                if peer_feed
                else None
            ),
            services=service_keys,
            requires_client_certificates=settings.tls_client_ca_file is not None,
        )
        await parts.identity.require_way_in()
        if settings.worker_templates_auto_seed:
            config = read_yaml(settings.worker_templates_config_path)
            log.info("templates seeded", count=await parts.plane.records.templates.seed(config))
        server = HttpServer(
            "control-plane",
            parts.app,
            settings.host,
            settings.port,
            before_stop=partial(_end_streams, parts),
            send_buffer_bytes=SEND_BUFFER_BYTES,
            trusted_proxies=settings.forwarded_allow_ips,
            tls=settings.tls,
        )
        server.register_metrics(parts.telemetry)
        lag = LoopLagMonitor(parts.telemetry, clock)
        watches = (parts.kv_watch,) if settings.uses_etcd else ()
        with _url_file(settings.data_dir / "control-plane.url", server.url):
            yield ControlPlaneProcess(
                services=(
                    server,
                    parts.publisher,
                    *watches,
                    *parts.feed_clients,
                    parts.identity_keeper,
                    parts.auto_license,
                    parts.session_sweep,
                    parts.load_history_keeper,
                    parts.cost_figures,
                    lag,
                    _reporter(parts, clock, lag),
                ),
                url=server.url,
                port=server.port,
                keys=keys,
                service_keys=service_keys,
            )


def _provider(
    settings: ControlPlaneSettings, issuer: OidcVerifier | None, post_form: "PostForm | None", clock: Clock
) -> Provider | None:
    if issuer is None or settings.oidc_client_id is None or post_form is None:
        return None
    from lcm.control_plane.access.oidc_sign_in import OidcClient, OidcSignIn  # slow to load

    client = OidcClient(settings.oidc_client_id, settings.oidc_client_secret.get_secret_value())
    return OidcSignIn(client, issuer, post_form, clock)


def _reporter(parts: ControlPlaneParts, clock: Clock, lag: LoopLagMonitor) -> ProcessReporter:
    """Return what shows this control plane among the processes, here and at the others."""

    async def note(report: ProcessReport) -> None:
        parts.plane.caches.processes.note(report)

    instance_id = f"{socket.gethostname()}-{parts.plane.feed.boot[:8]}"
    return ProcessReporter(
        note, service=CONTROL_PLANE, instance_id=instance_id, clock=clock, health=parts.health, lag=lag
    )


def _end_streams(parts: ControlPlaneParts) -> None:
    parts.hub.close()
    parts.plane.feed.close()


@contextmanager
def _url_file(path: Path, url: str) -> Iterator[None]:
    """Write the URL to the data directory while the process runs, for commands of the CLI."""
    write_private(path, f"{url}\n")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


async def _open_secrets(settings: ControlPlaneSettings, store: Store) -> SecretStore:
    """Return the secret store with its keys; finish an interrupted rotation, and refuse wrong keys."""
    if settings.lcm_secret_key is not None:
        secrets = SecretStore(store, SecretBox.parse(settings.lcm_secret_key.get_secret_value()))
    else:
        key_file = KeyFile(settings.data_dir / "secret-keys.json")
        secrets = SecretStore(store, key_file.load_or_create(), key_file)
    try:
        await secrets.finish_rotation()
    except CannotOpen as error:
        raise ConfigurationError(
            f"the secret key does not open the stored secrets: {error}; restore the former LCM_SECRET_KEY or"
            " secret-keys.json"
        ) from None
    return secrets


def _store(settings: ControlPlaneSettings, clock: Clock, ids: Ids) -> AbstractAsyncContextManager[Store]:
    if settings.store_url is not None:
        from lcm.control_plane.store.mongodb import MongoStore  # not needed by `lcm up`, and slow to import

        return MongoStore(settings.store_url.get_secret_value(), clock, ids)
    return SqliteStore(settings.data_dir / "lcm.db")
