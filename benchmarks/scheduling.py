"""How fast sessions get their workers: through the HTTP API, on the embedded store, with a real scheduler.

The server is a process of its own and what `lcm up` has in one: the control plane on SQLite, which flushes
every commit (synchronous=FULL), the coordination store and, where one is named, the scheduler, woken by its
watch. The workers are records that run. Times are wall-clock times as a client measures them; CPU is that of
the server process with all its threads.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import uvloop
from msgspec.structs import replace
from pydantic import SecretStr

from lcm.cli.process import collect_rarely, spare_loaded_code
from lcm.control_plane.main import control_plane_process
from lcm.control_plane.records.sessions import LabletSessions
from lcm.control_plane.records.workers import Workers
from lcm.control_plane.settings import ControlPlaneSettings
from lcm.control_plane.store.port import Document
from lcm.control_plane.store.sqlite import SqliteStore
from lcm.core.clock import SystemClock
from lcm.core.hosted_service import run_services
from lcm.core.ids import RandomIds
from lcm.core.kv.memory import MemoryKv
from lcm.core.telemetry import configure_logging
from lcm.defaults import BUILT_IN
from lcm.domain.capacity import Capacity
from lcm.domain.lablet.definition import new_definition
from lcm.domain.lablet.session import create_session
from lcm.domain.lablet.topology import analyse
from lcm.domain.launch import WorkerId
from lcm.domain.lifecycle import RUNNING
from lcm.domain.template import RegionConfig
from lcm.domain.worker import Cml, Worker, new_worker
from lcm.resource_scheduler.main import resource_scheduler_process
from lcm.resource_scheduler.settings import ResourceSchedulerSettings
from lcm.rest.client import HttpTransport
from lcm.rest.documents import fetch_document
from lcm.rest.lablets import MAX_ORDERS, PlacementOrder, PlacementOutcome
from lcm.rest.scheduling_client import SchedulingClient
from report import percentile, report

ROOT = Path(__file__).parents[1]
LAB = (ROOT / "tests" / "fixtures" / "topologies" / "branch-office.yaml").read_text()
"""Two nodes that need 3 CPUs, and five ports."""
METAL = Capacity(cpu=48, memory_gb=192, storage_gb=1000, nodes=200)
SMALL = Capacity(cpu=2, memory_gb=4, storage_gb=100, nodes=15)
SEATS = 16
"""Labs that fill a worker."""
CPUS = (3, 4, 6)
"""What the labs of the burst need."""
REGION = "us-east-1"
NETWORK = RegionConfig(region=REGION, security_group_ids=("sg-1",), subnet_id="subnet-1")
SERVICE = "resource-scheduler"
TYPES = "lablet.session.status.updated,lablet.session.waiting.updated"
SETTLING_SECONDS = 1.5
PATIENCE_SECONDS = 60.0
QUESTIONS = 10


# The server. It ends with its standard input.


async def serve(directory: Path, *, has_scheduler: bool) -> None:
    clock, ids = SystemClock(), RandomIds()
    kv = MemoryKv(clock, ids)
    settings = ControlPlaneSettings(
        port=0,
        data_dir=directory,
        worker_templates_config_path=BUILT_IN / "worker_templates.yaml",
        api_requests_per_second=10_000,
    )
    async with control_plane_process(settings, kv, clock, ids, {REGION: NETWORK}, fetch_document) as plane:
        chosen = ResourceSchedulerSettings(
            port=0,
            control_plane_api_url=plane.url,
            control_plane_api_key=SecretStr(plane.keys.controller),
        )
        async with (
            resource_scheduler_process(chosen, kv, clock, ids) as scheduler,
            asyncio.TaskGroup() as tasks,
        ):
            services = (kv, *plane.services, *(scheduler.services if has_scheduler else ()))
            running = tasks.create_task(run_services(*services))
            while has_scheduler and not scheduler.election.epoch:
                await asyncio.sleep(0.01)
            spare_loaded_code()
            print(json.dumps([plane.url, plane.keys.admin, plane.keys.controller]), flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            running.cancel()


# Its clients.


@dataclass(frozen=True)
class Server:
    """The process, a person at it, and what a scheduler calls."""

    pid: int
    http: aiohttp.ClientSession
    scheduler: SchedulingClient

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        async with self.http.request(method, path, json=body) as response:
            answer = await response.read()
            if response.status >= 300:
                raise SystemExit(f"{method} {path}: {response.status} {answer!r}")
            return json.loads(answer)

    async def define(self, name: str, cpu: int = CPUS[0]) -> str:
        """The id of a definition whose lab needs so many CPUs."""
        body = {"name": name, "lab_yaml": LAB, "options": {"stated_needs": {"cpu": cpu}}}
        return str((await self.call("POST", "/api/lablet-definitions", body))["id"])

    async def create(self, definition_id: str) -> str:
        created = await self.call("POST", "/api/lablet-sessions", {"definition_id": definition_id})
        return str(created["session"]["id"])

    async def place(self, orders: Sequence[PlacementOrder]) -> None:
        for result in await self.scheduler.schedule(orders):
            if result.outcome is not PlacementOutcome.SCHEDULED:
                raise SystemExit(f"not placed: {result}")

    @contextmanager
    def measured(self) -> Iterator["Costs"]:
        """What the server needs for what is done meanwhile."""
        costs, before = Costs(), self._usage()
        yield costs
        costs.seconds, costs.cpu, costs.waited = (
            now - then for now, then in zip(self._usage(), before, strict=True)
        )

    def _usage(self) -> tuple[float, float, float]:
        place = Path(f"/proc/{self.pid}")
        used = [int(stat.read_text().split()[0]) for stat in place.glob("task/*/schedstat")]
        waited = int((place / "schedstat").read_text().split()[1])
        return time.perf_counter(), sum(used) / 1e9, waited / 1e9


@dataclass
class Costs:
    seconds: float = 0.0
    cpu: float = 0.0
    """Of all threads."""
    waited: float = 0.0
    """How long the main thread was runnable but other processes ran: outside the program's control."""

    def __str__(self) -> str:
        return f"{self.cpu / self.seconds:.0%} of a core, waited {self.waited / self.seconds:.0%} for one"


@asynccontextmanager
async def server(directory: Path, *, has_scheduler: bool) -> AsyncIterator[Server]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, __file__, "--serve", str(directory)),
        *(("--with-scheduler",) if has_scheduler else ()),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=(directory / "log").open("wb"),
    )
    assert process.stdout is not None
    try:
        line = await process.stdout.readline()
        if not line:
            raise SystemExit((directory / "log").read_text())
        url, token, key = json.loads(line)
        headers = {"Authorization": f"Bearer {token}"}
        epoch = 0
        async with aiohttp.ClientSession(url, headers=headers) as http, HttpTransport(url, 60) as transport:
            scheduler = SchedulingClient(transport, key, service=SERVICE, epoch=lambda: epoch)
            if not has_scheduler:
                epoch = await scheduler.claim_leadership("benchmark", 1, "benchmark")
            yield Server(process.pid, http, scheduler)
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


@dataclass
class Stream:
    """The event stream of the server: when each session was placed, and when it was said why it waits."""

    placed: dict[str, float] = field(default_factory=dict)
    explained: dict[str, float] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self, http: aiohttp.ClientSession, is_open: asyncio.Event) -> None:
        timeout = aiohttp.ClientTimeout(total=None)
        async with http.get(f"/api/events/stream?event_types={TYPES}", timeout=timeout) as response:
            rest = b""
            async for data in response.content.iter_any():
                is_open.set()
                *events, rest = (rest + data).split(b"\n\n")
                for event in events:
                    self._note(event, time.perf_counter())

    def _note(self, event: bytes, at: float) -> None:
        kind, _, data = event.partition(b"\ndata: ")
        if b"event: lablet.session." not in kind:
            return
        session = json.loads(data)["session"]
        if session["status"] == "scheduled":
            self.placed.setdefault(session["id"], at)
        elif session["waits_for"] is not None:
            self.explained.setdefault(session["id"], at)
        self._changed.set()

    async def until_in(self, sessions: Collection[str], *reached: Mapping[str, float]) -> None:
        """Return when each session is in one of these, or after a patient time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not all(any(session in each for each in reached) for session in sessions):
                    self._changed.clear()
                    await self._changed.wait()


@asynccontextmanager
async def stream_of(found: Server) -> AsyncIterator[Stream]:
    stream, is_open = Stream(), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(stream.read(found.http, is_open))
        await is_open.wait()
        yield stream
        reading.cancel()


# What the server starts with.


def a_worker(number: int, size: Capacity) -> Worker:
    worker = new_worker(
        worker_id=WorkerId(f"worker-{number:03}"),
        name=f"worker-{number:03}",
        template_name="metal",
        aws_region=REGION,
        tags={},
        by="benchmark",
        now=datetime.now(UTC),
        declared_capacity=size,
    )
    return replace(worker, status=RUNNING, cml=Cml(is_ready=True))


async def fill(directory: Path, workers: Sequence[Capacity], sessions: int = 0) -> None:
    """Workers that run, and sessions that wait."""
    now = datetime.now(UTC)
    definition = new_definition(LAB, analyse(LAB), definition_id="d", name="lab", owner="ann", now=now)
    async with SqliteStore(directory / "lcm.db") as store, asyncio.TaskGroup() as tasks:
        for number, size in enumerate(workers):
            tasks.create_task(Workers(store).add(a_worker(number, size)))
        for number in range(sessions):
            session = create_session(definition, session_id=f"s{number:05}", owner_id="ann", now=now)
            tasks.create_task(LabletSessions(store).add(session))


def order(session_id: str, number: int, workers: int) -> PlacementOrder:
    return PlacementOrder(session_id=session_id, worker_id=f"worker-{number % workers:03}", attempt=1)


# The measurements.


@dataclass
class Findings:
    rows: list[tuple[str, str]] = field(default_factory=list)
    ratios: dict[str, float] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)

    def rate(self, name: str, what: str, per_second: float) -> None:
        self.rows.append((what, f"{per_second:,.0f} /s"))
        self.figures[f"{name}_per_second"] = per_second

    def times(self, name: str, what: str, seconds: Sequence[float]) -> None:
        found = {"p50": percentile(seconds, 50), "p99": percentile(seconds, 99), "max": max(seconds)}
        self.rows.append((f"{what}, p50 / p99 / max", milliseconds(*found.values())))
        self.figures |= {f"{name}_{each}_seconds": value for each, value in found.items()}

    def costs(self, name: str, costs: Costs) -> None:
        self.rows.append(("… the server", str(costs)))
        self.figures[f"{name}_core_share"] = costs.cpu / costs.seconds
        self.figures[f"{name}_queue_share"] = costs.waited / costs.seconds


def milliseconds(*seconds: float) -> str:
    return " / ".join(f"{value * 1e3:.1f}" for value in seconds) + " ms"


async def durable_commits(directory: Path, found: Findings) -> None:
    """The floor of placements: this host's commits, with as many writers as a request has orders, and one."""
    body, rounds = b"x" * 1_500, 8
    async with SqliteStore(directory / "floor.db") as store:
        await together(store.insert(Document("k", str(each), 1, body)) for each in range(MAX_ORDERS))
        began = time.perf_counter()
        for version in range(2, rounds + 2):
            await together(
                store.replace(Document("k", str(each), version, body)) for each in range(MAX_ORDERS)
            )
        found.rate(
            "grouped_writes",
            f"floor: durable writes of the store, {MAX_ORDERS} at once",
            rounds * MAX_ORDERS / (time.perf_counter() - began),
        )
        began = time.perf_counter()
        for version in range(rounds + 2, rounds + 202):
            await store.replace(Document("k", "0", version, body))
        found.rate("single_writes", "floor: one after the other", 200 / (time.perf_counter() - began))


async def together(writes: Iterable[Coroutine[Any, Any, None]]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for write in writes:
            tasks.create_task(write)


async def measure_placements(directory: Path, workers: int, waiting: int, found: Findings) -> None:
    """Place what fills all workers, then ask about the sessions that wait beside them."""
    count = workers * SEATS
    await fill(directory, [METAL] * workers, count + waiting)
    async with server(directory, has_scheduler=False) as plane:
        await asyncio.sleep(SETTLING_SECONDS)
        orders = [order(f"s{number:05}", number, workers) for number in range(count)]
        with plane.measured() as costs:
            for start in range(0, count, MAX_ORDERS):
                await plane.place(orders[start : start + MAX_ORDERS])
        found.rate("placements", f"{count:,} placements on {workers} workers", count / costs.seconds)
        found.rate("placements_of_cpu", "… for each second of CPU", count / costs.cpu)
        found.costs("placements", costs)
        await asyncio.sleep(SETTLING_SECONDS)
        beside = f"{waiting:,} that wait, {workers} full workers"
        last = f"/api/lablet-sessions/s{count + waiting - 1:05}/explain"
        seats = {"count": 30, "needs": {"cpu": 3, "memory_gb": 5.5, "storage_gb": 21, "nodes": 2}}
        await measure_question(
            found, plane, "explain", f"explain one of {beside}", lambda: plane.call("GET", last)
        )
        await measure_question(
            found,
            plane,
            "preview",
            f"preview 30 seats beside {beside}",
            lambda: plane.call("POST", "/api/scheduling/preview", seats),
        )


async def measure_question(
    found: Findings, plane: Server, name: str, what: str, ask: Callable[[], Awaitable[Any]]
) -> None:
    await ask()
    with plane.measured() as costs:
        for _ in range(QUESTIONS):
            await ask()
    found.figures[f"{name}_seconds"] = seconds = costs.seconds / QUESTIONS
    found.figures[f"{name}_cpu_seconds"] = cpu = costs.cpu / QUESTIONS
    found.rows.append((f"{what}, mean and CPU", milliseconds(seconds, cpu)))


async def measure_floor_of_latency(directory: Path, workers: int, count: int, found: Findings) -> None:
    """A create and a placement, one after the other and without anything that decides."""
    await fill(directory, [METAL] * workers)
    async with server(directory, has_scheduler=False) as plane:
        definition = await plane.define("lab")
        await plane.create(definition)
        await asyncio.sleep(SETTLING_SECONDS)
        times = []
        for number in range(count):
            began = time.perf_counter()
            session = await plane.create(definition)
            await plane.place([order(session, number, workers)])
            times.append(time.perf_counter() - began)
        found.times("floor", "floor: a create and a placement", times)


async def measure_latency(directory: Path, workers: int, count: int, found: Findings) -> None:
    """From before the create is sent until the event that the session is SCHEDULED has arrived."""
    await fill(directory, [METAL] * workers)
    async with server(directory, has_scheduler=True) as plane, stream_of(plane) as stream:
        definition = await plane.define("lab")
        await asyncio.sleep(SETTLING_SECONDS)
        times = []
        with plane.measured() as costs:
            for _ in range(count):
                began = time.perf_counter()
                session = await plane.create(definition)
                await stream.until_in([session], stream.placed)
                times.append(stream.placed[session] - began)
        found.times("latency", f"create to SCHEDULED with a free worker, {count} sessions", times)
        found.figures["latency_cpu_seconds"] = cpu = costs.cpu / count
        found.rows.append(("… CPU for each", milliseconds(cpu)))
        found.costs("latency", costs)


@dataclass
class Burst:
    """Clients that create sessions at a steady rate, and one that lists workers meanwhile."""

    plane: Server
    creates: list[float] = field(default_factory=list)
    lists: list[float] = field(default_factory=list)
    sessions: set[str] = field(default_factory=set)

    async def create_all(self, definitions: Sequence[str], count: int, seconds: float) -> None:
        """Each at its time, whether those before it were answered or not."""
        began = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for number in range(count):
                await asyncio.sleep(began + seconds * number / count - time.perf_counter())
                tasks.create_task(self._create(definitions[number % len(definitions)]))

    async def _create(self, definition: str) -> None:
        began = time.perf_counter()
        self.sessions.add(await self.plane.create(definition))
        self.creates.append(time.perf_counter() - began)

    async def list_workers(self) -> None:
        while True:
            began = time.perf_counter()
            await self.plane.call("GET", "/api/workers")
            self.lists.append(time.perf_counter() - began)
            await asyncio.sleep(0.05)


async def measure_burst(directory: Path, workers: int, count: int, seconds: float, found: Findings) -> None:
    """A quarter of the workers is too small for any lab; the others have room for some of the sessions."""
    await fill(directory, [SMALL if number % 4 == 0 else METAL for number in range(workers)])
    async with server(directory, has_scheduler=True) as plane, stream_of(plane) as stream:
        definitions = [await plane.define(f"lab-{cpu}", cpu) for cpu in CPUS]
        await asyncio.sleep(SETTLING_SECONDS)
        burst = Burst(plane)
        with plane.measured() as costs:
            async with asyncio.TaskGroup() as tasks:
                listing = tasks.create_task(burst.list_workers())
                await burst.create_all(definitions, count, seconds)
                created = time.perf_counter()
                await stream.until_in(burst.sessions, stream.placed, stream.explained)
                ended = time.perf_counter()
                listing.cancel()
        unsettled = burst.sessions - stream.placed.keys() - stream.explained.keys()
        placed = len(burst.sessions & stream.placed.keys())
        answers = [
            await plane.call("GET", f"/api/lablet-sessions/{session}/explain")
            for session in sorted(burst.sessions - stream.placed.keys())[:QUESTIONS]
        ]
        found.figures |= {
            "burst_placed": placed,
            "burst_waiting": count - placed,
            "burst_unsettled": len(unsettled),
            "burst_settled_seconds": ended - created,
            "burst_explained": sum(bool(answer["text"]) for answer in answers) / len(answers)
            if answers
            else 1.0,
            "burst_creates_p95_seconds": percentile(burst.creates, 95),
            "burst_lists_p95_seconds": percentile(burst.lists, 95),
        }
        figures = found.figures
        found.rows += [
            (
                f"{count:,} sessions in {seconds:g} s: placed, not placed, of these not explained",
                f"{placed}, {count - placed}, {len(unsettled)}",
            ),
            ("… all placed or explained after the last creation", milliseconds(ended - created)),
            ("… GET /api/workers meanwhile, p95", milliseconds(figures["burst_lists_p95_seconds"])),
            ("… the creates themselves, p95", milliseconds(figures["burst_creates_p95_seconds"])),
        ]
        found.costs("burst", costs)


async def measure(arguments: argparse.Namespace, root: Path) -> Findings:
    found = Findings()
    folders = [root / name for name in ("store", "placements", "floor", "latency", "burst")]
    for folder in folders:
        folder.mkdir()
    store, placements, floor, latency, burst = folders
    await durable_commits(store, found)
    await measure_placements(placements, arguments.workers, arguments.waiting, found)
    await measure_floor_of_latency(floor, arguments.workers, arguments.sessions, found)
    await measure_latency(latency, arguments.workers, arguments.sessions, found)
    await measure_burst(burst, arguments.workers, arguments.burst, arguments.seconds, found)
    figures = found.figures
    found.ratios |= {
        "placements / 500 per second (goal: at least 1)": figures["placements_per_second"] / 500,
        "placements / durable writes of the store": (
            figures["placements_per_second"] / figures["grouped_writes_per_second"]
        ),
        "p99 to SCHEDULED / 100 ms (goal: at most 1)": figures["latency_p99_seconds"] / 0.1,
        "p50 to SCHEDULED / the floor's p50": figures["latency_p50_seconds"] / figures["floor_p50_seconds"],
        "p99 to SCHEDULED / the floor's p99": figures["latency_p99_seconds"] / figures["floor_p99_seconds"],
        "burst settled / 10 s (goal: at most 1)": figures["burst_settled_seconds"] / 10,
        "burst neither placed nor explained (goal: 0)": figures["burst_unsettled"],
        "burst, lists p95 / 500 ms (goal: at most 1)": figures["burst_lists_p95_seconds"] / 0.5,
        "burst, creates p95 / 500 ms (goal: at most 1)": figures["burst_creates_p95_seconds"] / 0.5,
    }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--waiting", type=int, default=1_000, help="sessions beside the question")
    parser.add_argument("--sessions", type=int, default=300, help="created one after the other")
    parser.add_argument("--burst", type=int, default=1_000, help="sessions of the burst")
    parser.add_argument("--seconds", type=float, default=10.0, help="in which they are created")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--with-scheduler", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve is not None:
        configure_logging("human")
        collect_rarely()
        uvloop.run(serve(arguments.serve, has_scheduler=arguments.with_scheduler))
        return
    with tempfile.TemporaryDirectory() as root:
        found = uvloop.run(measure(arguments, Path(root)))
    report("scheduling", found.rows, found.ratios, found.figures)


if __name__ == "__main__":
    main()
