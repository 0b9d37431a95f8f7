"""The scheduler places what can be placed at once, and for the rest brings the workers that are missing."""

import dataclasses
from datetime import timedelta

import pytest
from msgspec.structs import replace

from lcm.control_plane.commands.license_worker import set_fleet_token
from lcm.domain.capacity import Capacity
from lcm.domain.errors import Fenced, Unreachable
from lcm.domain.lablet.admission import move_end
from lcm.domain.lablet.batch import LabletBatch
from lcm.domain.lablet.session import Batch, WaitCode
from lcm.domain.lablet.states import PENDING, PENDING_SCHEDULING, SCHEDULED, SessionStatus
from lcm.domain.license import License, LicenseOperation, LicenseStatus
from lcm.domain.lifecycle import PENDING as WORKER_PENDING
from lcm.domain.lifecycle import STARTING, STOPPED, DesiredStatus
from lcm.domain.scaling import ScalingPolicy
from lcm.domain.worker import Cml, CmlHealth
from lcm.rest.schemas import ScaleUpRequest
from support.control_plane import ONE_REGION
from support.scheduling import NEEDS, Classroom
from unit.domain.lablet.test_definition import define


async def test_a_new_session_is_placed_by_the_watch_within_a_tenth_of_a_second() -> None:
    async with Classroom().running() as room:
        await room.add_worker("w1")
        await room.clock.sleep(10)
        await room.add_session("s1")
        await room.clock.sleep(0.1)
        session = await room.session("s1")
        assert (session.status, session.worker_id) == (SCHEDULED, "w1")
        assert (await room.worker("w1")).sessions == ("s1",)


async def test_sessions_fill_one_worker_before_the_next() -> None:
    async with Classroom().running() as room:
        for name in ("w1", "w2", "w3"):
            await room.add_worker(name)
        for number in range(4):
            await room.add_session(f"s{number}")
        await room.clock.sleep(1)
        assert [len((await room.worker(name)).sessions) for name in ("w1", "w2", "w3")] == [2, 2, 0]


async def reason(room: Classroom, session_id: str) -> str:
    session = await room.session(session_id)
    return session.waits_for.text if session.waits_for is not None else ""


async def test_a_session_without_room_says_why_and_one_group_of_workers_is_launched() -> None:
    async with Classroom().running() as room:
        for number in range(6):
            await room.add_session(f"s{number}", needs=Capacity(cpu=2, memory_gb=6, storage_gb=10, nodes=4))
        await room.clock.sleep(2)
        workers = await room.workers()
        assert {worker.status for worker in workers} == {WORKER_PENDING}
        await room.clock.sleep(600)
        assert room.ports[0].calls.count("scale-up") == 1
        assert len(await room.workers()) == len(workers)
        for number in range(6):
            session = await room.session(f"s{number}")
            assert session.waits_for is not None
            assert session.nominated is not None
            assert session.waits_for.code is WaitCode.WAITS_FOR_WORKER
            assert session.id in (await room.worker(session.nominated.worker_id)).nominations


async def test_a_nominated_worker_takes_its_sessions_when_it_is_ready() -> None:
    async with Classroom().running() as room:
        await room.add_worker("w1", status=STARTING, is_ready=False)
        await room.add_session("s1")
        await room.clock.sleep(2)
        assert (await room.session("s1")).nominated is not None
        await room.plane.records.workers.change(
            "w1", lambda w: replace(w, status="running", cml=replace(w.cml, is_ready=True))
        )
        await room.clock.sleep(0.2)
        session = await room.session("s1")
        assert (session.status, session.nominated) == (SCHEDULED, None)
        assert (await room.worker("w1")).nominations == {}


async def test_the_recorded_reason_says_what_is_so_now_not_what_was_so_when_it_began() -> None:
    policies = dataclasses.replace(ONE_REGION, scaling=ScalingPolicy(max_workers_per_region=2))
    async with Classroom(policies).running() as room:
        for name in ("s1", "s2", "s3"):
            await room.add_session(name, needs=Capacity(cpu=40, memory_gb=100))
            await room.clock.sleep(10)
        assert "no worker is launched until" in await reason(room, "s3")
        await room.clock.sleep(600)
        assert len(await room.workers()) == 2
        assert "raise MAX_WORKERS_PER_REGION" in await reason(room, "s3")


async def test_a_session_that_waits_for_room_follows_the_time_at_which_it_frees() -> None:
    async with Classroom().running() as room:
        await room.add_worker("w1", size=NEEDS)
        await room.add_session("s1", timeslot=room.slot(in_minutes=5, minutes=10))
        await room.clock.sleep(1)
        await room.add_session("s2", timeslot=room.slot(in_minutes=34))
        await room.clock.sleep(2)
        first = (await room.session("s2")).nominated
        later = room.clock.now() + timedelta(minutes=17)
        await room.plane.records.workers.change(
            "w1", lambda w: move_end(w, "s1", 1, later, now=room.clock.now())
        )
        await room.clock.sleep(60)
        second = (await room.session("s2")).nominated
        assert first is not None
        assert second is not None
        assert second.ready_at - later == timedelta(minutes=10)
        assert first.ready_at < second.ready_at


async def test_why_a_session_waits_is_recorded_although_every_request_of_a_worker_fails() -> None:
    async with Classroom().running() as room:

        def fail(call: str) -> None:
            if call == "scale-up":
                raise Unreachable("the control plane took too long")

        room.ports[0].before = fail
        await room.add_session("s1")
        await room.clock.sleep(60)
        assert room.ports[0].calls.count("scale-up") > 1
        assert (await reason(room, "s1")).startswith("Waits for a new worker")


async def test_a_worker_that_is_late_changes_the_reason_once_and_not_every_minute() -> None:
    async with Classroom().running() as room:
        await room.add_worker("w1", status=STARTING, is_ready=False)
        await room.add_session("s1")
        await room.clock.sleep(26 * 60)
        assert await reason(room, "s1") == "Waits for worker w1, which should be ready by now."
        version = (await room.session("s1")).version
        await room.clock.sleep(3600)
        assert (await room.session("s1")).version == version


async def test_a_stopped_worker_that_fits_is_started_before_one_is_launched() -> None:
    async with Classroom().running() as room:
        await room.add_worker("w1", status=STOPPED, is_ready=False)
        await room.plane.records.workers.change(
            "w1", lambda worker: replace(worker, desired_status=DesiredStatus.STOPPED)
        )
        await room.add_session("s1")
        await room.clock.sleep(2)
        worker = await room.worker("w1")
        assert (worker.desired_status, len(await room.workers())) == (DesiredStatus.RUNNING, 1)


async def test_a_booked_session_is_placed_when_its_window_opens() -> None:
    async with Classroom().running() as room:
        await room.add_worker("w1")
        await room.add_session("s1", timeslot=room.slot(in_minutes=120))
        await room.clock.sleep(80 * 60)
        assert (await room.session("s1")).status is PENDING
        await room.clock.sleep(5 * 60 + 2)
        assert (await room.session("s1")).status is SCHEDULED


async def test_a_session_that_no_worker_can_ever_take_fails_and_says_so() -> None:
    async with Classroom().running() as room:
        await room.add_session("s1", needs=Capacity(cpu=10_000))
        await room.clock.sleep(2)
        session = await room.session("s1")
        assert session.status is SessionStatus.FAILED
        assert session.status_reason


async def test_a_class_that_must_be_complete_takes_nothing_while_a_seat_is_missing() -> None:
    async with Classroom().running() as room:
        await room.add_worker("w1")
        for index in range(40):
            batch = Batch(id="b", index=index, size=40, is_all_or_nothing=True)
            needs = Capacity(cpu=40, memory_gb=60, storage_gb=10, nodes=4)
            await room.add_session(f"s{index:02}", batch=batch, needs=needs)
        await room.clock.sleep(5)
        assert (await room.worker("w1")).claims == ()


async def test_a_class_that_must_be_complete_is_not_placed_while_its_sessions_are_created() -> None:
    async with Classroom().running() as room:
        await room.add_worker("w1")
        owners = ("ann", "bob")
        batch = LabletBatch(
            id="b",
            name="monday",
            definition=define(),
            owners=owners,
            is_all_or_nothing=True,
            created_at=room.clock.now(),
            created_by="ann",
            creator_id="ann",
        )
        await room.plane.records.batches.add(batch)
        for index in range(2):
            seat = Batch(id="b", index=index, size=2, is_all_or_nothing=True)
            await room.add_session(f"s{index}", batch=seat)
            await room.clock.sleep(1)
            expected = (PENDING_SCHEDULING, SCHEDULED)[index]
            assert {(await room.session(f"s{number}")).status for number in range(index + 1)} == {expected}


async def test_what_the_control_plane_does_not_answer_is_tried_again() -> None:
    async with Classroom().running() as room:
        failures = iter(range(3))

        def disturb(call: str) -> None:
            if call == "schedule" and next(failures, None) is not None:
                raise Unreachable("no answer")

        room.ports[0].before = disturb
        await room.add_worker("w1")
        await room.add_session("s1")
        await room.clock.sleep(30)
        assert (await room.session("s1")).status is SCHEDULED


async def test_a_standby_places_what_waits_when_the_leader_is_gone() -> None:
    async with Classroom().running(schedulers=2) as room:
        await room.add_worker("w1")
        leader = next(s for s in room.schedulers if s.service.election.is_leader)
        leader.service.election.resign()
        await room.add_session("s1")
        await room.clock.sleep(30)
        assert (await room.session("s1")).status is SCHEDULED
        assert len((await room.worker("w1")).claims) == 1


async def test_a_leader_that_was_replaced_changes_nothing() -> None:
    async with Classroom().running() as room:
        port = room.ports[0]
        old = port.epoch
        await port.claim_leadership("another store", 1, "scheduler-9")
        port.epoch = old
        with pytest.raises(Fenced):
            await port.scale_up(ScaleUpRequest(template="metal", reason="late"))


async def test_room_that_frees_in_time_is_waited_for_instead_of_bought() -> None:
    async with Classroom().running() as room:
        await room.add_worker("w1", size=NEEDS)
        await room.add_session("first", timeslot=room.slot(in_minutes=1, minutes=30))
        await room.clock.sleep(2)
        await room.add_session("second", timeslot=room.slot(in_minutes=60, minutes=30))
        await room.clock.sleep(26 * 60)
        second = await room.session("second")
        assert second.waits_for is not None
        assert second.waits_for.code is WaitCode.WAITS_FOR_RELEASE
        assert len(await room.workers()) == 1
        assert second.nominated is not None
        assert second.nominated.ready_at - room.clock.now() < timedelta(minutes=20)


async def unlicensed(room: Classroom, name: str, license: License) -> None:
    """A worker with room whose CML says that it has no license."""
    await room.add_worker(name)
    cml = Cml(is_ready=True, health=CmlHealth(valid=True, is_licensed=False))
    await room.plane.records.workers.change(name, lambda worker: replace(worker, cml=cml, license=license))


async def test_a_session_waits_for_a_worker_whose_license_is_being_registered() -> None:
    async with Classroom().running() as room:
        pending = License(declared=True, pending_operation=LicenseOperation.REGISTER)
        await unlicensed(room, "w1", pending)
        await room.add_session("s1")
        await room.clock.sleep(60)
        assert [worker.name for worker in await room.workers()] == ["w1"]
        session = await room.session("s1")
        assert session.nominated is not None
        assert session.nominated.worker_id == "w1"
        registered = License(status=LicenseStatus.REGISTERED)
        licensed = Cml(is_ready=True, health=CmlHealth(valid=True, is_licensed=True))
        await room.plane.records.workers.change(
            "w1", lambda worker: replace(worker, cml=licensed, license=registered)
        )
        await room.clock.sleep(1)
        assert (await room.session("s1")).worker_id == "w1"


async def test_a_worker_that_lacks_its_license_is_waited_for_where_the_fleet_has_a_token() -> None:
    async with Classroom().running() as room:
        await set_fleet_token(room.plane.records, "fleet-token")
        await unlicensed(room, "w1", License(declared=True))
        await room.add_session("s1")
        await room.clock.sleep(60)
        assert [worker.name for worker in await room.workers()] == ["w1"]


@pytest.mark.parametrize("has_token", [False, True])
async def test_no_worker_is_bought_where_it_would_have_no_license_either(has_token: bool) -> None:
    async with Classroom().running() as room:
        if has_token:
            await set_fleet_token(room.plane.records, "a token that Cisco refuses")
        await unlicensed(room, "w1", License(declared=has_token, status=LicenseStatus.FAILED))
        await room.add_session("s1")
        await room.clock.sleep(3_600)
        assert [worker.name for worker in await room.workers()] == ["w1"]
        waits = (await room.session("s1")).waits_for
        assert waits is not None
        assert waits.code is WaitCode.SCALE_UP_REFUSED
        assert "worker w1 has no license" in waits.text
        assert "PUT /api/settings/license" in waits.text


async def test_a_worker_left_unlicensed_does_not_keep_licensed_ones_from_being_bought() -> None:
    async with Classroom().running() as room:
        await set_fleet_token(room.plane.records, "fleet-token")
        await unlicensed(room, "w1", License())
        await room.add_session("s1")
        await room.clock.sleep(60)
        assert len(await room.workers()) == 2
