"""AWS refuses, is out of machines, loses replies or does not answer: LCM waits, says why, and recovers."""

import asyncio
from dataclasses import dataclass

from support.api import Json
from support.chaos import LEASE_SECONDS, MUTATING, READING, Life, Site, is_alive
from support.processes import eventually


@dataclass(frozen=True)
class Crew:
    """One worker for each thing that can be asked for; the fourth is yet to be created."""

    stop: Json
    start: Json
    delete: Json

    async def ask(self, life: Life) -> Json:
        await life.act(self.stop, "stop")
        await life.act(self.start, "start")
        await life.act(self.delete, "delete")
        return await life.create("launch")


async def crew_of(life: Life) -> Crew:
    await life.clear()
    stop, start, delete = await life.running("stop", "start", "delete")
    await life.act(start, "stop")
    start = await life.api.until(start, "stopped")
    await life.settles()
    await life.forget_calls()
    return Crew(stop, start, delete)


async def goes_blind(life: Life) -> None:
    """Until the next look at everything LCM may still act on what it saw shortly before."""
    await life.reconcile_now()
    await eventually(life.is_frozen)


async def test_a_throttling_storm_delays_every_wish_and_breaks_none(site: Site) -> None:
    async with site.life() as life:
        crew = await crew_of(life)
        before = {instance.id: instance.state for instance in await life.instances()}
        await life.disturb(
            *MUTATING, *READING, kind="error", code="RequestLimitExceeded", status=503, count=None
        )
        await life.forget_calls()  # a look of its own that LCM began before the storm may have succeeded
        await crew.ask(life)
        await goes_blind(life)
        assert any("RequestLimitExceeded" in reason for reason in (await life.health())["frozen"])
        await life.sees_everything_twice()
        await eventually(lambda: were_throttled(life, 5))
        assert {instance.id: instance.state for instance in await life.instances()} == before
        await life.heal()
        await life.prove()


async def were_throttled(life: Life, times: int) -> bool:
    calls = await life.calls(*MUTATING, *READING)
    assert {call["outcome"] for call in calls} <= {"RequestLimitExceeded"}
    return len(calls) >= times


async def test_nothing_is_launched_stopped_or_terminated_while_ec2_refuses_to_show_anything(
    site: Site,
) -> None:
    async with site.life() as life:
        crew = await crew_of(life)
        [drifting] = await life.running("drift")
        await life.forget_calls()
        await life.disturb(
            "DescribeInstances", kind="error", code="UnauthorizedOperation", status=403, count=None
        )
        await goes_blind(life)
        assert any("UnauthorizedOperation" in reason for reason in (await life.health())["frozen"])
        await crew.ask(life)
        # Even what really happens outside is not guessed at.
        instance = await life.instance_of(drifting)
        assert instance is not None
        await life.console.click("stop", {"id": instance.id, "region": instance.region})

        decided_but_not_done = {
            "stop": "stopping",
            "start": "stopped",
            "delete": "terminating",
            "launch": "pending",
            "drift": "running",
        }
        await eventually(lambda: shows(life, decided_but_not_done))
        await life.sees_everything_twice()
        assert await shows(life, decided_but_not_done)
        assert await life.calls() == []

        await life.heal()
        await life.prove()
        assert "stopped" in await life.api.statuses(drifting)


async def shows(life: Life, statuses: dict[str, str]) -> bool:
    workers = (await life.api.get("/api/workers"))["items"]
    return {worker["name"]: worker["status"] for worker in workers} == statuses


async def test_a_lost_reply_to_each_call_is_found_out_and_nothing_is_asked_twice(site: Site) -> None:
    async with site.life() as life:
        crew = await crew_of(life)
        await life.disturb(*MUTATING, kind="lose_reply", count=1)
        await crew.ask(life)
        await life.prove()
        made = await life.calls()
        assert sorted(call["operation"] for call in made) == sorted(MUTATING)
        assert {call["outcome"] for call in made} == {"reply lost"}


async def test_a_hanging_describe_holds_up_neither_the_api_nor_the_lease(site: Site) -> None:
    async with site.life() as life:
        crew = await crew_of(life)
        await life.disturb("DescribeInstances", kind="hang", count=None)
        await crew.ask(life)
        await asyncio.sleep(LEASE_SECONDS + 1)  # noqa: TID251 - the lease would end if a hanging call held it up
        assert len((await life.api.get("/api/workers"))["items"]) == 4
        await eventually(lambda: is_leading(life))
        await life.heal()
        await life.prove()


async def is_leading(life: Life) -> bool:
    return bool((await life.health())["is_leader"])


async def test_a_start_without_capacity_keeps_the_instance_says_why_and_succeeds_later(site: Site) -> None:
    async with site.life() as life:
        await life.clear()
        [worker] = await life.stopped("drought")
        await life.forget_calls()
        await life.disturb(
            "StartInstances", kind="error", code="InsufficientInstanceCapacity", status=500, count=None
        )
        await life.act(worker, "start")
        await eventually(lambda: says(life, worker, "InsufficientInstanceCapacity"))
        held_up = await life.see(worker)
        assert (held_up["status"], held_up["desired_status"]) == ("starting", "running")
        await life.reconcile_now(worker)
        await eventually(lambda: has_asked(life, "StartInstances", 2))
        await life.heal()
        await life.reconcile_now(worker)
        running = await life.api.until(worker, "running", cml_ready=True)
        assert running["ec2_instance_id"] == worker["ec2_instance_id"] == held_up["ec2_instance_id"]
        assert [i.id for i in await life.instances() if is_alive(i)] == [worker["ec2_instance_id"]]
        await life.prove()
        assert await life.calls("RunInstances") == []


async def says(life: Life, worker: Json, reason: str) -> bool:
    return reason in (await life.see(worker))["status_reason"]


async def has_asked(life: Life, operation: str, times: int) -> bool:
    return len(await life.calls(operation)) >= times
