"""CPU for the list of a large fleet, five hundred to a page, by the control plane's own application.

A page is asked for again and again: unchanged, and after a tenth of its workers has changed. The reference
does the obvious: the same records as dictionaries, `json.loads` and `json.dumps`. A controller reads all
records in one answer at each resync; this is measured too.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import uvloop
from msgspec.structs import replace
from starlette.types import ASGIApp

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from lcm.control_plane.access.roles import AccessKeys
from lcm.control_plane.access.sealing import SecretBox
from lcm.control_plane.access.secrets import SecretStore
from lcm.control_plane.main import assemble
from lcm.control_plane.policies import Policies
from lcm.control_plane.records.workers import KIND, Workers
from lcm.control_plane.store.sqlite import SqliteStore
from lcm.core.clock import SystemClock
from lcm.core.ids import RandomIds
from lcm.core.kv.memory import MemoryKv
from lcm.domain.launch import InstanceId, WorkerId
from lcm.domain.lifecycle import RUNNING, STOPPED
from lcm.domain.transitions import move
from lcm.domain.worker import Cml, Worker, WorkerInstance, new_worker
from lcm.rest.schemas import WorkerRecords
from report import percentile, report
from support.asgi import request

PAGE = 500
ROUNDS = 30
CHANGED = 50
"""Workers of each page that change before it is asked for again."""
GOAL_MS = 8.0
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HEADERS = {"Authorization": "Bearer v"}
CONTROLLER = {"X-API-Key": "c", "X-LCM-Service": "worker-controller"}


async def fill(store: SqliteStore, workers: int) -> None:
    for start in range(0, workers, PAGE):
        async with asyncio.TaskGroup() as tasks:
            for number in range(start, min(start + PAGE, workers)):
                tasks.create_task(Workers(store).add(a_worker(number)))


def a_worker(number: int) -> Worker:
    """A worker with a long history."""
    worker = new_worker(
        worker_id=WorkerId(f"6b1f7a3e-4a52-4a0e-9d7c-{number:012d}"),
        name=f"networking-{number:06d}",
        template_name="metal",
        aws_region="us-east-1",
        tags={"team": "networking", "course": "ccna"},
        by="ada",
        now=NOW,
    )
    worker = replace(
        worker,
        status=RUNNING,
        cml=Cml(is_ready=True),
        instance=WorkerInstance(id=InstanceId(f"i-{number:017x}")),
    )
    for _ in range(5):
        for status in (STOPPED, RUNNING):
            worker = move(worker, status, by="controller", reason="as wanted", now=NOW, observed=True)
    return worker


async def change_some(workers: Workers, number: int) -> None:
    """Change a tenth of the workers of each page, other ones each time."""
    every = PAGE // CHANGED
    async with asyncio.TaskGroup() as tasks:
        for worker in (await workers.list_all())[number % every :: every]:
            tasks.create_task(
                workers.change(worker.id, lambda worker: replace(worker, status_reason=f"change {number}"))
            )


def application(store: SqliteStore) -> ASGIApp:
    clock, ids = SystemClock(), RandomIds()
    parts = assemble(
        store,
        MemoryKv(clock, ids),
        AccessKeys("v", "o", "a", "c"),
        clock=clock,
        ids=ids,
        policies=Policies(regions=(), default_region=""),
        secrets=SecretStore(store, SecretBox.of(bytes(32))),
        requests_per_second=1e6,
    )
    return parts.app


async def ours(store: SqliteStore, *, with_changes: bool) -> tuple[list[float], float]:
    """Milliseconds of CPU for each page, and bytes for each worker."""
    app, costs, sizes = application(store), [], []
    for number in range(ROUNDS):
        if with_changes:
            await change_some(Workers(store), number)
        after: str | None = ""
        while after is not None:
            path = f"/api/workers?limit={PAGE}" + (f"&after={after}".replace(" ", "%20") if after else "")
            before = time.process_time()
            status, body = await request(app, "GET", path, HEADERS, None)
            costs.append((time.process_time() - before) * 1e3)
            assert status == 200, body
            page = json.loads(body)
            sizes.append(len(body) / len(page["items"]))
            after = page["next"]
    return costs, fmean(sizes)


async def for_a_controller(store: SqliteStore) -> tuple[list[float], list[float]]:
    """Milliseconds of CPU for all records, at the control plane and at the controller."""
    app, serving, reading = application(store), [], []
    for _ in range(ROUNDS):
        before = time.process_time()
        status, body = await request(app, "GET", "/api/internal/workers", CONTROLLER, None)
        served = time.process_time()
        assert status == 200, body
        msgspec.json.decode(body, type=WorkerRecords)
        serving.append((served - before) * 1e3)
        reading.append((time.process_time() - served) * 1e3)
    return serving, reading


async def naive(store: SqliteStore) -> list[float]:
    costs = []
    for _ in range(ROUNDS):
        before = time.process_time()
        records: list[dict[str, Any]] = [json.loads(document.body) for document in await store.list_all(KIND)]
        records.sort(key=lambda record: (record["name"], record["id"]))
        json.dumps(records[:PAGE])
        costs.append((time.process_time() - before) * 1e3)
    return costs


async def measure(directory: Path, workers: int) -> None:
    async with SqliteStore(directory / "lcm.db") as store:
        await fill(store, workers)
        page, view_bytes = await ours(store, with_changes=False)
        changed, _ = await ours(store, with_changes=True)
        serving, reading = await for_a_controller(store)
        reference = await naive(store)
    report(
        "list_workers",
        [
            (f"a page of {PAGE} of {workers:,} workers, median", f"{percentile(page, 50):.1f} ms CPU"),
            ("the same, p95", f"{percentile(page, 95):.1f} ms CPU"),
            (f"after {CHANGED} of them changed, mean", f"{fmean(changed):.1f} ms CPU"),
            ("a worker in it", f"{view_bytes:,.0f} bytes"),
            ("all records for a controller: control plane", f"{percentile(serving, 50):.0f} ms CPU"),
            ("… controller", f"{percentile(reading, 50):.0f} ms CPU"),
            ("dictionaries and json, median", f"{percentile(reference, 50):.1f} ms CPU"),
        ],
        ratios={
            "dictionaries and json / ours": percentile(reference, 50) / percentile(page, 50),
            f"ours / {GOAL_MS:.0f} ms (goal: at most 1)": percentile(page, 50) / GOAL_MS,
        },
        figures={
            "page_cpu_ms": percentile(page, 50),
            "view_bytes": view_bytes,
            "page_cpu_ms_p95": percentile(page, 95),
            "page_cpu_ms_after_changes": fmean(changed),
            "all_records_served_cpu_ms": percentile(serving, 50),
            "all_records_read_cpu_ms": percentile(reading, 50),
            "naive_cpu_ms": percentile(reference, 50),
        },
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1_000)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        uvloop.run(measure(Path(directory), arguments.workers))


if __name__ == "__main__":
    main()
