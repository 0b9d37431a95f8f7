"""What a fleet costs in which nothing happens: pages of EC2's list, and nothing else."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from lcm.domain.launch import WorkerId
from support.core import running
from support.fleet import MemoryMonitors
from support.settled import SettledFleet
from support.virtual_time import VirtualClock

CYCLE = 30.0


@asynccontextmanager
async def settled(
    size: int, regions: tuple[str, ...] = ("us-east-1",)
) -> AsyncIterator[tuple[SettledFleet, VirtualClock]]:
    """Every worker was reconciled once, and nothing is in progress."""
    clock = VirtualClock()
    fleet = SettledFleet(size, clock, regions)
    async with fleet.assembled() as controller, running(controller.service):
        await clock.sleep(20)
        assert controller.election.is_leader
        fleet.calls()
        yield fleet, clock


@pytest.mark.no_cover  # many times what is measured elsewhere
@pytest.mark.parametrize("size", [1, 1_000, 1_001, 10_000])
async def test_a_cycle_costs_one_page_per_thousand_workers_and_no_write(size: int) -> None:
    async with settled(size) as (fleet, clock):
        await clock.sleep(CYCLE)
        assert fleet.calls() == {"list_resources": 1, "DescribeInstances us-east-1": math.ceil(size / 1_000)}


async def test_each_region_is_listed_for_itself() -> None:
    async with settled(1_200, ("eu-west-1", "us-east-1")) as (fleet, clock):
        await clock.sleep(CYCLE)
        assert fleet.calls() == {
            "list_resources": 1,
            "DescribeInstances eu-west-1": 2,
            "DescribeInstances us-east-1": 2,
        }


async def test_five_minutes_ask_once_for_each_worker_whether_it_is_used() -> None:
    async with settled(100) as (fleet, clock):
        await clock.sleep(10 * CYCLE)
        calls = fleet.calls()
        assert calls["detect_worker_idle"] == 100
        assert set(calls) == {"list_resources", "DescribeInstances us-east-1", "detect_worker_idle"}


async def test_a_worker_whose_instance_changed_is_reconciled_and_no_other() -> None:
    async with settled(1_000) as (fleet, clock):
        looked_at = {name: state.started_at for name, state in fleet.controller.loop.states.items()}
        fleet.pages["us-east-1"].instances[7]["PrivateIpAddress"] = "10.9.9.9"
        await clock.sleep(CYCLE)
        seen = fleet.calls()
        assert seen["report_instance"] >= 1  # and refused by the fake, which is not the point
        again = {n for n, state in fleet.controller.loop.states.items() if state.started_at > looked_at[n]}
        assert again == {"us-east-1-7"}


async def test_a_worker_whose_record_changed_is_reconciled_and_no_other() -> None:
    async with settled(1_000) as (fleet, clock):
        looked_at = {name: state.started_at for name, state in fleet.controller.loop.states.items()}
        changed = WorkerId("us-east-1-7")
        fleet.records.workers[changed] = replace(fleet.records.workers[changed], version=2)
        await clock.sleep(CYCLE)
        again = {n for n, state in fleet.controller.loop.states.items() if state.started_at > looked_at[n]}
        assert again == {changed}


async def test_a_worker_that_is_no_longer_watched_is_watched_again_in_the_next_cycle() -> None:
    async with settled(10) as (fleet, clock):
        monitors = fleet.controller.reconciler.monitors
        assert isinstance(monitors, MemoryMonitors)
        del monitors.watched[WorkerId("us-east-1-7")]
        await clock.sleep(CYCLE)
        assert len(monitors.watched) == 10
