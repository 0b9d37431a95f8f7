"""No hole between the record and the coordination store, wherever the process dies."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from lcm.control_plane.records.workers import Workers
from lcm.control_plane.replication.publisher import Publisher
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import Document, StoreUnavailable
from lcm.core.health import Health
from lcm.core.ids import RandomIds
from lcm.core.kv.memory import MemoryKv
from lcm.core.kv.port import Item, KvUnavailable, LeaseId
from lcm.domain.capacity import Capacity
from lcm.domain.launch import WorkerId
from lcm.domain.license import LicenseOperation, request_operation
from lcm.domain.lifecycle import RUNNING, DesiredStatus
from lcm.domain.telemetry import MonitorState
from lcm.domain.worker import Worker, new_worker
from support.core import with_fields
from support.virtual_time import VirtualClock


class FlakyKv(MemoryKv):
    """A coordination store that can be away, or go away after so many writes."""

    is_away = False
    writes_left: int | None = None

    async def get(self, key: str) -> Item | None:
        self._answer()
        return await super().get(key)

    async def put(self, key: str, value: bytes, lease: LeaseId | None = None) -> int:
        self._answer()
        if self.writes_left is not None:
            if self.writes_left == 0:
                raise KvUnavailable("away")
            self.writes_left -= 1
        return await super().put(key, value, lease)

    async def wipe(self) -> None:
        for item in (await self.list_prefix("/")).items:
            await self.delete(item.key)

    def _answer(self) -> None:
        if self.is_away:
            raise KvUnavailable("away")


class FlakyStore(MemoryStore):
    """A store that can be away."""

    is_away = False

    async def list_all(self, kind: str) -> Sequence[Document]:
        if self.is_away:
            raise StoreUnavailable("away")
        return await super().list_all(kind)


class Plane:
    """A store, its publisher and a coordination store."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = FlakyStore()
        self.kv = FlakyKv(self.clock, RandomIds(Random(1)))
        self.health = Health(self.clock)
        self.reopen()

    def reopen(self) -> None:
        """As after a restart: memory is lost, the store is not."""
        self.kv.writes_left = None
        self.workers = Workers(self.store)
        self.publisher = Publisher(self.store, self.kv, clock=self.clock, health=self.health)
        self.workers.subscribe(self.publisher.on_worker_commit)
        self.workers.subscribe_to_purges(self.publisher.on_worker_purge)

    @asynccontextmanager
    async def publishing(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.publisher.run())
            yield
            task.cancel()

    async def add(self, name: str = "ada") -> Worker:
        worker = new_worker(
            worker_id=WorkerId(name),
            name=name,
            template_name="small",
            aws_region="us-east-1",
            tags={},
            by="ann",
            now=datetime(2026, 1, 1, tzinfo=UTC),
        )
        return await self.workers.add(worker)

    async def key(self, name: str) -> Any:
        item = await MemoryKv.get(self.kv, f"/lcm/workers/{name}")
        return json.loads(item.value) if item else None


@pytest.fixture
def plane() -> Plane:
    return Plane()


async def test_a_commit_is_published_at_once(plane: Plane) -> None:
    async with plane.publishing():
        await plane.clock.sleep(0)
        await plane.add()
        await plane.clock.sleep(0.001)
        assert await plane.key("ada/desired_state") == {"desired_status": "running", "generation": 1}
        assert await plane.key("ada/state") == {"status": "pending", "version": 1}
        assert await plane.store.list_unpublished("worker") == []


async def test_a_pending_license_operation_is_published(plane: Plane) -> None:
    async with plane.publishing():
        await plane.add()
        await plane.clock.sleep(0.001)
        assert await plane.key("ada/license") is None
        register = partial(request_operation, operation=LicenseOperation.REGISTER, now=plane.clock.now())
        await plane.workers.change("ada", lambda worker: replace(worker, license=register(worker.license)))
        await plane.clock.sleep(0.001)
        assert await plane.key("ada/license") == {"pending_operation": "register"}


async def test_what_was_committed_before_a_crash_is_published_after_it(plane: Plane) -> None:
    await plane.add()
    assert await plane.key("ada/state") is None
    plane.reopen()
    async with plane.publishing():
        await plane.clock.sleep(0.001)
        assert await plane.key("ada/state") == {"status": "pending", "version": 1}


async def is_marked(plane: Plane) -> bool:
    """Whether the coordination store is known to have what was written before."""
    return await MemoryKv.get(plane.kv, "/lcm/published") is not None


@pytest.mark.parametrize("writes", [0, 1, 2])
async def test_what_was_committed_before_a_crash_is_published_after_it_though_more_was_published_before(
    plane: Plane, writes: int
) -> None:
    async with plane.publishing():
        await plane.add()
        await plane.clock.sleep(0.001)
        assert await is_marked(plane)
        plane.kv.writes_left = writes  # of two; after them the process ends
        await plane.workers.change(
            "ada",
            lambda w: replace(w, status=RUNNING, desired_status=DesiredStatus.STOPPED, generation=2),
        )
        await plane.clock.sleep(0.001)
    assert await is_marked(plane)
    plane.reopen()
    async with plane.publishing():
        await plane.clock.sleep(0.001)
        assert await plane.key("ada/desired_state") == {"desired_status": "stopped", "generation": 2}
        assert await plane.key("ada/state") == {"status": "running", "version": 2}
        assert await plane.store.list_unpublished("worker") == []


async def test_what_was_committed_while_nothing_published_is_published_though_more_was_published_before(
    plane: Plane,
) -> None:
    async with plane.publishing():
        await plane.add()
        await plane.clock.sleep(0.001)
    assert await is_marked(plane)
    await plane.add("bob")
    await plane.workers.change("ada", lambda worker: replace(worker, status=RUNNING))
    plane.reopen()
    async with plane.publishing():
        await plane.clock.sleep(0.001)
        assert await plane.key("ada/state") == {"status": "running", "version": 2}
        assert await plane.key("bob/state") == {"status": "pending", "version": 1}


@pytest.mark.parametrize("writes", range(6))
async def test_a_crash_while_a_wiped_coordination_store_is_filled_hides_no_key(
    plane: Plane, writes: int
) -> None:
    """The marker says that the rest is there; it is the last of these five writes."""
    async with plane.publishing():
        await plane.add("ada")
        await plane.add("bob")
        await plane.clock.sleep(0.001)
    await plane.kv.wipe()
    plane.reopen()
    plane.kv.writes_left = writes
    async with plane.publishing():
        await plane.clock.sleep(0.001)
    assert await is_marked(plane) is (writes == 5)
    plane.reopen()
    async with plane.publishing():
        await plane.clock.sleep(0.001)
        for name in ("ada", "bob"):
            assert await plane.key(f"{name}/desired_state") == {"desired_status": "running", "generation": 1}
            assert await plane.key(f"{name}/state") == {"status": "pending", "version": 1}


async def test_while_the_coordination_store_is_away_nothing_is_lost(plane: Plane) -> None:
    plane.kv.is_away = True
    async with plane.publishing():
        await plane.add()
        await plane.clock.sleep(600)
        assert plane.health.freeze_reasons
        plane.kv.is_away = False
        await plane.clock.sleep(1.001)
        assert await plane.key("ada/state") == {"status": "pending", "version": 1}
        assert plane.health.freeze_reasons == []


async def test_a_store_that_cannot_be_read_is_named_as_what_is_missing(plane: Plane) -> None:
    plane.store.is_away = True
    async with plane.publishing():
        await plane.clock.sleep(10)
        assert plane.health.freeze_reasons == ["store: away"]
        plane.store.is_away = False
        await plane.clock.sleep(1.001)
        assert plane.health.freeze_reasons == []


async def test_a_wiped_coordination_store_is_filled_again(plane: Plane) -> None:
    async with plane.publishing():
        await plane.add()
        await plane.clock.sleep(10)
        await plane.kv.wipe()
        await plane.clock.sleep(5.001)
        assert await plane.key("ada/desired_state") is not None


async def test_a_key_that_stays_the_same_is_not_written_again(plane: Plane) -> None:
    async with plane.publishing():
        await plane.add()
        await plane.clock.sleep(1)
        before = await plane.kv.get("/lcm/workers/ada/desired_state")
        await plane.workers.change("ada", lambda worker: replace(worker, status=RUNNING))
        await plane.clock.sleep(1)
        after = await plane.kv.get("/lcm/workers/ada/desired_state")
        assert before == after
        assert (await plane.key("ada/state"))["status"] == "running"


async def test_the_newest_version_wins_whatever_the_order_of_publishing(plane: Plane) -> None:
    async with plane.publishing():
        await plane.add()
        for generation in range(2, 50):
            await plane.workers.change(
                "ada",
                lambda worker, generation=generation: replace(  # type: ignore[misc]
                    worker, desired_status=DesiredStatus.STOPPED, generation=generation
                ),
            )
        await plane.clock.sleep(1)
        assert (await plane.key("ada/desired_state"))["generation"] == 49
        assert (await plane.key("ada/state"))["version"] == 49


def connected(worker: Worker) -> Worker:
    return with_fields(
        worker, ws_status=MonitorState.CONNECTED, last_activity_check_at=datetime(2026, 1, 2, tzinfo=UTC)
    )


async def test_a_commit_that_needs_no_action_wakes_no_controller_and_counts_as_published(
    plane: Plane,
) -> None:
    async with plane.publishing():
        await plane.add()
        await plane.clock.sleep(1)
        before = await plane.kv.get("/lcm/workers/ada/state")
        await plane.workers.change("ada", connected)
        await plane.clock.sleep(1)
        assert await plane.kv.get("/lcm/workers/ada/state") == before
        assert await plane.store.list_unpublished("worker") == []


async def test_a_change_is_published_even_if_a_commit_without_action_follows_at_once(plane: Plane) -> None:
    async with plane.publishing():
        await plane.add()
        await plane.clock.sleep(1)
        await plane.workers.change("ada", lambda worker: replace(worker, status=RUNNING))
        await plane.workers.change("ada", connected)
        await plane.clock.sleep(1)
        assert (await plane.key("ada/state"))["status"] == "running"


async def test_a_commit_without_action_does_not_hide_one_whose_confirmation_was_lost(plane: Plane) -> None:
    async with plane.publishing():
        worker = await plane.add()
        await plane.clock.sleep(1)
        unconfirmed = replace(worker, status=RUNNING, version=2)
        await plane.store.replace(Document("worker", "ada", 2, msgspec.json.encode(unconfirmed)))
        await plane.workers.change("ada", connected)
        await plane.clock.sleep(1)
        assert (await plane.key("ada/state"))["status"] == "running"


async def test_a_capacity_key_that_is_not_what_the_record_says_is_written_again_within_half_a_minute(
    plane: Plane,
) -> None:
    """Two control planes that publish the same worker may leave the older value."""
    await plane.add()
    await plane.workers.change(
        WorkerId("ada"), lambda worker: replace(worker, declared_capacity=Capacity(cpu=8))
    )
    async with plane.publishing():
        await plane.clock.sleep(1)
        assert (await plane.key("ada/capacity"))["declared"]["cpu"] == 8
        await plane.kv.put("/lcm/workers/ada/capacity", b"{}")
        await plane.clock.sleep(20)
        assert await plane.key("ada/capacity") == {}
        await plane.clock.sleep(16)
        assert (await plane.key("ada/capacity"))["declared"]["cpu"] == 8
