"""What every store keeps to: compare-and-set, unique keys, fences, and nothing acknowledged is lost."""

import asyncio
import gc
import json
import random
import sqlite3
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import PyMongoError

from lcm.control_plane.store.copy import CopyFailed, copy_store
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.mongodb import MongoStore
from lcm.control_plane.store.port import (
    LOG_KIND,
    Change,
    Delete,
    Document,
    Fence,
    FenceBroken,
    Insert,
    Replace,
    Store,
    StoredDocument,
    StoreUnavailable,
    UniqueKeyTaken,
    VersionConflict,
    WriteUnconfirmed,
)
from lcm.control_plane.store.sqlite import SqliteStore
from lcm.core.clock import SystemClock
from lcm.core.ids import RandomIds
from lcm.core.timeouts import timeout
from support.mongodb import Command, MongoServer, mongo_server, unsteady_front, watched_front
from support.patience import PATIENCE_SECONDS
from support.processes import eventually


@pytest.fixture(scope="module")
def mongo() -> Iterator[MongoServer]:
    with mongo_server() as server:
        yield server


@asynccontextmanager
async def own_database(mongo: MongoServer) -> AsyncIterator[str]:
    """The address of a database nobody else uses."""
    name = f"lcm_test_{RandomIds().new_id()[:8]}"
    yield mongo.database(name)
    async with AsyncMongoClient[dict[str, object]](mongo.url) as client:
        await client.drop_database(name)


@pytest.fixture(params=["memory", "sqlite", "mongodb"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with AsyncExitStack() as stack:
        match request.param:
            case "memory":
                yield MemoryStore()
            case "sqlite":
                yield await stack.enter_async_context(SqliteStore(tmp_path / "lcm.db"))
            case "mongodb":
                own = own_database(request.getfixturevalue("mongo"))
                url = await stack.enter_async_context(own)
                yield await stack.enter_async_context(open_mongodb(url))


@pytest.fixture
async def database(mongo: MongoServer) -> AsyncIterator[str]:
    async with own_database(mongo) as url:
        yield url


def open_mongodb(url: str) -> MongoStore:
    return MongoStore(url, SystemClock(), RandomIds())


def doc(
    document_id: str, version: int = 1, body: bytes = b"", *, kind: str = "worker", keys: str = ""
) -> Document:
    """A document; `keys` are its unique keys, separated by spaces."""
    return Document(kind, document_id, version, body, tuple(keys.split()))


async def ids(store: Store, kind: str = "worker") -> list[str]:
    return [document.id for document in await store.list_all(kind)]


async def unpublished(store: Store) -> dict[str, int]:
    return {document.id: document.version for document in await store.list_unpublished("worker")}


# Documents.


async def test_an_inserted_document_is_read_as_it_was_written(store: Store) -> None:
    await store.insert(doc("a", body=bytes(range(256))))
    assert await store.get("worker", "a") == doc("a", body=bytes(range(256)))


async def test_a_document_that_was_never_inserted_is_not_there(store: Store) -> None:
    assert await store.get("worker", "a") is None
    assert list(await store.list_all("worker")) == []


async def test_the_newest_documents_are_read_in_pieces_from_the_highest_id_down(store: Store) -> None:
    for document_id in ("a", "c", "b", "d"):
        await store.insert(doc(document_id))
    await store.insert(doc("e", kind="other"))

    async def newest(before: str | None, limit: int) -> list[str]:
        return [document.id for document in await store.list_newest("worker", before, limit)]

    assert await newest(None, 3) == ["d", "c", "b"]
    assert await newest("b", 3) == ["a"]
    assert await newest("a", 3) == []
    assert await newest("bb", 1) == ["b"]


async def test_the_documents_that_hold_a_key_which_begins_so_are_listed_by_id(store: Store) -> None:
    await store.insert(doc("b", keys="name:beta instance:i-2"))
    await store.insert(doc("a", body=b"first", keys="name:alpha name:also"))
    await store.insert(doc("c", keys="instance:i-3 place:here"))
    await store.insert(doc("d"))
    await store.insert(doc("e", kind="other", keys="name:alpha"))

    async def holding(prefix: str) -> list[str]:
        return [document.id for document in await store.list_holding("worker", prefix)]

    assert list(await store.list_holding("worker", "name:a")) == [doc("a", body=b"first")]
    assert await holding("name:") == ["a", "b"]
    assert await holding("instance:") == ["b", "c"]
    await store.replace(doc("b", 2, keys="instance:i-2"))
    await store.replace(doc("d", 2, keys="name:delta"))
    await store.delete("worker", "a", 1)
    assert await holding("name:") == ["d"]


async def test_documents_are_listed_by_id_and_kinds_do_not_mix(store: Store) -> None:
    for document_id in ("c", "a", "é", "b"):
        await store.insert(doc(document_id))
    await store.insert(doc("a", kind="template", body=b"other"))
    assert await ids(store) == ["a", "b", "c", "é"]
    assert await ids(store, "template") == ["a"]
    assert await store.get("template", "a") == doc("a", kind="template", body=b"other")


async def test_an_id_can_be_inserted_once(store: Store) -> None:
    await store.insert(doc("a", body=b"first"))
    with pytest.raises(VersionConflict):
        await store.insert(doc("a", body=b"second"))
    assert await store.get("worker", "a") == doc("a", body=b"first")


async def test_a_document_begins_with_version_one(store: Store) -> None:
    with pytest.raises(VersionConflict):
        await store.insert(doc("a", version=2))
    assert await ids(store) == []


async def test_a_document_is_replaced_from_the_version_before(store: Store) -> None:
    await store.insert(doc("a", body=b"1"))
    await store.replace(doc("a", 2, b"2"))
    await store.replace(doc("a", 3, b"3"))
    assert await store.get("worker", "a") == doc("a", 3, b"3")


@pytest.mark.parametrize("version", [0, 1, 2, 4, 5])
async def test_a_document_is_not_replaced_from_any_other_version(store: Store, version: int) -> None:
    await store.insert(doc("a", body=b"1"))
    await store.replace(doc("a", 2, b"2"))
    with pytest.raises(VersionConflict):
        await store.replace(doc("a", version, b"other"))
    assert await store.get("worker", "a") == doc("a", 2, b"2")


async def test_what_does_not_exist_cannot_be_replaced(store: Store) -> None:
    with pytest.raises(VersionConflict):
        await store.replace(doc("a", 2))
    assert await ids(store) == []


async def test_a_document_is_deleted_at_its_version(store: Store) -> None:
    await store.insert(doc("a"))
    await store.replace(doc("a", 2))
    for version in (1, 3):
        with pytest.raises(VersionConflict):
            await store.delete("worker", "a", version)
    await store.delete("worker", "a", 2)
    assert await store.get("worker", "a") is None
    with pytest.raises(VersionConflict):
        await store.delete("worker", "a", 2)


async def test_a_deleted_id_can_be_inserted_again(store: Store) -> None:
    await store.insert(doc("a", body=b"old"))
    await store.delete("worker", "a", 1)
    await store.insert(doc("a", body=b"new"))
    assert await store.get("worker", "a") == doc("a", body=b"new")


# Changes with their entry in the log.


def entry(number: int) -> Document:
    return Document(LOG_KIND, f"2026.{number}", 1, f"entry {number}".encode())


async def entries(store: Store) -> list[bytes]:
    return [document.body for document in await store.list_all(LOG_KIND)]


async def test_a_change_and_its_entry_are_committed_together(store: Store) -> None:
    await store.commit(Insert(doc("a", keys="name:a")), entry(1))
    await store.commit(Replace(doc("a", 2, b"new", keys="name:b")), entry(2))
    assert await store.get("worker", "a") == doc("a", 2, b"new")
    assert await entries(store) == [b"entry 1", b"entry 2"]
    await store.commit(Delete("worker", "a", 2), entry(3))
    assert await store.get("worker", "a") is None
    assert await ids(store) == []
    assert await unpublished(store) == {}
    assert await entries(store) == [b"entry 1", b"entry 2", b"entry 3"]
    assert await store.get(LOG_KIND, entry(3).id) == entry(3)
    await store.commit(Insert(doc("a", keys="name:b")), entry(4))
    assert await ids(store) == ["a"]


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (Insert(doc("taken")), VersionConflict),
        (Insert(doc("b", keys="name:taken")), UniqueKeyTaken),
        (Replace(doc("taken", 3)), VersionConflict),
        (Replace(doc("free", 2, keys="name:taken")), UniqueKeyTaken),
        (Replace(doc("free", 2), Fence("leadership", "nobody", 1)), FenceBroken),
        (Delete("worker", "taken", 2), VersionConflict),
        (Delete("worker", "absent", 1), VersionConflict),
    ],
    ids=str,
)
async def test_a_refused_change_leaves_no_entry(
    store: Store, change: Change, refusal: type[Exception]
) -> None:
    await store.insert(doc("taken", keys="name:taken"))
    await store.insert(doc("free"))
    with pytest.raises(refusal):
        await store.commit(change, entry(1))
    assert await entries(store) == []
    assert await ids(store) == ["free", "taken"]


async def test_of_many_changes_at_once_those_that_happened_have_entries(store: Store) -> None:
    await store.insert(doc("a"))
    winners: list[int] = []

    async def attempt(number: int) -> None:
        with suppress(VersionConflict):
            await store.commit(Replace(doc("a", 2, b"%d" % number)), entry(number))
            winners.append(number)

    async with asyncio.TaskGroup() as tasks:
        for number in range(10):
            tasks.create_task(attempt(number))
    [winner] = winners
    assert await store.get("worker", "a") == doc("a", 2, b"%d" % winner)
    assert await entries(store) == [b"entry %d" % winner]


async def test_an_entry_outlives_a_writer_that_ended_before_it_moved_it(database: str) -> None:
    """What MongoDB holds between the two steps: the entry is still inside the changed document."""
    async with open_mongodb(database) as store:
        await store.insert(doc("a"))
    async with AsyncMongoClient[dict[str, Any]](database) as client:
        documents = client.get_default_database()["documents"]
        inside = {"$set": {"entries.2026%2E7": b"entry 7"}}
        await documents.update_one({"_id": "worker/a"}, inside)
        tombstone = {
            "kind": "worker",
            "id": "gone",
            "version": 0,
            "body": b"",
            "entries": {"2026%2E8": b"entry 8"},
        }
        await documents.insert_one({"_id": "worker/gone", **tombstone})
        async with open_mongodb(database) as store:
            assert await entries(store) == [b"entry 7", b"entry 8"]
            assert await entries(store) == [b"entry 7", b"entry 8"]
            assert await store.get(LOG_KIND, "2026.7") == entry(7)
            assert [stored.document.id for stored in await store.dump()] == ["2026.7", "2026.8", "a"]
        assert await documents.count_documents({"entries": {"$exists": True}}) == 0
        assert await documents.find_one({"_id": "worker/gone"}) is None


async def test_wherever_a_removal_ends_mongodb_keeps_its_entry_and_nothing_else(database: str) -> None:
    """The connection breaks before each of its commands in turn; the log is read afterwards."""
    commands, broken_at = 0, 0

    async def before(command: Command) -> None:
        nonlocal commands
        if command and next(iter(command)) in ("find", "insert", "update", "delete"):
            commands += 1
            if commands >= broken_at > 0:
                raise ConnectionError("the writer is gone")

    async def remove(document_id: str) -> None:
        async with open_mongodb(front) as store:
            await store.commit(Delete("worker", document_id, 1), entry(1))

    async with (
        watched_front(database, before) as front,
        open_mongodb(database) as store,
        AsyncMongoClient[dict[str, Any]](database) as client,
    ):
        documents = client.get_default_database()["documents"]
        await store.insert(doc("whole"))
        commands = 0
        await remove("whole")
        assert await entries(store) == [b"entry 1"]
        of_a_removal, outcomes = commands, []
        for position in range(1, of_a_removal + 1):
            await documents.delete_many({})
            await store.insert(doc("a"))
            commands, broken_at = 0, position
            with suppress(PyMongoError, StoreUnavailable, WriteUnconfirmed):
                await remove("a")
            logged = await entries(store)
            left = [found["_id"] async for found in documents.find({}, {"_id": 1})]
            assert len(left) == 1, (position, left)
            assert logged == ([] if left == ["worker/a"] else [b"entry 1"])
            outcomes.append(bool(logged))
        assert set(outcomes) == {False, True}


# Unique keys.


async def test_a_unique_key_can_be_held_by_one_document_of_a_kind(store: Store) -> None:
    await store.insert(doc("a", keys="name:lab"))
    with pytest.raises(UniqueKeyTaken) as taken:
        await store.insert(doc("b", keys="address:1 name:lab"))
    assert taken.value.key == "name:lab"
    assert await ids(store) == ["a"]
    await store.insert(doc("b", kind="template", keys="name:lab"))


async def test_a_refused_document_holds_none_of_its_keys(store: Store) -> None:
    await store.insert(doc("a", keys="name:lab"))
    with pytest.raises(UniqueKeyTaken):
        await store.insert(doc("b", keys="address:1 name:lab"))
    await store.insert(doc("c", keys="address:1"))


async def test_a_key_named_again_is_kept(store: Store) -> None:
    await store.insert(doc("a", keys="name:lab"))
    await store.replace(doc("a", 2, keys="name:lab"))
    with pytest.raises(UniqueKeyTaken):
        await store.insert(doc("b", keys="name:lab"))


async def test_a_key_no_longer_named_is_released(store: Store) -> None:
    await store.insert(doc("a", keys="name:lab"))
    await store.replace(doc("a", 2))
    await store.insert(doc("b", keys="name:lab"))


async def test_a_key_of_a_deleted_document_is_released(store: Store) -> None:
    await store.insert(doc("a", keys="name:lab"))
    await store.delete("worker", "a", 1)
    await store.insert(doc("b", keys="name:lab"))


async def test_a_key_can_change_hands_only_after_its_release(store: Store) -> None:
    await store.insert(doc("a", keys="name:one"))
    await store.insert(doc("b", keys="name:two"))
    with pytest.raises(UniqueKeyTaken):
        await store.replace(doc("b", 2, b"new", keys="name:one"))
    assert await store.get("worker", "b") == doc("b")
    with pytest.raises(UniqueKeyTaken):
        await store.insert(doc("c", keys="name:two"))  # the refused change released nothing
    await store.replace(doc("a", 2, keys="name:three"))
    await store.replace(doc("b", 2, keys="name:one"))


async def test_a_key_named_twice_is_named_once(store: Store) -> None:
    await store.insert(doc("a", keys="name:lab name:lab"))
    with pytest.raises(UniqueKeyTaken):
        await store.insert(doc("b", keys="name:lab"))


async def test_unique_keys_are_not_shown_by_reads(store: Store) -> None:
    await store.insert(doc("a", keys="name:lab"))
    assert await store.get("worker", "a") == doc("a")
    assert list(await store.list_all("worker")) == list(await store.list_unpublished("worker")) == [doc("a")]


async def test_of_many_at_once_exactly_one_gets_a_key(store: Store) -> None:
    async def insert(number: int) -> bool:
        try:
            await store.insert(doc(f"w{number}", keys="name:lab"))
        except UniqueKeyTaken:
            return False
        return True

    async with asyncio.TaskGroup() as tasks:
        tries = [tasks.create_task(insert(number)) for number in range(50)]
    assert sum(attempt.result() for attempt in tries) == 1
    assert len(await ids(store)) == 1


# Fences.

EPOCH_2 = Fence("leadership", "worker-controller", 2)


@pytest.fixture
async def led(store: Store) -> Store:
    """A store whose second leader has claimed its epoch."""
    await store.insert(doc("worker-controller", kind="leadership"))
    await store.replace(doc("worker-controller", 2, kind="leadership"))
    return store


@pytest.mark.parametrize(
    "fence",
    [
        pytest.param(Fence("leadership", "worker-controller", 1), id="stale"),
        pytest.param(Fence("leadership", "worker-controller", 3), id="future"),
        pytest.param(Fence("leadership", "nobody", 2), id="never claimed"),
        pytest.param(Fence("elsewhere", "worker-controller", 2), id="elsewhere"),
    ],
)
async def test_a_write_behind_another_epoch_is_refused_and_nothing_is_written(
    led: Store, fence: Fence
) -> None:
    await led.insert(doc("a", body=b"1", keys="name:one"))
    with pytest.raises(FenceBroken):
        await led.insert(doc("b", keys="name:two"), fence)
    with pytest.raises(FenceBroken):
        await led.replace(doc("a", 2, b"2", keys="name:three"), fence)
    assert list(await led.list_all("worker")) == [doc("a", body=b"1")]
    await led.insert(doc("c", keys="name:two name:three"))


async def test_a_write_of_the_present_epoch_is_accepted(led: Store) -> None:
    await led.insert(doc("a", body=b"1"), EPOCH_2)
    await led.replace(doc("a", 2, b"2"), EPOCH_2)
    assert await led.get("worker", "a") == doc("a", 2, b"2")


async def test_a_verification_proves_version_and_epoch_and_writes_nothing(led: Store) -> None:
    await led.insert(doc("a", body=b"1"), EPOCH_2)
    await led.mark_published("worker", {"a": 1})
    await led.verify("worker", "a", 1, EPOCH_2)
    assert await led.get("worker", "a") == doc("a", body=b"1")
    assert await led.list_unpublished("worker") == []
    await led.replace(doc("a", 2, b"2"), EPOCH_2)
    with pytest.raises(VersionConflict):
        await led.verify("worker", "a", 1, EPOCH_2)
    with pytest.raises(VersionConflict):
        await led.verify("worker", "missing", 1, EPOCH_2)


async def test_a_verification_of_an_earlier_epoch_is_refused(led: Store) -> None:
    await led.insert(doc("a"), EPOCH_2)
    await led.replace(doc("worker-controller", 3, kind="leadership"), EPOCH_2)
    with pytest.raises(FenceBroken):
        await led.verify("worker", "a", 1, EPOCH_2)
    with pytest.raises(FenceBroken):
        await led.verify("worker", "a", 1, Fence("elsewhere", "worker-controller", 3))


async def test_claiming_the_next_epoch_fences_the_last(led: Store) -> None:
    await led.insert(doc("a"), EPOCH_2)
    await led.replace(doc("worker-controller", 3, kind="leadership"), EPOCH_2)
    with pytest.raises(FenceBroken):
        await led.replace(doc("a", 2), EPOCH_2)


async def test_a_broken_fence_is_told_before_a_version_conflict(led: Store) -> None:
    with pytest.raises(FenceBroken):
        await led.replace(doc("never there", 7), Fence("leadership", "worker-controller", 1))


# Publishing.


async def test_a_new_version_is_unpublished_until_it_is_marked(store: Store) -> None:
    await store.insert(doc("a"))
    await store.insert(doc("b"))
    assert await unpublished(store) == {"a": 1, "b": 1}
    await store.mark_published("worker", {"a": 1})
    assert await unpublished(store) == {"b": 1}
    await store.replace(doc("a", 2))
    assert await unpublished(store) == {"a": 2, "b": 1}
    await store.mark_published("worker", {"a": 2, "b": 1})
    assert await unpublished(store) == {}


async def test_a_version_written_while_the_last_was_published_stays_unpublished(store: Store) -> None:
    await store.insert(doc("a"))
    await store.replace(doc("a", 2))
    await store.mark_published("worker", {"a": 1})
    assert await unpublished(store) == {"a": 2}


async def test_a_mark_never_moves_back(store: Store) -> None:
    await store.insert(doc("a"))
    await store.replace(doc("a", 2))
    await store.mark_published("worker", {"a": 2})
    await store.mark_published("worker", {"a": 1})
    assert await unpublished(store) == {}


async def test_marks_of_what_is_gone_or_never_was_mean_nothing(store: Store) -> None:
    await store.insert(doc("a"))
    await store.mark_published("worker", {"a": 1})
    await store.delete("worker", "a", 1)
    await store.mark_published("worker", {"a": 1, "never there": 1})
    await store.insert(doc("a"))
    assert await unpublished(store) == {"a": 1}


async def test_marking_nothing_is_fine(store: Store) -> None:
    await store.mark_published("worker", {})


# Many writers.


async def test_of_many_writers_exactly_one_wins_each_version_and_no_update_is_lost(
    store: Store,
) -> None:
    writers = 40 if isinstance(store, MongoStore) else 200  # FerretDB takes long for what SQLite does at once
    await store.insert(doc("a", body=b"[]"))
    won: list[int] = []

    async def write(number: int) -> None:
        while True:
            current = await store.get("worker", "a")
            assert current is not None
            body = json.dumps([*json.loads(current.body), number]).encode()
            try:
                await store.replace(doc("a", current.version + 1, body))
            except VersionConflict:
                continue
            won.append(current.version + 1)
            return

    async with asyncio.TaskGroup() as tasks:
        for number in range(writers):
            tasks.create_task(write(number))
    final = await store.get("worker", "a")
    assert final is not None
    assert final.version == writers + 1
    assert sorted(won) == list(range(2, writers + 2))
    assert sorted(json.loads(final.body)) == list(range(writers))


async def test_a_writer_reads_its_own_write(store: Store) -> None:
    async def write_and_read(document_id: str) -> None:
        await store.insert(doc(document_id))
        for version in range(2, 12):
            await store.replace(doc(document_id, version))
            found = await store.get("worker", document_id)
            assert found is not None
            assert found.version == version

    async with asyncio.TaskGroup() as tasks:
        for number in range(20):
            tasks.create_task(write_and_read(f"w{number}"))


async def test_a_writer_that_gives_up_does_not_harm_the_others(store: Store) -> None:
    async with asyncio.TaskGroup() as tasks:
        writers = [tasks.create_task(store.insert(doc(f"w{number}"))) for number in range(20)]
        writers[7].cancel()
    assert set(await ids(store)) >= {f"w{number}" for number in range(20) if number != 7}


# MongoDB: what its store makes of single documents (docs/adr/0012).


@asynccontextmanager
async def raw_documents(url: str) -> AsyncIterator[AsyncCollection[dict[str, Any]]]:
    """What is really in the database, as a store that was interrupted may leave it."""
    async with AsyncMongoClient[dict[str, Any]](url) as client:
        yield client.get_default_database()["documents"]


def everything(dump: Sequence[StoredDocument]) -> dict[str, tuple[int, bytes]]:
    return {s.document.id: (s.document.version, s.document.body) for s in dump if s.document.kind == "worker"}


@pytest.mark.parametrize("seed", range(3))
async def test_in_mongodb_nothing_of_an_epoch_happens_after_the_next_was_claimed(
    database: str, seed: int
) -> None:
    chance = random.Random(seed)
    async with (
        unsteady_front(database, chance) as front,
        open_mongodb(front.url) as leaders,
        open_mongodb(front.url) as claimer,
        open_mongodb(database) as witness,
    ):
        await claimer.insert(doc("worker-controller", kind="leadership"))
        for number in range(4):
            await claimer.insert(doc(f"w{number}"))

        async def change(epoch: int, document_id: str) -> None:
            """Write until a newer leader is in the way, as a leader that has not noticed would."""
            fence = Fence("leadership", "worker-controller", epoch)
            with suppress(FenceBroken):
                while True:
                    current = await leaders.get("worker", document_id)
                    assert current is not None
                    with suppress(VersionConflict):
                        await leaders.replace(doc(document_id, current.version + 1, b"%d" % epoch), fence)

        async def add(epoch: int, name: str) -> None:
            fence = Fence("leadership", "worker-controller", epoch)
            with suppress(FenceBroken):
                for number in range(1000):
                    await leaders.insert(doc(f"{name}-{epoch}-{number}", body=b"%d" % epoch), fence)

        for epoch in range(1, 8):
            async with timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as tasks:
                for number in range(4):
                    tasks.create_task(change(epoch, f"w{number}"))
                    tasks.create_task(change(epoch, f"w{number}"))
                    tasks.create_task(add(epoch, f"x{number}"))
                    tasks.create_task(add(epoch, f"y{number}"))
                await SystemClock().sleep(0.05 + chance.random() / 20)
                await claimer.replace(doc("worker-controller", epoch + 1, kind="leadership"))
                at_the_claim = everything(await witness.dump())
            assert everything(await witness.dump()) == at_the_claim
            assert {body for _, body in at_the_claim.values()} <= {b"", *(b"%d" % e for e in range(1, 8))}


async def absent(store: Store, document_id: str, fence: Fence) -> None:
    """There is no such document."""


async def unstamped(store: Store, document_id: str, fence: Fence) -> None:
    """No leader has written it so far."""
    await store.insert(doc(document_id, keys=document_id))


async def stamped(store: Store, document_id: str, fence: Fence) -> None:
    """Its leader has written it before."""
    await store.insert(doc(document_id, keys=document_id), fence)


async def insert(store: Store, document_id: str, fence: Fence) -> None:
    await store.insert(doc(document_id, body=b"new"), fence)


async def insert_with_key(store: Store, document_id: str, fence: Fence) -> None:
    await store.insert(doc(document_id, body=b"new", keys=document_id), fence)


async def change(store: Store, document_id: str, fence: Fence) -> None:
    await store.replace(doc(document_id, 2, b"new", keys=document_id), fence)


async def change_key(store: Store, document_id: str, fence: Fence) -> None:
    await store.replace(doc(document_id, 2, b"new", keys=f"other-{document_id}"), fence)


FencedWrite = Callable[[Store, str, Fence], Awaitable[None]]


@pytest.mark.parametrize(
    ("given", "write"),
    [
        (absent, insert),
        (absent, insert_with_key),
        (unstamped, change),
        (unstamped, change_key),
        (stamped, change),
        (stamped, change_key),
    ],
)
async def test_in_mongodb_a_write_is_refused_before_whichever_of_its_requests_a_claim_comes(
    database: str, given: FencedWrite, write: FencedWrite
) -> None:
    requests = claim_before = 0
    claim: Callable[[], Awaitable[None]]

    async def before(command: Command) -> None:
        nonlocal requests
        if {"find", "insert", "update"} & command.keys():
            requests += 1
            if requests == claim_before:
                await claim()

    async with (
        watched_front(database, before) as front_url,
        open_mongodb(front_url) as leader,
        open_mongodb(database) as others,
    ):
        await others.insert(doc("worker-controller", kind="leadership"))
        fence = Fence("leadership", "worker-controller", 1)
        at_the_claim: dict[str, tuple[int, bytes]] = {}

        async def claim() -> None:
            nonlocal at_the_claim
            await others.replace(doc(fence.id, fence.version + 1, kind=fence.kind))
            at_the_claim = everything(await others.dump())

        await given(others, "undisturbed", fence)
        requests = 0
        await write(leader, "undisturbed", fence)
        for position in range(1, requests + 1):
            await given(others, f"w{position}", fence)
            requests, claim_before = 0, position
            with pytest.raises(FenceBroken):
                await write(leader, f"w{position}", fence)
            assert everything(await others.dump()) == at_the_claim
            fence = replace(fence, version=fence.version + 1)


async def test_in_mongodb_writes_and_reads_are_those_of_a_majority_whatever_the_address_says(
    database: str,
) -> None:
    commands: list[Command] = []

    async def before(command: Command) -> None:
        commands.append(command)

    weak = f"{database}{'&' if '?' in database else '?'}w=1&readConcernLevel=local&journal=false"
    async with watched_front(weak, before) as front_url, open_mongodb(front_url) as store:
        await store.insert(doc("worker-controller", kind="leadership"))
        await store.insert(doc("a", keys="one"), Fence("leadership", "worker-controller", 1))
        await store.replace(doc("a", 2, keys="two"))
        await store.insert(doc("b", keys="one"))
        await store.mark_published("worker", {"a": 2})
        await store.list_all("worker")
        await store.list_unpublished("worker")
        await store.delete("worker", "a", 2)
        for stored in await store.dump():
            await store.load(stored)
    concerns: dict[str, list[object]] = defaultdict(list)
    for command in filter(None, commands):
        concern = "readConcern" if "find" in command else "writeConcern"
        concerns[next(iter(command))].append(command.get(concern))
    assert len(concerns["find"]) > 3
    assert all(found == {"level": "majority"} for found in concerns["find"]), concerns
    for name in ("createIndexes", "delete", "findAndModify", "insert", "update"):
        assert concerns[name], name
        assert all(found == {"w": "majority"} for found in concerns[name]), concerns


@pytest.mark.parametrize("seed", range(3))
async def test_in_mongodb_a_key_never_has_two_holders(database: str, seed: int) -> None:
    chance = random.Random(seed)
    names = ("one", "two", "three")
    async with (
        unsteady_front(database, chance) as front,
        open_mongodb(front.url) as first,
        open_mongodb(front.url) as second,
        open_mongodb(database) as witness,
    ):

        async def live(store: Store, document_id: str) -> None:
            """Insert, rename, release and delete, with a name that others want, too."""
            for _ in range(4):
                with suppress(UniqueKeyTaken, VersionConflict):
                    await store.insert(doc(document_id, keys=chance.choice(names)))
                    await store.replace(doc(document_id, 2, keys=chance.choice(names)))
                    await store.replace(doc(document_id, 3, keys=chance.choice((*names, ""))))
                with suppress(VersionConflict):
                    current = await store.get("worker", document_id)
                    await store.delete("worker", document_id, current.version if current else 1)

        async def look() -> None:
            while lives:
                held = [key for stored in await witness.dump() for key in stored.document.unique_keys]
                assert len(held) == len(set(held))
                looks.append(len(held))

        looks: list[int] = []
        lives = 8

        async def live_and_leave(store: Store, document_id: str) -> None:
            nonlocal lives
            await live(store, document_id)
            lives -= 1

        async with timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as tasks:
            tasks.create_task(look())
            for number in range(8):
                tasks.create_task(live_and_leave((first, second)[number % 2], f"w{number % 6}"))
        assert max(looks) > 0
        await witness.insert(doc("last-1", keys="one"))
        await witness.insert(doc("last-2", keys="two three"))


async def test_in_mongodb_a_claim_that_was_interrupted_is_finished_by_whoever_reads_it(database: str) -> None:
    async with open_mongodb(database) as store, raw_documents(database) as raw:
        await store.insert(doc("worker-controller", kind="leadership"))
        await store.insert(doc("a"))
        fence = Fence("leadership", "worker-controller", 1)
        await store.replace(doc("a", 2), fence)
        await raw.update_one(
            {"_id": "leadership/worker-controller"}, {"$set": {"version": 2, "claiming": True}}
        )
        await store.replace(doc("a", 3), fence)  # nobody leads with the new epoch yet
        claimed = await store.get("leadership", "worker-controller")
        assert claimed is not None
        assert claimed.version == 2
        with pytest.raises(FenceBroken):
            await store.replace(doc("a", 4), fence)


async def test_in_mongodb_an_insertion_that_was_interrupted_leaves_nothing_in_the_way(database: str) -> None:
    async with open_mongodb(database) as store, raw_documents(database) as raw:
        await store.insert(doc("a", keys="name:lab"))
        await raw.update_one({"_id": "worker/a"}, {"$set": {"version": 0}, "$unset": {"keys": ""}})
        assert await store.get("worker", "a") is None
        assert await ids(store) == []
        assert await unpublished(store) == {}
        assert list(await store.dump()) == []
        with pytest.raises(VersionConflict):
            await store.replace(doc("a", 1))
        with pytest.raises(VersionConflict):
            await store.delete("worker", "a", 0)
        await store.insert(doc("b", keys="name:lab"))
        await store.insert(doc("a"))
        assert await ids(store) == ["a", "b"]


@pytest.mark.parametrize("command", [b"insert", b"update"])
async def test_in_mongodb_a_write_whose_answer_was_lost_is_recognised(database: str, command: bytes) -> None:
    async with unsteady_front(database, random.Random(1)) as front, open_mongodb(front.url) as store:
        await store.insert(doc("a"))
        front.lose_answer_to = b"\x02" + command + b"\x00"  # the name of a command is its first field
        if command == b"insert":
            await store.insert(doc("b"))
        await store.replace(doc("a", 2, b"2"))
        assert front.lose_answer_to is None
        assert await store.get("worker", "a") == doc("a", 2, b"2")


async def test_in_mongodb_a_write_that_nothing_was_heard_of_is_not_called_refused(database: str) -> None:
    async with unsteady_front(database, random.Random(1)) as front, open_mongodb(front.url) as store:
        await store.insert(doc("a"))
        front.lose_answer_to = b"\x02delete\x00"
        with pytest.raises(WriteUnconfirmed):
            await store.delete("worker", "a", 1)
        assert await ids(store) == []


async def test_in_mongodb_a_database_of_another_schema_is_refused(database: str) -> None:
    async with open_mongodb(database), raw_documents(database) as raw:
        await raw.database["schema"].update_one({"_id": "schema"}, {"$set": {"version": 99}})
    with pytest.raises(StoreUnavailable, match=r"has schema 99.*use the LCM version that wrote it"):
        await open_mongodb(database).__aenter__()


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
async def test_a_mongodb_that_does_not_answer_is_told_without_its_password() -> None:
    with pytest.raises(StoreUnavailable, match="no MongoDB server") as refused:
        await open_mongodb("mongodb://lcm:sesame@127.0.0.1:9/lcm").__aenter__()
    assert "sesame" not in str(refused.value)
    del refused
    gc.collect()  # the driver leaves its socket to the collector: here, not in another test


async def test_an_address_that_is_none_is_told() -> None:
    with pytest.raises(StoreUnavailable, match="address of MongoDB is wrong"):
        await open_mongodb("mongodb://lcm:se/same@127.0.0.1:9/lcm").__aenter__()


async def test_a_password_that_is_not_escaped_is_told_without_any_of_it() -> None:
    with pytest.raises(StoreUnavailable, match="escape") as refused:
        await open_mongodb("mongodb://lcm:open/sesame@db/lcm").__aenter__()
    assert "sesame" not in str(refused.value)


# Moving from one to the other.


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """An installation that has lived: names given and released, epochs claimed, some changes published."""
    async with SqliteStore(tmp_path / "lcm.db") as store:
        await store.insert(doc("worker-controller", kind="leadership"))
        await store.replace(doc("worker-controller", 2, kind="leadership"))
        await store.insert(doc("a", body=b"1", keys="name:one"))
        await store.replace(doc("a", 2, bytes(range(256)), keys="name:two address:2"))
        await store.insert(doc("b", keys="name:one"))
        await store.insert(doc("é", kind="template"))
        await store.mark_published("worker", {"b": 1})
        yield store


async def test_a_copied_store_has_everything_the_first_one_had(embedded: SqliteStore, database: str) -> None:
    progress: list[tuple[int, int]] = []
    async with open_mongodb(database) as target:
        assert await copy_store(embedded, target, lambda *counts: progress.append(counts)) == 4
        assert progress == [(1, 4), (2, 4), (3, 4), (4, 4)]
        assert list(await target.dump()) == list(await embedded.dump())
        assert await unpublished(target) == {"a": 2}
        for taken in ("name:one", "name:two", "address:2"):
            with pytest.raises(UniqueKeyTaken):
                await target.insert(doc("c", keys=taken))
        with pytest.raises(FenceBroken):
            await target.replace(doc("a", 3), Fence("leadership", "worker-controller", 1))
        await target.replace(doc("a", 3), EPOCH_2)


async def test_a_copy_that_was_interrupted_can_be_repeated(embedded: SqliteStore, database: str) -> None:
    async with open_mongodb(database) as target:
        for stored in (await embedded.dump())[:2]:
            await target.load(stored)
        await copy_store(embedded, target)
        assert list(await target.dump()) == list(await embedded.dump())


async def test_nothing_is_copied_over_what_is_there(embedded: SqliteStore, database: str) -> None:
    async with open_mongodb(database) as target:
        await target.insert(doc("a", body=b"somebody's"))
        with pytest.raises(CopyFailed, match="already has worker a; copy into an empty database"):
            await copy_store(embedded, target)
        assert await target.get("worker", "a") == doc("a", body=b"somebody's")


async def test_a_source_that_changes_meanwhile_is_noticed(embedded: SqliteStore, database: str) -> None:
    async with open_mongodb(database) as target:
        source = sqlite3.connect(embedded.path, isolation_level=None)

        def interfere(count: int, _: int) -> None:
            if count == 2:
                source.execute("UPDATE documents SET version = version + 1 WHERE id = 'a'")

        with closing(source), pytest.raises(CopyFailed, match="the source changed meanwhile"):
            await copy_store(embedded, target, interfere)


# SQLite: the file.


@contextmanager
def writer_held_up(path: Path) -> Iterator[None]:
    """Nothing is committed meanwhile; it waits in the store's queue."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@pytest.mark.parametrize("claim_comes_first", [True, False])
@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda store: store.replace(doc("a", 2), EPOCH_2), id="replace"),
        pytest.param(lambda store: store.replace(doc("a", 2, keys="k"), EPOCH_2), id="replace with keys"),
        pytest.param(lambda store: store.insert(doc("b"), EPOCH_2), id="insert"),
        pytest.param(lambda store: store.insert(doc("b", keys="k"), EPOCH_2), id="insert with keys"),
    ],
)
async def test_in_sqlite_a_write_is_refused_if_a_claim_was_queued_before_it(
    tmp_path: Path, write: Callable[[Store], Awaitable[None]], claim_comes_first: bool
) -> None:
    path = tmp_path / "lcm.db"
    async with SqliteStore(path) as store:
        await store.insert(doc("worker-controller", kind="leadership"))
        await store.replace(doc("worker-controller", 2, kind="leadership"))
        await store.insert(doc("a"))
        before = await store.dump()

        async def claim() -> bool:
            await store.replace(doc("worker-controller", 3, kind="leadership"))
            return True

        async def is_written() -> bool:
            with suppress(FenceBroken):
                await write(store)
                return True
            return False

        async with timeout(10), asyncio.TaskGroup() as tasks:
            with writer_held_up(path):
                calls = (claim, is_written) if claim_comes_first else (is_written, claim)
                queued = {call: tasks.create_task(call()) for call in calls}
                assert await store.dump() == before  # both wait: the leader of before reads that it leads
        assert (queued[claim].result(), queued[is_written].result()) == (True, not claim_comes_first)
        changed = {stored.document.kind for stored in await store.dump() if stored not in before}
        assert changed == ({"leadership"} if claim_comes_first else {"leadership", "worker"})


async def test_in_sqlite_an_acknowledged_write_is_on_the_disk(tmp_path: Path) -> None:
    """What was measured: write-ahead log, and a flush to disk with each commit (2 is FULL)."""
    found: dict[str, object] = {}

    def look(db: sqlite3.Connection) -> None:
        for name in ("journal_mode", "synchronous"):
            [found[name]] = db.execute(f"PRAGMA {name}").fetchone()

    async with SqliteStore(tmp_path / "lcm.db") as store:
        await store._write(look)  # on the writer's own connection: another one has settings of its own
    assert found == {"journal_mode": "wal", "synchronous": 2}


async def test_what_was_written_survives_reopening(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "lcm.db") as store:
        await store.insert(doc("a", body=b"1", keys="name:lab"))
        await store.replace(doc("a", 2, b"2", keys="name:lab"))
        await store.insert(doc("b"))
        await store.mark_published("worker", {"b": 1})
    async with SqliteStore(tmp_path / "lcm.db") as store:
        assert list(await store.list_all("worker")) == [doc("a", 2, b"2"), doc("b")]
        assert await unpublished(store) == {"a": 2}
        with pytest.raises(UniqueKeyTaken):
            await store.insert(doc("c", keys="name:lab"))


async def test_a_file_of_another_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "lcm.db"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreUnavailable, match=r"has schema 99.*use the LCM version that wrote it"):
        await SqliteStore(path).__aenter__()
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    db.close()


@pytest.mark.parametrize("content", [b"no database at all, but long enough to look at" * 20])
async def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lcm.db"
    path.write_bytes(content)
    with pytest.raises(StoreUnavailable, match="cannot open"):
        await SqliteStore(path).__aenter__()
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda store: store.insert(doc("\ud800")), id="an id that is no text"),
        pytest.param(lambda store: store.insert(doc("b", keys="name:\ud800")), id="a key that is no text"),
        pytest.param(lambda store: store.delete("worker", "a", 2**70), id="a version beyond all counting"),
    ],
)
async def test_a_write_that_sqlite_cannot_express_is_refused_alone(
    tmp_path: Path, write: Callable[[Store], Awaitable[None]]
) -> None:
    async with SqliteStore(tmp_path / "lcm.db", call_timeout_seconds=120) as store:
        await store.insert(doc("a"))
        async with timeout(60):  # refused, and not given up waiting for
            with pytest.raises((StoreUnavailable, VersionConflict, ValueError, OverflowError)):
                await write(store)
            await store.replace(doc("a", 2))
        assert list(await store.list_all("worker")) == [doc("a", 2)]


async def test_a_write_that_was_not_confirmed_is_not_called_refused_and_may_still_happen(
    tmp_path: Path,
) -> None:
    async with SqliteStore(tmp_path / "lcm.db", call_timeout_seconds=1.0) as store:
        somebody_else = sqlite3.connect(tmp_path / "lcm.db", isolation_level=None)
        somebody_else.execute("BEGIN IMMEDIATE")
        with pytest.raises(WriteUnconfirmed):
            await store.insert(doc("a"))
        somebody_else.execute("ROLLBACK")
        somebody_else.close()
        with suppress(WriteUnconfirmed):  # by a machine that is that slow
            await store.insert(doc("b"))

        async def both_are_there() -> bool:
            return await ids(store) == ["a", "b"]

        await eventually(both_are_there)


async def test_a_directory_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="nowhere"):
        await SqliteStore(tmp_path / "nowhere" / "lcm.db").__aenter__()


WRITER = """
import asyncio, sys
from pathlib import Path
from lcm.control_plane.store.port import Document
from lcm.control_plane.store.sqlite import SqliteStore

async def write(store, name):
    version = 1
    await store.insert(Document("worker", name, 1, b""))
    while True:
        print(name, version, flush=True)
        version += 1
        await store.replace(Document("worker", name, version, b""))

async def main():
    async with SqliteStore(Path(sys.argv[1])) as store, asyncio.TaskGroup() as tasks:
        for number in range(5):
            tasks.create_task(write(store, f"w{number}"))

asyncio.run(main())
"""


async def test_an_acknowledged_write_is_there_after_the_writer_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "lcm.db"
    writer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(path), stdout=asyncio.subprocess.PIPE
    )
    assert writer.stdout is not None
    lines = [await writer.stdout.readline() for _ in range(200)]
    writer.kill()
    lines += (await writer.stdout.read()).splitlines(keepends=True)
    await writer.wait()
    acknowledged = dict(line.split() for line in lines if line.endswith(b"\n"))
    async with SqliteStore(path) as store:
        found = {document.id: document.version for document in await store.list_all("worker")}
    assert set(found) == {name.decode() for name in acknowledged}
    for name, version in acknowledged.items():
        assert found[name.decode()] - int(version) in (0, 1)  # one may have been on its way
