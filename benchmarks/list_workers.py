"""CPU for the list of a large fleet, five hundred to a page, by the control plane's own application.

The reference does the obvious: the same records as dictionaries, `json.loads` and `json.dumps`.
"""

import asyncio
import json
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvloop
from msgspec.structs import replace

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
from lcm.domain.worker import Cml, WorkerInstance, new_worker
from report import percentile, report
from support.asgi import request

WORKERS = 1_000
PAGE = 500
ROUNDS = 30
GOAL_MS = 20.0
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HEADERS = {"Authorization": "Bearer v"}


async def fill(store: SqliteStore) -> None:
    """Workers with a long history."""
    async with asyncio.TaskGroup() as tasks:
        for number in range(WORKERS):
            worker = new_worker(
                worker_id=WorkerId(f"6b1f7a3e-4a52-4a0e-9d7c-{number:012d}"),
                name=f"networking-{number:04d}",
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
            tasks.create_task(Workers(store).add(worker))


async def ours(store: SqliteStore) -> list[float]:
    """Milliseconds of CPU for each page."""
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
    costs = []
    for _ in range(ROUNDS):
        after, seen = "", 0
        while seen < WORKERS:
            before = time.process_time()
            status, body = await request(parts.app, "GET", f"/api/workers?limit={PAGE}{after}", HEADERS, None)
            costs.append((time.process_time() - before) * 1e3)
            assert status == 200, body
            page = json.loads(body)
            seen += len(page["items"])
            after = f"&after={page['next']}".replace(" ", "%20")
    return costs


async def naive(store: SqliteStore) -> list[float]:
    costs = []
    for _ in range(ROUNDS):
        before = time.process_time()
        records: list[dict[str, Any]] = [json.loads(document.body) for document in await store.list_all(KIND)]
        records.sort(key=lambda record: (record["name"], record["id"]))
        json.dumps(records[:PAGE])
        costs.append((time.process_time() - before) * 1e3)
    return costs


async def measure(directory: Path) -> None:
    async with SqliteStore(directory / "lcm.db") as store:
        await fill(store)
        page, reference = await ours(store), await naive(store)
    report(
        "list_workers",
        [
            (f"a page of {PAGE} of {WORKERS:,} workers, median", f"{percentile(page, 50):.1f} ms CPU"),
            ("the same, p95", f"{percentile(page, 95):.1f} ms CPU"),
            ("dictionaries and json, median", f"{percentile(reference, 50):.1f} ms CPU"),
        ],
        ratios={
            "dictionaries and json / ours": percentile(reference, 50) / percentile(page, 50),
            f"ours / {GOAL_MS:.0f} ms (goal: at most 1)": percentile(page, 50) / GOAL_MS,
        },
        figures={
            "page_cpu_ms": percentile(page, 50),
            "page_cpu_ms_p95": percentile(page, 95),
            "naive_cpu_ms": percentile(reference, 50),
        },
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        uvloop.run(measure(Path(directory)))


if __name__ == "__main__":
    main()
