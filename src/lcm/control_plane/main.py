"""The control plane: wiring, no logic. Start reading here.

Owns the records. Talks to its store and the coordination store, never to AWS or CML.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog
from fastapi import FastAPI

from lcm.control_plane.access import AccessKeys
from lcm.control_plane.app import build_app
from lcm.control_plane.context import ControlPlane
from lcm.control_plane.identity import BearerVerifier, Identity, IdentityKeeper
from lcm.control_plane.oidc import FetchDocument, OidcVerifier
from lcm.control_plane.publisher import Publisher
from lcm.control_plane.rate_limit import Buckets
from lcm.control_plane.routes.dependencies import Services
from lcm.control_plane.routes.operations import Operations
from lcm.control_plane.secret_box import CannotOpen, KeyFile, SecretBox
from lcm.control_plane.settings import DEFAULT_REQUESTS_PER_SECOND, ControlPlaneSettings
from lcm.control_plane.sse import EventHub
from lcm.control_plane.store.port import Store
from lcm.control_plane.store.sqlite import SqliteStore
from lcm.control_plane.templates import Templates
from lcm.control_plane.vault import Vault
from lcm.control_plane.workers import Workers
from lcm.core.chance import Ids
from lcm.core.clock import Clock
from lcm.core.configuration import ConfigurationError, read_yaml
from lcm.core.health import Health
from lcm.core.hosted_service import HostedService
from lcm.core.kv.port import Kv
from lcm.core.redaction import redactor
from lcm.core.telemetry import LoopLagMonitor, Telemetry
from lcm.web.server import HttpServer

log = structlog.get_logger(__name__)

BURST_SECONDS = 5.0
"""So much of a principal's rate may be used at once."""


@dataclass(frozen=True)
class ControlPlaneParts:
    """A control plane put together: the application that answers, the loop that publishes, the stream."""

    app: FastAPI
    publisher: Publisher
    hub: EventHub
    templates: Templates
    telemetry: Telemetry
    identity_keeper: IdentityKeeper


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
    key_prefix: str = "/lcm",
    issuer: BearerVerifier | None = None,
    requests_per_second: float = DEFAULT_REQUESTS_PER_SECOND,
) -> ControlPlaneParts:
    """Everything but the engines: the same parts on SQLite and HTTP, or in a simulation."""
    telemetry, health = Telemetry(), Health(clock)
    workers, templates = Workers(store), Templates(store)
    plane = ControlPlane(
        store,
        workers,
        templates,
        clock,
        ids,
        regions,
        default_region,
        vault,
    )
    hub = EventHub(clock, ids, snapshot=workers.list_all)
    workers.subscribe(hub.on_worker_commit)
    templates.subscribe(
        lambda change, template: hub.publish(f"worker.template.{change}", {"template": template})
    )
    publisher = Publisher(
        store, workers, kv, clock=clock, health=health, on_found=hub.on_worker_found, key_prefix=key_prefix
    )
    telemetry.gauge("lcm_sse_subscribers", "Open event streams.", lambda: [(hub.subscriber_count, {})])
    telemetry.counter("lcm_sse_resets_total", "Streams that read too slowly.", lambda: [(hub.resets, {})])
    identity = Identity(keys, store, clock, issuer)
    telemetry.counter(
        "lcm_access_refused_total",
        "Requests without a valid token (401), the role (403), or within the rate (429).",
        lambda: [(count, {"status": str(status)}) for status, count in identity.refusals.items()],
    )
    rate = Buckets(clock, per_second=requests_per_second, burst=int(requests_per_second * BURST_SECONDS))
    app = build_app(Services(plane, hub, identity), telemetry, Operations(health, publisher), rate)
    keeper = IdentityKeeper(identity, clock, health)
    return ControlPlaneParts(app, publisher, hub, templates, telemetry, keeper)


@asynccontextmanager
async def control_plane_process(
    settings: ControlPlaneSettings,
    kv: Kv,
    clock: Clock,
    ids: Ids,
    regions: tuple[str, ...],
    fetch_document: FetchDocument,
) -> AsyncIterator[ControlPlaneProcess]:
    """Open the store and put everything together; run the services to bring it to life.

    `fetch_document` is only used to read the keys of the identity provider, if one is configured.
    """
    oidc = settings.oidc()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    given_key = settings.control_plane_api_key
    keys = AccessKeys.load_or_create(
        settings.data_dir / "keys.json", given_key.get_secret_value() if given_key else None
    )
    for key in (keys.viewer, keys.operator, keys.admin, keys.controller):
        redactor.protect(key)
    async with SqliteStore(settings.data_dir / "lcm.db") as store:
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
            key_prefix=settings.etcd_key_prefix,
            issuer=OidcVerifier(oidc, fetch_document, clock) if oidc else None,
            requests_per_second=settings.api_requests_per_second,
        )
        if settings.worker_templates_auto_seed:
            config = read_yaml(settings.worker_templates_config_path)
            log.info("templates seeded", count=await parts.templates.seed(config))
        server = HttpServer(
            "control-plane", parts.app, settings.host, settings.port, before_stop=parts.hub.close
        )
        with _announced(settings.data_dir / "control-plane.url", server.url):
            yield ControlPlaneProcess(
                services=(
                    server,
                    parts.publisher,
                    parts.identity_keeper,
                    LoopLagMonitor(parts.telemetry, clock),
                ),
                url=server.url,
                port=server.port,
                keys=keys,
            )


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
