"""CPU for one metrics report on each side of the wire: fifty in a request, and one at a time.

The server is the control plane on SQLite in a process of its own, with everything a real report meets:
the key, the epoch, validation, the live table, the event stream. The client is the controllers' own
transport.
"""

import asyncio
import resource
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import uvloop
from msgspec.structs import replace

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
from lcm.rest.schemas import LeadershipClaim, LiveReports
from lcm.web.server import HttpServer
from report import report

WORKERS = 50
BATCHES = 400
SINGLES = 2_000
KEY = "benchmark"
HEADERS = {"X-API-Key": KEY, "X-LCM-Service": "worker-controller", "X-LCM-Epoch": "1"}
START = datetime(2026, 1, 1, tzinfo=UTC)


def used_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def serve(directory: Path) -> None:
    """Print the port, then the CPU used so far for every line that is read."""
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
                now=START,
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
        server = HttpServer("benchmark", parts.app, "127.0.0.1", 0)
        lines = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(server.run())
            print(server.port, flush=True)
            while await lines.readline():
                print(used_cpu(), flush=True)
            serving.cancel()


def a_sample(worker: int, second: int) -> Sample:
    return Sample(
        worker_id=WorkerId(f"worker-{worker}"),
        collected_at=START + timedelta(seconds=second),
        source=SampleSource.WEBSOCKET,
        cpu_utilization=12.5,
        memory_utilization=43.75,
        disk_utilization=61.0,
        nodes_count=14,
    )


async def post(transport: HttpTransport, path: str, body: bytes) -> None:
    status, answer = await transport.send("POST", f"/api/internal{path}", HEADERS, body)
    assert status == 200, answer


async def measure(directory: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--serve", str(directory), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    output, commands = process.stdout, process.stdin
    assert output is not None
    assert commands is not None

    async def server_cpu() -> float:
        commands.write(b"\n")
        return float(await output.readline())

    async with HttpTransport(f"http://127.0.0.1:{int(await output.readline())}") as transport:
        claim = LeadershipClaim(
            service="worker-controller", cluster_id="c", revision=1, instance_id="benchmark"
        )
        await post(transport, "/leadership", msgspec.json.encode(claim))

        async def batch(second: int) -> None:
            reports = LiveReports(samples=[a_sample(worker, second) for worker in range(WORKERS)])
            await post(transport, "/workers/metrics", msgspec.json.encode(reports))

        async def single(second: int) -> None:
            reports = LiveReports(samples=[a_sample(0, second)])
            await post(transport, "/workers/metrics", msgspec.json.encode(reports))

        costs = []
        for send, count, first in ((batch, BATCHES, 100), (single, SINGLES, 100_000)):
            for second in range(50):
                await send(first - 50 + second)  # warm
            server_before, client_before = await server_cpu(), used_cpu()
            for second in range(count):
                await send(first + second)
            costs.append((await server_cpu() - server_before, used_cpu() - client_before))
    commands.close()
    await process.wait()
    in_batches = [cpu / (BATCHES * WORKERS) * 1e6 for cpu in costs[0]]
    alone = [cpu / SINGLES * 1e6 for cpu in costs[1]]
    report(
        "report_path",
        [
            (f"control plane, {WORKERS} in a request", f"{in_batches[0]:.2f} µs a report"),
            ("control plane, one in a request", f"{alone[0]:.0f} µs a report"),
            (f"controller, {WORKERS} in a request", f"{in_batches[1]:.2f} µs a report"),
            ("controller, one in a request", f"{alone[1]:.0f} µs a report"),
        ],
        ratios={
            "control plane, alone / in batches": alone[0] / in_batches[0],
            "controller, alone / in batches": alone[1] / in_batches[1],
            "control plane / 10 µs (goal: at most 1)": in_batches[0] / 10,
            "controller / 10 µs (goal: at most 1)": in_batches[1] / 10,
        },
        figures={
            "server_us_in_batches": in_batches[0],
            "server_us_alone": alone[0],
            "client_us_in_batches": in_batches[1],
            "client_us_alone": alone[1],
        },
    )


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        uvloop.run(serve(Path(sys.argv[2])))
        return
    with tempfile.TemporaryDirectory() as directory:
        uvloop.run(measure(Path(directory)))


if __name__ == "__main__":
    main()
