"""The leader purges old records once an hour; never one whose instance may exist."""

from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from lcm.control_plane.commands.clean_up import clean_up
from lcm.domain.errors import Unreachable
from lcm.domain.launch import InstanceId, WorkerId
from lcm.domain.lifecycle import RUNNING, STOPPED, TERMINATED, WorkerStatus
from lcm.domain.worker import HistoryEntry, Worker, new_worker
from lcm.rest.fleet import Cleanup
from lcm.worker_controller.settings import WorkerControllerSettings
from support.core import with_fields
from support.fleet import Fleet
from support.memory_cloud import Moment
from unit.worker_controller.test_orphans import leave_behind

QUIET = WorkerControllerSettings(worker_discovery_enabled=False)


async def an_old_worker(
    fleet: Fleet, name: str = "old", *, days: float = 40, status: WorkerStatus = TERMINATED
) -> Worker:
    """A worker that entered its status so many days ago."""
    then = fleet.clock.now() - timedelta(days=days)
    worker = new_worker(
        worker_id=WorkerId(f"w-{name}"),
        name=name,
        template_name="small",
        aws_region="us-east-1",
        tags={},
        by="ann",
        now=then,
    )
    entry = HistoryEntry(source=RUNNING, target=status, by="c", reason="because", at=then)
    return await fleet.workers.add(
        with_fields(worker, status=status, ec2_instance_id=InstanceId(f"i-{name}"), state_history=(entry,))
    )


async def names(fleet: Fleet) -> list[str]:
    return sorted(worker.name for worker in await fleet.workers.list_all())


async def keys(fleet: Fleet) -> set[str]:
    listing = await fleet.kv.list_prefix("/lcm/workers/")
    return {item.key.split("/")[3] for item in listing.items}


async def test_a_terminated_worker_is_purged_after_thirty_days_with_its_keys() -> None:
    async with Fleet(QUIET).running() as fleet:
        old = await an_old_worker(fleet)
        recent = await an_old_worker(fleet, "recent", days=29)
        await fleet.clock.sleep(60)
        assert await keys(fleet) == {old.id, recent.id}
        await fleet.clock.sleep(3_600)
        assert await names(fleet) == ["recent"]
        assert await keys(fleet) == {recent.id}


async def test_switched_off_nothing_is_purged() -> None:
    settings = WorkerControllerSettings(worker_discovery_enabled=False, cleanup_enabled=False)
    async with Fleet(settings).running() as fleet:
        await an_old_worker(fleet)
        await fleet.clock.sleep(4_000)
        assert await names(fleet) == ["old"]


async def test_a_record_whose_instance_may_exist_is_kept() -> None:
    async with Fleet(QUIET).running() as fleet:
        kept = await an_old_worker(fleet, "kept")
        await an_old_worker(fleet, "gone")
        await leave_behind(fleet, kept.id)
        await fleet.clock.sleep(4_000)
        assert await names(fleet) == ["kept"]


async def test_while_ec2_cannot_be_listed_nothing_is_purged() -> None:
    fleet = Fleet(QUIET)

    async def fail(moment: Moment, operation: str, subject: str) -> None:
        if operation == "list_instances":
            raise Unreachable("EC2 us-east-1: no answer")

    async with fleet.running():
        await an_old_worker(fleet)
        fleet.cloud.interfere = fail
        await fleet.clock.sleep(4_000)
        assert await names(fleet) == ["old"]
        fleet.cloud.interfere = None
        await fleet.clock.sleep(4_000)
        assert await names(fleet) == []


async def test_a_dry_run_says_what_would_go_and_changes_nothing() -> None:
    fleet = Fleet(QUIET)
    old = await an_old_worker(fleet, days=8)
    result = await clean_up(fleet.plane.records, Cleanup(retention_days=7, dry_run=True))
    assert (result.worker_ids, result.dry_run, result.retention_days) == ([old.id], True, 7)
    assert await names(fleet) == ["old"]


@pytest.mark.parametrize("status", sorted(set(WorkerStatus) - {TERMINATED}))
async def test_only_terminated_workers_are_ever_purged(status: WorkerStatus) -> None:
    fleet = Fleet(QUIET)
    await an_old_worker(fleet, status=status)
    assert (await clean_up(fleet.plane.records, Cleanup(retention_days=1))).worker_ids == []
    assert await names(fleet) == ["old"]


async def test_a_record_that_a_living_worker_had_the_name_of_can_go() -> None:
    fleet = Fleet(QUIET)
    old = await an_old_worker(fleet)
    another = replace(old.instance, id=InstanceId("i-new"))
    await fleet.workers.add(replace(old, id=WorkerId("w-new"), status=STOPPED, instance=another))
    assert (await clean_up(fleet.plane.records, Cleanup())).worker_ids == [old.id]
    assert [worker.id for worker in await fleet.workers.list_all()] == ["w-new"]


async def test_keys_that_a_crash_left_behind_are_removed_at_the_next_start() -> None:
    fleet = Fleet(QUIET)
    await fleet.kv.put("/lcm/workers/w-purged/state", b"{}")
    await fleet.kv.put("/lcm/workers/w-purged/desired_state", b"{}")
    async with fleet.running():
        worker = await fleet.create()
        await fleet.clock.sleep(60)
        assert await keys(fleet) == {worker.id}


@pytest.mark.parametrize("days", [0, 366])
def test_a_retention_outside_a_year_is_refused(days: int) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode({"retention_days": days}), type=Cleanup)
