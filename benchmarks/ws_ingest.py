"""The cost of a frame of CML's live feed: our monitors, the straightforward client, and the limit.

A server in another process sends the same frames over TLS to three kinds of clients, each in a process
of its own:

- ours: registry, monitors, protocol, reporter (into the void) – everything between the socket and the report;
- reference: `websockets` + `json.loads` + nested dataclasses, with one shared TLS context and no compression;
- limit: picows, frames counted and dropped.

Saturated, the server writes eight events at once so that the client is the bottleneck; one client after the
other, in alternating rounds. Other load of the host only makes a client slower, so the best round of
each counts. Steady, each connection gets 0.9 frames a second, as from a real server with two labs. This is a
small load, so ours and the limit are measured in the same seconds, and the median of their ratios counts.
CPU is user + system time of the client's process, whose collector is set as in the product.
"""

import argparse
import asyncio
import json
import multiprocessing
import multiprocessing.connection
import os
import random
import resource
import ssl
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import msgspec
import uvloop
from picows import WSFrame, WSListener, WSMsgType, WSTransport, WSUpgradeRequest, ws_connect, ws_create_server

from lcm.cli.process import collect_rarely
from lcm.cml.connection import JSON, CmlAnswer, OnPiece
from lcm.cml.session import Credentials
from lcm.cml.sessions import CmlServer, CmlSessions
from lcm.cml.tls import CmlTls
from lcm.core.clock import SystemClock
from lcm.core.health import Health
from lcm.core.ids import RandomIds
from lcm.core.telemetry import configure_logging
from lcm.domain.errors import NotFound
from lcm.domain.launch import WorkerId
from lcm.domain.worker import CmlHealth, CmlLicense, Worker
from lcm.rest.schemas import CmlCredentials, LiveReceipt, LiveReports, WebSocketReport
from lcm.simulator.cml.certificate import self_signed_context
from lcm.worker_controller.adapters.picows_websocket import PicowsWebSockets
from lcm.worker_controller.monitoring.config import MonitoringConfig
from lcm.worker_controller.monitoring.registry import CmlWebSocketMonitorRegistry
from lcm.worker_controller.monitoring.reporter import LiveReporter
from lcm.worker_controller.ports import MonitorTarget, ReportedActivity
from report import report

HOST = "127.0.0.1"
EVENTS_PER_WRITE = 8
STEADY_FRAMES_PER_SECOND = 0.9
SETTLING = 12.0
"""Seconds after which every new connection has caught up and reported once."""
REPORT_CYCLE = 10.0
"""Seconds in which each worker and each lab is reported once."""
LABS = ("11111111-52be-4c19-9a44-0be6f1a2d935", "22222222-52be-4c19-9a44-0be6f1a2d935")

# The frames: 37 % load of the system, 55 % load of labs, 8 % changes; 2.6 KB on average.


def frames() -> list[bytes]:
    """A hundred frames in the mix of a real server, in an order that is always the same."""
    host = {
        "hostname": "cml-controller",
        "is_controller": True,
        "stats": {
            "cpu": {
                "count": 16,
                "percent": 7.25,
                "model": "Some CPU @ 2.60GHz",
                "load": [0.42, 0.38, 0.31],
            },
            "memory": {"total": 68719476736, "free": 51539607552, "used": 17179869184},
            "disk": {"total": 214748364800, "free": 161061273600, "used": 53687091200},
            "dominfo": {
                "allocated_cpus": 4,
                "allocated_memory": 4194304,
                "total_nodes": 6,
                "running_nodes": 4,
            },
        },
    }
    room = {"used": 17179869184, "free": 51539607552, "total": 68719476736}
    system = {
        "event_type": "system_stats",
        "data": {
            "computes": {f"{n}7d1f0c3-52be-4c19-9a44-0be6f1a2d935": host for n in range(4)},
            "all": {"cpu": {"count": 64, "percent": 7.25}, "memory": room, "disk": room},
            "controller": {"disk": room},
        },
    }
    node = {
        "cpu_usage": 3.1,
        "ram_usage": 22.0,
        "disk_usage": 40,
        "block0_rd_bytes": 912345,
        "block0_wr_bytes": 712345,
        "times": {"QUEUED": 1, "STARTED": 60, "BOOTED": 35},
    }
    link = {"readbytes": 1234, "readpackets": 12, "writebytes": 4321, "writepackets": 21, "drops": 0}
    labs = [
        {
            "event_type": "lab_stats",
            "lab_id": lab,
            "data": {
                "nodes": {f"{n}1c0f0c3-52be-4c19-9a44-0be6f1a2d93{n}": node for n in range(10)},
                "links": {f"{n}aaf0c3a-52be-4c19-9a44-0be6f1a2d93{n}": link for n in range(9)},
            },
        }
        for lab in LABS
    ]
    change = {
        "event_type": "state_change",
        "lab_id": LABS[0],
        "element_type": "node",
        "element_id": "91c0f0c3-52be-4c19-9a44-0be6f1a2d935",
        "event": "BOOTED",
    }
    mix = [system] * 37 + [labs[0]] * 28 + [labs[1]] * 27 + [change] * 8
    random.Random(1).shuffle(mix)
    return [json.dumps(event, separators=(",", ":")).encode() for event in mix]


# The server.


class Sender(WSListener):
    """One connection; frames begin after the first message from the client."""

    def __init__(self, server: "Server") -> None:
        self.server = server
        self.transport: WSTransport | None = None
        self.position = random.Random(id(self)).randrange(100)
        self.is_paused = False

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type is WSMsgType.TEXT and self.transport is None:
            self.transport = transport
            self.server.ready.append(self)
            self.send_one()

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self.transport = None
        with suppress(ValueError):
            self.server.ready.remove(self)

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False

    def send_one(self) -> None:
        if self.transport is not None:
            self.position = (self.position + 1) % 100
            self.transport.send(WSMsgType.TEXT, self.server.frames[self.position])

    def send_many(self) -> None:
        if self.transport is not None and not self.is_paused:
            self.transport.underlying_transport.write(self.server.bursts[self.position])
            self.position = (self.position + 1) % 100


class Server:
    def __init__(self) -> None:
        self.ready: list[Sender] = []
        self.frames = frames()
        framed = [_framed(frame) for frame in self.frames]
        self.bursts = [
            b"".join(framed[(start + n) % 100] for n in range(EVENTS_PER_WRITE)) for start in range(100)
        ]
        self.mode = "quiet"

    async def push(self) -> None:
        while True:
            if self.mode == "flood":
                for sender in list(self.ready):
                    sender.send_many()
                await asyncio.sleep(0)
            elif self.mode == "steady" and self.ready:
                await self._one_steady_second()
            else:
                await asyncio.sleep(0.01)

    async def _one_steady_second(self) -> None:
        """Spread evenly over the second, in steps of ten milliseconds."""
        began, senders = time.perf_counter(), list(self.ready)
        random.shuffle(senders)
        due = senders[: max(1, round(len(senders) * STEADY_FRAMES_PER_SECOND))]
        for step in range(100):
            for sender in due[step::100]:
                sender.send_one()
            await asyncio.sleep(max(0.0, began + (step + 1) / 100 - time.perf_counter()))


def _framed(payload: bytes) -> bytes:
    """An unmasked text frame."""
    size = len(payload)
    head = bytes([0x81, size]) if size < 126 else bytes([0x81, 126]) + size.to_bytes(2, "big")
    return head + payload


def serve(pipe: multiprocessing.connection.Connection) -> None:
    async def main() -> None:
        server = Server()

        def listen(_: WSUpgradeRequest) -> Sender:
            return Sender(server)

        context = self_signed_context("cml", None)
        listening = await ws_create_server(
            listen, HOST, 0, ssl=context, websocket_handshake_timeout=120, backlog=4096
        )
        pipe.send(listening.sockets[0].getsockname()[1])
        asyncio.get_running_loop().add_reader(pipe.fileno(), lambda: setattr(server, "mode", pipe.recv()))
        await server.push()

    with suppress(EOFError, KeyboardInterrupt):
        uvloop.run(main())


# The clients. Each connects, then counts frames.


class Counter:
    def __init__(self) -> None:
        self.frames = 0


async def connect_limit(port: int, connections: int, context: ssl.SSLContext) -> Callable[[], int]:
    count = Counter()

    class Dropping(WSListener):
        def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
            count.frames += 1

    async def one() -> None:
        transport, _ = await ws_connect(Dropping, f"wss://{HOST}:{port}/ws/ui", ssl_context=context)
        transport.send(WSMsgType.TEXT, b'{"token":"x"}')

    await _some_at_once([one() for _ in range(connections)])
    return lambda: count.frames


class VoidControlPlane:
    """Takes everything and keeps nothing."""

    def __init__(self) -> None:
        self.bytes = 0

    async def list_resources(self) -> list[Worker]:
        return []

    async def report_worker_metrics(self, reports: LiveReports) -> LiveReceipt:
        self.bytes += len(msgspec.json.encode(reports))
        return LiveReceipt(accepted=0, dropped=0)

    async def get_cml_login(self, worker_id: WorkerId) -> CmlCredentials:
        raise NotFound(worker_id)

    async def report_ws_status(self, worker_id: WorkerId, report: WebSocketReport) -> Worker:
        return None  # type: ignore[return-value]

    async def report_cml_health(
        self, worker: Worker, health: CmlHealth | None, license_: CmlLicense | None
    ) -> Worker:
        return worker


class TokenTransport:
    """Answers a login and empty telemetry at once: this benchmark is about frames."""

    async def request(
        self,
        method: str,
        host: str,
        path: str,
        pinned_sha256: str | None,
        *,
        token: str | None = None,
        body: bytes | None = None,
        content_type: str | None = JSON,
        timeout_seconds: float | None = None,
        on_piece: OnPiece | None = None,
    ) -> CmlAnswer:
        if on_piece is not None:
            on_piece(b"[]")
        return CmlAnswer(b'"token"' if method == "POST" else b"[]", None)


async def connect_ours(port: int, connections: int, context: ssl.SSLContext) -> Callable[[], int]:
    clock = SystemClock()
    # Connecting thousands takes longer here than a real server stays silent.
    config = MonitoringConfig(handshakes_per_second=10_000, health_timeout=3_600, ping_after=3_600)
    health = Health(clock)
    control_plane = VoidControlPlane()
    reporter = LiveReporter(control_plane, config, clock, health)
    registry = CmlWebSocketMonitorRegistry(
        PicowsWebSockets(context, port, timeout_seconds=120),
        CmlSessions(TokenTransport(), Credentials("x", "x"), control_plane, clock),
        reporter,
        config,
        clock=clock,
        ids=RandomIds(),
        chance=random.Random(1),
        health=health,
    )
    _KEPT.append(asyncio.create_task(reporter.run()))
    _KEPT.append(asyncio.create_task(registry.run()))
    await asyncio.sleep(0)
    for number in range(connections):
        worker_id = WorkerId(f"w-{number}")
        reported = ReportedActivity(clock.now())
        registry.ensure_monitoring(
            MonitorTarget(CmlServer(worker_id, None, HOST, None, None), "2.9.1", reported)
        )
    while not all(monitor.is_connected for monitor in registry.monitors):
        await asyncio.sleep(0.05)

    def count() -> int:
        return sum(ledger.messages.total for ledger in registry.activity_logs.values())

    return count


_KEPT: list[Any] = []


@dataclass
class _Cpu:
    count: int
    percent: float


@dataclass
class _Room:
    used: int
    free: int
    total: int


@dataclass
class _Host:
    hostname: str
    cpu: _Cpu
    memory: _Room
    disk: _Room
    running_nodes: int


@dataclass
class _System:
    cpu: _Cpu
    memory: _Room
    disk: _Room
    hosts: dict[str, _Host]


@dataclass
class _Node:
    cpu_usage: float
    ram_usage: float
    disk_usage: float


@dataclass
class _Link:
    readbytes: int
    writebytes: int


@dataclass
class _Lab:
    nodes: dict[str, _Node]
    links: dict[str, _Link]


def _room(data: dict[str, Any]) -> _Room:
    return _Room(data.get("used", 0), data.get("free", 0), data.get("total", 0))


def _cpu(data: dict[str, Any]) -> _Cpu:
    return _Cpu(data.get("count", 0), data.get("percent", 0.0))


class NaiveMonitor:
    """The straightforward client: decode everything, build objects, keep the newest, report now and then."""

    def __init__(self) -> None:
        self.system: _System | None = None
        self.labs: dict[str, _Lab] = {}
        self.activity: list[dict[str, Any]] = []
        self.reported_at = 0.0

    def feed(self, text: str) -> None:
        event = json.loads(text)
        kind, data = event.get("event_type"), event.get("data", {})
        if kind == "system_stats":
            whole = data.get("all", {})
            hosts = {}
            for host_id, host in data.get("computes", {}).items():
                stats = host.get("stats", {})
                hosts[host_id] = _Host(
                    host.get("hostname", ""),
                    _cpu(stats.get("cpu", {})),
                    _room(stats.get("memory", {})),
                    _room(stats.get("disk", {})),
                    stats.get("dominfo", {}).get("running_nodes", 0),
                )
            self.system = _System(
                _cpu(whole.get("cpu", {})),
                _room(whole.get("memory", {})),
                _room(whole.get("disk", {})),
                hosts,
            )
            if time.monotonic() - self.reported_at > 10:
                self.reported_at = time.monotonic()
        elif kind == "lab_stats":
            self.labs[event.get("lab_id", "")] = _Lab(
                {
                    node_id: _Node(
                        node.get("cpu_usage", 0.0), node.get("ram_usage", 0.0), node.get("disk_usage", 0)
                    )
                    for node_id, node in data.get("nodes", {}).items()
                },
                {
                    link_id: _Link(link.get("readbytes", 0), link.get("writebytes", 0))
                    for link_id, link in data.get("links", {}).items()
                },
            )
        elif kind == "state_change" and event.get("event") in ("QUEUED", "STARTED"):
            self.activity.append(event)


async def connect_reference(port: int, connections: int, context: ssl.SSLContext) -> Callable[[], int]:
    from websockets.asyncio.client import connect

    count = Counter()

    async def listen(connected: asyncio.Event) -> None:
        monitor = NaiveMonitor()
        async with connect(
            f"wss://{HOST}:{port}/ws/ui", ssl=context, compression=None, ping_interval=None, open_timeout=120
        ) as socket:
            await socket.send('{"token":"x"}')
            connected.set()
            async for message in socket:
                monitor.feed(str(message))
                count.frames += 1

    async def one() -> None:
        connected = asyncio.Event()
        _KEPT.append(asyncio.create_task(listen(connected)))
        await connected.wait()

    await _some_at_once([one() for _ in range(connections)])
    return lambda: count.frames


async def _some_at_once(work: list[Any]) -> None:
    for start in range(0, len(work), 50):
        await asyncio.gather(*work[start : start + 50])


CLIENTS = {"ours": connect_ours, "reference": connect_reference, "limit": connect_limit}


@dataclass
class Measured:
    microseconds_per_frame: float
    frames_per_second: float
    kilobytes_per_connection: float


def run_client(kind: str, port: int, connections: int, pipe: multiprocessing.connection.Connection) -> None:
    """Connect, then measure as often as the parent says, until it hangs up."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        context = CmlTls().context()
        before = _resident_kilobytes()
        count = await CLIENTS[kind](port, connections, context)
        pipe.send("connected")
        while True:
            seconds = await loop.run_in_executor(None, pipe.recv)
            if seconds is None:
                return
            frames_before, cpu_before, began = count(), time.process_time(), time.perf_counter()
            await asyncio.sleep(seconds)
            cpu, came = time.process_time() - cpu_before, count() - frames_before
            elapsed = time.perf_counter() - began
            memory = (_resident_kilobytes() - before) / connections
            pipe.send(Measured(cpu / max(came, 1) * 1e6, came / elapsed, memory))

    configure_logging("human", "WARNING")
    collect_rarely()
    uvloop.install()
    with suppress(EOFError, KeyboardInterrupt):
        asyncio.run(main())
    os._exit(0)


def _resident_kilobytes() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1024


class Client:
    """A fresh process, connected while the server is quiet, measured while it sends."""

    def __init__(self, kind: str, port: int, connections: int) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.Process(target=run_client, args=(kind, port, connections, theirs))
        self._process.start()
        self._pipe.recv()

    def begin(self, seconds: float) -> None:
        self._pipe.send(seconds)

    def measured(self) -> Measured:
        measured: Measured = self._pipe.recv()
        return measured

    def end(self) -> None:
        self._process.kill()
        self._process.join()


def alone(kind: str, port: int, server: Any, connections: int, mode: str, seconds: float) -> Measured:
    """One client after the other: at saturation each takes all there is."""
    client = Client(kind, port, connections)
    server.send(mode)
    time.sleep(SETTLING if mode == "steady" else 1.0)
    client.begin(seconds)
    measured = client.measured()
    server.send("quiet")
    client.end()
    time.sleep(0.3)
    return measured


def side_by_side(
    kinds: tuple[str, ...], port: int, server: Any, connections: int, rounds: int
) -> dict[str, list[Measured]]:
    """Run all of them in the same seconds: other load on the host affects each of them."""
    clients = {kind: Client(kind, port, connections) for kind in kinds}
    server.send("steady")
    time.sleep(SETTLING)
    measured: dict[str, list[Measured]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for client in clients.values():
            client.begin(REPORT_CYCLE)
        for kind, client in clients.items():
            measured[kind].append(client.measured())
    server.send("quiet")
    for client in clients.values():
        client.end()
    time.sleep(0.3)
    return measured


def measure(arguments: argparse.Namespace) -> None:
    multiprocessing.set_start_method("spawn")
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    here, there = multiprocessing.Pipe()
    serving = multiprocessing.Process(target=serve, args=(there,), daemon=True)
    serving.start()
    port = here.recv()
    saturated: dict[str, list[Measured]] = {kind: [] for kind in CLIENTS}
    try:
        for _ in range(arguments.rounds):
            for kind, rounds in saturated.items():
                rounds.append(alone(kind, port, here, arguments.connections, "flood", arguments.seconds))
        steady = side_by_side(("ours", "limit"), port, here, arguments.steady_connections, arguments.rounds)
        at_rest = alone("ours", port, here, arguments.connections, "steady", REPORT_CYCLE)
    finally:
        serving.kill()
        serving.join()

    def cost(rounds: list[Measured]) -> float:
        return min(measured.microseconds_per_frame for measured in rounds)

    ours, reference, floor = (cost(saturated[kind]) for kind in ("ours", "reference", "limit"))
    steady_ours, steady_floor = (
        statistics.median(measured.microseconds_per_frame for measured in steady[kind])
        for kind in ("ours", "limit")
    )
    steady_ratio = statistics.median(
        mine.microseconds_per_frame / least.microseconds_per_frame
        for mine, least in zip(steady["ours"], steady["limit"], strict=True)
    )
    flooded = max(measured.kilobytes_per_connection for measured in saturated["ours"])
    resting = at_rest.kilobytes_per_connection
    rate = statistics.median(measured.frames_per_second for measured in steady["ours"])
    report(
        "ws_ingest",
        [
            ("connections saturated / steady", f"{arguments.connections} / {arguments.steady_connections}"),
            ("saturated: ours", f"{ours:.2f} us of CPU per frame"),
            ("saturated: reference", f"{reference:.2f} us"),
            ("saturated: limit", f"{floor:.2f} us"),
            ("steady: ours", f"{steady_ours:.1f} us at {rate:.0f} frames/s"),
            ("steady: limit", f"{steady_floor:.1f} us"),
            ("memory per connection, steady", f"{resting:.0f} KB"),
            ("memory per connection, flooded", f"{flooded:.0f} KB"),
        ],
        ratios={
            "saturated: ours / limit (goal: at most 1.5)": ours / floor,
            "saturated: reference / ours (goal: at least 12)": reference / ours,
            "steady: ours / limit (goal: at most 1.4)": steady_ratio,
            "memory: steady / 80 KB (goal: at most 1)": resting / 80,
            "memory: flooded / 256 KB (goal: at most 1)": flooded / 256,
        },
        figures={
            "connections": arguments.connections,
            "steady_connections": arguments.steady_connections,
            "ours_us": ours,
            "reference_us": reference,
            "limit_us": floor,
            "steady_ours_us": steady_ours,
            "steady_limit_us": steady_floor,
            "steady_kb_per_connection": resting,
            "flooded_kb_per_connection": flooded,
        },
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=1_000, help="while saturated")
    parser.add_argument("--steady-connections", type=int, default=5_000)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    measure(parser.parse_args())
