"""kill -9 anywhere during a launch, start again: one instance, no orphan."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from support.api import Api, Console, admin_of, console_of
from support.processes import eventually, running_lcm, running_simulator

Moment = Callable[[Api, Console, dict[str, str]], Awaitable[None]]


async def promised(api: Api, console: Console, worker: dict[str, str]) -> None:
    """Nothing to wait for: the process dies right after the person got an answer."""


async def called(api: Api, console: Console, worker: dict[str, str]) -> None:
    """EC2 has been asked; its answer is still out."""
    await eventually(lambda: console.calls("RunInstances"))


async def launched(api: Api, console: Console, worker: dict[str, str]) -> None:
    """EC2 has made the instance."""
    await eventually(lambda: console.instances_of(worker))


async def recorded(api: Api, console: Console, worker: dict[str, str]) -> None:
    """The instance id is in the record."""

    async def is_recorded() -> bool:
        return (await api.get(f"/api/workers/{worker['id']}"))["ec2_instance_id"] is not None

    await eventually(is_recorded)


@pytest.mark.parametrize(
    ("moment", "fault"),
    [
        (promised, None),
        (called, {"kind": "delay", "seconds": 1.0}),
        (launched, {"kind": "lose_reply"}),
        (launched, None),
        (recorded, None),
    ],
    ids=["before-the-call", "effect-lands-after-death", "reply-lost", "after-the-effect", "after-the-record"],
)
async def test_a_launch_cut_by_kill_9_ends_with_one_instance(
    moment: Moment, fault: dict[str, Any] | None, tmp_path: Path
) -> None:
    with running_simulator() as simulator:
        endpoint = simulator.info.aws_endpoint
        arguments = ("--workers", "0", "--aws-endpoint", endpoint, "--data-dir", str(tmp_path))
        async with console_of(endpoint) as console:
            with running_lcm(*arguments) as lcm:
                async with admin_of(lcm) as api:
                    if fault is not None:
                        await console.disturb(operation="RunInstances", count=1, **fault)
                    worker = await api.create("cut")
                    await moment(api, console, worker)
                    lcm.process.kill()
                    lcm.process.wait()
            await console.heal()
            with running_lcm(*arguments) as lcm:
                async with admin_of(lcm) as api:
                    await api.until(worker, "running")
                    assert len(await console.instances_of(worker)) == 1


async def test_acknowledged_workers_survive_kill_9_under_load(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    with running_lcm("--workers", "0", "--data-dir", str(tmp_path)) as lcm:
        async with admin_of(lcm) as api:

            async def create_until_it_dies(client: int) -> None:
                for number in range(1_000):
                    try:
                        worker = await api.create(f"w-{client}-{number}")
                    except (aiohttp.ClientError, OSError):
                        return
                    acknowledged.append(worker["id"])
                    if len(acknowledged) >= 60:
                        lcm.process.kill()

            async with asyncio.TaskGroup() as tasks:
                for client in range(8):
                    tasks.create_task(create_until_it_dies(client))
            lcm.process.wait()
    assert len(acknowledged) >= 60
    with running_lcm("--workers", "0", "--data-dir", str(tmp_path)) as lcm:
        async with admin_of(lcm) as api:
            kept = {worker["id"] for worker in (await api.get("/api/workers?limit=500"))["items"]}
            assert set(acknowledged) <= kept
