"""A whole fleet in one thread and in virtual time: the real control plane, controllers and stream.

Only ports are replaced. Every call that leaves a process goes through `World.call`: it takes its time,
may meet a fault, is written to the trace, and is passed to the invariants.
The actual state (disk, coordination store, cloud) is kept here, apart from what processes are shown.
"""

import asyncio
import hashlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any, Final, TypeVar

from lcm.core.ids import RandomIds
from lcm.core.timeouts import timeout
from lcm.domain.launch import WORKER_ID_TAG, InstanceId
from simulation.world.calls import Answer, Call, Role, Violation
from simulation.world.faults import Act, Faults, chance
from simulation.world.knobs import Knobs
from simulation.world.lab_ports import LabAct
from simulation.world.live_fleet import LiveFleet
from simulation.world.ports import LIVE_REPORTS
from simulation.world.processes import (
    ControllerProcess,
    LabletProcess,
    PlaneProcess,
    Process,
    ProcessCrashed,
    SchedulerProcess,
    User,
)
from simulation.world.stores import WatchedKv, WatchedStore
from support.memory_cloud import Delays, MemoryCloud, MemoryInstance
from support.memory_licensing import MemoryLicensing
from support.virtual_time import VirtualClock, VirtualTimeLoop

T = TypeVar("T")

STREAM_NOTICE_SECONDS: Final = 5.0
"""How soon a broken stream is noticed."""

READ_ACTS: Final = (Act.ERROR, Act.HANG)
LIVE_REPORT: Final = f"http.POST {LIVE_REPORTS}"
"""No change by itself: what it changes is counted where it reaches the disk."""

WRITE_ACTS: Final = (Act.LOST, Act.LATE, *READ_ACTS)
CRASHES: Final = (Act.CRASH_BEFORE, Act.CRASH_AFTER)
PROCESS_ACTS: Final = (*CRASHES, Act.FREEZE)
RECOVERY_POINTS: Final = 20
LATEST_LANDING_SECONDS: Final = 295.0

UNCOUNTED: Final = (
    "/detect-idle",
    "/scaling/audit",
    "insert audit",
    "/move-windows",
    "/{id}/labs",
    "/{id}/definitions",
    "insert ended-lablet-session",
    "delete lablet-session",
)
"""Not counted as changes: an idle check, a look for windows and what is listed of a worker, whose effects are
counted where they are stored, audit entries about why nothing was done, and the archiving of a session an
hour after its end."""

LISTINGS: Final = ("store.replace worker", "store.replace lab", "store.mark_published", "kv.put")
"""What is stored, or published, of a worker or lab that was listed."""

Watch = Callable[[Process, Call], None]

Site = tuple[str, str]
"""Role and name of a call."""

Point = tuple[str, str, str]
"""Role, site, abstract state."""


def _is_change(call: Call) -> bool:
    """Whether a settled world makes no such call."""
    is_archived_session = (call.site, call.state) == ("kv.delete", "session")
    return call.site != LIVE_REPORT and not is_archived_session and not call.site.endswith(UNCOUNTED)


def acts_at(role: Role, *, mutates: bool, may_be_stale: bool = False) -> tuple[Act, ...]:
    """The faults that are possible at a call. People neither crash nor freeze."""
    acts: tuple[Act, ...] = WRITE_ACTS if mutates else READ_ACTS
    if role != "user":
        acts = (*PROCESS_ACTS, *acts)
    return (*acts, Act.STALE) if may_be_stale else acts


@dataclass
class World:
    """Everything outside the processes, and the processes."""

    faults: Faults
    knobs: Knobs = field(default_factory=Knobs)
    templates: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        self.clock = VirtualClock(loop, self.knobs.begins)
        self.ids = RandomIds(Random(f"ids/{self.faults.seed}"))
        self.disk = WatchedStore()
        self.kv = self._new_kv()
        pace = self.knobs.instance_seconds
        self.licensing = MemoryLicensing(self.knobs.license_pool)
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
        self.live = LiveFleet(self) if self.knobs.monitoring else None
        self.plane = PlaneProcess(self, "plane")
        self.controllers = [ControllerProcess(self, f"controller-{n}") for n in range(self.knobs.controllers)]
        self.schedulers = [SchedulerProcess(self, f"scheduler-{n}") for n in range(self.knobs.schedulers)]
        self.lablets = [LabletProcess(self, f"lablets-{n}") for n in range(self.knobs.lablet_controllers)]
        self.user = User(self, "user")
        self.recent: deque[Call] = deque(maxlen=200)
        self.sites: Counter[Site] = Counter()
        self.acts: dict[Site, tuple[Act, ...]] = {}
        """The faults that are possible at each call site."""
        self.points: dict[Point, int] = {}
        """The first ordinal at which each point was met, while faults are possible."""
        self.stale_points: dict[Point, int] = {}
        """The first ordinal at which a stale answer was possible at a point."""
        self.injected: set[tuple[Point, Act]] = set()
        self.recovery: dict[Point, int] = {}
        """The first points met by the successor or next incarnation of the first process that crashed."""
        self._first_crashed: Role | None = None
        self.mutations = 0
        self._cuts: set[tuple[str, str]] = set()
        self._streams: dict[asyncio.Timeout, None] = {}
        """Open streams, in the order they were opened."""
        self.accepted_certificates: set[str] = set()
        """Fingerprints that a person accepted, or is about to."""
        self.never_ready: set[str] = set()
        """Workers whose CML does not boot."""
        self.cml_tried_at: dict[str, float] = {}
        """By address: when a controller last tried to reach CML there."""
        self.adopted: set[InstanceId] = set()
        """The foreign instances whose adoption an admin has requested."""
        self.acknowledged: dict[str, int] = {}
        """The newest generation of each worker that was acknowledged to a person."""
        self.session_requests: dict[str, bool] = {}
        """The sessions that were acknowledged to a person, and whether their end was."""
        self.violation: Violation | None = None
        self.on_sent: list[Callable[[Process, str, str, bytes | None], None]] = []
        """Called with every request that a process sends, before anything happens to it."""
        self.on_call: list[Watch] = []
        self.on_effect: list[Watch] = []
        self.on_login: list[Callable[[MemoryInstance], None]] = []
        """Called with the instance whose CML server gets a login of LCM."""
        self.on_lab: list[Callable[[LabAct], None]] = []
        """Called with every change of a lab that arrives at a CML server, right before its effect."""
        self.on_http_answer: list[Callable[[Answer], None]] = []
        self.on_event: list[Callable[[str, Mapping[str, Any]], None]] = []
        """Called for every event that an open page gets."""
        self.on_answer: list[Callable[[Process, Call, Any], None]] = []
        """Called with what a process is shown, when it is shown it."""
        self._calls = 0
        self._is_healed = False
        self._wiped_at = float("-inf")
        self._disturbed_until = 0.0
        self._anything_wrong_until = 0.0
        self._over = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        self._digest = hashlib.sha256()
        self._answers: dict[tuple[str, str], deque[Any]] = {}

    # The run.

    @property
    def processes(self) -> Sequence[Process]:
        return (self.plane, *self.controllers, *self.schedulers, *self.lablets)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["World"]:
        """Run all processes until the block is left."""
        async with asyncio.TaskGroup() as self._tasks:
            self.start(self.kv.run(), "kv")
            if self.live is not None:
                self.start(self.live.run(), "CML")
                if self.lablets:
                    self.start(self.live.run_labs(), "labs")
            for process in self.processes:
                self.start(process.live(), process.name)
            try:
                yield self
            finally:
                self._over.set()
                for process in self.processes:
                    process.is_alive = False
                for task in asyncio.all_tasks() - {asyncio.current_task()}:
                    task.cancel()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Start a task outside the processes that runs as long as the simulation."""
        assert self._tasks is not None
        self._tasks.create_task(work, name=name)

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
        stale_depth: int = 0,
    ) -> T:
        """Make a call: the only way out of a process. `error` stands for no answer, `refusal` for a clear no.

        A read may be answered with one of its last `stale_depth` answers.
        """
        process.check_alive()
        call, act = self._begin(process, site, subject, mutates=mutates, may_be_stale=stale_depth > 0)
        there, back = self._latencies(call)
        await self._travel(process, there)
        if self._cuts and self.is_cut(process, site.partition(".")[0]):
            await self._no_answer(error, "the link is down")
        match act:
            case Act.CRASH_BEFORE:
                process.crash()
                raise ProcessCrashed(process.name)
            case Act.ERROR:
                raise (refusal or error)("injected")
            case Act.HANG:
                await self._no_answer(error, "no answer")
            case Act.LATE:
                self._land_later(process, call, effect)
                await self._no_answer(error, "no answer")
            case Act.STALE:
                answers = self._answers[site, subject]
                draw = chance(self.faults.seed, "stale", call.role, site, call.nth)
                stale: T = answers[int(draw * len(answers))]
                self._show(process, call, stale)
                return stale
        answer = await self._perform(process, call, effect)
        if stale_depth:
            self._answers.setdefault((site, subject), deque(maxlen=stale_depth)).append(answer)
        match act:
            case Act.CRASH_AFTER:
                process.crash()
                raise ProcessCrashed(process.name)
            case Act.LOST:
                await self._no_answer(error, "the reply was lost")
            case Act.FREEZE:
                process.freeze(self.knobs.lease_ttl * 1.5)
        await self._travel(process, back)
        self._show(process, call, answer)
        return answer

    async def _travel(self, process: Process, seconds: float) -> None:
        """Delay a message; a process that is frozen meanwhile continues when it wakes."""
        if seconds:
            await self.clock.sleep(seconds)
        if process.frozen_until:
            await process.awake()
        process.check_alive()

    def _begin(
        self, process: Process, site: str, subject: str, *, mutates: bool, may_be_stale: bool
    ) -> tuple[Call, Act | None]:
        role = process.role
        key = (role, site)
        self._calls += 1
        self.sites[key] = nth = self.sites[key] + 1
        possible = self.acts.get(key)
        if possible is None:
            possible = acts_at(role, mutates=mutates, may_be_stale=may_be_stale)
            self.acts[key] = possible
        state = self._state_of(role, site, subject) if subject else "-"
        act = None
        if not self._is_healed:
            point = (role, site, state)
            self.points.setdefault(point, nth)
            if (site, subject) in self._answers:
                self.stale_points.setdefault(point, nth)
            elif may_be_stale:
                possible = possible[:-1]
            if role == self._first_crashed and len(self.recovery) < RECOVERY_POINTS:
                self.recovery.setdefault(point, nth)
            act = self.faults.choose(role, site, nth, possible)
            if act is not None:
                if act is not Act.STALE:
                    self.note_disturbance(LATEST_LANDING_SECONDS if act is Act.LATE else 0.0, of=role)
                self.injected.add((point, act))
                if act in CRASHES and self._first_crashed is None:
                    self._first_crashed = role
        at = self.clock.monotonic()
        fault = act.value if act else ""
        call = Call(self._calls, at, process.name, role, site, nth, subject, state, mutates, fault)
        self.recent.append(call)
        self._digest.update(f"{at} {process.name} {site} {subject} {state} {fault}\n".encode())
        self._check(self.on_call, process, call)
        return call, act

    def _latencies(self, call: Call) -> tuple[float, float]:
        """Draw how long a call takes there and back; zero in either direction is as likely as any."""
        draw = chance(self.faults.seed, "latency", call.role, call.site, call.nth)
        seconds = draw * self.knobs.latency_seconds
        match int(draw * 1_000) % 4:
            case 0:
                return 0.0, 0.0
            case 1:
                return seconds, 0.0
            case 2:
                return 0.0, seconds
            case _:
                return seconds / 2, seconds / 2

    async def _no_answer(self, error: Callable[[str], Exception], reason: str) -> None:
        await self.clock.sleep(self.knobs.no_answer_seconds)
        raise error(reason)

    async def _perform(self, process: Process, call: Call, effect: Callable[[], Awaitable[T]]) -> T:
        answer = await effect()
        if call.mutates:
            self.mutations += _is_change(call) and not self._is_listing(call)
            self._check(self.on_effect, process, call)
        return answer

    def _is_listing(self, call: Call) -> bool:
        """Whether it stores, or publishes, only when a worker or a lab was listed."""
        is_of_record = call.site in LISTINGS
        return is_of_record and call.subject.partition(" ")[0] in self.disk.only_listed

    def _land_later(self, process: Process, call: Call, effect: Callable[[], Awaitable[Any]]) -> None:
        """Let the request arrive after its sender has given up.

        Together with the time that a new instance stays invisible this is less than five minutes: what takes
        longer to show cannot be distinguished from what does not exist.
        """
        latest = LATEST_LANDING_SECONDS - self.knobs.visibility_seconds

        async def land() -> None:
            draw = chance(self.faults.seed, "late", call.role, call.site, call.nth)
            await self.clock.sleep(5.0 + (latest - 5.0) * draw)
            try:
                await self._perform(process, call, effect)
            except Exception:
                return  # refused on arrival; its sender no longer waits

        self.start(land(), f"late {call.site}")

    def _show(self, process: Process, call: Call, answer: Any) -> None:
        try:
            for watch in self.on_answer:
                watch(process, call, answer)
        except Violation as violation:
            self.fail(violation)

    def _check(self, watches: Iterable[Watch], process: Process, call: Call) -> None:
        try:
            for watch in watches:
                watch(process, call)
        except Violation as violation:
            self.fail(violation)

    def _state_of(self, role: Role, site: str, subject: str) -> str:
        """Status and desired status of the worker or session that a call is about, as on the disk."""
        worker_id = subject.partition(" ")[0]
        if self.schedulers and (state := self._placement_state(role, site, worker_id)) is not None:
            return state
        instance = self.cloud.instances.get(InstanceId(worker_id))
        if instance is not None:
            worker_id = instance.spec.tags.get(WORKER_ID_TAG, "")
        worker = self.disk.peek(worker_id)
        if worker is None and instance is not None:
            worker = self.disk.owner_of(instance.id)
        return f"{worker.status.value}>{worker.desired_status.value}" if worker else "-"

    def _placement_state(self, role: Role, site: str, subject: str) -> str | None:
        """The state of a session, of a worker that sessions have or want, or of a scale-up; else None."""
        session = self.disk.session(subject)
        is_stored = role == "plane" and site.startswith("store.") and not site.endswith("published")
        if session is not None:
            mark = "+placed" if session.placement is not None else ""
            return f"{session.status}{mark}>{session.desired_status}" if is_stored else "session"
        if not is_stored:
            is_named = role == "lablets" or (role == "scheduler" and site.startswith("kv."))
            return "worker" if is_named else None
        worker = self.disk.peek(subject)
        if worker is None:
            return "scale-up" if self.disk.is_growing else None
        named = (each.placement for each in self.disk.sessions() if not each.is_ended)
        holders = {claim.session_id for claim in worker.claims}
        wanted = sum(placement is not None and placement.worker_id == worker.id for placement in named)
        sessions = (self.disk.session(session_id) for session_id in holders)
        if any(session is None or session.is_ended for session in sessions):
            return f"{worker.status.value} with a stale claim"
        if wanted > len(holders):
            return f"{worker.status.value} being claimed"
        return f"{worker.status.value} claimed" if holders else None

    # Events outside the processes.

    def sent(self, process: Process, method: str, path: str, body: bytes | None) -> None:
        """Pass a request to the invariants."""
        for watch in self.on_sent:
            watch(process, method, path, body)

    def check_lab(self, act: LabAct) -> None:
        """Pass a change of a lab to the invariants."""
        try:
            for watch in self.on_lab:
                watch(act)
        except Violation as violation:
            self.fail(violation)

    def login_reaches(self, instance: MemoryInstance) -> None:
        """Pass a login that arrives at a CML server to the invariants."""
        try:
            for watch in self.on_login:
                watch(instance)
        except Violation as violation:
            self.fail(violation)

    def note_disturbance(self, seconds: float = 0.0, *, of: Role = "plane") -> None:
        """Something goes wrong now, and for so many seconds."""
        until = self.clock.monotonic() + seconds
        self._anything_wrong_until = max(self._anything_wrong_until, until)
        if of != "controller":
            self._disturbed_until = max(self._disturbed_until, until)

    @property
    def calm_seconds(self) -> float:
        """For how long nothing has gone wrong for the control plane and the schedulers but clocks."""
        is_cut = any(not name.startswith("controller") for name, _ in self._cuts)
        return 0.0 if is_cut else self.clock.monotonic() - self._disturbed_until

    @property
    def calm_seconds_of_labs(self) -> float:
        """For how long nothing at all has gone wrong: worker controllers report what wakes others."""
        assert self.live is not None
        if self._cuts or self.live.has_lab_faults:
            self._anything_wrong_until = max(self._anything_wrong_until, self.clock.monotonic())
        return self.clock.monotonic() - self._anything_wrong_until

    def fail(self, violation: Violation) -> None:
        """Record the first violation; it ends the run."""
        if self.violation is None:
            self.violation = violation
            self._over.set()

    def answered(self, answer: Answer) -> None:
        """Pass an answer of the control plane to the invariants."""
        for watch in self.on_http_answer:
            try:
                watch(answer)
            except Violation as violation:
                self.fail(violation)

    def heal(self) -> None:
        """Stop injecting faults, and repair everything."""
        self._is_healed = True
        self.never_ready.clear()
        self.mend_links()
        self.cloud.interfere = None
        if self.live is not None:
            self.live.heal()
        self.cloud.unlisted.clear()
        self.licensing.unreachable = None
        self.licensing.pool.loses_deregistrations = False
        for process in self.processes:
            process.thaw()
            process.skew = timedelta()

    def wipe_kv(self) -> None:
        """Replace the coordination store by an empty one, as after a disaster; its watches break."""
        self.note_disturbance(self.knobs.lease_ttl)
        self._wiped_at = self.clock.monotonic()
        self.kv = self._new_kv()
        self.start(self.kv.run(), "kv")
        self._break_streams()

    def cut_link(self, process: Process, port: str) -> None:
        """Lose everything that this process sends through that port from now on."""
        self._cuts.add((process.name, port))
        self._break_streams()

    def mend_links(self) -> None:
        if self._cuts:
            self.note_disturbance()
        self._cuts.clear()

    def is_cut(self, process: Process, port: str) -> bool:
        return (process.name, port) in self._cuts

    @asynccontextmanager
    async def open_stream(self) -> AsyncIterator[None]:
        """Wait on a stream; a TimeoutError means that the link may be cut and must be checked."""
        async with timeout(None) as stream:
            self._streams[stream] = None
            try:
                yield
            finally:
                del self._streams[stream]

    def _break_streams(self) -> None:
        for stream in self._streams:
            stream.reschedule(self.clock.monotonic() + STREAM_NOTICE_SECONDS)

    def _new_kv(self) -> WatchedKv:
        return WatchedKv(self.clock, self.ids, history_limit=self.knobs.kv_history)

    @property
    def was_wiped_recently(self) -> bool:
        """Whether a leader of the store before the wipe may not have noticed it yet."""
        return self.clock.monotonic() - self._wiped_at < self.knobs.lease_ttl

    @property
    def trace_hash(self) -> str:
        return self._digest.hexdigest()[:16]

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    async def over_within(self, seconds: float) -> None:
        """Return after that long, or as soon as the run is over."""
        try:
            async with timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return

    def leaders(self) -> Sequence[ControllerProcess]:
        """Controllers that believe they lead and are inside their deadline."""
        return [process for process in self.controllers if process.is_leading]

    def leading_schedulers(self) -> Sequence[SchedulerProcess]:
        """The same of schedulers."""
        return [process for process in self.schedulers if process.is_leading]
