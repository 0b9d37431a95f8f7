"""The loop that jumps from timer to timer."""

import asyncio

import pytest

from lcm.core.timeouts import timeout
from support.virtual_time import BEGINNING, Deadlock, VirtualClock, run_in_virtual_time

clock = VirtualClock()


async def test_time_passes_only_when_everybody_waits() -> None:
    began = clock.monotonic()
    for _ in range(100):
        await clock.sleep(0)
    assert clock.monotonic() == began
    await clock.sleep(86_400)
    assert clock.monotonic() == began + 86_400
    assert (clock.now() - BEGINNING).total_seconds() == clock.monotonic()


async def test_timers_for_the_same_moment_go_in_the_order_they_were_set() -> None:
    loop, order = asyncio.get_running_loop(), list[int]()
    for number in range(50):
        loop.call_at(loop.time() + 1.0, order.append, number)
    await clock.sleep(1.0)
    assert order == list(range(50))


async def test_a_cancelled_timer_neither_rings_nor_holds_time_up() -> None:
    loop, rung = asyncio.get_running_loop(), list[str]()
    loop.call_later(5.0, rung.append, "cancelled").cancel()
    began = loop.time()
    await clock.sleep(1.0)
    await clock.sleep(10.0)
    assert (rung, loop.time()) == ([], began + 11.0)


async def test_a_timeout_ends_exactly_when_it_is_due() -> None:
    began = clock.monotonic()
    with pytest.raises(TimeoutError):
        async with timeout(2.5):
            await asyncio.Event().wait()
    assert clock.monotonic() == began + 2.5


def test_waiting_for_what_no_time_brings_is_a_deadlock() -> None:
    async def wait_for_nothing() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run_in_virtual_time(wait_for_nothing())
