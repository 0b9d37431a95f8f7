"""CPU for one metrics report on each side of the wire: fifty in a request, and one at a time.

The server is the control plane on SQLite in a process of its own, with everything a real report meets:
the key, the epoch, validation, the live table, the history of load, the event stream. The client is the
controllers' own transport. The floor of the server is a route of Starlette that validates the same bodies and
keeps nothing; the floor of the client is aiohttp alone, which sends them to that route.
"""

import asyncio
import resource
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import msgspec
import uvloop
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lcm.control_plane.access.roles import AccessKeys
from lcm.control_plane.access.sealing import SecretBox
from lcm.control_plane.access.secrets import SecretStore
from lcm.control_plane.main import assemble
from lcm.control_plane.policies import Policies
from lcm.control_plane.records.workers import Workers
from lcm.control_plane.store.sqlite import SqliteStore
from lcm.core.clock import SystemClock
from lcm.core.ids import RandomIds
from lcm.core.kv.memory import MemoryKv
from lcm.domain.launch import WorkerId
from lcm.domain.lifecycle import RUNNING
from lcm.domain.telemetry import Sample, SampleSource
from lcm.domain.worker import new_worker
from lcm.rest.client import HttpTransport
from lcm.rest.schemas import LeadershipClaim, LiveReceipt, LiveReports
from lcm.web.server import HttpServer
from report import report

WORKERS = 50
BATCHES = 400
SINGLES = 2_000
KEY = "benchmark"
HEADERS = {"X-API-Key": KEY, "X-LCM-Service": "worker-controller", "X-LCM-Epoch": "1"}
METRICS = "/api/internal/workers/metrics"

Send = Callable[[bytes], Awaitable[None]]


def used_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def serve(server: HttpServer) -> None:
    """Print the port, then the CPU used so far for every line that is read."""
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(server.run())
        print(server.port, flush=True)
        while await lines.readline():
            print(used_cpu(), flush=True)
        serving.cancel()


async def serve_ours(directory: Path) -> None:
    clock, ids = SystemClock(), RandomIds()
    async with SqliteStore(directory / "lcm.db") as store:
        for number in range(WORKERS):
            worker = new_worker(
                worker_id=WorkerId(f"worker-{number}"),
                name=f"worker-{number}",
                template_name="small",
                aws_region="us-east-1",
                tags={},
                by="benchmark",
                now=clock.now(),
            )
            await Workers(store).add(replace(worker, status=RUNNING))
        parts = assemble(
            store,
            MemoryKv(clock, ids),
            AccessKeys("v", "o", "a", KEY),
            clock=clock,
            ids=ids,
            policies=Policies(regions=(), default_region=""),
            secrets=SecretStore(store, SecretBox.of(bytes(32))),
        )
        await serve(HttpServer("ours", parts.app, "127.0.0.1", 0))


async def serve_bare() -> None:
    decoder = msgspec.json.Decoder(LiveReports)

    async def take(request: Request) -> Response:
        reports = decoder.decode(await request.body())
        receipt = LiveReceipt(accepted=len(reports.samples), dropped=0)
        return Response(msgspec.json.encode(receipt), media_type="application/json")

    app = Starlette(routes=[Route(METRICS, take, methods=["POST"])])
    await serve(HttpServer("bare", app, "127.0.0.1", 0))


def a_sample(worker: int) -> Sample:
    """The present load: an older sample is no news."""
    return Sample(
        worker_id=WorkerId(f"worker-{worker}"),
        collected_at=datetime.now(UTC),
        source=SampleSource.WEBSOCKET,
        cpu_utilization=12.5,
        memory_utilization=43.75,
        disk_utilization=61.0,
        network_in_bytes=1200.0,
        network_out_bytes=3400.0,
        nodes_count=14,
    )


class Server:
    """A server process and the CPU that it used."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process = process
        self.url = f"http://127.0.0.1:{port}"

    async def used_cpu(self) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        return float(await self._process.stdout.readline())


@asynccontextmanager
async def server(*arguments: str) -> AsyncIterator[Server]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--serve", *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    yield Server(process, int(await process.stdout.readline()))
    process.stdin.close()
    await process.wait()


async def cost(running: Server, send: Send, *, workers: int, requests: int) -> tuple[float, float]:
    """Microseconds of CPU for each report, at the server and here."""

    async def report_once() -> None:
        await send(msgspec.json.encode(LiveReports(samples=[a_sample(worker) for worker in range(workers)])))

    for _ in range(50):
        await report_once()  # warm
    server_before, client_before = await running.used_cpu(), used_cpu()
    for _ in range(requests):
        await report_once()
    used = await running.used_cpu() - server_before, used_cpu() - client_before
    at_server, here = (cpu / (requests * workers) * 1e6 for cpu in used)
    return at_server, here


async def both_costs(running: Server, send: Send) -> tuple[tuple[float, float], tuple[float, float]]:
    """In batches, and alone."""
    return (
        await cost(running, send, workers=WORKERS, requests=BATCHES),
        await cost(running, send, workers=1, requests=SINGLES),
    )


async def ours(directory: Path) -> tuple[tuple[float, float], tuple[float, float]]:
    async with server("ours", str(directory)) as running, HttpTransport(running.url) as transport:

        async def post(path: str, body: bytes) -> None:
            status, answer = await transport.send("POST", path, HEADERS, body)
            assert status == 200, answer

        claim = LeadershipClaim(
            service="worker-controller", cluster_id="c", revision=1, instance_id="benchmark"
        )
        await post("/api/internal/leadership", msgspec.json.encode(claim))
        return await both_costs(running, lambda body: post(METRICS, body))


async def bare() -> tuple[tuple[float, float], tuple[float, float]]:
    async with server("bare") as running, aiohttp.ClientSession() as session:

        async def post(body: bytes) -> None:
            async with session.post(running.url + METRICS, data=body, headers=HEADERS) as response:
                await response.read()

        return await both_costs(running, post)


async def measure(directory: Path) -> None:
    (in_batches, alone), (bare_in_batches, bare_alone) = await ours(directory), await bare()
    report(
        "report_path",
        [
            (f"control plane, {WORKERS} in a request", f"{in_batches[0]:.2f} µs a report"),
            ("… bare Starlette with msgspec", f"{bare_in_batches[0]:.2f} µs a report"),
            ("control plane, one in a request", f"{alone[0]:.0f} µs a report"),
            ("… bare Starlette with msgspec", f"{bare_alone[0]:.0f} µs a report"),
            (f"controller, {WORKERS} in a request", f"{in_batches[1]:.2f} µs a report"),
            ("… bare aiohttp", f"{bare_in_batches[1]:.2f} µs a report"),
            ("controller, one in a request", f"{alone[1]:.0f} µs a report"),
            ("… bare aiohttp", f"{bare_alone[1]:.0f} µs a report"),
        ],
        ratios={
            "control plane, alone / in batches": alone[0] / in_batches[0],
            "controller, alone / in batches": alone[1] / in_batches[1],
            "control plane / bare, in batches (goal: at most 2)": in_batches[0] / bare_in_batches[0],
            "controller / bare, in batches (goal: at most 2)": in_batches[1] / bare_in_batches[1],
        },
        figures={
            "server_us_in_batches": in_batches[0],
            "server_us_alone": alone[0],
            "client_us_in_batches": in_batches[1],
            "client_us_alone": alone[1],
            "bare_server_us_in_batches": bare_in_batches[0],
            "bare_client_us_in_batches": bare_in_batches[1],
        },
    )


def main() -> None:
    match sys.argv[1:]:
        case ["--serve", "ours", directory]:
            uvloop.run(serve_ours(Path(directory)))
        case ["--serve", "bare"]:
            uvloop.run(serve_bare())
        case _:
            with tempfile.TemporaryDirectory() as directory:
                uvloop.run(measure(Path(directory)))


if __name__ == "__main__":
    main()
