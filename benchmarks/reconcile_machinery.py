"""The cost of the reconcile loop itself, with nothing to reconcile, and the effect of slow reconciles.

References: the straightforward cycle, a task per resource under a semaphore, gathered; and the least that a
keyed queue needs, ten workers that take keys and give them back.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence

from lcm.core.clock import SystemClock
from lcm.core.health import Health
from lcm.core.loop import ReconcileLoop, Reconciler, ReconciliationConfig
from lcm.core.results import ReconciliationResult, Success
from lcm.core.telemetry import Telemetry
from report import percentile, report

RESOURCES = 10_000
SLOW = 50
SLOW_SECONDS = 2.0
ROUNDS = 5


class Resources(Reconciler[str]):
    """Resources are their own ids; some wait long, one records when it runs."""

    def __init__(self, ids: Sequence[str], slow: frozenset[str] = frozenset()) -> None:
        self._ids = ids
        self._slow = slow
        self.done = 0
        self.hot_ran = asyncio.Event()

    async def list_resources(self) -> Sequence[str]:
        return self._ids

    async def fetch_single_resource(self, resource_id: str) -> str:
        return resource_id

    def resource_id(self, resource: str) -> str:
        return resource

    def settled_marker(self, resource: str) -> Hashable | None:
        return resource

    async def reconcile_resource(self, resource: str) -> ReconciliationResult:
        if resource in self._slow:
            await asyncio.sleep(SLOW_SECONDS)
        if resource == "hot":
            self.hot_ran.set()
        self.done += 1
        return Success()


def loop_over(resources: Resources) -> ReconcileLoop[str]:
    clock, config = SystemClock(), ReconciliationConfig(initial_delay=3600.0)
    return ReconcileLoop(resources, config, clock=clock, telemetry=Telemetry(), health=Health(clock))


async def settled_seconds() -> float:
    """CPU seconds per resource of one resync over settled resources: none needs a reconcile."""
    resources = Resources([str(n) for n in range(RESOURCES)])
    loop = loop_over(resources)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(loop.run())
        await asyncio.sleep(0)
        await loop.resync()
        while resources.done < RESOURCES:
            await asyncio.sleep(0)
        started = time.process_time()
        await loop.resync()
        elapsed = time.process_time() - started
        assert resources.done == RESOURCES
        running.cancel()
    return elapsed / RESOURCES


async def no_op_seconds() -> float:
    """CPU seconds per resource of one resync of everything, settled or not, that changes nothing to do."""
    resources = Resources([str(n) for n in range(RESOURCES)])
    loop = loop_over(resources)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(loop.run())
        await asyncio.sleep(0)
        for _ in range(2):  # the first resync creates instruments and states
            resources.done = 0
            started = time.process_time()
            await loop.resync(everything=True)
            while resources.done < RESOURCES:
                await asyncio.sleep(0)
            elapsed = time.process_time() - started
        running.cancel()
    return elapsed / RESOURCES


async def keyed_queue_seconds() -> float:
    """The minimum for the same with a keyed queue: no timers, states, traces, results or metrics."""
    ready: deque[str] = deque()
    waiting: set[str] = set()
    busy: set[str] = set()

    async def reconcile(_: str) -> None:
        return

    async def serve() -> None:
        while ready:
            key = ready.popleft()
            waiting.discard(key)
            busy.add(key)
            await reconcile(key)
            busy.discard(key)

    ids = [str(n) for n in range(RESOURCES)]
    started = time.process_time()
    for key in ids:
        if key not in waiting and key not in busy:
            waiting.add(key)
            ready.append(key)
    await asyncio.gather(*(serve() for _ in range(10)))
    return (time.process_time() - started) / RESOURCES


async def reference_seconds() -> float:
    """The same with a task per resource, a semaphore and gather."""
    limit = asyncio.Semaphore(10)

    async def reconcile(_: str) -> None:
        async with limit:
            return

    started = time.process_time()
    await asyncio.gather(*(reconcile(str(n)) for n in range(RESOURCES)))
    return (time.process_time() - started) / RESOURCES


async def hot_key_seconds() -> list[float]:
    """Time to start of a hot key while 50 of 1,000 resources hang for two seconds at a time."""
    ids = [str(n) for n in range(1_000)]
    resources = Resources(ids, frozenset(random.Random(1).sample(ids, SLOW)))
    loop = loop_over(resources)
    waits: list[float] = []
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(loop.run())
        await asyncio.sleep(0)
        for _ in range(3):
            await loop.resync(everything=True)
            for _ in range(50):
                await asyncio.sleep(0.03)
                resources.hot_ran.clear()
                asked = time.perf_counter()
                loop.trigger("hot")
                await resources.hot_ran.wait()
                waits.append(time.perf_counter() - asked)
        running.cancel()
    return waits


async def best_of(measure: Callable[[], Awaitable[float]]) -> float:
    """The cheapest of several: other load on this host only ever adds to it."""
    return min([await measure() for _ in range(ROUNDS)])


async def measure() -> None:
    settled, no_op = await best_of(settled_seconds), await best_of(no_op_seconds)
    keyed_queue, reference = await best_of(keyed_queue_seconds), await best_of(reference_seconds)
    hot_p99 = percentile(await hot_key_seconds(), 99)
    report(
        "reconcile_machinery",
        [
            ("CPU per settled resource, which is passed over", f"{settled * 1e6:.2f} us"),
            ("CPU per no-op, ours", f"{no_op * 1e6:.2f} us"),
            ("CPU per no-op, the least with a keyed queue", f"{keyed_queue * 1e6:.2f} us"),
            ("CPU per no-op, task + semaphore + gather", f"{reference * 1e6:.2f} us"),
            ("hot key starts within, p99, 50 of 1,000 hanging 2 s", f"{hot_p99 * 1000:.2f} ms"),
        ],
        ratios={
            "settled / keyed queue": settled / keyed_queue,
            "no-op / task per resource": no_op / reference,
            "hot key p99 / hang": hot_p99 / SLOW_SECONDS,
        },
        figures={
            "settled_seconds": settled,
            "no_op_seconds": no_op,
            "keyed_queue_seconds": keyed_queue,
            "reference_no_op_seconds": reference,
            "hot_key_p99_seconds": hot_p99,
        },
    )


if __name__ == "__main__":
    asyncio.run(measure())
