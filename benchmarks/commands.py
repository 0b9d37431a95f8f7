"""Commands per second: a whole one through `Workers.change`, against one commit per update.

Sixty-four callers load, decide, compare-and-set and get an answer, as the routes do; every acknowledged
change was flushed to disk (synchronous=FULL). CPU is reported too: it does not depend on other load of the
host.
"""

import asyncio
import sqlite3
import tempfile
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import uvloop

from lcm.control_plane.records.preconditions import UNCONDITIONAL
from lcm.control_plane.records.workers import Workers
from lcm.control_plane.store.sqlite import SqliteStore
from lcm.domain.launch import WorkerId
from lcm.domain.requests import retag
from lcm.domain.worker import new_worker
from report import report

CALLERS = 64
COMMANDS_EACH = 100
GOAL_PER_SECOND = 5_000
GOAL_CPU_US = 200
NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def commands(path: Path) -> tuple[float, float]:
    """Per second, and microseconds of CPU for each."""
    async with SqliteStore(path) as store:
        workers = Workers(store)
        for caller in range(CALLERS):
            await workers.add(
                new_worker(
                    worker_id=WorkerId(f"worker-{caller}"),
                    name=f"worker-{caller}",
                    template_name="small",
                    aws_region="us-east-1",
                    tags={},
                    by="benchmark",
                    now=NOW,
                )
            )

        async def call(caller: int) -> None:
            for number in range(COMMANDS_EACH):
                retagged = partial(retag, tags={"number": str(number)}, by="benchmark", now=NOW)
                await workers.change(f"worker-{caller}", UNCONDITIONAL.guard(retagged))

        started, cpu = time.perf_counter(), time.process_time()
        async with asyncio.TaskGroup() as tasks:
            for caller in range(CALLERS):
                tasks.create_task(call(caller))
        count = CALLERS * COMMANDS_EACH
        return count / (time.perf_counter() - started), (time.process_time() - cpu) / count * 1e6


def one_commit_each(path: Path, body: bytes, updates: int = 500) -> float:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE documents (id TEXT PRIMARY KEY, version INTEGER, body BLOB)")
    db.execute("INSERT INTO documents VALUES ('1', 1, ?)", (body,))
    started = time.perf_counter()
    for version in range(2, updates + 2):
        db.execute(
            "UPDATE documents SET version = ?, body = ? WHERE id = '1' AND version = ?",
            (version, body, version - 1),
        )
    rate = updates / (time.perf_counter() - started)
    db.close()
    return rate


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        each = one_commit_each(Path(directory) / "each.db", b"x" * 2_100)
        rate, cpu = uvloop.run(commands(Path(directory) / "commands.db"))
    report(
        "commands",
        [
            ("one commit per update, nothing else", f"{each:,.0f} /s"),
            (f"whole commands, {CALLERS} callers", f"{rate:,.0f} /s"),
            ("CPU for one command", f"{cpu:.0f} µs"),
        ],
        ratios={
            "commands / one commit per update (goal: at least 4)": rate / each,
            f"commands / {GOAL_PER_SECOND:,} per second (goal: at least 1)": rate / GOAL_PER_SECOND,
            f"CPU for one command / {GOAL_CPU_US} µs (goal: at most 1)": cpu / GOAL_CPU_US,
        },
        figures={"commit_each_per_second": each, "commands_per_second": rate, "command_cpu_us": cpu},
    )


if __name__ == "__main__":
    main()
