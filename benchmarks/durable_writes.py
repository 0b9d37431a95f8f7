"""Durable updates per second: our store with 64 writers against one commit per update.

Both flush to disk before they acknowledge (synchronous=FULL) and check the version in the update.
"""

import asyncio
import sqlite3
import tempfile
import time
from pathlib import Path

from lcm.control_plane.store.port import Document
from lcm.control_plane.store.sqlite import SqliteStore
from report import report

WRITERS = 64
UPDATES_EACH = 150
BODY = b"x" * 2_100


async def with_group_commit(path: Path) -> float:
    async with SqliteStore(path) as store:
        for writer in range(WRITERS):
            await store.insert(Document("bench", str(writer), 1, BODY))

        async def write(writer: int) -> None:
            for version in range(2, UPDATES_EACH + 2):
                await store.replace(Document("bench", str(writer), version, BODY))

        started = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for writer in range(WRITERS):
                tasks.create_task(write(writer))
        return WRITERS * UPDATES_EACH / (time.perf_counter() - started)


def with_a_commit_each(path: Path) -> float:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE documents (id TEXT PRIMARY KEY, version INTEGER, body BLOB)")
    db.execute("INSERT INTO documents VALUES ('1', 1, ?)", (BODY,))
    updates = 1_500
    started = time.perf_counter()
    for version in range(2, updates + 2):
        db.execute(
            "UPDATE documents SET version = ?, body = ? WHERE id = '1' AND version = ?",
            (version, BODY, version - 1),
        )
    rate = updates / (time.perf_counter() - started)
    db.close()
    return rate


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        each = with_a_commit_each(Path(directory) / "each.db")
        grouped = asyncio.run(with_group_commit(Path(directory) / "grouped.db"))
    report(
        "durable_writes",
        [
            ("one commit per update", f"{each:,.0f} /s"),
            (f"group commit, {WRITERS} writers", f"{grouped:,.0f} /s"),
        ],
        ratios={"group commit / one commit per update": grouped / each},
        figures={"commit_each_per_second": each, "group_commit_per_second": grouped},
    )


if __name__ == "__main__":
    main()
