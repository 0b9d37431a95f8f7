"""The length of the ways of a launch and of a stop, from a click to EC2: functions, files, requests, commits.

A trace of `lcm up` with real HTTP, SQLite and EC2's wire protocol. `tests/support/ways.py` says which
functions count; `--list` prints them. It measures the commit in whose directory it is started, with that
commit's Python; any since 91fd182 will do:

    cd <the other worktree> && .venv/bin/python <this worktree>/benchmarks/ways.py
"""

import asyncio
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import aiohttp
import uvloop

from lcm.cli.simulator_child import SimulatorChild
from lcm.cli.up import Ready, UpOptions, up
from report import report
from support.ways import Tracer, Way, common

SPEED = 20
QUIET_SECONDS = 1.0
ROUNDS = 3


@dataclass
class Person:
    """Someone who clicks."""

    http: aiohttp.ClientSession

    async def create(self, name: str) -> str:
        body = {"name": name, "template_name": "small", "aws_region": "us-east-1"}
        async with self.http.post("/api/workers", json=body) as answer:
            created: str = (await answer.json())["id"]
            return created

    async def stop(self, worker_id: str) -> None:
        async with self.http.post(f"/api/workers/{worker_id}/stop") as answer:
            assert answer.status == 202, await answer.text()

    async def until(self, worker_id: str, status: str, *, is_ready: bool = False) -> None:
        seen: dict[str, Any] = {"status": None}
        while seen["status"] != status or (is_ready and not seen["cml_ready"]):
            await asyncio.sleep(0.1)
            async with self.http.get(f"/api/workers/{worker_id}") as answer:
                seen = await answer.json()


async def arrival(way: Way) -> None:
    while not way.has_arrived:
        await asyncio.sleep(0.02)


async def launch_and_stop(person: Person, name: str, tracer: Tracer) -> tuple[Way, Way]:
    await asyncio.sleep(QUIET_SECONDS)
    with tracer.recording(Way(":Ec2Provider.launch_instance")) as launch:
        worker = await person.create(name)
        await arrival(launch)
    await person.until(worker, "running", is_ready=True)
    await asyncio.sleep(2 * QUIET_SECONDS)
    with tracer.recording(Way(":Ec2Provider.stop_instance")) as stop:
        await person.stop(worker)
        await arrival(stop)
    await person.until(worker, "stopped")
    return launch, stop


async def trace() -> list[tuple[Way, Way]]:
    """The launches and stops in a process that has done both before."""
    ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
    any_ports: dict[str, Any] = {at.name: 0 for at in fields(UpOptions) if at.name.endswith("port")}
    options = UpOptions(
        **any_ports,
        data_dir=None,
        workers=0,
        seed=0,
        aws_endpoint=None,
        templates=None,
        regions=None,
    )
    with Tracer() as tracer, SimulatorChild(seed=0, speed=SPEED) as simulator:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(up(options, simulator, ready.set_result))
            lcm = await ready
            headers = {"Authorization": f"Bearer {lcm.token}"}
            async with aiohttp.ClientSession(lcm.url.partition("#")[0], headers=headers) as http:
                ways = [
                    await launch_and_stop(Person(http), f"number-{number}", tracer)
                    for number in range(ROUNDS + 1)
                ]
            running.cancel()
    return ways[1:]


def measured(name: str, ways: Sequence[Way]) -> dict[str, float]:
    """Medians; of the functions those that every way passed, since other work may be in between."""
    counts = [way.counts() for way in ways]
    medians = {f"{name}: {what}": statistics.median(count[what] for count in counts) for what in counts[0]}
    return {**medians, f"{name}: functions": len(common(ways))}


def main() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        launches, stops = zip(*runner.run(trace()), strict=True)
    figures = measured("launch", launches) | measured("stop", stops)
    if "--list" in sys.argv:
        for ways in (launches, stops):
            print(*common(ways), "", sep="\n")
    report("ways", [(what, f"{figure:g}") for what, figure in figures.items()], {}, figures)


if __name__ == "__main__":
    main()
