"""What a store costs that has run for a year, against one that is new: start, pages, sweeps, backup.

Both hold the same live workers and sessions. The old one holds, too, the records of terminated workers and of
ended sessions, and audit logs that are full. The control plane is assembled in this process, without sockets;
each figure is the median of its rounds, in CPU. `--mongodb` runs the same on a server of MongoDB's protocol,
FerretDB or the one that LCM_TEST_MONGODB_URL names, by the clock.
"""

import argparse
import asyncio
import dataclasses
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import uvloop
from msgspec import json
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from lcm.cli.process import collect_rarely, spare_loaded_code
from lcm.control_plane.access.roles import AccessKeys
from lcm.control_plane.access.sealing import SecretBox
from lcm.control_plane.access.secrets import SecretStore
from lcm.control_plane.access.security_log import MAX_ENTRIES
from lcm.control_plane.commands.clean_up import clean_up
from lcm.control_plane.commands.keep_load_history import remove_ended
from lcm.control_plane.commands.lablets.archive_sessions import MAX_ARCHIVED
from lcm.control_plane.main import ControlPlaneParts, assemble
from lcm.control_plane.policies import Policies
from lcm.control_plane.records import audit, sessions, workers
from lcm.control_plane.store.mongodb import MongoStore
from lcm.control_plane.store.port import LOG_KIND, Document, Store, StoredDocument
from lcm.control_plane.store.sqlite import SqliteStore
from lcm.core.clock import SystemClock
from lcm.core.ids import RandomIds
from lcm.core.kv.memory import MemoryKv
from lcm.domain.capacity import Capacity
from lcm.domain.lablet.definition import Demand
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.states import SessionStatus
from lcm.domain.lifecycle import TERMINATED
from lcm.domain.scaling import AuditEntry, AuditEvent
from lcm.domain.security import AuditOutcome, SecurityEntry
from lcm.domain.worker import Worker
from lcm.rest.fleet import Cleanup
from list_workers import a_worker
from report import report
from support.asgi import request
from support.mongodb import mongo_server

NOW: Final = datetime.now(UTC)
HEADERS: Final = {"Authorization": "Bearer a"}
CONTROLLER: Final = {"X-API-Key": "c", "X-LCM-Service": "worker-controller"}
GOAL: Final = 1.5
TOGETHER: Final = 20

PAGES: Final = (
    "/api/workers?limit=100",
    "/api/lablet-sessions?limit=100",
    "/api/labs",
    "/api/audit?limit=100",
)
CYCLES: Final = (
    "/api/internal/workers",
    "/api/internal/lablet-sessions",
    "/api/internal/scheduling/snapshot",
)


@dataclass(frozen=True)
class Size:
    """How much is in a store."""

    live_workers: int
    live_sessions: int
    terminated: int = 0
    ended: int = 0
    entries: int = 0
    scalings: int = 0


def documents_of(size: Size) -> list[StoredDocument]:
    """All documents, published: what a store holds that nobody changes at the moment."""
    found = [_of_worker(a_worker(number)) for number in range(size.live_workers)]
    found += [_of_worker(_terminated(size.live_workers + number)) for number in range(size.terminated)]
    found += [_of_session(_session(number, SessionStatus.READY)) for number in range(size.live_sessions)]
    found += [
        _of_session(_session(size.live_sessions + number, SessionStatus.ARCHIVED), is_archived=True)
        for number in range(size.ended)
    ]
    found += [_of_entry(number) for number in range(size.entries)]
    found += [_of_scaling(number) for number in range(size.scalings)]
    return [StoredDocument(document, is_published=True) for document in found]


def _terminated(number: int) -> Worker:
    """A worker that was terminated in one of the last thirty days: later than the retention removes it."""
    worker = a_worker(number)
    *lines, last = worker.state_history
    last = replace(last, target=TERMINATED, at=NOW - timedelta(minutes=number % 40_000))
    return replace(worker, status=TERMINATED, state_history=(*lines, last))


def _of_worker(worker: Worker) -> Document:
    instance = f"instance:{worker.instance.id}"
    keys = (instance,) if worker.status is TERMINATED else (instance, f"{workers.NAME_KEY}{worker.name}")
    return Document(workers.KIND, worker.id, worker.version, json.encode(worker), keys)


def _session(number: int, status: SessionStatus) -> LabletSession:
    at = NOW - timedelta(minutes=number % 40_000)
    return LabletSession(
        id=f"{number:08d}-77aa-4a52-8e9d-7c0000000000",
        definition_id="6b1f7a3e-4a52-4a0e-9d7c-000000000000",
        definition_name="branch-office",
        definition_version="1.0.0",
        lab_yaml_hash="5" * 64,
        demand=Demand(needs=Capacity(cpu=3, memory_gb=4, storage_gb=10, nodes=2)),
        max_duration_minutes=60,
        latest_start_minutes=30,
        owner_id="ann",
        status=status,
        created_at=at,
        updated_at=at,
        ended_at=at if status is SessionStatus.ARCHIVED else None,
    )


def _of_session(session: LabletSession, *, is_archived: bool = False) -> Document:
    kind = sessions.ARCHIVE if is_archived else sessions.KIND
    return Document(kind, session.id, session.version, json.encode(session))


def _of_entry(number: int) -> Document:
    at = NOW - timedelta(minutes=20 * number)
    entry = SecurityEntry(
        id=f"{at:%Y%m%dT%H%M%S.%f}-{number:08x}",
        at=at,
        action="PUT /api/settings/license",
        outcome=AuditOutcome.DONE,
        address="10.0.0.1",
        principal_id="ann",
        principal_name="ann",
        target=f"worker/{number}",
        before={"tags": "team=networking"},
        after={"tags": "team=security"},
    )
    return Document(LOG_KIND, entry.id, 1, json.encode(entry))


def _of_scaling(number: int) -> Document:
    at = NOW - timedelta(hours=2 + number)
    entry = AuditEntry(
        id=f"{at:%Y%m%dT%H%M%S.%f}-{number:08x}",
        at=at,
        event=AuditEvent.SCALE_UP_ACCEPTED,
        by="resource-scheduler",
        reason="three sessions wait",
        worker_id=f"6b1f7a3e-4a52-4a0e-9d7c-{number:012d}",
        template_name="metal",
        aws_region="us-east-1",
    )
    return Document(audit.KIND, entry.id, 1, json.encode(entry))


# The two stores.


@asynccontextmanager
async def sqlite_store(directory: Path, name: str) -> AsyncIterator[tuple[SqliteStore, Callable[[], None]]]:
    path = directory / f"{name}.db"

    def back_up() -> None:
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(f"{path}.copy")) as copy:
            source.backup(copy)

    async with SqliteStore(path, call_timeout_seconds=60) as store:
        yield store, back_up


def fill_sqlite(path: Path, documents: Sequence[StoredDocument]) -> None:
    """Past the port, whose commits of one document each would take an hour."""
    with closing(sqlite3.connect(path)) as db, db:
        for stored in documents:
            each = stored.document
            db.execute(
                "INSERT INTO documents VALUES (?, ?, ?, ?, ?)",
                (each.kind, each.id, each.version, each.version, each.body),
            )
            db.executemany(
                "INSERT INTO unique_keys VALUES (?, ?, ?)",
                [(each.kind, key, each.id) for key in each.unique_keys],
            )


async def fill_mongodb(store: MongoStore, documents: Sequence[StoredDocument]) -> None:
    for start in range(0, len(documents), TOGETHER):
        async with asyncio.TaskGroup() as tasks:
            for stored in documents[start : start + TOGETHER]:
                tasks.create_task(store.load(stored))


# What is measured.

Act = Callable[[], Awaitable[None]]


def control_plane(store: Store) -> ControlPlaneParts:
    clock, ids = SystemClock(), RandomIds()
    return assemble(
        store,
        MemoryKv(clock, ids),
        AccessKeys("v", "o", "a", "c"),
        clock=clock,
        ids=ids,
        policies=Policies(regions=("us-east-1",), default_region="us-east-1"),
        secrets=SecretStore(store, SecretBox.of(bytes(32))),
        requests_per_second=1e6,
    )


async def start(store: Store) -> ControlPlaneParts:
    """What a control plane does before its first page is shown and its first sweep is over."""
    parts = control_plane(store)
    caches = parts.plane.caches
    await caches.worker_cache.load()
    await caches.sessions.load()
    publishing = asyncio.ensure_future(parts.publisher.run())
    while parts.publisher.is_behind:
        await asyncio.sleep(0.001)
    publishing.cancel()
    await asyncio.wait([publishing])
    return parts


async def ask(parts: ControlPlaneParts, path: str) -> None:
    headers = CONTROLLER if path.startswith("/api/internal") else HEADERS
    status, body = await request(parts.app, "GET", path, headers, None)
    assert status == 200, (path, status, body)


def sweeps(parts: ControlPlaneParts) -> Mapping[str, Act]:
    records, sweep = parts.plane.records, parts.session_sweep
    cleanup = Cleanup(retention_days=30, dry_run=True)

    async def clean() -> None:
        await clean_up(records, cleanup)

    async def purge_histories() -> None:
        await remove_ended(records)

    return {
        "sweep of claims": sweep.claims.sweep,
        "archive of sessions": sweep.archive.run_pass,
        "retention of terminated workers": clean,
        "removal of load histories": purge_histories,
    }


async def milliseconds(act: Act, rounds: int, read_clock: Callable[[], float]) -> float:
    taken = []
    for _ in range(rounds):
        before = read_clock()
        await act()
        taken.append((read_clock() - before) * 1e3)
    return median(taken)


async def measure(store: Store, back_up: Callable[[], None] | None, rounds: int) -> dict[str, float]:
    # CPU where the store is in this process: it does not depend on what else the host does.
    read_clock = time.process_time if isinstance(store, SqliteStore) else time.perf_counter
    spare_loaded_code()
    started: list[ControlPlaneParts] = []

    async def begin() -> None:
        started.append(await start(store))

    found = {"start": await milliseconds(begin, max(rounds // 4, 3), read_clock)}
    parts = started[-1]
    acts: dict[str, Act] = {path: partial(ask, parts, path) for path in (*PAGES, *CYCLES)}
    for name, act in (acts | dict(sweeps(parts))).items():
        await act()  # caches are filled: what is measured comes again and again
        found[name] = await milliseconds(act, rounds, read_clock)
    if back_up is not None:
        before = read_clock()
        back_up()
        found["backup"] = (read_clock() - before) * 1e3
    return found


async def on_sqlite(directory: Path, name: str, size: Size, rounds: int) -> dict[str, float]:
    async with sqlite_store(directory, name):
        pass  # makes the tables
    fill_sqlite(directory / f"{name}.db", documents_of(size))
    async with sqlite_store(directory, name) as (store, back_up):
        return await measure(store, back_up, rounds)


async def on_mongodb(url: str, size: Size, rounds: int) -> dict[str, float]:
    async with MongoStore(url, SystemClock(), RandomIds()) as store:
        await fill_mongodb(store, documents_of(size))
        return await measure(store, None, rounds)


def show(new: Mapping[str, float], old: Mapping[str, float], documents: int, what: str) -> None:
    ratios = {f"{name}, old / new (goal: at most {GOAL})": old[name] / new[name] for name in new}
    backup = next((label for label in ratios if label.startswith("backup")), None)
    if backup is not None:
        ratios.pop(backup)  # it copies the whole file: its cost is stated for each document
    rows = [(name, f"new {new[name]:.1f} ms, old {old[name]:.1f} ms") for name in new]
    rows.append(("documents in the old store", f"{documents:,} on {what}"))
    figures = {f"{kind}_{name}_ms": at[name] for kind, at in (("new", new), ("old", old)) for name in at}
    report("old_store", rows, ratios, {**figures, "documents": documents})


async def run(arguments: argparse.Namespace) -> None:
    new = Size(live_workers=arguments.workers, live_sessions=arguments.sessions, entries=1_000, scalings=10)
    old = replace_size(new, arguments)
    if arguments.mongodb:
        with mongo_server() as server:
            measured = [
                await on_mongodb(server.database(name), size, arguments.rounds)
                for name, size in (("new", new), ("old", old))
            ]
            what = server.what
    else:
        with tempfile.TemporaryDirectory() as directory:
            measured = [
                await on_sqlite(Path(directory), name, size, arguments.rounds)
                for name, size in (("new", new), ("old", old))
            ]
            what = "SQLite"
    show(measured[0], measured[1], len(documents_of(old)), what)


def replace_size(new: Size, arguments: argparse.Namespace) -> Size:
    return dataclasses.replace(
        new, terminated=arguments.terminated, ended=arguments.ended, entries=MAX_ENTRIES, scalings=5_000
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=200, help="that are not terminated, in both stores")
    parser.add_argument("--sessions", type=int, default=1_000, help="that have not ended, in both stores")
    parser.add_argument("--terminated", type=int, default=100_000, help="workers, in the old store")
    parser.add_argument("--ended", type=int, default=MAX_ARCHIVED, help="sessions; LCM keeps no more")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--mongodb", action="store_true", help="on a server of MongoDB's protocol")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    collect_rarely()
    uvloop.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
