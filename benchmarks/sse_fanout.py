"""Server CPU for each event delivered to a browser, and what browsers that stop reading cost.

Both servers run in their own process behind uvicorn and publish the same samples. Ours is the control
plane's own application. The reference does the obvious: a queue for each subscriber, a task and an
`asyncio.wait` for each event, `json.dumps` for each delivery.
"""

import asyncio
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from lcm.control_plane.access.roles import AccessKeys
from lcm.control_plane.access.sealing import SecretBox
from lcm.control_plane.access.secrets import SecretStore
from lcm.control_plane.main import Limits, assemble
from lcm.control_plane.policies import Policies
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.streaming.outbox import SEND_BUFFER_BYTES
from lcm.core.clock import SystemClock
from lcm.core.ids import RandomIds
from lcm.core.kv.memory import MemoryKv
from lcm.domain.launch import WorkerId
from lcm.domain.telemetry import Sample, SampleSource
from lcm.web.server import HttpServer
from report import percentile, report

SUBSCRIBERS = 1_000
EVENTS_PER_SECOND = 10
SECONDS = 8
HEALTHY = 980
STALLED = 20
STALL_SECONDS = 20
STALL_EVENTS_PER_SECOND = 10
NOTE = "x" * 6_000
TOKEN = "benchmark"
REQUEST = (
    f"GET /api/events/stream?batch=true HTTP/1.1\r\nHost: b\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
)

Publish = Callable[[], None]


def a_sample() -> Sample:
    return Sample(
        worker_id=WorkerId("6b1f7a3e-4a52-4a0e-9d7c-1f2e3d4c5b6a"),
        collected_at=datetime.now(UTC),
        source=SampleSource.WEBSOCKET,
        cpu_utilization=12.5,
        memory_utilization=43.75,
        disk_utilization=61.0,
        labs_count=2,
        nodes_count=14,
    )


# The servers, each in a process of its own.


def ours() -> tuple[HttpServer, Publish, Publish]:
    clock, ids = SystemClock(), RandomIds()
    store = MemoryStore()
    parts = assemble(
        store,
        MemoryKv(clock, ids),
        AccessKeys(TOKEN, "o", "a", "c"),
        clock=clock,
        ids=ids,
        policies=Policies(regions=(), default_region=""),
        secrets=SecretStore(store, SecretBox.of(bytes(32))),
        limits=Limits(streams_per_principal=1_000_000),
    )

    def publish_change() -> None:
        parts.hub.publish("worker.lab.state_change", {"worker_id": "w", "note": NOTE, "at": time.monotonic()})

    server = HttpServer("ours", parts.app, "127.0.0.1", 0, send_buffer_bytes=SEND_BUFFER_BYTES)
    return server, lambda: parts.hub.on_sample(a_sample()), publish_change


def naive() -> tuple[HttpServer, Publish, Publish]:
    queues: set[asyncio.Queue[dict[str, Any]]] = set()

    def publish() -> None:
        data = json.loads(msgspec.json.encode(a_sample()))
        for queue in queues:
            queue.put_nowait({"event": "worker.metrics.updated", "data": data})

    async def events(request: Request) -> AsyncIterator[str]:
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        queues.add(queue)
        try:
            yield "event: connected\ndata: {}\n\n"
            while True:
                getter = asyncio.ensure_future(queue.get())
                done, _ = await asyncio.wait({getter}, timeout=30)
                if not done:
                    getter.cancel()
                    yield "event: heartbeat\ndata: {}\n\n"
                    continue
                event = getter.result()
                yield f"event: {event['event']}\ndata: {json.dumps(event['data'])}\n\n"
        finally:
            queues.discard(queue)

    async def stream(request: Request) -> Response:
        return StreamingResponse(events(request), media_type="text/event-stream")

    app = Starlette(routes=[Route("/api/events/stream", stream)])
    return HttpServer("naive", app, "127.0.0.1", 0), publish, publish


def used_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


async def serve(server: HttpServer, publish_sample: Publish, publish_change: Publish) -> None:
    """Execute one line at a time: publish so many of a kind so often, and print the cost."""
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(server.run())
        print(server.port, flush=True)
        while line := (await lines.readline()).decode().split():
            kind, rate, seconds = line[0], int(line[1]), float(line[2])
            publish = publish_sample if kind == "sample" else publish_change
            started = time.monotonic()
            for number in range(int(rate * seconds)):
                await asyncio.sleep(max(0.0, started + number / rate - time.monotonic()))
                publish()
            print(json.dumps({"cpu": used_cpu(), "rss": resident_bytes()}), flush=True)
        serving.cancel()


# The browsers, all in this process.


class Browser(asyncio.Protocol):
    """Counts what it is sent, and how late."""

    def __init__(self) -> None:
        self.delivered = 0
        self.lateness: list[float] = []
        self.is_open = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own, which is one by shape only
        self.transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        if not self.is_open.done() and b"event: connected" in data:
            self.is_open.set_result(None)
        self.delivered += data.count(b'"collected_at"')
        start = data.find(b'"at":')
        while start != -1:
            end = data.find(b"}", start)
            if end != -1:
                self.lateness.append(time.monotonic() - float(data[start + 5 : end]))
            start = data.find(b'"at":', start + 5)


class Server:
    """A server process, and the channel that controls it."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process = process
        self.port = port

    async def publish(self, kind: str, rate: int, seconds: float) -> dict[str, float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{kind} {rate} {seconds}\n".encode())
        answer: dict[str, float] = json.loads(await self._process.stdout.readline())
        return answer

    async def browsers(self, count: int) -> list[Browser]:
        loop = asyncio.get_running_loop()
        opened: list[Browser] = []
        for _ in range(count):
            _, browser = await loop.create_connection(Browser, "127.0.0.1", self.port)
            opened.append(browser)
        async with asyncio.timeout(30):
            for browser in opened:
                await browser.is_open
        return opened


@asynccontextmanager
async def server(which: str) -> AsyncIterator[Server]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--serve", which, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    yield Server(process, int(await process.stdout.readline()))
    process.stdin.close()
    await process.wait()


def close(browsers: list[Browser]) -> None:
    for browser in browsers:
        assert browser.transport is not None
        browser.transport.abort()


async def fan_out(which: str) -> tuple[float, float]:
    """Microseconds of server CPU for each delivered event, and the server's memory in MB."""
    async with server(which) as running:
        browsers = await running.browsers(SUBSCRIBERS)
        before = await running.publish("sample", EVENTS_PER_SECOND, 0)
        await running.publish("sample", EVENTS_PER_SECOND, SECONDS)
        expected = EVENTS_PER_SECOND * SECONDS * SUBSCRIBERS
        async with asyncio.timeout(60):
            while sum(browser.delivered for browser in browsers) < expected:
                await asyncio.sleep(0.05)
        after = await running.publish("sample", EVENTS_PER_SECOND, 0)
        close(browsers)
        return (after["cpu"] - before["cpu"]) / expected * 1e6, after["rss"] / 1e6


def queued_in_kernel(port: int, stalled: list[socket.socket]) -> list[int]:
    """Bytes that the server's end of each connection holds, as the kernel counts them."""
    ports = {stalled_end.getsockname()[1] for stalled_end in stalled}
    queued = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        local, remote = (int(address.rpartition(":")[2], 16) for address in fields[1:3])
        if local == port and remote in ports:
            queued.append(int(fields[4].partition(":")[0], 16))
    return queued


async def with_stalled(stalled_count: int) -> tuple[float, float, float]:
    """The healthy ones' p99 in seconds; how much the server grew; the most the kernel holds for one."""
    async with server("ours") as running:
        browsers = await running.browsers(HEALTHY)
        await running.publish("change", STALL_EVENTS_PER_SECOND, 3)
        before = await running.publish("change", STALL_EVENTS_PER_SECOND, STALL_SECONDS)
        stalled = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(stalled_count)]
        for connection in stalled:
            connection.sendall(REQUEST)
        for browser in browsers:
            browser.lateness.clear()
        after = await running.publish("change", STALL_EVENTS_PER_SECOND, STALL_SECONDS)
        lateness = [late for browser in browsers for late in browser.lateness]
        in_kernel = queued_in_kernel(running.port, stalled)
        grown = after["rss"] - before["rss"]
        close(browsers)
        for connection in stalled:
            connection.close()
        return percentile(lateness, 99), grown, max(in_kernel, default=0)


async def measure() -> None:
    ours_us, ours_mb = await fan_out("ours")
    naive_us, naive_mb = await fan_out("naive")
    calm_p99, calm_growth, _ = await with_stalled(0)
    stalled_p99, growth, kernel_bytes = await with_stalled(STALLED)
    server_bytes = max(0.0, growth - calm_growth) / STALLED
    report(
        "sse_fanout",
        [
            ("subscribers x events/s", f"{SUBSCRIBERS:,} x {EVENTS_PER_SECOND}"),
            ("ours, CPU per delivered event", f"{ours_us:.2f} µs"),
            ("ours, memory of the server", f"{ours_mb:.0f} MB"),
            ("naive, CPU per delivered event", f"{naive_us:.2f} µs"),
            ("naive, memory of the server", f"{naive_mb:.0f} MB"),
            (f"{HEALTHY} healthy alone, p99", f"{calm_p99 * 1000:.1f} ms"),
            (f"{HEALTHY} healthy beside {STALLED} stalled, p99", f"{stalled_p99 * 1000:.1f} ms"),
            ("a stalled one in the server", f"{server_bytes / 1024:.0f} KB"),
            ("a stalled one in the kernel, at most", f"{kernel_bytes / 1024:.0f} KB"),
        ],
        ratios={
            "naive / ours, CPU per delivered event": naive_us / ours_us,
            "healthy p99 beside stalled ones / alone": stalled_p99 / calm_p99,
            "healthy p99 beside stalled ones / 1 s (goal: at most 1)": stalled_p99,
            "a stalled one's bytes / 512 KB (goal: at most 1)": (server_bytes + kernel_bytes) / (512 * 1024),
            "CPU per delivered event / 3 µs (goal: at most 1)": ours_us / 3.0,
        },
        figures={
            "ours_us_per_event": ours_us,
            "naive_us_per_event": naive_us,
            "ours_rss_mb": ours_mb,
            "naive_rss_mb": naive_mb,
            "healthy_p99_seconds": calm_p99,
            "healthy_p99_beside_stalled_seconds": stalled_p99,
            "stalled_server_bytes": server_bytes,
            "stalled_kernel_bytes": kernel_bytes,
        },
    )


def main() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    if sys.argv[1:2] == ["--serve"]:
        uvloop.run(serve(*{"ours": ours, "naive": naive}[sys.argv[2]]()))
    else:
        uvloop.run(measure())


if __name__ == "__main__":
    main()
