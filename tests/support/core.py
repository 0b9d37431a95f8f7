"""Fakes for `lcm.core`: resources to reconcile, a link to the store that can fail; and builders."""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from lcm.core.clock import Clock
from lcm.core.controller import (
    LeaderElectedHostedService,
    ReconciliationHostedService,
    WatchTriggeredHostedService,
)
from lcm.core.election import Election, ElectionWin, LeaderElectionConfig, LeadershipLost
from lcm.core.health import Health
from lcm.core.hosted_service import HostedService
from lcm.core.ids import RandomIds
from lcm.core.key_watch import KeyWatch, WatchConfig
from lcm.core.kv.memory import MemoryKv
from lcm.core.kv.port import Change, Item, Kv, KvUnavailable, LeaseId, Listing
from lcm.core.loop import ReconcileLoop, Reconciler, ReconciliationConfig
from lcm.core.results import ReconciliationResult, Success
from lcm.core.telemetry import Telemetry
from lcm.core.timeouts import timeout
from lcm.domain.launch import Ami, InstanceId, LaunchSpec, WorkerId
from lcm.domain.worker import Instance, Worker, new_worker
from support.virtual_time import VirtualClock

R = TypeVar("R")

# Running things.


@asynccontextmanager
async def running(*services: HostedService) -> AsyncIterator[None]:
    """Run the services while the block does; they have taken their first step when it begins."""
    try:
        async with asyncio.TaskGroup() as tasks:
            started = [tasks.create_task(service.run(), name=service.name) for service in services]
            await VirtualClock().sleep(0)
            yield
            for task in started:
                task.cancel()
    except BaseExceptionGroup as errors:
        raise innermost(errors) from None


async def first_error(work: Awaitable[Any]) -> BaseException:
    """The innermost error that the work ends with."""
    try:
        await work
    except Exception as error:
        return innermost(error)
    raise AssertionError("the work ended without an error")


def innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


# Resources to reconcile.


@dataclass(frozen=True)
class Thing:
    """The smallest resource that can be reconciled."""

    id: str
    version: int = 1
    marker: Hashable | None = None


class Run(NamedTuple):
    """One reconcile that began."""

    id: str
    version: int
    at: float


class Resources:
    """Resources, the outcomes of reconciling them, and a log. Fails if one is reconciled twice at once."""

    def __init__(self, clock: Clock, *ids: str) -> None:
        self.clock = clock
        self.things = {thing_id: Thing(thing_id) for thing_id in ids}
        self.runs: list[Run] = []
        self.busy: set[str] = set()
        self.most_at_once = 0
        self.lists: list[float] = []
        self.list_seconds = 0.0
        self.list_error: Exception | None = None
        self.act: Callable[[Thing], Awaitable[ReconciliationResult]] = self.succeed

    async def succeed(self, _: Thing) -> ReconciliationResult:
        return Success()

    def always(self, result: ReconciliationResult) -> None:
        """Let every reconcile end with this result."""

        async def act(_: Thing) -> ReconciliationResult:
            return result

        self.act = act

    def script(self, *outcomes: ReconciliationResult | Exception) -> None:
        """Let reconciles end with these outcomes in order, then with success."""
        left = list(outcomes)

        async def act(_: Thing) -> ReconciliationResult:
            outcome = left.pop(0) if left else Success()
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        self.act = act

    def last_for(self, seconds: float | Callable[[Thing], float]) -> None:
        """Let every reconcile take that long, then succeed."""

        async def act(thing: Thing) -> ReconciliationResult:
            duration = seconds(thing) if callable(seconds) else seconds
            if duration:
                await self.clock.sleep(duration)
            return Success()

        self.act = act

    def change(self, thing_id: str, **fields: Any) -> None:
        """Change a resource, as another process does."""
        thing = self.things[thing_id]
        self.things[thing_id] = replace(thing, **{"version": thing.version + 1, **fields})

    def starts(self, thing_id: str | None = None) -> list[float]:
        """When reconciles began, to the millisecond."""
        return [round(run.at, 3) for run in self.runs if thing_id in (None, run.id)]

    def versions(self, thing_id: str) -> list[int]:
        return [run.version for run in self.runs if run.id == thing_id]

    # The work of a reconciler.

    async def list_things(self) -> list[Thing]:
        self.lists.append(self.clock.monotonic())
        found = list(self.things.values())
        if self.list_seconds:
            await self.clock.sleep(self.list_seconds)
        if self.list_error is not None:
            raise self.list_error
        return found

    async def reconcile(self, thing: Thing) -> ReconciliationResult:
        assert thing.id not in self.busy, f"{thing.id} runs twice at once"
        self.busy.add(thing.id)
        self.most_at_once = max(self.most_at_once, len(self.busy))
        self.runs.append(Run(thing.id, thing.version, self.clock.monotonic()))
        try:
            return await self.act(thing)
        finally:
            self.busy.discard(thing.id)


class ResourceReconciler(Reconciler[Thing]):
    """Lists and reconciles `Resources`."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources

    async def list_resources(self) -> Sequence[Thing]:
        return await self.resources.list_things()

    async def fetch_single_resource(self, resource_id: str) -> Thing | None:
        return self.resources.things.get(resource_id)

    async def reconcile_resource(self, resource: Thing) -> ReconciliationResult:
        return await self.resources.reconcile(resource)

    def resource_id(self, resource: Thing) -> str:
        return resource.id

    def settled_marker(self, resource: Thing) -> Hashable | None:
        return resource.marker


AT_ONCE = ReconciliationConfig(initial_delay=0.0)
"""The defaults, but the first poll does not wait."""
NEVER_POLLS = ReconciliationConfig(initial_delay=0.0, polling_enabled=False)


def loop_over(reconciler: ResourceReconciler, config: ReconciliationConfig) -> ReconcileLoop[Thing]:
    clock = reconciler.resources.clock
    return ReconcileLoop(reconciler, config, clock=clock, telemetry=Telemetry(), health=Health(clock))


class Polling(ReconciliationHostedService[Thing]):
    """Polls resources."""

    def __init__(
        self,
        resources: Resources,
        config: ReconciliationConfig = AT_ONCE,
        reconciler: type[ResourceReconciler] = ResourceReconciler,
    ) -> None:
        super().__init__("polling", loop_over(reconciler(resources), config))


@dataclass
class LeadershipLog:
    """Who led, from when to when. Fails if two lead at once."""

    clock: Clock
    terms: list[tuple[str, float, float]] = field(default_factory=list)
    holders: set[str] = field(default_factory=set)
    epochs: list[ElectionWin] = field(default_factory=list)
    """Every claim."""
    granted: int = 0
    """The newest epoch."""
    epoch_errors: list[Exception] = field(default_factory=list)
    """Raised by the next claims, one each."""

    @asynccontextmanager
    async def held_by(self, instance_id: str) -> AsyncIterator[None]:
        assert not self.holders, f"{instance_id} leads beside {self.holders}"
        self.holders.add(instance_id)
        since = self.clock.monotonic()
        try:
            yield
        finally:
            self.holders.discard(instance_id)
            self.terms.append((instance_id, since, self.clock.monotonic()))

    async def claim(self, win: ElectionWin) -> int:
        if self.epoch_errors:
            raise self.epoch_errors.pop(0)
        is_repeated = bool(self.epochs) and self.epochs[-1] == win
        self.epochs.append(win)
        self.granted += not is_repeated
        return self.granted


def election_for(name: str, loop: ReconcileLoop[Thing], kv: Kv | None) -> Election:
    return Election(
        LeaderElectionConfig(instance_id=name),
        kv,
        clock=loop.clock,
        health=loop.health,
        trace_ids=loop.telemetry.trace_ids,
        fatal=loop.reconciler.fatal,
    )


class LeadingReconciler(ResourceReconciler):
    fatal = (LeadershipLost,)


class Candidate(LeaderElectedHostedService[Thing]):
    """Reconciles resources while it leads."""

    def __init__(
        self,
        name: str,
        resources: Resources,
        office: LeadershipLog,
        kv: Kv | None,
        config: ReconciliationConfig = AT_ONCE,
    ) -> None:
        loop = loop_over(LeadingReconciler(resources), config)
        super().__init__(name, loop, election_for(name, loop, kv), office.claim)
        self.office = office

    async def lead(self) -> None:
        async with self.office.held_by(self.election.config.instance_id):
            await super().lead()


PREFIX = "/things/"


class Watcher(WatchTriggeredHostedService[Thing]):
    """Reconciles a resource when its key changes."""

    def __init__(
        self,
        resources: Resources,
        kv: Kv | None,
        config: ReconciliationConfig = NEVER_POLLS,
        watch: WatchConfig = WatchConfig(prefix=PREFIX),  # noqa: B008 (frozen)
    ) -> None:
        loop = loop_over(LeadingReconciler(resources), config)
        self.office = LeadershipLog(resources.clock)
        self.ignored: set[str] = set()
        super().__init__(
            "watcher",
            loop,
            election_for("watcher", loop, kv),
            KeyWatch(watch, kv, clock=resources.clock, wakes=self._wakes, fatal=loop.reconciler.fatal),
            self.office.claim,
        )

    def _wakes(self, change: Change) -> bool:
        return change.key.rsplit("/", 1)[-1] not in self.ignored


# The coordination store, and links to it that fail.


def memory_kv(clock: Clock) -> MemoryKv:
    return MemoryKv(clock, RandomIds(random.Random(1)))


class Link(Kv):
    """One process's link to the store, which can fail: for single operations or for `EVERY` one."""

    EVERY: Final = "every"

    def __init__(self, store: Kv, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._streams: set[asyncio.Timeout] = set()
        self.broken: set[str] = set()
        """Fail before they reach the store."""
        self.losing: set[str] = set()
        """Take effect, but the answer is lost."""
        self.hanging: set[str] = set()
        """Never end."""
        self.slow: dict[str, float] = {}
        """Take that many seconds."""
        self.calls: list[tuple[str, float]] = []
        self.leases: list[LeaseId] = []
        self.restored: Kv | None = None
        """Listed and watched instead, as after a restored backup; leases stay."""

    def cut(self) -> None:
        """Let every call fail, and break every watch."""
        self.broken = {self.EVERY}
        self.break_watches()

    def freeze(self) -> None:
        """Let every call hang, and every watch stay silent."""
        self.hanging = {self.EVERY}

    def mend(self) -> None:
        self.broken, self.hanging = set(), set()

    def break_watches(self) -> None:
        for stream in list(self._streams):
            stream.reschedule(asyncio.get_running_loop().time())

    def times_of(self, operation: str, since: float = 0.0) -> list[float]:
        return [round(at, 3) for name, at in self.calls if name == operation and at >= since]

    async def cluster_id(self) -> str:
        return await self._call("cluster_id", self._store.cluster_id)

    async def get(self, key: str) -> Item | None:
        return await self._call("get", lambda: self._store.get(key))

    async def list_prefix(self, prefix: str) -> Listing:
        return await self._call("list_prefix", lambda: (self.restored or self._store).list_prefix(prefix))

    async def put(self, key: str, value: bytes, lease: LeaseId | None = None) -> int:
        return await self._call("put", lambda: self._store.put(key, value, lease))

    async def put_if_absent(self, key: str, value: bytes, lease: LeaseId | None = None) -> int | None:
        return await self._call("put_if_absent", lambda: self._store.put_if_absent(key, value, lease))

    async def delete(self, key: str) -> bool:
        return await self._call("delete", lambda: self._store.delete(key))

    async def grant_lease(self, ttl_seconds: int) -> LeaseId:
        lease = await self._call("grant_lease", lambda: self._store.grant_lease(ttl_seconds))
        self.leases.append(lease)
        return lease

    async def keep_alive(self, lease: LeaseId) -> int:
        return await self._call("keep_alive", lambda: self._store.keep_alive(lease))

    async def revoke_lease(self, lease: LeaseId) -> None:
        await self._call("revoke_lease", lambda: self._store.revoke_lease(lease))

    async def watch_prefix(self, prefix: str, start_revision: int) -> AsyncGenerator[Change, None]:
        await self._pass("watch_prefix")
        store = self.restored or self._store
        async with aclosing(store.watch_prefix(prefix, start_revision)) as changes:
            while True:
                yield await self._next(changes)

    async def _next(self, changes: AsyncIterator[Change]) -> Change:
        try:
            async with timeout(None) as stream:
                self._streams.add(stream)
                try:
                    change = await anext(changes)
                    if self._is_in(self.hanging, "watch_prefix"):
                        await asyncio.Event().wait()
                    return change
                finally:
                    self._streams.discard(stream)
        except TimeoutError:
            raise KvUnavailable("the stream broke") from None

    async def _call(self, operation: str, call: Callable[[], Awaitable[R]]) -> R:
        await self._pass(operation)
        answer = await call()
        if self._is_in(self.losing, operation):
            raise KvUnavailable(f"{operation}: the answer was lost")
        return answer

    async def _pass(self, operation: str) -> None:
        self.calls.append((operation, self._clock.monotonic()))
        if operation in self.slow:
            await self._clock.sleep(self.slow[operation])
        if self._is_in(self.hanging, operation):
            await asyncio.Event().wait()
        if self._is_in(self.broken, operation):
            raise KvUnavailable(f"{operation}: no way through")

    def _is_in(self, faults: set[str], operation: str) -> bool:
        return operation in faults or self.EVERY in faults


# Builders: a worker and what belongs to it.

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
IMAGE = Ami(
    id="ami-1",
    name="CML-2.9",
    description="CML 2.9.1",
    creation_date="2026-02-01T00:00:00Z",
    root_device="/dev/sda1",
    disk_gb=16,
)
SPEC = LaunchSpec(
    region="eu-west-1",
    image=IMAGE,
    instance_type="m5zn.metal",
    security_group_ids=("sg-1",),
    subnet_id="subnet-1",
    key_name=None,
    tags={"worker_id": "w-1"},
)


def a_worker(**fields: Any) -> Worker:
    """A worker that Ada created at noon, with these fields replaced. The one builder of workers."""
    worker = new_worker(
        worker_id=WorkerId("w-1"),
        name="lab-1",
        template_name="small",
        aws_region="eu-west-1",
        tags={},
        by="ada",
        now=NOON,
    )
    return with_fields(worker, **fields)


_PARTS = {
    "launch": {
        "launch_generation": "generation",
        "unattended_launches": "unattended",
        "launch_intent": "intent",
    },
    "instance": {
        "ec2_instance_id": "id",
        "ami_name": "ami_name",
        "public_ip": "public_ip",
        "private_ip": "private_ip",
    },
    "cml": {
        "cml_version": "version",
        "cml_ready": "is_ready",
        "cml_certificate_sha256": "certificate_sha256",
        "cml_refused_certificate_sha256": "refused_certificate_sha256",
        "cml_login": "login",
        "cml_health": "health",
        "cml_license": "license",
        "labs_count": "labs_count",
    },
    "connection": {
        "ws_status": "status",
        "ws_published": "published",
        "ws_connected_at": "connected_at",
    },
    "activity": {"last_activity_at": "last_at", "last_activity_check_at": "checked_at"},
    "pause": {
        "pause_state": "state",
        "pause_since": "since",
        "pause_reason": "reason",
        "target_pause_at": "due_at",
        "last_paused_at": "last_paused_at",
        "last_resumed_at": "last_resumed_at",
    },
}


def with_fields(worker: Worker, **fields: Any) -> Worker:
    """The worker with these fields replaced; those of its parts are named as in the public view."""
    for part, names in _PARTS.items():
        changes = {names[flat]: fields.pop(flat) for flat in tuple(fields) if flat in names}
        if changes:
            fields[part] = msgspec.structs.replace(fields.get(part, getattr(worker, part)), **changes)
    return msgspec.structs.replace(worker, **fields)


def an_instance(**fields: Any) -> Instance:
    described: dict[str, Any] = {
        "id": InstanceId("i-1"),
        "region": "eu-west-1",
        "state": "running",
        "instance_type": "m5zn.metal",
        "image_id": IMAGE.id,
        "private_ip": "10.0.0.5",
        "public_ip": "198.51.100.5",
    }
    return Instance(**{**described, **fields})
