"""The ports of simulated processes: every call goes through the world, which may disturb it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from lcm.control_plane.store.port import Document, Fence, StoreUnavailable
from lcm.core.kv.port import Change, Item, KvUnavailable, LeaseId, Listing
from lcm.domain.errors import CapacityShortage, Throttled, Unreachable
from lcm.domain.launch import InstanceId, LaunchSpec, MachineImage, WorkerId
from lcm.domain.worker import Instance
from lcm.simulator.asgi import request
from lcm.worker_controller.ports import CmlSystemInformation

if TYPE_CHECKING:
    from lcm.simulator.world import Process

T = TypeVar("T")

BOOT_SECONDS = 30.0


class SimulatedStore:
    """The control plane's disk."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        self._world = process.world

    async def get(self, kind: str, document_id: str) -> Document | None:
        return await self._world.call(
            self._process,
            f"store.get {kind}",
            document_id,
            lambda: self._world.disk.get(kind, document_id),
            mutates=False,
            error=StoreUnavailable,
        )

    async def list_all(self, kind: str) -> Sequence[Document]:
        return await self._world.call(
            self._process,
            f"store.list {kind}",
            "",
            lambda: self._world.disk.list_all(kind),
            mutates=False,
            error=StoreUnavailable,
        )

    async def insert(self, document: Document, fence: Fence | None = None) -> None:
        await self._world.call(
            self._process,
            f"store.insert {document.kind}",
            document.id,
            lambda: self._world.disk.insert(document, fence),
            mutates=True,
            error=StoreUnavailable,
        )

    async def replace(self, document: Document, fence: Fence | None = None) -> None:
        await self._world.call(
            self._process,
            f"store.replace {document.kind}",
            document.id,
            lambda: self._world.disk.replace(document, fence),
            mutates=True,
            error=StoreUnavailable,
        )

    async def delete(self, kind: str, document_id: str, expected_version: int) -> None:
        await self._world.call(
            self._process,
            f"store.delete {kind}",
            document_id,
            lambda: self._world.disk.delete(kind, document_id, expected_version),
            mutates=True,
            error=StoreUnavailable,
        )

    async def list_unpublished(self, kind: str) -> Sequence[Document]:
        return await self._world.call(
            self._process,
            "store.list_unpublished",
            "",
            lambda: self._world.disk.list_unpublished(kind),
            mutates=False,
            error=StoreUnavailable,
        )

    async def mark_published(self, kind: str, versions: Mapping[str, int]) -> None:
        await self._world.call(
            self._process,
            "store.mark_published",
            next(iter(versions)),
            lambda: self._world.disk.mark_published(kind, versions),
            mutates=True,
            error=StoreUnavailable,
        )


class SimulatedKv:
    """The coordination store, which may be another one after it was wiped."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        self._world = process.world

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

    async def watch_prefix(self, prefix: str, start_revision: int) -> AsyncIterator[Change]:
        """Ends when the link is cut or the store is replaced, as a broken stream does."""
        kv = self._world.kv
        await self._read("watch", "", kv.cluster_id)
        changes = kv.watch_prefix(prefix, start_revision)
        while True:
            try:
                async with asyncio.timeout(5.0):
                    change = await anext(changes)
            except TimeoutError:
                changes = kv.watch_prefix(prefix, start_revision)
            else:
                start_revision = change.revision + 1
                await self._read("watch", _subject(change.key), kv.cluster_id)
                yield change
            self._process.check_alive()
            if kv is not self._world.kv or (self._process.name, "kv") in self._world.cuts:
                raise KvUnavailable("the stream broke")

    async def _read(self, name: str, subject: str, effect: Callable[[], Awaitable[T]]) -> T:
        return await self._world.call(
            self._process, f"kv.{name}", subject, effect, mutates=False, error=KvUnavailable
        )

    async def _write(self, name: str, subject: str, effect: Callable[[], Awaitable[T]]) -> T:
        return await self._world.call(
            self._process, f"kv.{name}", subject, effect, mutates=True, error=KvUnavailable
        )


class SimulatedTransport:
    """HTTP to the control plane: carried out by whichever of its incarnations is up."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        self._world = process.world

    async def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, bytes]:
        parts = path.partition("?")[0].split("/")
        about = parts[4] if path.startswith("/api/internal/workers/") else ""
        about = about or (parts[3] if path.startswith("/api/workers/") else "")
        name = path.partition("?")[0].replace(about, "{id}") if about else path.partition("?")[0]
        return await self._world.call(
            self._process,
            f"http.{method} {name}",
            about,
            lambda: self._handle(method, path, headers, body),
            mutates=method != "GET",
            error=Unreachable,
            may_be_stale=method == "GET" and self._process.role == "controller",
        )

    async def _handle(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, bytes]:
        plane = self._world.plane
        if plane.parts is None or plane.requests is None or not plane.is_alive:
            raise Unreachable("control plane: connection refused")
        await plane.thawed()
        if plane.parts is None:
            raise Unreachable("control plane: connection reset")
        handling = plane.requests.create_task(request(plane.parts.app, method, path, headers, body))
        await asyncio.wait({handling})
        if handling.cancelled() or handling.exception() is not None:
            raise Unreachable("control plane: connection reset")
        return handling.result()


class SimulatedCloud:
    """EC2, as a controller reaches it."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        self._world = process.world
        self._cloud = process.world.cloud

    async def list_instances(self, region: str, tags: Mapping[str, str] | None = None) -> Sequence[Instance]:
        about = " ".join(f"{key}={value}" for key, value in (tags or {}).items())
        return await self._read("list_instances", about, lambda: self._cloud.list_instances(region, tags))

    async def describe_instances(self, region: str, instance_ids: Sequence[InstanceId]) -> Sequence[Instance]:
        return await self._read(
            "describe_instances", "", lambda: self._cloud.describe_instances(region, instance_ids)
        )

    async def list_images(self, region: str, image_ids: Sequence[str]) -> Sequence[MachineImage]:
        return await self._read("list_images", "", lambda: self._cloud.list_images(region, image_ids))

    async def describe_instance(self, region: str, instance_id: InstanceId) -> Instance | None:
        return await self._read(
            "describe_instance", instance_id, lambda: self._cloud.describe_instance(region, instance_id)
        )

    async def find_instances(self, region: str, worker_id: WorkerId) -> Sequence[Instance]:
        return await self._read(
            "find_instances", worker_id, lambda: self._cloud.find_instances(region, worker_id)
        )

    async def resolve_ami(self, region: str, name_pattern: str) -> MachineImage:
        return await self._read("resolve_ami", "", lambda: self._cloud.resolve_ami(region, name_pattern))

    async def launch_instance(self, spec: LaunchSpec, client_token: str) -> Instance:
        return await self._world.call(
            self._process,
            "ec2.launch_instance",
            f"{spec.tags['worker_id']} {client_token}",
            lambda: self._cloud.launch_instance(spec, client_token),
            mutates=True,
            error=Unreachable,
            refusal=CapacityShortage,
        )

    async def start_instance(self, region: str, instance_id: InstanceId) -> None:
        await self._world.call(
            self._process,
            "ec2.start_instance",
            instance_id,
            lambda: self._cloud.start_instance(region, instance_id),
            mutates=True,
            error=Unreachable,
            refusal=CapacityShortage,
        )

    async def stop_instance(self, region: str, instance_id: InstanceId) -> None:
        await self._world.call(
            self._process,
            "ec2.stop_instance",
            instance_id,
            lambda: self._cloud.stop_instance(region, instance_id),
            mutates=True,
            error=Unreachable,
            refusal=Throttled,
        )

    async def terminate_instance(self, region: str, instance_id: InstanceId) -> None:
        await self._world.call(
            self._process,
            "ec2.terminate_instance",
            instance_id,
            lambda: self._cloud.terminate_instance(region, instance_id),
            mutates=True,
            error=Unreachable,
            refusal=Throttled,
        )

    async def _read(self, name: str, subject: str, effect: Callable[[], Awaitable[T]]) -> T:
        return await self._world.call(
            self._process,
            f"ec2.{name}",
            subject,
            effect,
            mutates=False,
            error=Unreachable,
            refusal=Throttled,
            may_be_stale=True,
        )


class SimulatedCml:
    """A CML server on every running machine; it answers once it has booted."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        self._world = process.world

    async def get_system_information(self, host: str, pinned_sha256: str | None) -> CmlSystemInformation:
        return await self._world.call(
            self._process,
            "cml.get_system_information",
            "",
            lambda: self._answer(host),
            mutates=False,
            error=Unreachable,
        )

    async def _answer(self, host: str) -> CmlSystemInformation:
        machine = self._world.cloud.machine_at(host)
        if machine is None or machine.running_since is None:
            raise Unreachable(f"CML at {host}: connection refused")
        is_ready = self._world.clock.monotonic() - machine.running_since >= BOOT_SECONDS
        return CmlSystemInformation("2.9.1+build.7", is_ready, machine.id.ljust(64, "0"))


def _subject(key: str) -> str:
    """The worker a key of the coordination store is about."""
    parts = key.split("/")
    return parts[3] if len(parts) > 4 and parts[2] == "workers" else ""
