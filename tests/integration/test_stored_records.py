"""Records that an earlier version wrote are read as they were meant.

`tests/fixtures/records-91fd182.db` was written by the program at commit 91fd182: one record for each
combination of status, desired status, pause, drain, hold and resume that simulated class days went through.
"""

import shutil
from collections import Counter
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace

from lcm.control_plane.records.workers import KIND, Workers
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import Document
from lcm.control_plane.store.sqlite import SqliteStore
from lcm.domain.lifecycle import DRAINING, RUNNING, STOPPED, TERMINATED, DesiredStatus
from lcm.domain.pause import PauseReason, PauseState
from lcm.domain.worker import Worker
from lcm.rest.schemas import WorkerView
from lcm.worker_controller.adapters.ec2_launch import launch_request

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
    reasons = Counter(worker.pause.reason for worker in workers)
    assert reasons[PauseReason.IDLE_TIMEOUT] > 10
    assert reasons[PauseReason.MANUAL] > 3
    assert reasons[PauseReason.EXTERNAL] > 3


async def test_the_timestamps_of_an_earlier_version_say_how_far_each_pause_had_come(tmp_path: Path) -> None:
    workers, stored = await read_all(tmp_path)
    for worker in workers:
        was = msgspec.json.decode(stored[worker.id])
        assert worker.pause.decided_at == _moment(was.get("pause_decided_at")), worker.id
        if worker.status is STOPPED and worker.desired_status is DesiredStatus.STOPPED:
            assert worker.pause.state is PauseState.PAUSED, worker.id
        if worker.status is DRAINING and worker.pause.is_draining:
            assert worker.pause.until == _moment(was["drain_deadline_at"]), worker.id
        if worker.desired_status is DesiredStatus.RUNNING:
            assert not worker.pause.is_unfinished, worker.id
    assert {worker.pause.state for worker in workers} == set(PauseState)


async def test_a_change_rewrites_a_record_of_an_earlier_version(tmp_path: Path) -> None:
    known, stored = await read_all(tmp_path)
    for worker in known:
        if worker.status is TERMINATED:
            continue
        store = MemoryStore()
        workers = Workers(store)
        first = {**msgspec.json.decode(stored[worker.id]), "version": 1}
        await store.insert(Document(KIND, worker.id, 1, msgspec.json.encode(first)))
        changed = await workers.change(worker.id, lambda was: replace(was, status_reason="changed"))
        document = await store.get(KIND, worker.id)
        assert document is not None
        record = msgspec.json.decode(document.body)
        gone = msgspec.json.decode(stored[worker.id]).keys() - record.keys()
        assert record["form"] == 2
        assert {"ec2_instance_id", "cml_version", "last_paused_at", "last_activity_at"} <= gone
        assert changed == replace(worker, status_reason="changed", version=2)
        assert msgspec.convert(record, Worker) == changed


async def test_a_launch_intent_of_an_earlier_version_is_repeated_as_that_version_sent_it(
    tmp_path: Path,
) -> None:
    workers, stored = await read_all(tmp_path)
    intents = {worker.id: worker.launch.intent for worker in workers if worker.launch.intent is not None}
    assert intents
    for worker_id, intent in intents.items():
        spec = msgspec.json.decode(stored[worker_id])["launch"]["spec"]
        tags = [{"Key": key, "Value": value} for key, value in sorted(spec["tags"].items())]
        assert launch_request(intent.spec, intent.client_token) == {
            "ImageId": spec["image"]["id"],
            "InstanceType": spec["instance_type"],
            "SecurityGroupIds": spec["security_group_ids"],
            "SubnetId": spec["subnet_id"],
            "KeyName": spec["key_name"],
            "MinCount": 1,
            "MaxCount": 1,
            "ClientToken": intent.client_token,
            "TagSpecifications": [
                {"ResourceType": "instance", "Tags": tags},
                {"ResourceType": "volume", "Tags": tags},
            ],
        }


def _moment(stamp: str | None) -> datetime | None:
    return msgspec.convert(stamp, datetime) if stamp else None
