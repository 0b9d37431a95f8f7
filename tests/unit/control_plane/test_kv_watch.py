"""Two control planes, one store, one coordination store: every commit is published at both, once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime

import pytest

from lcm.control_plane.records.workers import Workers
from lcm.control_plane.replication.kv_watch import KvWatch
from lcm.control_plane.replication.publisher import Publisher
from lcm.control_plane.store.memory import MemoryStore
from lcm.core.health import Health
from lcm.core.kv.port import Kv
from lcm.domain.launch import WorkerId
from lcm.domain.worker import Worker, new_worker
from support.core import Link, memory_kv, running, with_fields
from support.virtual_time import VirtualClock

clock = VirtualClock()


class Plane:
    """What one control plane publishes on its streams: (worker, version), newer ones only, like the hub."""

    def __init__(self, store: MemoryStore, kv: Kv) -> None:
        self.published: list[tuple[str, int]] = []
        self.workers = Workers(store)
        self.workers.subscribe(lambda _, after: self.publish(after))
        health = Health(clock)
        self.publisher = Publisher(store, kv, clock=clock, health=health, on_found=self.publish)
        self.workers.subscribe(self.publisher.on_worker_commit)
        self.workers.subscribe_to_purges(self.publisher.on_worker_purge)
        self.kv_watch = KvWatch(self.workers, kv, clock=clock, on_found=self.publish)

    def publish(self, worker: Worker) -> None:
        if worker.version > max(
            (version for name, version in self.published if name == worker.id), default=0
        ):
            self.published.append((worker.id, worker.version))

    async def create(self, name: str) -> None:
        await self.workers.add(
            new_worker(
                worker_id=WorkerId(name),
                name=name,
                template_name="small",
                aws_region="us-east-1",
                tags={},
                by="ann",
                now=datetime(2026, 1, 1, tzinfo=UTC),
            )
        )

    async def change(self, name: str) -> None:
        await self.workers.change(name, lambda worker: with_fields(worker, cml_ready=not worker.cml.is_ready))


class Pair:
    """The two planes, and the second one's way to the coordination store."""

    def __init__(self) -> None:
        self.kv, self.store = memory_kv(clock), MemoryStore()
        self.link = Link(self.kv, clock)
        self.here, self.there = Plane(self.store, self.kv), Plane(self.store, self.link)


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    both = Pair()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(running(both.kv))
        for plane in (both.here, both.there):
            await stack.enter_async_context(running(plane.publisher, plane.kv_watch))
        await clock.sleep(1)
        yield both


async def test_a_commit_here_is_published_there_at_once_and_once() -> None:
    async with pair() as both:
        await both.here.create("a")
        await clock.sleep(0.1)
        assert both.here.published == both.there.published == [("a", 1)]
        await both.there.change("a")
        await clock.sleep(0.1)
        assert both.here.published == both.there.published == [("a", 1), ("a", 2)]


async def test_commits_of_both_are_published_in_order_of_their_versions() -> None:
    async with pair() as both:
        await both.here.create("a")
        for _ in range(20):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(both.here.change("a"))
                tasks.create_task(both.there.change("a"))
            await clock.sleep(0.01)
        await clock.sleep(10)
        for plane in (both.here, both.there):
            versions = [version for _, version in plane.published]
            assert versions == sorted(set(versions))
            assert versions[-1] == 41


async def test_commits_during_an_outage_of_the_coordination_store_are_published_after_it() -> None:
    async with pair() as both:
        await both.here.create("a")
        await clock.sleep(1)
        both.link.cut()
        await clock.sleep(10)
        await both.here.change("a")
        await clock.sleep(10)
        assert both.there.published[-1] == ("a", 1)
        both.link.mend()
        await clock.sleep(3)
        assert both.there.published[-1] == ("a", 2)


@pytest.mark.parametrize("steps", range(10))
async def test_a_watch_that_fails_at_the_moment_it_is_to_stop_stops(steps: int) -> None:
    kv = memory_kv(clock)
    link = Link(kv, clock)
    link.cut()
    peers = Plane(MemoryStore(), link).kv_watch
    async with asyncio.TaskGroup() as tasks:
        life = tasks.create_task(peers.run())
        for _ in range(steps):
            await clock.sleep(0)
        life.cancel()
        await clock.sleep(10)
        is_over = life.done()
        life.cancel()
    assert is_over
