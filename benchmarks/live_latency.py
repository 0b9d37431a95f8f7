"""How long until people see it: from a node started in a lab to the line in every browser's event stream.

Four processes on real sockets: the simulator with a CML server per worker, over TLS, each with two labs
that run and so about 0.9 frames a second; the worker controller's monitors and reporter; the control
plane on SQLite; and the browsers, which subscribe to what the dashboard subscribes to. The time begins
before the command to start the node is sent, and ends when the bytes of its event are in the browser.
"""

import argparse
import asyncio
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import aiohttp
import msgspec
import uvloop
from msgspec.structs import replace

from lcm.cml.connection import CmlConnections
from lcm.cml.session import Credentials
from lcm.cml.sessions import CmlServer, CmlSessions
from lcm.control_plane.access.roles import AccessKeys
from lcm.control_plane.access.sealing import SecretBox
from lcm.control_plane.access.secrets import SecretStore
from lcm.control_plane.main import Limits, assemble
from lcm.control_plane.policies import Policies
from lcm.control_plane.records.workers import Workers
from lcm.control_plane.store.sqlite import SqliteStore
from lcm.control_plane.streaming.outbox import SEND_BUFFER_BYTES
from lcm.core.clock import SystemClock
from lcm.core.health import Health
from lcm.core.ids import RandomIds
from lcm.core.kv.memory import MemoryKv
from lcm.core.telemetry import configure_logging
from lcm.domain.launch import WorkerId
from lcm.domain.lifecycle import RUNNING
from lcm.domain.worker import Worker, new_worker
from lcm.rest.client import ControlPlaneClient, HttpTransport
from lcm.simulator.main import SimulationInfo
from lcm.web.server import HttpServer
from lcm.worker_controller.adapters.picows_websocket import PicowsWebSockets
from lcm.worker_controller.monitoring.config import MonitoringConfig
from lcm.worker_controller.monitoring.registry import CmlWebSocketMonitorRegistry
from lcm.worker_controller.monitoring.reporter import LiveReporter
from lcm.worker_controller.ports import MonitorTarget, ReportedActivity
from report import percentile, report
from support.processes import running_simulator

KEY, TOKEN = "controllers", "viewer"
LABS = 2
NODES = 3
"""Of each lab: one runs from the beginning, the others are there to be started."""
SETTLING_SECONDS = 6.0
LATE_SECONDS = 10.0
"""An event that has not arrived by then is lost."""
BUCKETS = (10, 20, 30, 40, 50, 75, 100, 200)
"""Milliseconds."""
TYPES = (
    "worker.snapshot,worker.created,worker.status.updated,worker.endpoint.updated,worker.terminated,"
    "worker.activity.updated,worker.labs.updated,worker.metrics.updated,worker.lab.state_change,"
    "lab.status.updated"
)
"""What the dashboard asks for (ui/src/events.ts)."""
CHANGE = re.compile(rb'"element_id":"([^"]+)","event":"QUEUED"')


def worker_id_of(number: int) -> WorkerId:
    return WorkerId(f"worker-{number}")


def a_running_worker(number: int) -> Worker:
    worker = new_worker(
        worker_id=worker_id_of(number),
        name=f"worker-{number}",
        template_name="small",
        aws_region="us-east-1",
        tags={},
        by="benchmark",
        now=datetime.now(UTC),
    )
    return replace(worker, status=RUNNING)


# The two processes under test, controlled by their standard input.


async def lines_of_stdin() -> asyncio.StreamReader:
    lines = asyncio.StreamReader(limit=16 * 1024 * 1024)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    return lines


async def serve_control_plane(directory: Path, workers: int) -> None:
    clock, ids = SystemClock(), RandomIds()
    async with SqliteStore(directory / "lcm.db") as store:
        records = Workers(store)
        async with asyncio.TaskGroup() as tasks:
            for number in range(workers):
                tasks.create_task(records.add(a_running_worker(number)))
        parts = assemble(
            store,
            MemoryKv(clock, ids),
            AccessKeys(TOKEN, "o", "a", KEY),
            clock=clock,
            ids=ids,
            policies=Policies(regions=(), default_region=""),
            secrets=SecretStore(store, SecretBox.of(bytes(32))),
            limits=Limits(streams_per_principal=1_000_000),
        )
        server = HttpServer("control-plane", parts.app, "127.0.0.1", 0, send_buffer_bytes=SEND_BUFFER_BYTES)
        lines = await lines_of_stdin()
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(server.run())
            print(server.port, flush=True)
            await lines.readline()
            serving.cancel()


async def control_workers() -> None:
    """Monitor the servers of the second line for the control plane of the first; print once all are live."""
    lines = await lines_of_stdin()
    control_plane_url = (await lines.readline()).decode().strip()
    simulation = msgspec.json.decode(await lines.readline(), type=SimulationInfo)
    clock, health = SystemClock(), Health(SystemClock())
    # All are new at once, which is rare; connecting them is not what is measured.
    config = MonitoringConfig(handshakes_per_second=200)
    login = Credentials(simulation.cml_username, simulation.cml_password)
    async with (
        HttpTransport(control_plane_url) as transport,
        CmlConnections(simulation.cml_port) as cml,
    ):
        control_plane = ControlPlaneClient(transport, KEY, service="worker-controller", epoch=lambda: 1)
        await control_plane.claim_leadership("benchmark", 1, "benchmark")
        reporter = LiveReporter(control_plane, config, clock, health)
        registry = CmlWebSocketMonitorRegistry(
            PicowsWebSockets(cml.context, simulation.cml_port, timeout_seconds=60),
            CmlSessions(cml, login, control_plane, clock),
            reporter,
            config,
            clock=clock,
            ids=RandomIds(),
            chance=random.Random(1),
            health=health,
        )
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(reporter.run()), tasks.create_task(registry.run())]
            await asyncio.sleep(0)
            for number, worker in enumerate(simulation.workers):
                registry.ensure_monitoring(
                    MonitorTarget(
                        CmlServer(worker_id_of(number), None, worker.private_ip, None, login=None),
                        "2.9.1",
                        ReportedActivity(clock.now()),
                    )
                )
            while not all(monitor.is_connected for monitor in registry.monitors):
                await asyncio.sleep(0.1)
                for monitor in registry.monitors:
                    monitor.retry()
            print("live", flush=True)
            await lines.readline()
            for task in running:
                task.cancel()


@dataclass(frozen=True)
class Child:
    """A process under test."""

    process: asyncio.subprocess.Process

    async def say(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        await self.process.stdin.drain()

    async def line(self) -> str:
        assert self.process.stdout is not None
        return (await self.process.stdout.readline()).decode().strip()

    def costs(self) -> "Costs":
        place = Path("/proc") / str(self.process.pid)
        used, waited, _ = map(int, (place / "schedstat").read_text().split())
        pages = int((place / "statm").read_text().split()[1])
        return Costs(time.perf_counter(), used / 1e9, waited / 1e9, pages * os.sysconf("SC_PAGESIZE") / 1e6)


@dataclass(frozen=True)
class Costs:
    """Of the main thread, which does all but the waiting for the disk."""

    at: float
    core: float
    """Seconds on a core."""
    queue: float
    """Seconds in which it was runnable but other processes ran: outside the program's control."""
    megabytes: float

    def since(self, before: "Costs") -> "Costs":
        """Shares of the time in between."""
        seconds = self.at - before.at
        return Costs(
            seconds,
            (self.core - before.core) / seconds,
            (self.queue - before.queue) / seconds,
            self.megabytes,
        )

    def __str__(self) -> str:
        return f"{self.core:.0%} of a core, waited {self.queue:.0%} for one, {self.megabytes:.0f} MB"


@asynccontextmanager
async def child(*arguments: str) -> AsyncIterator[Child]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        yield Child(process)
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


# The people who start nodes, and their browsers.


@dataclass
class Watch:
    """When each node was started, and how much later each browser got the event."""

    started: dict[bytes, float] = field(default_factory=dict)
    latencies: list[float] = field(default_factory=list)

    def seen(self, node_id: bytes, at: float) -> None:
        if node_id in self.started:
            self.latencies.append(at - self.started[node_id])

    async def until(self, deliveries: int) -> None:
        deadline = time.perf_counter() + LATE_SECONDS
        while len(self.latencies) < deliveries and time.perf_counter() < deadline:
            await asyncio.sleep(0.05)


class Browser(asyncio.Protocol):
    """One EventSource: splits the stream into events, and finds nodes that were started."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._rest = b""
        self.is_open = asyncio.get_running_loop().create_future()
        self.bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        request = (
            f"GET /api/events/stream?batch=true&event_types={TYPES} HTTP/1.1\r\nHost: b\r\n"
            f"Authorization: Bearer {TOKEN}\r\n\r\n"
        )
        cast(asyncio.Transport, transport).write(request.encode())

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self.bytes += len(data)
        if not self.is_open.done() and b"event: connected" in data:
            self.is_open.set_result(None)
        whole, separator, self._rest = (self._rest + data).rpartition(b"\n\n")
        if separator:
            for found in CHANGE.finditer(whole):
                self._watch.seen(found[1], now)


async def open_browsers(port: int, count: int, watch: Watch) -> list[Browser]:
    loop = asyncio.get_running_loop()
    browsers = [
        (await loop.create_connection(lambda: Browser(watch), "127.0.0.1", port))[1] for _ in range(count)
    ]
    async with asyncio.timeout(60):
        for browser in browsers:
            await browser.is_open
    return browsers


@dataclass(frozen=True)
class Node:
    worker: str
    lab_id: str
    node_id: str


class People:
    """Users of the simulated servers."""

    def __init__(self, session: aiohttp.ClientSession, control_url: str) -> None:
        self._session = session
        self._url = control_url

    async def open_labs(self, workers: list[str]) -> list[Node]:
        """Labs on every server, a node of each running; the nodes that are left to be started."""
        places, waiting = asyncio.Semaphore(20), []

        async def open_some(worker: str) -> None:
            async with places:
                waiting.extend(await self._open_labs(worker))

        async with asyncio.TaskGroup() as tasks:
            for worker in workers:
                tasks.create_task(open_some(worker))
        return waiting

    async def _open_labs(self, worker: str) -> list[Node]:
        waiting = []
        for _ in range(LABS):
            lab = await self._post(worker, "labs", {"nodes": NODES})
            nodes = [Node(worker, lab["lab_id"], node_id) for node_id in lab["nodes"]]
            await self.start(nodes[0])
            waiting += nodes[1:]
        return waiting

    async def start(self, node: Node) -> None:
        act = {"action": "start", "lab_id": node.lab_id, "node_id": node.node_id}
        await self._post(node.worker, "acts", act)

    async def _post(self, worker: str, what: str, body: dict[str, Any]) -> dict[str, Any]:
        async with self._session.post(f"{self._url}/workers/{worker}/{what}", json=body) as response:
            assert response.status == 200, await response.text()
            answer: dict[str, Any] = await response.json()
            return answer


async def bare_request(session: aiohttp.ClientSession, port: int) -> float:
    """A round trip to the same control plane that does nothing: the baseline of this host now."""
    began = time.perf_counter()
    async with session.get(
        f"http://127.0.0.1:{port}/api/session", headers={"Authorization": f"Bearer {TOKEN}"}
    ) as response:
        await response.read()
    return time.perf_counter() - began


@dataclass
class Measured:
    latencies: list[float]
    lost: int
    bare: list[float]
    controller: Costs
    control_plane: Costs


async def start_nodes(
    people: People, nodes: list[Node], watch: Watch, seconds: float, bare: Callable[[], Awaitable[float]]
) -> list[float]:
    """Start nodes one after the other, at times independent of every interval under test."""
    chance, latencies = random.Random(2), []
    pause = seconds / len(nodes)
    for node in nodes:
        await asyncio.sleep(chance.expovariate(1 / pause))
        watch.started[node.node_id.encode()] = time.perf_counter()
        await people.start(node)
        latencies.append(await bare())
    return latencies


async def run(arguments: argparse.Namespace, directory: Path) -> Measured:
    async with (
        child("--control-plane", str(directory), str(arguments.workers)) as control_plane,
        child("--controller") as controller,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=20)) as session,
    ):
        with running_simulator("--workers", str(arguments.workers), "--no-people") as simulator:
            port = int(await control_plane.line())
            people = People(session, simulator.info.cml_control_url)
            nodes = await people.open_labs([worker.instance_id for worker in simulator.info.workers])
            await controller.say(f"http://127.0.0.1:{port}".encode())
            await controller.say(msgspec.json.encode(simulator.info))
            assert await controller.line() == "live"
            watch = Watch()
            await open_browsers(port, arguments.browsers, watch)
            await asyncio.sleep(SETTLING_SECONDS)
            costs = controller.costs(), control_plane.costs()
            bare = await start_nodes(
                people,
                random.Random(3).sample(nodes, arguments.nodes),
                watch,
                arguments.seconds,
                lambda: bare_request(session, port),
            )
            expected = arguments.nodes * arguments.browsers
            await watch.until(expected)
            return Measured(
                latencies=watch.latencies,
                lost=expected - len(watch.latencies),
                bare=bare,
                controller=controller.costs().since(costs[0]),
                control_plane=control_plane.costs().since(costs[1]),
            )


def histogram(latencies: list[float]) -> list[tuple[str, str]]:
    rows, below = [], 0.0
    for limit in (*BUCKETS, float("inf")):
        inside = sum(below <= late * 1000 < limit for late in latencies)
        share = inside / len(latencies)
        label = f"{below:g} to {limit:g} ms" if limit < float("inf") else f"{below:g} ms and more"
        rows.append((label, f"{share:6.1%} {'█' * round(40 * share)}"))
        below = limit
    return rows


def measure(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as directory:
        measured = uvloop.run(run(arguments, Path(directory)))
    p50, p99 = percentile(measured.latencies, 50), percentile(measured.latencies, 99)
    bare_p50, bare_p99 = percentile(measured.bare, 50), percentile(measured.bare, 99)
    report(
        "live_latency",
        [
            ("workers x browsers", f"{arguments.workers:,} x {arguments.browsers:,}"),
            ("nodes started", str(arguments.nodes)),
            ("deliveries, and how many were lost", f"{len(measured.latencies):,}, {measured.lost}"),
            *histogram(measured.latencies),
            ("p50 / p99 / max", " / ".join(f"{v * 1000:.1f}" for v in (p50, p99, max(measured.latencies)))),
            ("a bare request meanwhile, p50 / p99", f"{bare_p50 * 1000:.1f} / {bare_p99 * 1000:.1f}"),
            ("controller", str(measured.controller)),
            ("control plane", str(measured.control_plane)),
        ],
        ratios={
            "p99 / 50 ms (goal: at most 1)": p99 / 0.05,
            "p99 / a bare request's p99 in the same run (goal: at most 3)": p99 / bare_p99,
            "controller's CPU / a core (goal: at most 0.35)": measured.controller.core,
            "lost / deliveries (goal: 0)": measured.lost / (measured.lost + len(measured.latencies)),
        },
        figures={
            "workers": arguments.workers,
            "browsers": arguments.browsers,
            "p50_seconds": p50,
            "p99_seconds": p99,
            "max_seconds": max(measured.latencies),
            "bare_p50_seconds": bare_p50,
            "bare_p99_seconds": bare_p99,
            "controller_queue_share": measured.controller.queue,
            "control_plane_queue_share": measured.control_plane.queue,
            "controller_core_share": measured.controller.core,
            "control_plane_core_share": measured.control_plane.core,
            "controller_mb": measured.controller.megabytes,
            "control_plane_mb": measured.control_plane.megabytes,
        },
    )


def main() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    if sys.argv[1:2] == ["--control-plane"]:
        uvloop.run(serve_control_plane(Path(sys.argv[2]), int(sys.argv[3])))
        return
    if sys.argv[1:2] == ["--controller"]:
        configure_logging("human", "ERROR")
        uvloop.run(control_workers())
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1_000)
    parser.add_argument("--browsers", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=300, help="to start, one after the other")
    parser.add_argument("--seconds", type=float, default=20.0, help="in which they are started")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    measure(parser.parse_args())


if __name__ == "__main__":
    main()
