"""AWS disappears, and comes back as a stranger: a cloud that cannot be seen, or is empty, proves nothing."""

from urllib.parse import urlsplit

from support.chaos import Life, Site
from support.processes import eventually, running_simulator


async def statuses(life: Life) -> dict[str, str]:
    return {worker["name"]: worker["status"] for worker in (await life.api.get("/api/workers"))["items"]}


async def test_lcm_outlives_its_cloud_and_calls_no_worker_gone_because_of_it(site: Site) -> None:
    async with site.life() as life:
        await life.clear()
        await life.running("runs")
        await life.stopped("rests")
        await life.prove()
        before = await statuses(life)
        epoch = (await life.health())["epoch"]

        site.is_proven = False  # nobody else can use what is left
        site.kill_simulator()
        await life.reconcile_now()
        await eventually(life.is_frozen)
        assert any("EC2" in reason for reason in (await life.health())["frozen"])
        await life.sees_everything_twice()
        assert await statuses(life) == before

        # The same address, another cloud: it has never heard of any of them.
        endpoint = site.simulator.info.aws_endpoint
        with running_simulator("--port", str(urlsplit(endpoint).port)) as stranger:
            assert stranger.info.aws_endpoint == endpoint
            await life.sees_everything_twice()
            await eventually(lambda: is_thawed(life))
            await eventually(lambda: are_looked_for(life))
            assert await statuses(life) == before
            assert await life.calls() == []
            await eventually(life.is_well)
            assert (await life.health())["epoch"] >= epoch
        assert life.lcm.process.poll() is None
        assert site.stack_traces() == []


async def is_thawed(life: Life) -> bool:
    return not await life.is_frozen()


async def are_looked_for(life: Life) -> bool:
    """More often than it takes to prove an absence, if time had passed too."""
    return len(await life.calls("DescribeInstances")) > 10
