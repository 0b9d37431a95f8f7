"""A whole fleet in one thread and in virtual time: the real control plane, controllers and stream.

Only ports are replaced. Every call that leaves a process goes through `World.call`: it takes its time,
may meet a fault, is written to the trace, and is shown to the watchers that check what must always hold.
The truth (disk, coordination store, cloud) is kept here, apart from what processes are shown.
"""

import asyncio
import hashlib
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, Literal, TypeVar

import msgspec

from lcm.control_plane.access import AccessKeys
from lcm.control_plane.main import ControlPlaneParts, assemble
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import Document, Fence, StoreUnavailable
from lcm.control_plane.templates import Templates
from lcm.core.chance import RandomIds
from lcm.core.health import Health
from lcm.core.kv.memory import MemoryKv
from lcm.core.telemetry import Telemetry
from lcm.domain.launch import WORKER_ID_TAG, InstanceId
from lcm.domain.template import RegionConfig
from lcm.domain.worker import Worker
from lcm.rest.client import ControlPlaneClient
from lcm.simulator import ports
from lcm.simulator.faults import Act, Faults, chance
from lcm.simulator.memory_cloud import Delays, MemoryCloud
from lcm.simulator.virtual_time import VirtualClock
from lcm.worker_controller.reconciler import WorkerReconciler
from lcm.worker_controller.settings import WorkerControllerSettings

T = TypeVar("T")

Role = Literal["controller", "plane", "user"]

REGION = RegionConfig(region="us-east-1", security_group_ids=("sg-1",), subnet_id="subnet-1", key_name="k")
KEYS = AccessKeys("viewer-key", "operator-key", "admin-key", "controller-key")
NO_ANSWER_SECONDS = 10.0
"""How long a caller waits for an answer that does not come."""


class ProcessCrashed(BaseException):
    """This process is gone; nothing of it goes on."""


@dataclass(frozen=True)
class Violation(Exception):
    """Something that must always hold did not."""

    invariant: str
    detail: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.detail}"


@dataclass(frozen=True)
class Call:
    """One call that left a process."""

    n: int
    at: float
    process: str
    role: str
    site: str
    nth: int
    subject: str
    state: str
    """The abstract state it met: status and wish of the worker it is about."""
    mutates: bool
    fault: str

    def __str__(self) -> str:
        mark = f"  !! {self.fault}" if self.fault else ""
        what = f"{self.site:24} {self.subject:38} {self.state}{mark}"
        return f"{self.n:5} {self.at:10.3f} {self.process:14} {what}"


@dataclass(frozen=True)
class Knobs:
    """Settings that make rare things common; a random run draws them from its seed."""

    lease_ttl: int = 15
    reconcile_interval: float = 30.0
    wait_seconds: float = 2.0
    debounce_seconds: float = 0.5
    kv_history: int = 10_000
    visibility_seconds: float = 0.0
    machine_seconds: float = 10.0
    latency_seconds: float = 0.02
    controllers: int = 2
    discovery: bool = False
    """Whether foreign machines are imported and orphans are looked for."""

    @staticmethod
    def draw(seed: int) -> "Knobs":
        rng = Random(f"knobs/{seed}")
        lease_ttl = rng.choice([15, 15, 6, 3])
        # A lease that cannot be renewed in time is a wrong setting, not a fault.
        slowest = 0.5 if lease_ttl >= 15 else 0.05
        return Knobs(
            lease_ttl=lease_ttl,
            reconcile_interval=rng.choice([30.0, 30.0, 10.0]),
            wait_seconds=rng.choice([2.0, 2.0, 0.5]),
            debounce_seconds=rng.choice([0.5, 0.5, 0.05]),
            kv_history=rng.choice([10_000, 10_000, 5]),
            visibility_seconds=rng.choice([0.0, 0.0, 30.0, 200.0]),
            machine_seconds=rng.choice([10.0, 10.0, 60.0, 1.0]),
            latency_seconds=rng.choice([0.02, 0.02, slowest, 0.0]),
            controllers=rng.choice([2, 2, 3]),
        )


class WatchedStore(MemoryStore):
    """The disk: what is committed here survives everything."""

    def __init__(self) -> None:
        super().__init__()
        self.on_commit: list[Callable[[Document | None, Document, Fence | None], None]] = []

    async def insert(self, document: Document, fence: Fence | None = None) -> None:
        await super().insert(document, fence)
        self._told(None, document, fence)

    async def replace(self, document: Document, fence: Fence | None = None) -> None:
        before = await self.get(document.kind, document.id)
        await super().replace(document, fence)
        self._told(before, document, fence)

    def peek(self, worker_id: str) -> Worker | None:
        document = self._documents.get(("worker", worker_id))
        return msgspec.json.decode(document.body, type=Worker) if document else None

    def peek_all(self) -> list[Worker]:
        return [
            msgspec.json.decode(document.body, type=Worker)
            for (kind, _), document in sorted(self._documents.items())
            if kind == "worker"
        ]

    def _told(self, before: Document | None, after: Document, fence: Fence | None) -> None:
        for listener in self.on_commit:
            listener(before, after, fence)


class ProcessClock:
    """Time as one process sees it: its wall clock may be wrong, and it stops with the process."""

    def __init__(self, process: "Process") -> None:
        self._process = process

    def now(self) -> datetime:
        return self._process.world.clock.now() + self._process.skew

    def monotonic(self) -> float:
        return self._process.world.clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        self._process.check_alive()
        await self._process.world.clock.sleep(seconds)
        await self._process.thawed()
        self._process.check_alive()


@dataclass
class Process:
    """One process that can crash, freeze and start again; its memory goes with it."""

    world: "World"
    name: str
    role: Role
    incarnation: int = 0
    is_alive: bool = False
    skew: timedelta = timedelta()
    frozen_until: float = 0.0
    reconciler: WorkerReconciler | None = None
    parts: ControlPlaneParts | None = None
    requests: asyncio.TaskGroup | None = None
    task: asyncio.Task[None] | None = None
    restart_after: float = 1.0

    def check_alive(self) -> None:
        if not self.is_alive:
            raise ProcessCrashed(self.name)

    def crash(self) -> None:
        """As SIGKILL: at once, and without a last word."""
        if self.is_alive and self.task is not None:
            self.is_alive = False
            self.parts = None
            self.task.cancel()

    async def thawed(self) -> None:
        """Return once the process is not stopped (SIGSTOP) any more."""
        while self.frozen_until > self.world.clock.monotonic():
            await self.world.clock.sleep(self.frozen_until - self.world.clock.monotonic())


@dataclass
class World:
    """Everything outside the processes, and the processes."""

    faults: Faults
    knobs: Knobs = field(default_factory=Knobs)
    templates: Mapping[str, Any] = field(default_factory=dict)
    clock: VirtualClock = field(default_factory=VirtualClock)

    def __post_init__(self) -> None:
        self.ids = RandomIds(Random(f"ids/{self.faults.seed}"))
        self.disk = WatchedStore()
        self.kv = MemoryKv(self.clock, self.ids, history_limit=self.knobs.kv_history)
        pace = self.knobs.machine_seconds
        self.cloud = MemoryCloud(
            self.clock,
            Delays(
                launch=2 * pace,
                start=pace,
                stop=pace,
                terminate=pace,
                visibility=self.knobs.visibility_seconds,
            ),
        )
        self.plane = Process(self, "plane", "plane")
        self.controllers = [
            Process(self, f"controller-{n}", "controller") for n in range(self.knobs.controllers)
        ]
        self.user = Process(self, "user", "user", is_alive=True)
        self.recent: deque[Call] = deque(maxlen=200)
        self.sites: Counter[tuple[str, str]] = Counter()
        self.points: dict[tuple[str, str, str], int] = {}
        """The first ordinal at which each (role, site, abstract state) was met."""
        self.mutations = 0
        self.cuts: set[tuple[str, str]] = set()
        """Links that are down: (process, port)."""
        self.acknowledged: dict[str, int] = {}
        """The newest generation of each worker that a person was told is recorded."""
        self._wiped_at = float("-inf")
        self.violation: Violation | None = None
        self.on_call: list[Callable[[Process, Call], None]] = []
        self.on_effect: list[Callable[[Process, Call], None]] = []
        self._over = asyncio.Event()
        self._late: asyncio.TaskGroup | None = None
        self._digest = hashlib.sha256()
        self._answers: dict[tuple[str, str], list[Any]] = defaultdict(list)

    # The run.

    @asynccontextmanager
    async def running(self) -> AsyncIterator["World"]:
        """All processes, until the block is left."""
        async with asyncio.TaskGroup() as tasks:
            self._late = tasks
            tasks.create_task(self.kv.run(), name="kv")
            lives = [tasks.create_task(self._live(p), name=p.name) for p in (self.plane, *self.controllers)]
            try:
                yield self
            finally:
                self._over.set()
                for process in (self.plane, *self.controllers):
                    process.is_alive = False
                for task in asyncio.all_tasks() - {asyncio.current_task()}:
                    task.cancel()
                del lives

    async def _live(self, process: Process) -> None:
        """One incarnation after another."""
        while not self._over.is_set():
            process.incarnation += 1
            process.is_alive = True
            run = self._run_plane if process.role == "plane" else self._run_controller
            try:
                async with asyncio.TaskGroup() as tasks:
                    process.task = tasks.create_task(
                        run(process), name=f"{process.name}#{process.incarnation}"
                    )
            except BaseExceptionGroup as errors:
                unexpected = errors.split((ProcessCrashed, asyncio.CancelledError))[1]
                if unexpected is not None and process.is_alive:
                    self.fail(Violation("process died", f"{process.name}: {_leaf(unexpected)!r}"))
                    return
            process.is_alive = False
            process.parts = process.reconciler = None
            await self.clock.sleep(process.restart_after)

    async def _run_plane(self, process: Process) -> None:
        clock, store = ProcessClock(process), ports.SimulatedStore(process)
        try:
            await Templates(store).seed(self.templates)
        except StoreUnavailable:
            # A control plane that cannot read its store does not start; whoever runs it starts it again.
            process.crash()
            raise ProcessCrashed(process.name) from None
        async with asyncio.TaskGroup() as requests:
            process.requests = requests
            process.parts = assemble(
                store,
                ports.SimulatedKv(process),
                KEYS,
                clock=clock,
                ids=self.ids,
                regions=(REGION.region,),
                default_region=REGION.region,
            )
            requests.create_task(process.parts.publisher.run(), name="publisher")

    async def _run_controller(self, process: Process) -> None:
        clock = ProcessClock(process)

        def epoch() -> int:
            return reconciler.leadership.epoch if reconciler.leadership else 0

        reconciler = WorkerReconciler(
            WorkerControllerSettings(
                leader_lease_ttl=self.knobs.lease_ttl,
                reconcile_interval=self.knobs.reconcile_interval,
                wait_seconds=self.knobs.wait_seconds,
                watch_debounce_seconds=self.knobs.debounce_seconds,
                worker_discovery_enabled=self.knobs.discovery,
                cleanup_enabled=False,
            ),
            {REGION.region: REGION},
            control_plane=ControlPlaneClient(
                ports.SimulatedTransport(process), KEYS.controller, "worker-controller", epoch
            ),
            cloud=ports.SimulatedCloud(process),
            cml=ports.SimulatedCml(process),
            kv=ports.SimulatedKv(process),
            clock=clock,
            telemetry=Telemetry(),
            health=Health(clock),
            instance_id=f"{process.name}-{process.incarnation}",
        )
        process.reconciler = reconciler
        await reconciler.run()

    # Calls.

    async def call(
        self,
        process: Process,
        site: str,
        subject: str,
        effect: Callable[[], Awaitable[T]],
        *,
        mutates: bool,
        error: Callable[[str], Exception],
        refusal: Callable[[str], Exception] | None = None,
        may_be_stale: bool = False,
    ) -> T:
        """The only way out of a process. `error` is what no answer looks like, `refusal` a clear no."""
        process.check_alive()
        self.sites[process.role, site] += 1
        nth = self.sites[process.role, site]
        state = self._state_of(subject)
        self.points.setdefault((process.role, site, state), nth)
        possible = [Act.LOST, Act.LATE, Act.ERROR, Act.HANG] if mutates else [Act.ERROR, Act.HANG]
        if process.role != "user":
            possible = [Act.CRASH_BEFORE, Act.CRASH_AFTER, *possible]
        if may_be_stale and self._answers[site, subject]:
            possible.append(Act.STALE)
        fault = self.faults.choose(process.role, site, nth, possible)
        call = Call(
            n=sum(self.sites.values()),
            at=self.clock.monotonic(),
            process=process.name,
            role=process.role,
            site=site,
            nth=nth,
            subject=subject,
            state=state,
            mutates=mutates,
            fault=fault.act.value if fault else "",
        )
        self._record(process, call)
        await self._take_time(process, site, nth, "there")
        if (process.name, site.partition(".")[0]) in self.cuts:
            await self.clock.sleep(NO_ANSWER_SECONDS)
            raise error("the link is down")
        match fault.act if fault else None:
            case Act.CRASH_BEFORE:
                process.crash()
                raise ProcessCrashed(process.name)
            case Act.ERROR:
                raise (refusal or error)("injected")
            case Act.HANG:
                await self.clock.sleep(NO_ANSWER_SECONDS)
                raise error("no answer")
            case Act.LATE:
                self._land_later(process, call, effect)
                await self.clock.sleep(NO_ANSWER_SECONDS)
                raise error("no answer")
            case Act.STALE:
                stale: T = self._answers[site, subject][0]
                return stale
        answer = await self._perform(process, call, effect)
        if may_be_stale:
            self._answers[site, subject] = [*self._answers[site, subject][-2:], answer]
        match fault.act if fault else None:
            case Act.CRASH_AFTER:
                process.crash()
                raise ProcessCrashed(process.name)
            case Act.LOST:
                await self.clock.sleep(NO_ANSWER_SECONDS)
                raise error("the reply was lost")
        await self._take_time(process, site, nth, "back")
        return answer

    async def _perform(self, process: Process, call: Call, effect: Callable[[], Awaitable[T]]) -> T:
        answer = await effect()
        if call.mutates:
            self.mutations += 1
            for watch in self.on_effect:
                self._check(watch, process, call)
        return answer

    def _land_later(self, process: Process, call: Call, effect: Callable[[], Awaitable[Any]]) -> None:
        """The request is on its way and arrives when its sender has given up."""

        async def land() -> None:
            delay = 5 + 290 * chance(self.faults.seed, "late", call.role, call.site, call.nth)
            await self.clock.sleep(delay)
            try:
                await self._perform(process, call, effect)
            except Exception:
                return  # refused on arrival; nobody is there to hear it

        assert self._late is not None
        self._late.create_task(land(), name=f"late {call.site}")

    async def _take_time(self, process: Process, site: str, nth: int, way: str) -> None:
        draw = chance(self.faults.seed, "latency", process.role, site, nth, way)
        if draw > 0.3 and self.knobs.latency_seconds:
            await self.clock.sleep(draw * self.knobs.latency_seconds)
        await process.thawed()
        process.check_alive()

    def _record(self, process: Process, call: Call) -> None:
        self.recent.append(call)
        self._digest.update(str(call).encode())
        for watch in self.on_call:
            self._check(watch, process, call)

    def _check(self, watch: Callable[[Process, Call], None], process: Process, call: Call) -> None:
        try:
            watch(process, call)
        except Violation as violation:
            self.fail(violation)

    def _state_of(self, subject: str) -> str:
        """Status and wish of the worker that a call is about; only the disk knows."""
        worker_id = subject.split(" ")[0]
        machine = self.cloud.machines.get(InstanceId(worker_id))
        if machine is not None:
            worker_id = machine.spec.tags.get(WORKER_ID_TAG, "")
        worker = self.disk.peek(worker_id) if worker_id else None
        return f"{worker.status.value}>{worker.desired_status.value}" if worker else "-"

    # What the outside does.

    def fail(self, violation: Violation) -> None:
        """The first violation counts; it ends the run."""
        if self.violation is None:
            self.violation = violation
            self._over.set()

    def heal(self) -> None:
        """No more faults from here on."""
        self.faults.rates = {}
        self.faults.plan = frozenset()
        self.cuts.clear()
        self.cloud.interfere = None
        for process in (self.plane, *self.controllers):
            process.frozen_until = 0.0
            process.skew = timedelta()

    async def wipe_kv(self) -> None:
        """The coordination store loses its data, as after a disaster; its watchers are cut off."""
        self._wiped_at = self.clock.monotonic()
        self.kv = MemoryKv(self.clock, self.ids, history_limit=self.knobs.kv_history)
        assert self._late is not None
        self._late.create_task(self.kv.run(), name="kv")

    @property
    def was_wiped_recently(self) -> bool:
        """A leader of the store before the wipe may not have noticed yet."""
        return self.clock.monotonic() - self._wiped_at < self.knobs.lease_ttl

    @property
    def trace_hash(self) -> str:
        return self._digest.hexdigest()[:16]

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def leaders(self) -> Sequence[Process]:
        """Processes that believe they lead and are inside their deadline."""
        now = self.clock.monotonic()
        return [
            process
            for process in self.controllers
            if process.is_alive
            and process.reconciler is not None
            and process.reconciler.leadership is not None
            and now < process.reconciler.leadership.deadline
        ]


def _leaf(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
