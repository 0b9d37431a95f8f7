"""The leader is killed, stopped, frozen; the other goes on, and nothing is launched or stopped twice."""

import signal
from collections.abc import Sequence
from functools import partial
from statistics import mean, median
from typing import Any

import pytest

from lcm.rest.schemas import API_KEY_HEADER, EPOCH_HEADER, PROBLEM_TYPE_PREFIX, SERVICE_HEADER
from support.api import Json
from support.canaries import watched_session
from support.ha import KEY, LEASE_SECONDS, TRIALS, Life, assert_promised, now, printed_figures
from support.processes import eventually


@pytest.mark.timeout(1800)
async def test_when_the_leader_is_killed_the_standby_takes_over_and_nothing_is_launched_twice(
    life: Life,
) -> None:
    watched = await life.running_and_watched("watched-1", "watched-2")
    created: list[Json] = []
    took: list[float] = []
    for trial in range(TRIALS):
        before = await life.wait_for_a_pair()
        leader = before["instance_id"]
        created.append(worker := await life.api.create(f"killed-{trial}"))
        if trial % 2:  # the launch is under way
            await eventually(partial(life.launched_for, worker))
        killed_at = now()
        life.ensemble.controllers[leader].end(signal.SIGKILL)
        life.ensemble.controllers[leader].start()  # as whoever supervises it would
        await life.wait_for_a_later_leader(before["epoch"])
        took.append(now() - killed_at)
        life.ensemble.controllers[leader].wait_until_answering()
        if trial % 2:  # otherwise the next one is killed before it has looked at everything
            await life.wait_until_only_one_watches(watched)
    for worker in created:
        await life.until(worker, "running")
        assert len(await life.launched_for(worker)) == 1
    await life.wait_until_only_one_watches(watched + created)
    await life.remove(*watched, *created)
    with printed_figures(f"takeover after SIGKILL, lease {LEASE_SECONDS} s") as figures:
        figures |= summary(took)
    assert_promised(LEASE_SECONDS + 2, took)


@pytest.mark.timeout(1800)
async def test_a_leader_that_is_stopped_politely_hands_over_without_waiting_for_its_lease(life: Life) -> None:
    """A lease that was not given back would keep the other one waiting for longer than the test does."""
    took: list[float] = []
    with life.ensemble.long_leases():
        watched = await life.running_and_watched("watched")
        for trial in range(TRIALS):
            before = await life.wait_for_a_pair()
            leader = before["instance_id"]
            asked_at = now()
            life.ensemble.controllers[leader].send(signal.SIGTERM)
            after = await life.wait_for_a_later_leader(before["epoch"])
            took.append(now() - asked_at)
            assert after["instance_id"] != leader
            life.ensemble.controllers[leader].end()
            life.ensemble.restore()
            if trial % 5 == 0:
                await life.wait_until_only_one_watches(watched)
        await life.remove(*watched)
    with printed_figures("takeover after SIGTERM") as figures:
        figures |= summary(took)
    assert_promised(1.0, took)


def summary(took: Sequence[float]) -> dict[str, Any]:
    return {
        "trials": len(took),
        "mean": f"{mean(took):.2f} s",
        "median": f"{median(took):.2f} s",
        "max": f"{max(took):.2f} s",
    }


async def test_a_leader_frozen_beyond_its_lease_changes_nothing_when_it_wakes(life: Life) -> None:
    worker = await life.running("frozen")
    before = await life.wait_for_a_pair()
    leader = before["instance_id"]
    standby = life.other(leader)

    life.ensemble.controllers[leader].send(signal.SIGSTOP)
    try:
        await life.api.act(worker, "stop")  # wakes nobody but the standby, when it leads
        after = await life.wait_until_leading(standby)
        await life.until(worker, "stopped")
        frozen_calls = await life.calls(leader)
    finally:
        life.ensemble.controllers[leader].send(signal.SIGCONT)

    async def stands_by() -> bool:
        said = await life.health(leader)
        return said is not None and not said["is_leader"]

    await eventually(stands_by)
    assert after["epoch"] > before["epoch"]
    await life.api.act(worker, "start")
    await life.until(worker, "running")
    calls = await life.calls(leader)
    led_on = await life.lead_of(standby)
    if led_on and led_on["epoch"] == after["epoch"]:  # a machine that stood still may have changed them back
        assert calls == frozen_calls  # not one call to EC2 since it was frozen
    statuses = await life.api.statuses(worker)
    assert statuses[-4:] == ["stopping", "stopped", "starting", "running"]
    assert statuses.count("stopped") == 1
    assert await stale_write(life, worker, before["epoch"]) == (409, "fenced")
    await life.remove(worker)


async def stale_write(life: Life, worker: dict[str, str], epoch: int) -> tuple[int, str]:
    """What a leader that does not know better would send."""
    headers = {API_KEY_HEADER: KEY, SERVICE_HEADER: "worker-controller", EPOCH_HEADER: str(epoch)}
    url = f"{life.ensemble.plane.url}/api/internal/workers/{worker['id']}/cml-data"
    body = {"ready": True, "version": "0.0", "certificate_sha256": None}
    async with (
        watched_session(headers=headers) as session,
        session.post(url, json=body) as response,
    ):
        problem = await response.json()
        return response.status, problem.get("type", "").removeprefix(PROBLEM_TYPE_PREFIX)
