"""Processes that stop and go on as if nothing had happened (SIGSTOP, SIGCONT)."""

import asyncio

from support.chaos import LEASE_SECONDS, Life, Site, children_of, frozen
from support.processes import eventually

HOLD_SECONDS = 100


async def test_an_lcm_frozen_longer_than_its_lease_comes_back_by_itself_and_does_nothing_twice(
    site: Site,
) -> None:
    async with site.life() as life:
        await life.clear()
        [worker] = await life.running("frozen-stop")
        await life.forget_calls()
        before = await life.health()
        await life.disturb("StopInstances", "RunInstances", kind="delay", seconds=HOLD_SECONDS, count=1)
        await life.act(worker, "stop")
        launched = await life.create("frozen-launch")
        await eventually(lambda: both_are_asked(life))

        with frozen(life.lcm.process.pid):
            await asyncio.sleep(LEASE_SECONDS + 1.5)  # noqa: TID251 - the lease ends meanwhile
            await life.heal()  # and what was asked for happens
            await eventually(lambda: is_stopped(life, worker))

        await life.api.until(worker, "stopped")
        await life.api.until(launched, "running")
        await eventually(lambda: is_leading(life))
        assert (await life.health())["epoch"] > before["epoch"]
        state = await life.prove()
        stops = await life.calls("StopInstances")
        assert [call["outcome"] for call in stops] == ["ok"]
        assert len({call["client_token"] for call in await life.calls("RunInstances")}) == 1
        assert len(state.launched_for(launched["id"])) == 1


async def both_are_asked(life: Life) -> bool:
    return {call["operation"] for call in await life.calls()} == {"StopInstances", "RunInstances"}


async def is_stopped(life: Life, worker: dict[str, str]) -> bool:
    instance = await life.instance_of(worker)
    return instance is not None and instance.state == "stopped"


async def is_leading(life: Life) -> bool:
    return bool((await life.health())["is_leader"])


async def test_an_aws_frozen_for_five_seconds_costs_five_seconds_and_nothing_else(site: Site) -> None:
    async with site.life() as life:
        await life.clear()
        stopping, deleted = await life.running("slow-stop", "slow-delete")
        [starting] = await life.stopped("slow-start")
        aws = site.simulator.process.pid
        with frozen(aws, *children_of(aws)):
            await life.act(stopping, "stop")
            await life.act(starting, "start")
            await life.act(deleted, "delete")
            await life.create("slow-launch")
            await asyncio.sleep(5)  # noqa: TID251 - the length of the freeze
            assert {w["name"] for w in (await life.api.get("/api/workers"))["items"]} >= {"slow-launch"}
            await eventually(lambda: is_leading(life))
        state = await life.prove()
        assert all(len(state.launched_for(record.id)) <= 1 for record in state.records)
