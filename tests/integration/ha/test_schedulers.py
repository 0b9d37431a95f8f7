"""Two resource schedulers on a real etcd: whichever dies or stops, no session is placed twice."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lcm.rest.schemas import PROBLEM_TYPE_PREFIX
from support.booking import define
from support.schedulers import Schedulers, running_schedulers, wait_for


@pytest.fixture
async def schedulers(tmp_path: Path) -> AsyncIterator[Schedulers]:
    async with running_schedulers(tmp_path) as running:
        yield running


async def test_when_the_leader_is_killed_the_next_one_places(schedulers: Schedulers) -> None:
    worker = await schedulers.add_running_worker("w1")
    definition = await define(schedulers.api)
    leader, standby, epoch = await schedulers.wait_for_a_pair()
    [first] = await schedulers.book(definition)
    [placed] = await schedulers.wait_until_scheduled([first])
    assert (placed.worker_id, placed.placement and placed.placement.epoch) == (worker, epoch)

    schedulers.processes[leader].end(signal.SIGKILL)
    [second] = await schedulers.book(definition)
    [placed] = await schedulers.wait_until_scheduled([second])
    later = await schedulers.wait_until_leading(standby)
    assert later > epoch
    assert placed.placement is not None
    assert placed.placement.epoch == later
    await schedulers.assert_placed_once([worker])


async def test_a_leader_stopped_over_its_lease_in_the_middle_of_a_placement_places_nothing_twice(
    schedulers: Schedulers,
) -> None:
    """Its request is on the way meanwhile, and arrives when the next leader has placed everything."""
    workers = [await schedulers.add_running_worker(name) for name in ("w1", "w2")]
    definition = await define(schedulers.api)
    leader, standby, epoch = await schedulers.wait_for_a_pair()
    gate = schedulers.gates[leader]
    gate.hold_the_next_placement()
    sessions = await schedulers.book(definition, count=6)
    await wait_for(gate.held)

    schedulers.processes[leader].send(signal.SIGSTOP)
    try:
        later = await schedulers.wait_until_leading(standby)
        placed = await schedulers.wait_until_scheduled(sessions)
        gate.open()
        refused = await schedulers.answer_of(gate)
    finally:
        schedulers.processes[leader].send(signal.SIGCONT)

    assert refused.startswith(b"HTTP/1.1 409 ")
    assert f'"{PROBLEM_TYPE_PREFIX}fenced"'.encode() in refused
    await schedulers.wait_until_standby(leader)
    assert later > epoch
    assert {session.placement.epoch for session in placed if session.placement} == {later}
    await schedulers.assert_placed_once(workers)
    assert await schedulers.place_with(epoch, sessions[0], workers[1]) == (409, "fenced")

    more = await schedulers.book(definition, count=3)
    await schedulers.wait_until_scheduled(more)
    await schedulers.assert_placed_once(workers)


async def test_a_thousand_sessions_at_once_on_a_hundred_workers_are_placed_or_explained(
    schedulers: Schedulers,
) -> None:
    """`benchmarks/scheduling.py` measures how soon."""
    await schedulers.wait_for_a_pair()
    workers = [await schedulers.add_running_worker(f"w{number}") for number in range(100)]
    light = await define(schedulers.api, "light")
    heavy = await define(schedulers.api, "heavy", stated_needs={"cpu": 24})
    for _ in range(25):
        async with asyncio.TaskGroup() as people:
            for definition in (light, heavy):
                for _ in range(4):
                    people.create_task(schedulers.book(definition, count=5))

    found = await schedulers.wait_until_placed_or_explained(1_000)
    await schedulers.assert_placed_once(workers)
    waiting = [session for session in found if session.worker_id is None]
    assert waiting
    assert all(session.waits_for and session.waits_for.text for session in waiting)
    free = [48 - (await schedulers.worker(worker_id)).allocated_capacity.cpu for worker_id in workers]
    assert max(free) < min(session.demand.needs.cpu for session in waiting)
