"""Three writers on one record: every accepted change is in exactly one version, and retries are bounded."""

import asyncio

import pytest
from msgspec.structs import replace

from lcm.control_plane.records.collection import MAX_ATTEMPTS
from lcm.control_plane.records.workers import Workers
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import Document, Fence, VersionConflict
from lcm.domain.errors import Conflict
from lcm.domain.launch import WorkerId
from lcm.domain.worker import Worker
from support.core import a_worker

CHANGES = 60


class SlowStore(MemoryStore):
    """Other tasks run between every read and the write that follows."""

    async def get(self, kind: str, document_id: str) -> Document | None:
        found = await super().get(kind, document_id)
        await asyncio.sleep(0)  # noqa: TID251 - a turn for the others, not a wait
        return found


class ContestedStore(MemoryStore):
    """Somebody else is always quicker."""

    attempts = 0

    async def replace(self, document: Document, fence: Fence | None = None) -> None:
        self.attempts += 1
        raise VersionConflict(document.id)


async def test_three_writers_on_one_record_lose_nothing() -> None:
    workers = Workers(SlowStore())
    published: list[tuple[int, int]] = []
    workers.subscribe(
        lambda before, after: published.append((before.version if before else 0, after.version))
    )
    worker = await workers.add(a_worker())

    async def write(key: str) -> None:
        done = 0
        while done < CHANGES:
            try:
                await workers.change(worker.id, lambda w: counted(w, key))
                done += 1
            except Conflict:
                continue

    async with asyncio.TaskGroup() as tasks:
        for key in ("controller", "person", "importer"):
            tasks.create_task(write(key))
    final = await workers.get(worker.id)
    assert final.tags == {key: str(CHANGES) for key in ("controller", "person", "importer")}
    assert final.version == 1 + 3 * CHANGES
    assert sorted(published) == [(version, version + 1) for version in range(final.version)]


def counted(worker: Worker, key: str) -> Worker:
    return replace(worker, tags={**worker.tags, key: str(int(worker.tags.get(key, "0")) + 1)})


async def test_a_writer_that_always_loses_gives_up_and_says_so() -> None:
    store = ContestedStore()
    workers = Workers(store)
    worker = await workers.add(a_worker())
    with pytest.raises(Conflict, match="several requests change worker"):
        await workers.change(worker.id, lambda w: counted(w, "person"))
    assert store.attempts == MAX_ATTEMPTS


async def test_a_list_shows_every_record_as_it_is_now() -> None:
    store = MemoryStore()
    workers = Workers(store)
    for number in range(3):
        await workers.add(a_worker(id=WorkerId(f"w{number}"), name=f"lab-{number}"))
    await workers.list_all()
    changed = await workers.change("w1", lambda w: counted(w, "person"))
    await workers.purge(await workers.get("w0"))
    again = await workers.add(a_worker(id=WorkerId("w0"), name="another"))
    assert await workers.list_all() == [again, changed, await workers.get("w2")]
