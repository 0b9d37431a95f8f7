"""A bound on time: late is late, cancelled is cancelled, on every Python that LCM runs on."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from lcm.core.timeouts import repaired_timeout, timeout
from support.virtual_time import VirtualClock

Bound = Callable[[float | None], AbstractAsyncContextManager[asyncio.Timeout]]

clock = VirtualClock()
both = pytest.mark.parametrize("bound", [timeout, repaired_timeout])


@both
async def test_what_is_done_in_time_is_not_disturbed(bound: Bound) -> None:
    async with bound(5):
        await clock.sleep(4)
    async with bound(None):
        await clock.sleep(4_000)


@both
async def test_what_takes_longer_ends_with_a_timeout(bound: Bound) -> None:
    with pytest.raises(TimeoutError):
        async with bound(5):
            await clock.sleep(6)
    assert clock.monotonic() == 5


@both
async def test_who_is_cancelled_is_not_called_late(bound: Bound) -> None:
    async def work() -> None:
        async with bound(5):
            await clock.sleep(6)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(work())
        await clock.sleep(1)
        task.cancel()
    assert task.cancelled()


@both
async def test_a_clean_up_that_is_late_is_called_late_although_it_follows_a_cancellation(
    bound: Bound,
) -> None:
    done: list[str] = []

    async def work() -> None:
        try:
            await clock.sleep(60)
        finally:
            try:
                async with bound(5):
                    await clock.sleep(6)
            except TimeoutError:
                done.append("gave up")

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(work())
        await clock.sleep(1)
        task.cancel()
    assert done == ["gave up"]
    assert task.cancelled()


@both
async def test_a_group_that_failed_can_be_cleaned_up_after_and_its_task_goes_on(bound: Bound) -> None:
    """What an election does whose lease cannot be given back."""

    async def fail() -> None:
        raise ConnectionError("the link is down")

    async def work() -> str:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(fail())
                try:
                    await clock.sleep(60)
                finally:
                    try:
                        async with bound(5):
                            await clock.sleep(6)
                    except TimeoutError:
                        pass
        except* ConnectionError:
            pass
        return "goes on"

    assert await work() == "goes on"


@both
async def test_of_two_bounds_the_one_that_is_over_first_is_the_one_that_ends(bound: Bound) -> None:
    outer, inner = bound(5), bound(10)
    with pytest.raises(TimeoutError):
        async with outer, inner:
            await clock.sleep(60)
    assert clock.monotonic() == 5
