"""The queue's guarantees: a key waits once, runs alone, runs again if asked for meanwhile, runs on time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lcm.core.timeouts import timeout
from lcm.core.work_queue import WorkQueue
from support.virtual_time import VirtualClock, run_in_virtual_time

clock = VirtualClock()


def a_queue(capacity: int = 100_000) -> WorkQueue[str]:
    return WorkQueue(clock, capacity)


@asynccontextmanager
async def timers_of(queue: WorkQueue[str]) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        timers = tasks.create_task(queue.release_due())
        yield
        timers.cancel()


async def next_key(queue: WorkQueue[str], within: float = 1_000.0) -> tuple[str, float] | None:
    """The next key and when it came, or None if none comes in time."""
    try:
        async with timeout(within):
            key = await queue.get()
    except TimeoutError:
        return None
    return key, clock.monotonic()


async def test_keys_are_handed_out_in_the_order_they_were_added() -> None:
    queue = a_queue()
    for key in ("a", "b", "c"):
        queue.add(key)
    assert [await queue.get() for _ in range(3)] == ["a", "b", "c"]


async def test_a_key_waits_at_most_once_however_often_it_is_added() -> None:
    queue = a_queue()
    for _ in range(5):
        queue.add("a")
    assert len(queue) == queue.ready_count == 1
    assert await next_key(queue) == ("a", 0.0)
    queue.done("a")
    assert await next_key(queue) is None


async def test_a_key_is_never_handed_out_twice_at_once() -> None:
    queue = a_queue()
    queue.add("a")
    await queue.get()
    queue.add("a")
    assert await next_key(queue) is None


async def test_a_key_added_while_it_runs_runs_once_more() -> None:
    queue = a_queue()
    queue.add("a")
    await queue.get()
    for _ in range(3):
        queue.add("a")
    queue.done("a")
    assert await next_key(queue) == ("a", 0.0)
    queue.done("a")
    assert await next_key(queue) is None


async def test_a_key_not_asked_for_again_rests_when_it_is_done() -> None:
    queue = a_queue()
    queue.add("a")
    await queue.get()
    queue.done("a")
    assert len(queue) == 0


async def test_a_key_added_for_later_comes_at_its_time() -> None:
    queue = a_queue()
    async with timers_of(queue):
        queue.add_after("a", 7.5)
        assert len(queue) == 1
        assert queue.ready_count == 0
        assert await next_key(queue) == ("a", 7.5)


async def test_who_waits_for_a_key_to_be_ready_hears_of_it_and_leaves_it_there() -> None:
    queue = a_queue()
    async with timers_of(queue):
        queue.add_after("a", 7.5)
        await queue.until_ready()
        assert clock.monotonic() == 7.5
        assert queue.ready_count == 1
        assert await queue.get() == "a"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.until_ready(), 60)


@pytest.mark.parametrize("delays", [(10, 3, 7), (3, 7, 10), (7, 10, 3)])
async def test_of_several_times_the_earliest_counts(delays: tuple[float, ...]) -> None:
    queue = a_queue()
    async with timers_of(queue):
        for delay in delays:
            queue.add_after("a", delay)
        assert await next_key(queue) == ("a", 3.0)
        queue.done("a")
        assert await next_key(queue) is None


async def test_a_key_added_at_once_forgets_its_later_time() -> None:
    queue = a_queue()
    async with timers_of(queue):
        queue.add_after("a", 5)
        queue.add("a")
        assert await next_key(queue) == ("a", 0.0)
        queue.done("a")
        assert await next_key(queue) is None


async def test_a_key_that_waits_already_needs_no_later_time() -> None:
    queue = a_queue()
    async with timers_of(queue):
        queue.add("a")
        queue.add_after("a", 5)
        assert await next_key(queue) == ("a", 0.0)
        queue.done("a")
        assert await next_key(queue) is None


@pytest.mark.parametrize("delay", [0, -1])
async def test_a_delay_that_is_over_means_at_once(delay: float) -> None:
    queue = a_queue()
    queue.add_after("a", delay)
    assert queue.ready_count == 1


async def test_a_time_that_comes_while_the_key_runs_lets_it_run_once_more_afterwards() -> None:
    queue = a_queue()
    async with timers_of(queue):
        queue.add("a")
        await queue.get()
        queue.add_after("a", 2)
        await clock.sleep(5)
        queue.done("a")
        assert await next_key(queue) == ("a", 5.0)


async def test_keys_come_in_the_order_of_their_times() -> None:
    queue = a_queue()
    async with timers_of(queue):
        for key, delay in (("late", 30), ("early", 10), ("middle", 20)):
            queue.add_after(key, delay)
        assert [await next_key(queue) for _ in range(3)] == [
            ("early", 10.0),
            ("middle", 20.0),
            ("late", 30.0),
        ]


def busy(queue: WorkQueue[str]) -> None:
    queue.add("a")


def held_back(queue: WorkQueue[str]) -> None:
    queue.add_after("a", 60)


@pytest.mark.parametrize("prepare", [busy, held_back])
async def test_an_offer_is_declined_for_a_key_that_waits_or_is_held_back(
    prepare: Callable[[WorkQueue[str]], None],
) -> None:
    queue = a_queue()
    prepare(queue)
    assert not queue.offer("a")
    assert len(queue) == 1


async def test_an_offer_is_declined_for_a_key_that_runs() -> None:
    queue = a_queue()
    queue.add("a")
    await queue.get()
    assert not queue.offer("a")
    queue.done("a")
    assert queue.offer("a")
    assert await next_key(queue) == ("a", 0.0)


async def test_a_full_queue_refuses_new_keys_and_counts_them() -> None:
    queue = a_queue(capacity=2)
    for key in ("a", "b", "c"):
        queue.add(key)
    queue.add_after("d", 5)
    assert queue.dropped == 2
    assert len(queue) == 2


async def test_an_offer_to_a_full_queue_is_declined() -> None:
    queue = a_queue(capacity=1)
    queue.add("a")
    assert not queue.offer("b")


async def test_keys_held_back_count_against_the_capacity() -> None:
    queue = a_queue(capacity=1)
    queue.add_after("a", 60)
    queue.add("b")
    assert queue.dropped == 1
    assert queue.ready_count == 0


async def test_a_key_that_has_its_place_in_a_full_queue_may_move_forward() -> None:
    queue = a_queue(capacity=2)
    async with timers_of(queue):
        queue.add_after("a", 60)
        queue.add_after("b", 60)
        queue.add_after("a", 1)
        assert await next_key(queue) == ("a", 1.0)
        queue.add("b")
        assert await next_key(queue) == ("b", 1.0)
        assert queue.dropped == 0


async def test_a_cancelled_getter_hands_its_key_to_the_next() -> None:
    queue = a_queue()
    got: list[str] = []

    async def getter() -> None:
        got.append(await queue.get())

    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(getter())
        tasks.create_task(getter())
        await clock.sleep(1)
        queue.add("a")  # wakes the first, which is cancelled before it can look
        first.cancel()
    assert got == ["a"]


async def test_a_getter_cancelled_while_nothing_is_there_takes_nothing_with_it() -> None:
    queue = a_queue()
    assert await next_key(queue, within=1) is None
    queue.add("a")
    assert await next_key(queue) == ("a", 1.0)


async def test_many_getters_share_the_keys() -> None:
    queue = a_queue()
    got: list[str] = []

    async def getter() -> None:
        got.append(await queue.get())

    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(getter())
        await clock.sleep(1)
        for key in ("a", "b", "c"):
            queue.add(key)
    assert sorted(got) == ["a", "b", "c"]


# Any interleaving. Times are small whole numbers, so that many things happen at the same instant.

KEYS = st.sampled_from("abc")
PAUSES = st.sampled_from([0.0, 0.0, 1.0, 2.0])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), KEYS, st.just(0.0)),
        st.tuples(st.just("add_after"), KEYS, PAUSES),
        st.tuples(st.just("offer"), KEYS, st.just(0.0)),
        st.tuples(st.just("wait"), st.just(""), PAUSES),
    ),
    max_size=40,
)


class Diary:
    """What was asked for, and what ran."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        """A key, and how many runs had begun when it was asked for."""
        self.runs: list[str] = []
        self.busy: set[str] = set()


async def consume(queue: WorkQueue[str], diary: Diary, patience: list[float], work: list[float]) -> None:
    """Take keys and work on them; give up waiting now and then, as a cancelled consumer does."""
    turn = 0
    while True:
        turn += 1
        try:
            async with timeout(patience[turn % len(patience)]):
                key = await queue.get()
        except TimeoutError:
            await clock.sleep(0.5)
            continue
        assert key not in diary.busy, f"{key} runs twice at once"
        diary.busy.add(key)
        diary.runs.append(key)
        await clock.sleep(work[turn % len(work)])
        diary.busy.remove(key)
        queue.done(key)


async def ask(queue: WorkQueue[str], diary: Diary, steps: list[tuple[str, str, float]]) -> None:
    for step, key, seconds in steps:
        match step:
            case "wait":
                await clock.sleep(seconds)
                continue
            case "add":
                queue.add(key)
            case "add_after":
                queue.add_after(key, seconds)
            case "offer":
                if not queue.offer(key):
                    continue
        diary.asked.append((key, len(diary.runs)))


@pytest.mark.no_cover  # many times what is measured elsewhere
@settings(max_examples=300)
@given(
    steps=STEPS,
    consumers=st.integers(1, 3),
    patience=st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=1, max_size=4),
    work=st.lists(PAUSES, min_size=1, max_size=4),
)
def test_in_any_interleaving_no_key_runs_twice_at_once_and_none_is_lost(
    steps: list[tuple[str, str, float]], consumers: int, patience: list[float], work: list[float]
) -> None:
    diary = Diary()

    async def scenario() -> int:
        queue = a_queue()
        async with timers_of(queue), asyncio.TaskGroup() as tasks:
            workers = [tasks.create_task(consume(queue, diary, patience, work)) for _ in range(consumers)]
            await ask(queue, diary, steps)
            await clock.sleep(1_000)
            for worker in workers:
                worker.cancel()
        return len(queue)

    assert run_in_virtual_time(scenario()) == 0
    for key, runs_before in diary.asked:
        assert key in diary.runs[runs_before:], f"{key} was asked for and never ran again"
    for key in "abc":
        assert diary.runs.count(key) <= sum(1 for asked, _ in diary.asked if asked == key)
