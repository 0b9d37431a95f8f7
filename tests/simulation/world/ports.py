"""The ports of simulated processes: every call goes through `World.call`, which may inject a fault.

To add a call site, write the port's method with `_read` or `_write`; faults, trace, coverage and the
exhaustive pass then include it.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, ClassVar, TypeVar

from lcm.cml.sessions import CmlServer
from lcm.control_plane.store.port import Change as StoreChange
from lcm.control_plane.store.port import Delete, Document, Fence, StoreUnavailable, WriteUnconfirmed
from lcm.core.clock import Clock
from lcm.core.kv.port import Change, Item, KvUnavailable, LeaseId, Listing
from lcm.core.rate_limit import Rate, Saturated, TokenBucket
from lcm.domain.errors import CapacityShortage, CertificateChanged, NoCml, Throttled, Unreachable
from lcm.domain.launch import WORKER_ID_TAG, Ami, InstanceId, InstanceTypeFacts, LaunchSpec, WorkerId
from lcm.domain.license import LicenseTerms
from lcm.domain.worker import Instance
from lcm.worker_controller.ports import CmlSystemInformation, LicenseState
from simulation.world.calls import Answer, Violation
from simulation.world.live_fleet import BOOT_SECONDS, certificate_of
from support.asgi import request

if TYPE_CHECKING:
    from simulation.world.processes import ControllerProcess, PlaneProcess, Process

T = TypeVar("T")
Effect = Callable[[], Awaitable[T]]
Error = Callable[[str], Exception]

LIVE_REPORTS = "/api/internal/workers/metrics"
"""The batch report about all workers."""
RECORD_STALENESS = 40
"""How many answers back a stale read of a record may be."""
CLOUD_STALENESS = 3
"""The same for EC2, which becomes consistent within seconds."""
SNAPSHOT_STALENESS = 3
"""The same for what a scheduler decides on."""
STALENESS = {"controller": RECORD_STALENESS, "scheduler": SNAPSHOT_STALENESS}
LISTS_OF = ("/api/internal/workers/", "/api/internal/lablet-sessions/")
"""The paths under which one of many is named, or one of the requests below."""
REQUESTS_WITHOUT_ID = ("scale-up", "schedule", "waiting", "move-windows", "progress")


class SimulatedPort:
    """A port of a simulated process."""

    name: ClassVar[str]
    error: ClassVar[Error]
    """What the caller gets for no answer."""
    unconfirmed: ClassVar[Error | None] = None
    """What the caller gets for no answer to a write, if it differs."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        self._world = process.world

    def _read(
        self, operation: str, subject: str, effect: Effect[T], *, refusal: Error | None = None, stale: int = 0
    ) -> Awaitable[T]:
        return self._world.call(
            self._process,
            f"{self.name}.{operation}",
            subject,
            effect,
            mutates=False,
            error=type(self).error,
            refusal=refusal,
            stale_depth=stale,
        )

    def _write(
        self, operation: str, subject: str, effect: Effect[T], *, refusal: Error | None = None
    ) -> Awaitable[T]:
        return self._world.call(
            self._process,
            f"{self.name}.{operation}",
            subject,
            effect,
            mutates=True,
            error=type(self).unconfirmed or type(self).error,
            refusal=refusal or type(self).error,
        )


class SimulatedStore(SimulatedPort):
    """The control plane's disk."""

    name = "store"
    error = StoreUnavailable
    unconfirmed = WriteUnconfirmed

    async def get(self, kind: str, document_id: str) -> Document | None:
        return await self._read(f"get {kind}", document_id, lambda: self._world.disk.get(kind, document_id))

    async def list_all(self, kind: str) -> Sequence[Document]:
        return await self._read(f"list {kind}", "", lambda: self._world.disk.list_all(kind))

    async def list_holding(self, kind: str, prefix: str) -> Sequence[Document]:
        return await self._read(f"list {kind}", "", lambda: self._world.disk.list_holding(kind, prefix))

    async def list_newest(self, kind: str, before: str | None, limit: int) -> Sequence[Document]:
        return await self._read(
            f"newest {kind}", "", lambda: self._world.disk.list_newest(kind, before, limit)
        )

    async def insert(self, document: Document, fence: Fence | None = None) -> None:
        await self._write(
            f"insert {document.kind}", document.id, lambda: self._world.disk.insert(document, fence)
        )

    async def replace(self, document: Document, fence: Fence | None = None) -> None:
        await self._write(
            f"replace {document.kind}", document.id, lambda: self._world.disk.replace(document, fence)
        )

    async def verify(self, kind: str, document_id: str, version: int, fence: Fence) -> None:
        await self._read(
            f"verify {kind}",
            document_id,
            lambda: self._world.disk.verify(kind, document_id, version, fence),
        )

    async def delete(self, kind: str, document_id: str, expected_version: int) -> None:
        await self._write(
            f"delete {kind}",
            document_id,
            lambda: self._world.disk.delete(kind, document_id, expected_version),
        )

    async def commit(self, change: StoreChange, entry: Document) -> None:
        kind = change.kind if isinstance(change, Delete) else change.document.kind
        await self._write(f"commit {kind}", entry.id, lambda: self._world.disk.commit(change, entry))

    async def list_unpublished(self, kind: str) -> Sequence[Document]:
        return await self._read("list_unpublished", "", lambda: self._world.disk.list_unpublished(kind))

    async def mark_published(self, kind: str, versions: Mapping[str, int]) -> None:
        await self._write(
            "mark_published",
            next(iter(versions)),
            lambda: self._world.disk.mark_published(kind, versions),
        )


class SimulatedKv(SimulatedPort):
    """The coordination store, which is a new one after a wipe."""

    name = "kv"
    error = KvUnavailable

    async def cluster_id(self) -> str:
        return await self._read("cluster_id", "", lambda: self._world.kv.cluster_id())

    async def get(self, key: str) -> Item | None:
        return await self._read("get", _subject(key), lambda: self._world.kv.get(key))

    async def list_prefix(self, prefix: str) -> Listing:
        return await self._read("list_prefix", "", lambda: self._world.kv.list_prefix(prefix))

    async def put(self, key: str, value: bytes, lease: LeaseId | None = None) -> int:
        return await self._write("put", _subject(key), lambda: self._world.kv.put(key, value, lease))

    async def put_if_absent(self, key: str, value: bytes, lease: LeaseId | None = None) -> int | None:
        return await self._write("put_if_absent", "", lambda: self._world.kv.put_if_absent(key, value, lease))

    async def delete(self, key: str) -> bool:
        return await self._write("delete", _subject(key), lambda: self._world.kv.delete(key))

    async def grant_lease(self, ttl_seconds: int) -> LeaseId:
        return await self._read("grant_lease", "", lambda: self._world.kv.grant_lease(ttl_seconds))

    async def keep_alive(self, lease: LeaseId) -> int:
        return await self._read("keep_alive", "", lambda: self._world.kv.keep_alive(lease))

    async def revoke_lease(self, lease: LeaseId) -> None:
        await self._read("revoke_lease", "", lambda: self._world.kv.revoke_lease(lease))

    async def watch_prefix(self, prefix: str, start_revision: int) -> AsyncGenerator[Change, None]:
        """Ends when the link is cut or the store is replaced, as a broken stream does."""
        kv = self._world.kv
        await self._read("watch", "", kv.cluster_id)
        changes = kv.watch_prefix(prefix, start_revision)
        while True:
            try:
                async with self._world.open_stream():
                    change = await anext(changes)
            except TimeoutError:
                changes = kv.watch_prefix(prefix, start_revision)
            else:
                start_revision = change.revision + 1
                await self._read("watch", _subject(change.key), kv.cluster_id)
                yield change
            self._process.check_alive()
            if kv is not self._world.kv or self._world.is_cut(self._process, self.name):
                raise KvUnavailable("the stream broke")


class SimulatedTransport(SimulatedPort):
    """HTTP to the control plane: handled by the incarnation that is up."""

    name = "http"
    error = Unreachable

    async def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, bytes]:
        route, about = _route_of(path)
        if known := headers.get("If-None-Match"):
            about = f"{about} {known}".strip()  # "not modified" is an answer to nothing else, however old
        site = f"{method} {route}"
        self._process.check_alive()
        self._world.sent(self._process, method, path, body)
        if method != "GET":
            return await self._write(site, about, lambda: self._handle(method, path, headers, body))
        return await self._read(
            site,
            about,
            lambda: self._handle(method, path, headers, body),
            stale=STALENESS.get(self._process.role, 0),
        )

    async def _handle(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, bytes]:
        """Handle the request in the plane's own task: a caller that goes away does not stop it."""
        plane = self._world.plane
        if plane.requests is None or not plane.is_alive:
            raise Unreachable("control plane: connection refused")
        handling = plane.requests.create_task(_handled(plane, method, path, headers, body))
        await asyncio.wait({handling}, timeout=self._world.knobs.no_answer_seconds)
        if not handling.done():
            raise Unreachable("control plane: no answer")
        if handling.cancelled() or handling.exception() is not None:
            raise Unreachable("control plane: connection reset")
        status, answer = handling.result()
        self._world.answered(Answer(self._process.name, method, path, headers, body, status, answer))
        if status == 500:
            self._world.fail(Violation("an unexpected error", f"{method} {path} was answered with 500"))
        return status, answer


async def _handled(
    plane: "PlaneProcess", method: str, path: str, headers: Mapping[str, str], body: bytes | None
) -> tuple[int, bytes]:
    await plane.awake()
    plane.check_alive()
    assert plane.parts is not None
    return await request(plane.parts.app, method, path, headers, body)


class SimulatedCloud(SimulatedPort):
    """EC2, as a controller reaches it: changes wait for the rate limit, as in the real adapter."""

    name = "ec2"
    error = Unreachable

    def __init__(self, process: "ControllerProcess", clock: Clock) -> None:
        super().__init__(process)
        self._before_effect = process.check_leadership
        rate = self._world.knobs.ec2_changes_per_second
        operations = ("launch_instance", "start_instance", "stop_instance", "terminate_instance")
        self._buckets = {
            operation: TokenBucket(Rate(rate, burst=1), clock, Random(f"pauses/{process.instance_id}"))
            for operation in operations
            if rate
        }

    async def list_instances(self, region: str, tags: Mapping[str, str] | None = None) -> Sequence[Instance]:
        about = " ".join(f"{key}={value}" for key, value in (tags or {}).items())
        return await self._ask(
            "list_instances", about, lambda: self._world.cloud.list_instances(region, tags)
        )

    async def describe_instances(self, region: str, instance_ids: Sequence[InstanceId]) -> Sequence[Instance]:
        return await self._ask(
            "describe_instances",
            " ".join(instance_ids),
            lambda: self._world.cloud.describe_instances(region, instance_ids),
        )

    async def list_images(self, region: str, image_ids: Sequence[str]) -> Sequence[Ami]:
        return await self._ask("list_images", "", lambda: self._world.cloud.list_images(region, image_ids))

    async def describe_instance(self, region: str, instance_id: InstanceId) -> Instance | None:
        return await self._ask(
            "describe_instance", instance_id, lambda: self._world.cloud.describe_instance(region, instance_id)
        )

    async def find_instances(self, region: str, worker_id: WorkerId) -> Sequence[Instance]:
        return await self._ask(
            "find_instances", worker_id, lambda: self._world.cloud.find_instances(region, worker_id)
        )

    async def resolve_ami(self, region: str, name_pattern: str, owners: Sequence[str]) -> Ami:
        return await self._ask(
            "resolve_ami", "", lambda: self._world.cloud.resolve_ami(region, name_pattern, owners)
        )

    async def describe_instance_type(self, region: str, instance_type: str) -> InstanceTypeFacts:
        return await self._ask(
            "describe_instance_type",
            instance_type,
            lambda: self._world.cloud.describe_instance_type(region, instance_type),
        )

    async def launch_instance(self, spec: LaunchSpec, client_token: str) -> Instance:
        return await self._change(
            "launch_instance",
            f"{spec.tags['worker_id']} {client_token}",
            lambda: self._world.cloud.launch_instance(spec, client_token),
            refusal=CapacityShortage,
        )

    async def start_instance(self, region: str, instance_id: InstanceId) -> None:
        await self._change(
            "start_instance",
            instance_id,
            lambda: self._world.cloud.start_instance(region, instance_id),
            refusal=CapacityShortage,
        )

    async def stop_instance(self, region: str, instance_id: InstanceId) -> None:
        await self._change(
            "stop_instance",
            instance_id,
            lambda: self._world.cloud.stop_instance(region, instance_id),
            refusal=Throttled,
        )

    async def terminate_instance(self, region: str, instance_id: InstanceId) -> None:
        await self._change(
            "terminate_instance",
            instance_id,
            lambda: self._world.cloud.terminate_instance(region, instance_id),
            refusal=Throttled,
        )

    async def tag_instance(self, region: str, instance_id: InstanceId, tags: Mapping[str, str]) -> None:
        await self._change(
            "tag_instance",
            instance_id,
            lambda: self._world.cloud.tag_instance(region, instance_id, tags),
            refusal=Throttled,
        )

    async def untag_instance(self, region: str, instance_id: InstanceId, keys: Sequence[str]) -> None:
        await self._change(
            "untag_instance",
            instance_id,
            lambda: self._world.cloud.untag_instance(region, instance_id, keys),
            refusal=Throttled,
        )

    async def _change(self, operation: str, subject: str, effect: Effect[T], *, refusal: Error) -> T:
        bucket = self._buckets.get(operation)
        if bucket is None:
            return await self._write(operation, subject, effect, refusal=refusal)
        try:
            await bucket.take(urgent=True, within_seconds=self._world.knobs.no_answer_seconds)
        except Saturated as full:
            raise Throttled(f"{operation} got no permit: {full}") from None
        self._before_effect()
        try:
            answer = await self._write(operation, subject, effect, refusal=refusal)
        except Throttled as refused:
            bucket.refused(str(refused))
            raise
        bucket.accepted()
        return answer

    async def _ask(self, operation: str, subject: str, effect: Effect[T]) -> T:
        return await self._read(operation, subject, effect, refusal=Throttled, stale=CLOUD_STALENESS)


class SimulatedCml(SimulatedPort):
    """A CML server on every running instance; it answers once it has booted."""

    name = "cml"
    error = Unreachable

    async def get_system_information(self, host: str, pinned_sha256: str | None) -> CmlSystemInformation:
        self._world.cml_tried_at[host] = self._world.clock.monotonic()
        instance = self._world.cloud.instance_at(host)
        about = instance.id if instance is not None else ""
        return await self._read("get_system_information", about, lambda: self._answer(host, pinned_sha256))

    async def _answer(self, host: str, pinned_sha256: str | None) -> CmlSystemInformation:
        instance = self._world.cloud.instance_at(host)
        if instance is None or instance.running_since is None:
            raise Unreachable(f"CML at {host}: connection refused")
        if instance.spec.tags.get(WORKER_ID_TAG) in self._world.never_ready:
            raise NoCml(f"CML at {host} answered 502 to /api/v0/system_information")
        is_ready = self._world.clock.monotonic() - instance.running_since >= BOOT_SECONDS
        live = self._world.live
        shown = live.server_at(host).certificate_sha256 if live is not None else certificate_of(instance)
        if pinned_sha256 not in (None, shown):
            raise CertificateChanged("CML shows another certificate", shown)
        return CmlSystemInformation("2.9.1+build.7", is_ready, shown, {"oui": "52:54:00:00:00:00"})


class SimulatedLicensing(SimulatedPort):
    """The licensing of every CML server. A registration belongs to the instance, whatever its address is,
    and the pool counts it until it is deregistered, even if the instance is gone."""

    name = "cml"
    error = Unreachable

    async def state(self, server: CmlServer) -> LicenseState:
        async def state() -> LicenseState:
            return self._world.licensing.state_of(self._booted_at(server.host))

        return await self._read("license_state", self._at(server.host), state)

    async def register(self, server: CmlServer, token: str, *, again: bool = False) -> str:
        async def begin() -> str:
            instance_id = self._booted_at(server.host)
            refusal = self._world.licensing.begin(instance_id, token, again=again)
            if not refusal:
                self._world.start(self._finish_later(server.host, instance_id), "license")
            return refusal

        return await self._write("register_license", self._at(server.host), begin)

    async def prepare(self, server: CmlServer, terms: LicenseTerms, state: LicenseState) -> str:
        if terms == LicenseTerms():
            return ""

        async def prepare() -> str:
            return self._world.licensing.set_product(self._booted_at(server.host), terms, state)

        return await self._write("prepare_license", self._at(server.host), prepare)

    async def set_node_count(self, server: CmlServer, feature: str, count: int) -> str:
        async def set_nodes() -> str:
            return self._world.licensing.set_nodes(self._booted_at(server.host), feature, count)

        return await self._write("set_node_count", self._at(server.host), set_nodes)

    async def deregister(self, server: CmlServer, *, within_seconds: float) -> str:
        async def finish() -> str:
            return self._world.licensing.give_back(self._booted_at(server.host))

        return await self._write("deregister_license", self._at(server.host), finish)

    async def _finish_later(self, host: str, instance_id: str) -> None:
        """CML finishes by itself, unless its instance stops."""
        await self._world.clock.sleep(self._world.knobs.license_seconds)
        if self._at(host) == instance_id:
            self._world.licensing.finish(instance_id)
        else:
            self._world.licensing.lose_power(instance_id)

    def _at(self, host: str) -> str:
        instance = self._world.cloud.instance_at(host)
        return instance.id if instance is not None else ""

    def _booted_at(self, host: str) -> str:
        instance = self._world.cloud.instance_at(host)
        if instance is None or instance.running_since is None:
            raise Unreachable(f"CML at {host}: connection refused")
        if self._world.clock.monotonic() - instance.running_since < BOOT_SECONDS:
            raise Unreachable(f"CML at {host}: it is booting")
        self._world.login_reaches(instance)  # without one it tells nothing of its license
        return instance.id


def _route_of(path: str) -> tuple[str, str]:
    """The path without the worker's id, and that id; of a list its query."""
    route, _, query = path.partition("?")
    if route == LIVE_REPORTS:
        return route, ""
    if route == "/api/internal/workers":
        return route, query
    parts = route.split("/")
    if "worker-templates" in parts and len(parts) > 4 and "small" not in parts[5:]:
        name = 5 if parts[4] == "by-name" else 3
        return "/".join((*parts[:name], "{name}", *parts[name + 1 :])), ""
    place = 4 if route.startswith(LISTS_OF) else 3 if route.startswith("/api/workers/") else 0
    if place and parts[place] in REQUESTS_WITHOUT_ID:
        return route, ""
    about, parts[place] = parts[place], "{id}" if place else ""
    if place and parts[place + 1 : place + 2] == ["labs"] and len(parts) > place + 2:
        parts[place + 2] = "{lab}"
    return "/".join(parts), about


def _subject(key: str) -> str:
    """The worker or session and the field that a key of the coordination store names."""
    parts = key.split("/")
    return f"{parts[3]} {parts[4]}" if len(parts) > 4 and parts[2] in ("workers", "instances") else ""
