"""What placement decides on: what workers reserve, and how loaded they are."""

from collections import Counter
from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from lcm.control_plane.commands.claim_leadership import claim_leadership, fence_for
from lcm.control_plane.commands.create_worker import create_worker
from lcm.control_plane.commands.recalculate_capacity import recalculate_capacity
from lcm.control_plane.queries.scheduling import scheduling_snapshot
from lcm.core.configuration import parse_yaml
from lcm.domain.lablet.claim import Reserve
from lcm.domain.lablet.placement import PlacementEngine
from lcm.domain.lablet.session import WaitCode
from lcm.domain.lablet.snapshot import Snapshot
from lcm.domain.launch import WorkerId
from lcm.domain.lifecycle import PENDING, PROVISIONING, RUNNING, STARTING, STOPPED, STOPPING, WorkerStatus
from lcm.domain.telemetry import Sample, SampleSource
from lcm.domain.transitions import move
from lcm.domain.worker import Cml, Worker
from lcm.rest.schemas import LeadershipClaim
from support.scheduling import Classroom

KVM = """\
worker_templates:
  - name: kvm
    description: It can run nodes.
    instance_type: m5zn.metal
    cpu: 48
    memory_gb: 192
    disk_gb: 1000
    max_nodes: 200
    usd_per_hour: 4
    reserved_cpu: 1
    reserved_memory_gb: 4
    reserved_storage_gb: 16
    cpu_overcommit: 2
"""
RESERVE = Reserve(cpu=1, memory_gb=4, storage_gb=16, cpu_overcommit=2)


async def snapshot_of(room: Classroom) -> Snapshot:
    return await scheduling_snapshot(room.plane.records, room.plane.policies, caches=room.plane.caches)


async def test_a_worker_and_a_template_reserve_what_the_file_says() -> None:
    room = Classroom()
    await room.plane.records.templates.seed(parse_yaml(KVM, "templates.yaml"))
    await create_worker(
        room.plane.records,
        room.plane.policies,
        name="w1",
        template_name="kvm",
        aws_region=None,
        tags={},
        by="ann",
    )
    snapshot = await snapshot_of(room)
    assert [worker.reserve for worker in snapshot.workers] == [RESERVE]
    assert [template.reserve for template in snapshot.templates] == [RESERVE]


async def test_a_worker_takes_over_what_its_template_reserves_now() -> None:
    room = Classroom()
    await room.add_worker("w1")
    await room.plane.records.workers.change("w1", lambda worker: replace(worker, template_name="kvm"))
    await room.plane.records.templates.seed(parse_yaml(KVM, "templates.yaml"))
    assert (await room.worker("w1")).reserve == Reserve()
    claim = LeadershipClaim(service="worker-controller", cluster_id="etcd", revision=1, instance_id="ada")
    fence = fence_for(claim.service, (await claim_leadership(room.plane.records, claim)).epoch)
    await recalculate_capacity(room.plane.records, "w1", fence=fence)
    assert (await room.worker("w1")).reserve == RESERVE


class LoadedRoom(Classroom):
    """A worker whose load is measured every ten seconds."""

    async def measure(
        self,
        *,
        minutes: float,
        every_seconds: float = 10,
        cpu_utilization: float | None = None,
        memory_utilization: float | None = None,
    ) -> None:
        for _ in range(round(minutes * 60 / every_seconds)):
            await self.clock.sleep(every_seconds)
            sample = Sample(
                worker_id=WorkerId("w1"),
                collected_at=self.clock.now(),
                source=SampleSource.WEBSOCKET,
                cpu_utilization=cpu_utilization,
                memory_utilization=memory_utilization,
            )
            assert self.plane.caches.metrics.take_sample(sample)

    async def is_overloaded(self) -> bool:
        return (await snapshot_of(self)).workers[0].is_overloaded


@pytest.fixture
async def room() -> LoadedRoom:
    room = LoadedRoom()
    await room.add_worker("w1")
    await room.plane.caches.worker_cache.load()
    return room


@pytest.mark.parametrize("load", ["cpu_utilization", "memory_utilization"])
async def test_a_worker_above_ninety_percent_for_five_minutes_is_overloaded(
    room: LoadedRoom, load: str
) -> None:
    await room.measure(minutes=4.5, **{load: 95})
    assert not await room.is_overloaded()
    await room.measure(minutes=1, **{load: 95})
    assert await room.is_overloaded()
    await room.measure(minutes=0.2, **{load: 90})
    assert not await room.is_overloaded()


async def test_one_that_is_polled_each_minute_counts_too_and_a_load_that_is_not_known_does_not(
    room: LoadedRoom,
) -> None:
    await room.measure(minutes=7, every_seconds=60, cpu_utilization=95)
    assert await room.is_overloaded()
    await room.clock.sleep(timedelta(minutes=4).total_seconds())
    assert not await room.is_overloaded()


async def test_an_overloaded_worker_takes_a_session_only_if_no_other_does(room: LoadedRoom) -> None:
    async with room.running():
        await room.measure(minutes=6, cpu_utilization=99)
        await room.add_worker("w2")
        await room.add_session("s1")
        await room.clock.sleep(1)
        assert (await room.session("s1")).worker_id == "w2"
        await room.plane.records.workers.change("w2", lambda w: replace(w, declared_capacity=None))
        await room.add_session("s2")
        await room.clock.sleep(1)
        assert (await room.session("s2")).worker_id == "w1"


def test_a_template_stored_before_it_could_reserve_is_read() -> None:
    assert msgspec.json.decode(b"{}", type=Reserve) == Reserve()


async def test_no_waiting_session_is_left_out_however_many_there_are() -> None:
    room = Classroom()
    for number in range(600):
        await room.add_session(f"s{number}")
    snapshot = await snapshot_of(room)
    assert len(snapshot.sessions) == 600
    plan = PlacementEngine.plan(snapshot, room.clock.now())
    codes = Counter(decision.code for decision in plan.decisions.values())
    assert codes[WaitCode.AHEAD_IN_QUEUE] == 600 - snapshot.queue_limit


class Launches(Classroom):
    """Workers whose controller reports their launch."""

    async def launch(self, name: str, *, minutes: float | None) -> None:
        """Until EC2 has started it, and until CML answers if that is to happen."""
        await self.add_worker(name, status=PENDING, is_ready=False)
        for status in (PROVISIONING, STARTING, RUNNING):
            await self.move_on(name, status)
        if minutes is not None:
            await self.clock.sleep(minutes * 60)
            await self.plane.records.workers.change(name, lambda w: replace(w, cml=Cml(is_ready=True)))

    async def move_on(self, name: str, status: WorkerStatus) -> None:
        def moved(worker: Worker) -> Worker:
            return move(worker, status, by="controller", reason="test", now=self.clock.now())

        await self.plane.records.workers.change(name, moved)

    async def expected(self, name: str) -> tuple[float | None, float | None]:
        """In how many minutes the worker may be ready, and is likely to be, as the scheduler reads it."""
        (view,) = [each for each in (await snapshot_of(self)).workers if each.name == name]
        early, likely = (
            None if moment is None else (moment - self.clock.now()).total_seconds() / 60
            for moment in (view.early_at, view.ready_at)
        )
        return early, likely

    async def minutes_left(self, name: str) -> float | None:
        return (await self.expected(name))[1]


async def test_a_launched_worker_is_expected_when_its_cml_has_booted_not_when_ec2_has_started_it() -> None:
    room = Launches()
    await room.launch("w1", minutes=None)
    assert (await room.worker("w1")).status is RUNNING
    assert await room.minutes_left("w1") == pytest.approx(25)
    await room.clock.sleep(24 * 60)
    assert await room.minutes_left("w1") == pytest.approx(1)
    await room.clock.sleep(2 * 60)
    assert await room.minutes_left("w1") is None


async def test_after_three_launches_of_a_template_the_next_is_expected_as_they_were_ready() -> None:
    room = Launches()
    for number, minutes in enumerate((9, 12, 10)):
        await room.launch(f"w{number}", minutes=minutes)
        await room.launch(f"next{number}", minutes=None)
        expected = 25 if number < 2 else 12
        assert await room.minutes_left(f"next{number}") == pytest.approx(expected)


async def test_half_of_the_launches_say_when_the_next_may_be_ready_and_nine_of_ten_when_it_is() -> None:
    room = Launches()
    await room.plane.records.templates.seed(parse_yaml(KVM.replace("kvm", "metal"), "templates.yaml"))
    for number, minutes in enumerate((30, 9, 12, 10, 11)):
        await room.launch(f"w{number}", minutes=minutes)
    await room.launch("next", minutes=None)
    assert list(await room.expected("next")) == pytest.approx([11, 30])
    (template,) = (await snapshot_of(room)).templates
    assert (template.early_boot, template.boot) == (timedelta(minutes=11), timedelta(minutes=30))


async def test_a_worker_that_is_started_again_is_expected_sooner_than_a_launched_one() -> None:
    room = Launches()
    await room.launch("w1", minutes=10)
    await room.clock.sleep(3600)
    for status in (STOPPING, STOPPED, STARTING):
        await room.move_on("w1", status)
    assert await room.minutes_left("w1") == pytest.approx(5)
