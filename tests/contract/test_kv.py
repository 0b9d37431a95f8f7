"""The in-process coordination store keeps to the suite, in virtual time, and to a little more."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress

import pytest

from contract.kv_suite import *  # noqa: F403
from contract.kv_suite import DELETE, Store, seen
from lcm.core.ids import RandomIds
from lcm.core.kv.memory import MemoryKv
from lcm.core.kv.port import Compacted, Kv
from support.virtual_time import VirtualClock


@asynccontextmanager
async def memory() -> AsyncIterator[Store]:
    clock, ids = VirtualClock(), RandomIds(random.Random(1))
    kv = MemoryKv(clock, ids)

    async def compact(revision: int) -> None:
        kv.compact(revision)

    @asynccontextmanager
    async def new_cluster() -> AsyncIterator[Kv]:
        yield MemoryKv(clock, ids)

    life = asyncio.get_running_loop().create_task(kv.run())
    yield Store(kv, 10, clock, compact, new_cluster)
    life.cancel()
    with suppress(asyncio.CancelledError):
        await life


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with memory() as opened:
        yield opened


# What only the in-process store promises: exact times, and no buffer between a change and its reader.


async def test_in_process_a_lease_expires_on_the_second() -> None:
    clock = VirtualClock()
    async with memory() as store:
        await store.kv.put("/leased", b"1", await store.kv.grant_lease(store.ttl))
        changes = await seen(store.kv, 2, since=1)
        assert changes[1].kind is DELETE
        assert clock.monotonic() == store.ttl


async def test_in_process_a_slow_reader_overtaken_by_compaction_is_told() -> None:
    async with memory() as store:
        for n in range(5):
            await store.kv.put("/a", b"%d" % n)
        async with aclosing(store.kv.watch_prefix("/", 1)) as slow:
            assert (await anext(slow)).value == b"0"
            await store.compact(3)
            with pytest.raises(Compacted):
                await anext(slow)


async def test_in_process_a_full_history_forgets_its_oldest_changes() -> None:
    kv = MemoryKv(VirtualClock(), RandomIds(random.Random(1)), history_limit=10)
    for n in range(25):
        await kv.put("/a", b"%d" % n)
    with pytest.raises(Compacted) as error:
        await seen(kv, 1, since=15)
    assert error.value.compacted_revision == 15
    assert [change.revision for change in await seen(kv, 10, since=16)] == list(range(16, 26))


async def test_in_process_a_waiting_reader_is_told_of_a_compaction_that_overtakes_it() -> None:
    async with memory() as store:
        await store.kv.put("/a", b"1")

        async def overtake() -> None:
            await store.clock.sleep(1)  # the reader waits
            await store.compact(await store.kv.put("/a", b"2"))

        with pytest.raises(Compacted):
            await seen(store.kv, 1, since=2, until=overtake())
