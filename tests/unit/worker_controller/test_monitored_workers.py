"""Which workers are watched live: those that run and whose CML is ready, on the leader, at their address."""

import pytest

from lcm.cml.sessions import CmlServer
from lcm.control_plane.commands.drain_worker import drain_worker
from lcm.control_plane.commands.request_action import request_refresh
from lcm.core.timeouts import timeout
from lcm.domain.lifecycle import DRAINING, WorkerStatus
from lcm.domain.observed import record_activity
from lcm.domain.telemetry import ActivityEvent
from lcm.domain.worker import Action, Worker
from lcm.worker_controller.ports import MonitorTarget, ReportedActivity
from support.claims import place_session
from support.fleet import Fleet, MemoryMonitors

RUNNING, STOPPED, TERMINATED = WorkerStatus.RUNNING, WorkerStatus.STOPPED, WorkerStatus.TERMINATED


@pytest.fixture
def monitors() -> MemoryMonitors:
    return MemoryMonitors()


@pytest.fixture
def fleet(monitors: MemoryMonitors) -> Fleet:
    fleet = Fleet()
    fleet.monitors = monitors
    return fleet


async def until_watched(fleet: Fleet, monitors: MemoryMonitors) -> MonitorTarget:
    async with timeout(600):
        while not monitors.watched:
            await fleet.clock.sleep(1)
    [target] = monitors.watched.values()
    return target


async def test_a_running_worker_is_watched_once_its_cml_is_ready(
    fleet: Fleet, monitors: MemoryMonitors
) -> None:
    async with fleet.running():
        worker = await fleet.running_worker()
        assert monitors.asked == []
        target = await until_watched(fleet, monitors)
        worker = await fleet.get(worker)
        assert worker.cml.is_ready
        server = CmlServer(
            worker.id, worker.instance.id, str(worker.instance.public_ip), "a" * 64, login=None
        )
        assert target == MonitorTarget(server, "2.9.1+build.7", ReportedActivity(worker.created_at))
        assert target.reported == ReportedActivity(worker.created_at)


async def test_every_cycle_asks_again_so_that_what_failed_is_tried(
    fleet: Fleet, monitors: MemoryMonitors
) -> None:
    async with fleet.running():
        await fleet.running_worker()
        await until_watched(fleet, monitors)
        before = len(monitors.asked)
        monitors.watched.clear()
        monitors.is_giving_up = True
        await fleet.clock.sleep(95)
        assert len(monitors.asked) - before == 3


async def test_a_worker_that_is_watched_well_is_left_alone(fleet: Fleet, monitors: MemoryMonitors) -> None:
    async with fleet.running():
        await fleet.running_worker()
        await until_watched(fleet, monitors)
        await fleet.clock.sleep(60)
        before = len(monitors.asked)
        await fleet.clock.sleep(60)
        assert len(monitors.asked) == before


async def test_a_new_worker_is_measured_without_waiting_for_the_round(
    fleet: Fleet, monitors: MemoryMonitors
) -> None:
    async with fleet.running():
        worker = await fleet.running_worker()
        await until_watched(fleet, monitors)
        await fleet.clock.sleep(100)
        assert monitors.measured == [worker.id]


async def test_a_refresh_asks_cml_and_measures_once(fleet: Fleet, monitors: MemoryMonitors) -> None:
    async with fleet.running():
        worker = await fleet.running_worker()
        await until_watched(fleet, monitors)
        fleet.cml.version, fleet.cml.system_info = "2.10.0", {"allow_ssh_pubkey_auth": True}
        await fleet.clock.sleep(100)
        assert (await fleet.get(worker)).cml.version == "2.9.1+build.7"
        assert (await fleet.get(worker)).cml.system_info == {"oui": "52:54:00:00:00:00"}
        await request_refresh(fleet.plane.records, worker.id)
        await fleet.clock.sleep(1)
        assert (await fleet.get(worker)).cml.version == "2.10.0"
        assert (await fleet.get(worker)).cml.system_info == {"allow_ssh_pubkey_auth": True}
        await fleet.clock.sleep(100)
        assert monitors.measured == [worker.id, worker.id]


async def test_a_draining_worker_is_watched_like_a_running_one(
    fleet: Fleet, monitors: MemoryMonitors
) -> None:
    async with fleet.running():
        worker = await fleet.running_worker()
        await until_watched(fleet, monitors)
        await place_session(fleet.plane.records, worker.id, "lablet-1")
        await drain_worker(
            fleet.plane.records, fleet.plane.policies, worker.id, by="ada", reason="maintenance"
        )
        await fleet.until(worker, DRAINING)
        await fleet.clock.sleep(15)
        before = len(monitors.asked)
        await fleet.clock.sleep(95)
        assert len(monitors.asked) - before == 3
        assert (list(monitors.watched), monitors.stops) == ([worker.id], [])


async def test_a_new_leader_begins_where_the_record_ends(fleet: Fleet, monitors: MemoryMonitors) -> None:
    async with fleet.running():
        worker = await fleet.running_worker()
        await until_watched(fleet, monitors)
        event = ActivityEvent(category="start_lab", at=fleet.clock.now(), lab_id="l")

        def note(record: Worker) -> Worker:
            return record_activity(record, [event], mark=None, now=fleet.clock.now(), keep=10)

        await fleet.plane.records.workers.change(worker.id, note)
        fleet.leader.election.resign()
        async with timeout(5):
            while monitors.watched:
                await fleet.clock.sleep(0.01)
        target = await until_watched(fleet, monitors)
        assert target.reported == ReportedActivity(worker.created_at, (event,))


async def test_a_worker_that_leaves_running_is_watched_no_more(
    fleet: Fleet, monitors: MemoryMonitors
) -> None:
    async with fleet.running():
        worker = await fleet.running_worker()
        await until_watched(fleet, monitors)
        await fleet.ask(worker, Action.STOP)
        await fleet.until(worker, STOPPED)
        assert (monitors.watched, monitors.stops) == ({}, ["the worker is stopping"])


async def test_after_a_stop_and_start_it_is_watched_at_its_new_address(
    fleet: Fleet, monitors: MemoryMonitors
) -> None:
    async with fleet.running():
        worker = await fleet.running_worker()
        before = await until_watched(fleet, monitors)
        await fleet.ask(worker, Action.STOP)
        await fleet.until(worker, STOPPED)
        await fleet.ask(worker, Action.START)
        await fleet.until(worker, RUNNING)
        after = await until_watched(fleet, monitors)
        assert after.server.host != before.server.host
        assert after.server.instance_id == before.server.instance_id


async def test_a_worker_that_is_gone_leaves_nothing_behind(fleet: Fleet, monitors: MemoryMonitors) -> None:
    async with fleet.running():
        worker = await fleet.running_worker()
        await until_watched(fleet, monitors)
        await fleet.ask(worker, Action.DELETE)
        await fleet.until(worker, TERMINATED)
        assert monitors.watched == {}
        assert worker.id in monitors.forgotten


async def test_losing_the_lead_ends_all_watching(fleet: Fleet, monitors: MemoryMonitors) -> None:
    async with fleet.running():
        await fleet.running_worker()
        await until_watched(fleet, monitors)
        fleet.leader.election.resign()
        async with timeout(5):
            while monitors.watched:
                await fleet.clock.sleep(0.01)
        assert monitors.runs == 1
        await until_watched(fleet, monitors)
        assert monitors.runs == 2
