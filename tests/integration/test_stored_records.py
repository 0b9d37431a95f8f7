"""Records that an earlier version wrote are read as they were meant.

`tests/fixtures/records-91fd182.db` was written by the program at commit 91fd182: one record for each
combination of status, desired status, pause, drain, hold and resume that simulated class days went through.
"""

import shutil
from collections import Counter
from pathlib import Path

import msgspec

from lcm.control_plane.records.workers import KIND, Workers
from lcm.control_plane.store.sqlite import SqliteStore
from lcm.domain.lifecycle import DRAINING, RUNNING, STOPPED
from lcm.domain.worker import PauseReason, Worker
from lcm.rest.schemas import WorkerView

WRITTEN_BY_91FD182 = Path(__file__).parents[1] / "fixtures" / "records-91fd182.db"


async def read_all(folder: Path) -> tuple[list[Worker], dict[str, bytes]]:
    path = folder / "lcm.db"
    shutil.copy(WRITTEN_BY_91FD182, path)
    async with SqliteStore(path) as store:
        stored = {document.id: document.body for document in await store.list_all(KIND)}
        return list(await Workers(store).list_all()), stored


async def test_every_record_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    workers, stored = await read_all(tmp_path)
    assert len(workers) == len(stored) == 47
    statuses = Counter(worker.status for worker in workers)
    assert (statuses[RUNNING], statuses[STOPPED], statuses[DRAINING]) == (21, 9, 3)


async def test_what_an_earlier_version_knew_of_a_worker_is_still_shown(tmp_path: Path) -> None:
    workers, stored = await read_all(tmp_path)
    for worker in workers:
        view = msgspec.to_builtins(WorkerView.of(worker))
        was = msgspec.json.decode(stored[worker.id])
        for name in ("status", "desired_status", "pause_reason", "last_paused_by", "aws_region"):
            assert view[name] == was.get(name, view[name]), (worker.id, name)
        assert bool(view["hold"]) == bool(was.get("hold")), worker.id


async def test_paused_workers_of_an_earlier_version_are_paused_for_the_same_reason(tmp_path: Path) -> None:
    workers, _ = await read_all(tmp_path)
    reasons = Counter(worker.pause_reason for worker in workers)
    assert reasons[PauseReason.IDLE_TIMEOUT] > 10
    assert reasons[PauseReason.MANUAL] > 3
    assert reasons[PauseReason.EXTERNAL] > 3
