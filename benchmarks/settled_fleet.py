"""What a resync over a fleet costs in which nothing happens: controller and EC2 adapter, ports in memory.

Parsing EC2's XML is not part of it (a thread does that), nor is reading the records over HTTP. Reference: the
same controller looking at every worker, as the sweep after an election does.
"""

import asyncio
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from lcm.core.clock import SystemClock
from lcm.core.hosted_service import run_services
from lcm.worker_controller.main import WorkerController
from report import report
from support.settled import SettledFleet

SIZES = (1_000, 10_000)
ROUNDS = 7


async def cpu_of_a_sweep(controller: WorkerController, *, everything: bool) -> float:
    """CPU seconds from the list to the last worker done; the cheapest of several."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        await controller.loop.resync(everything=everything)
        while len(controller.loop.queue) or controller.loop.in_progress():
            await asyncio.sleep(0)
        best = min(best, time.process_time() - began)
    return best


async def cpu_of_the_lists(fleet: SettledFleet) -> float:
    """CPU seconds of turning EC2's answer into instances: the adapter's, not the reconcile loop's."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for region in fleet.regions:
            await fleet.ec2.list_instances(region)
        best = min(best, time.process_time() - began)
    return best


async def measure_one(size: int) -> dict[str, float]:
    fleet = SettledFleet(size, SystemClock())
    async with fleet.assembled() as controller, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(run_services(controller.service))
        while not controller.election.is_leader:
            await asyncio.sleep(0.01)
        await controller.loop.resync(everything=True)
        loop = controller.loop
        while len(loop.states) < size or len(loop.queue) or loop.in_progress():
            await asyncio.sleep(0.01)
        await controller.loop.resync()
        fleet.calls()
        settled = await cpu_of_a_sweep(controller, everything=False)
        calls = fleet.calls()
        lists = await cpu_of_the_lists(fleet)
        looked_at = await cpu_of_a_sweep(controller, everything=True)
        running.cancel()
    pages = calls.pop("DescribeInstances us-east-1")
    listed = calls.pop("list_resources")
    return {
        "settled": (settled - lists) / size,
        "adapter": lists / size,
        "looked_at": (looked_at - lists) / size,
        "pages": pages / listed,
        "other_calls": calls.total(),
    }


async def measure() -> None:
    results = {size: await measure_one(size) for size in SIZES}
    rows: list[tuple[str, str]] = []
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    for size, result in results.items():
        rows += [
            (f"{size:,} workers: pages of DescribeInstances a cycle", f"{result['pages']:g}"),
            (f"{size:,} workers: other calls", f"{result['other_calls']:g}"),
            (
                f"{size:,} workers: reconcile loop, CPU per settled worker",
                f"{result['settled'] * 1e6:.2f} us",
            ),
            (
                f"{size:,} workers: reconcile loop, CPU per worker reconciled",
                f"{result['looked_at'] * 1e6:.2f} us",
            ),
            (f"{size:,} workers: EC2's answer into instances", f"{result['adapter'] * 1e6:.2f} us"),
        ]
        ratios[f"settled / looked at, {size:,}"] = result["settled"] / result["looked_at"]
        figures |= {f"{name}_{size}": value for name, value in result.items()}
    report("settled_fleet", rows, ratios, figures)


if __name__ == "__main__":
    asyncio.run(measure())
