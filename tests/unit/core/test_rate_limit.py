"""The token bucket: how fast, who first, and what happens when the other side says no."""

import asyncio
import random

import pytest

from lcm.core.rate_limit import MAX_WAITING, Rate, Saturated, TokenBucket
from support.virtual_time import VirtualClock


def a_bucket(per_second: float = 2, burst: int = 5, seed: int = 1) -> TokenBucket:
    return TokenBucket(Rate(per_second, burst), VirtualClock(), random.Random(seed))


class Callers:
    """Who got a permit, and when."""

    def __init__(self, bucket: TokenBucket) -> None:
        self.bucket = bucket
        self.clock = VirtualClock()
        self.began = self.clock.monotonic()
        self.served: list[tuple[str, float]] = []

    async def call(self, name: str, *, urgent: bool = True, within_seconds: float = 60) -> None:
        await self.bucket.take(urgent=urgent, within_seconds=within_seconds)
        self.served.append((name, round(self.clock.monotonic() - self.began, 3)))


async def test_a_burst_goes_through_at_once_and_the_rest_at_the_rate() -> None:
    callers = Callers(a_bucket())
    for n in range(8):
        await callers.call(str(n))
    assert [at for _, at in callers.served] == [0, 0, 0, 0, 0, 0.5, 1.0, 1.5]


async def test_a_quiet_time_restores_the_burst_and_no_more() -> None:
    callers = Callers(a_bucket())
    for _ in range(5):
        await callers.call("early")
    await callers.clock.sleep(3_600)
    callers.began = callers.clock.monotonic()
    for _ in range(6):
        await callers.call("late")
    assert [at for name, at in callers.served if name == "late"] == [0, 0, 0, 0, 0, 0.5]


async def test_urgent_callers_go_before_patient_ones_that_came_earlier() -> None:
    callers = Callers(a_bucket(per_second=1, burst=1))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(callers.call("first", urgent=False))
        tasks.create_task(callers.call("poll 1", urgent=False))
        tasks.create_task(callers.call("poll 2", urgent=False))
        await callers.clock.sleep(0.5)
        tasks.create_task(callers.call("click 1"))
        tasks.create_task(callers.call("click 2"))
    assert callers.served == [
        ("first", 0),
        ("click 1", 1),
        ("click 2", 2),
        ("poll 1", 3),
        ("poll 2", 4),
    ]


async def test_no_permit_in_time_is_an_error_and_leaves_the_queue_moving() -> None:
    callers = Callers(a_bucket(per_second=0.1, burst=1))
    await callers.call("first")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(callers.call("patient"))
        with pytest.raises(Saturated, match="within 3 seconds"):
            await callers.call("hurried", within_seconds=3)
    assert callers.served == [("first", 0), ("patient", 10)]


async def test_a_caller_that_is_cancelled_gives_its_place_away() -> None:
    callers = Callers(a_bucket(per_second=1, burst=1))
    await callers.call("first")
    async with asyncio.TaskGroup() as tasks:
        leaver = tasks.create_task(callers.call("leaver"))
        tasks.create_task(callers.call("next"))
        await callers.clock.sleep(0.2)
        leaver.cancel()
    assert callers.served == [("first", 0), ("next", 1)]


async def test_after_a_refusal_everybody_pauses_for_a_time_that_differs_and_grows() -> None:
    pauses = []
    for seed in (1, 2):
        callers = Callers(a_bucket(per_second=1_000, seed=seed))
        for _ in range(5):
            callers.bucket.refused("slow down")
            began = callers.clock.monotonic()
            await callers.call("again")
            pauses.append(callers.clock.monotonic() - began)
    assert len(set(pauses)) == 10
    for n, ceiling in enumerate((0.5, 1, 2, 4, 4)):
        assert ceiling / 2 <= pauses[n] <= ceiling + 0.01


async def test_who_waits_in_vain_hears_why() -> None:
    callers = Callers(a_bucket(per_second=0.1))
    callers.bucket.refused("RequestLimitExceeded")
    with pytest.raises(Saturated, match="refused: RequestLimitExceeded"):
        await callers.call("hurried", within_seconds=1)


async def test_a_call_that_goes_through_forgives_the_refusals() -> None:
    callers = Callers(a_bucket(per_second=1_000))
    for _ in range(10):
        callers.bucket.refused("slow down")
    callers.bucket.accepted()
    callers.bucket.refused("slow down")
    began = callers.clock.monotonic()
    await callers.call("soon")
    # The pause of before is over at the latest then; the new one is short again.
    assert callers.clock.monotonic() - began <= 0.51


async def test_the_queue_is_bounded() -> None:
    callers = Callers(a_bucket(per_second=1, burst=1))
    await callers.call("first")
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(callers.call("many", within_seconds=1e6)) for _ in range(MAX_WAITING)]
        await callers.clock.sleep(0)
        with pytest.raises(Saturated, match="are waiting"):
            await callers.call("one too many")
        for task in waiting:
            task.cancel()
