"""Which workers are watched live: those that run and whose CML is ready, on the leader, at their address."""

import asyncio

import pytest

from lcm.domain.lifecycle import WorkerStatus
from lcm.domain.worker import Action
from lcm.worker_controller.ports import MonitorTarget
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
    async with asyncio.timeout(600):
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
        assert worker.cml_ready
        assert target == MonitorTarget(
            worker.id, worker.ec2_instance_id, str(worker.public_ip), "a" * 64, "2.9.1+build.7"
        )


async def test_every_cycle_asks_again_so_that_what_failed_is_tried(
    fleet: Fleet, monitors: MemoryMonitors
) -> None:
    async with fleet.running():
        await fleet.running_worker()
        await until_watched(fleet, monitors)
        before = len(monitors.asked)
        await fleet.clock.sleep(95)
        assert len(monitors.asked) - before == 3


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
        assert after.host != before.host
        assert after.instance_id == before.instance_id


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
        fleet.leader.resign()
        async with asyncio.timeout(5):
            while monitors.watched:
                await fleet.clock.sleep(0.01)
        assert monitors.runs == 1
        await until_watched(fleet, monitors)
        assert monitors.runs == 2
