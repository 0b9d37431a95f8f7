"""What every coordination store keeps to: etcd's model, as far as LCM relies on it.

`test_kv.py` runs this suite on the in-process store in virtual time, `test_kv_etcd.py` on real servers. Each
brings its own fixture `store`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from dataclasses import dataclass

import pytest

from lcm.core.clock import Clock
from lcm.core.kv.port import Change, ChangeKind, Compacted, Kv, LeaseExpired, LeaseId
from lcm.core.timeouts import timeout
from support.patience import PATIENCE_SECONDS

PUT, DELETE = ChangeKind.PUT, ChangeKind.DELETE
AGES = 600
"""The seconds of a lease that does not expire in a test."""


@dataclass(frozen=True)
class Store:
    """A coordination store of its own, its time, and the way to let history go."""

    kv: Kv
    ttl: int
    """The seconds of a lease that is meant to expire."""
    clock: Clock
    compact: Callable[[int], Awaitable[None]]
    new_cluster: Callable[[], AbstractAsyncContextManager[Kv]]

    async def put_leased(self, key: str) -> tuple[LeaseId, int]:
        """A key with a lease that is meant to expire; the revision of the key."""
        while True:
            lease = await self.kv.grant_lease(self.ttl)
            with suppress(LeaseExpired):  # by a machine that stood still meanwhile
                return lease, await self.kv.put(key, b"1", lease)

    async def expired_lease(self) -> LeaseId:
        lease, since = await self.put_leased("/expiring")
        await gone(self.kv, "/expiring", since)
        return lease


@pytest.fixture
def kv(store: Store) -> Kv:
    return store.kv


async def seen(
    kv: Kv, count: int, *, since: int, prefix: str = "/", until: Awaitable[object] | None = None
) -> list[Change]:
    """The first so many changes from a revision on; `until` happens while the watch is waiting."""
    changes: list[Change] = []

    async def watch() -> None:
        async with aclosing(kv.watch_prefix(prefix, since)) as stream:
            async for change in stream:
                changes.append(change)
                if len(changes) == count:
                    return

    try:
        async with timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as tasks:
            tasks.create_task(watch())
            if until is not None:
                await until
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return changes


async def gone(kv: Kv, key: str, since: int) -> None:
    """Wait until a key that was written at this revision is deleted."""
    [_, change] = await seen(kv, 2, since=since, prefix=key)
    assert (change.kind, change.key) == (DELETE, key)


async def in_time(attempt: Callable[[], Awaitable[bool]]) -> None:
    """Repeat what shows nothing because the machine stood still for longer than a lease."""
    for _ in range(5):
        if await attempt():
            return
    raise AssertionError("always too late to renew a lease")


def told(changes: list[Change]) -> list[tuple[ChangeKind, str, bytes]]:
    return [(change.kind, change.key, change.value) for change in changes]


async def revision_of(kv: Kv) -> int:
    return (await kv.list_prefix("/")).revision


# Keys.


async def test_a_key_is_read_as_it_was_written(kv: Kv) -> None:
    revision = await kv.put("/a", b"one")
    item = await kv.get("/a")
    assert item is not None
    assert (item.key, item.value) == ("/a", b"one")
    assert item.create_revision == item.mod_revision == revision


async def test_a_key_that_was_never_written_is_not_there(kv: Kv) -> None:
    assert await kv.get("/a") is None
    assert not await kv.delete("/a")


async def test_revisions_only_grow(kv: Kv) -> None:
    revisions = [await kv.put("/a", b"1"), await kv.put("/b", b"1"), await kv.put("/a", b"1")]
    await kv.delete("/a")
    revisions += [await revision_of(kv), await kv.put("/a", b"2")]
    assert revisions == sorted(set(revisions))


async def test_reading_and_refused_writes_take_no_revision(kv: Kv) -> None:
    await kv.put("/a", b"1")
    before = await revision_of(kv)
    await kv.get("/a")
    await kv.delete("/nothing")
    await kv.put_if_absent("/a", b"2")
    assert await revision_of(kv) == before


async def test_only_the_first_of_two_creates_a_key(kv: Kv) -> None:
    first = await kv.put_if_absent("/a", b"one", await kv.grant_lease(AGES))
    assert first is not None
    assert await kv.put_if_absent("/a", b"two") is None
    assert await kv.put_if_absent("/a", b"two", await kv.grant_lease(AGES)) is None
    item = await kv.get("/a")
    assert item is not None
    assert (item.value, item.create_revision) == (b"one", first)


async def test_of_many_at_once_exactly_one_creates_a_key(kv: Kv) -> None:
    async with asyncio.TaskGroup() as tasks:
        tries = [tasks.create_task(kv.put_if_absent("/a", b"%d" % n)) for n in range(20)]
    winners = [n for n, attempt in enumerate(tries) if attempt.result() is not None]
    item = await kv.get("/a")
    assert item is not None
    assert [b"%d" % n for n in winners] == [item.value]


async def test_a_key_keeps_its_create_revision_until_it_is_deleted(kv: Kv) -> None:
    created = await kv.put("/a", b"1")
    changed = await kv.put("/a", b"2")
    item = await kv.get("/a")
    assert item is not None
    assert (item.create_revision, item.mod_revision) == (created, changed)
    assert await kv.delete("/a")
    again = await kv.put("/a", b"3")
    item = await kv.get("/a")
    assert item is not None
    assert item.create_revision == again > changed


async def test_a_deleted_key_is_gone_and_can_be_created_again(kv: Kv) -> None:
    first = await kv.put_if_absent("/a", b"1")
    assert first is not None
    assert await kv.delete("/a")
    assert await kv.get("/a") is None
    assert not await kv.delete("/a")
    second = await kv.put_if_absent("/a", b"1")
    assert second is not None
    assert second > first


async def test_a_listing_shows_the_keys_under_a_prefix_in_order(kv: Kv) -> None:
    for key in ("/things/b", "/things/a/x", "/things", "/thing/c", "/things/a", "/z"):
        await kv.put(key, key.encode())
    listing = await kv.list_prefix("/things/")
    assert [item.key for item in listing.items] == ["/things/a", "/things/a/x", "/things/b"]
    assert [item.value for item in listing.items] == [item.key.encode() for item in listing.items]
    assert listing.revision == await revision_of(kv)


async def test_a_listing_of_nothing_still_has_a_revision(kv: Kv) -> None:
    revision = await kv.put("/a", b"1")
    listing = await kv.list_prefix("/things/")
    assert (list(listing.items), listing.revision) == ([], revision)


async def test_values_are_any_bytes(kv: Kv) -> None:
    await kv.put("/a", bytes(range(256)))
    await kv.put("/empty", b"")
    item, empty = await kv.get("/a"), await kv.get("/empty")
    assert item is not None
    assert item.value == bytes(range(256))
    assert empty is not None
    assert empty.value == b""


async def test_a_store_keeps_its_identity_and_another_one_has_its_own(store: Store) -> None:
    assert await store.kv.cluster_id() == await store.kv.cluster_id()
    async with store.new_cluster() as other:
        assert await store.kv.cluster_id() != await other.cluster_id()


# Watches.


async def test_a_watch_shows_what_happened_since_a_revision_in_order_without_gaps(kv: Kv) -> None:
    revisions = [await kv.put("/a", b"%d" % n) for n in range(20)]
    changes = await seen(kv, 15, since=revisions[5])
    assert [change.revision for change in changes] == revisions[5:]
    assert [change.value for change in changes] == [b"%d" % n for n in range(5, 20)]


async def test_a_watch_goes_on_with_what_happens_next(kv: Kv) -> None:
    since = await kv.put("/a", b"old")

    async def more() -> None:
        await kv.put("/b", b"new")
        await kv.put("/a", b"new")

    changes = await seen(kv, 3, since=since, until=more())
    assert told(changes) == [(PUT, "/a", b"old"), (PUT, "/b", b"new"), (PUT, "/a", b"new")]


async def test_a_listing_and_a_watch_from_its_next_revision_miss_nothing_and_repeat_nothing(kv: Kv) -> None:
    await kv.put("/a", b"listed")
    listing = await kv.list_prefix("/")
    await kv.put("/b", b"between")
    changes = await seen(kv, 2, since=listing.revision + 1, until=kv.put("/c", b"after"))
    assert told(changes) == [(PUT, "/b", b"between"), (PUT, "/c", b"after")]


async def test_a_watch_shows_deletions(kv: Kv) -> None:
    since = await kv.put("/a", b"1")
    await kv.delete("/a")
    assert told(await seen(kv, 2, since=since)) == [(PUT, "/a", b"1"), (DELETE, "/a", b"")]


async def test_a_watch_shows_only_its_prefix(kv: Kv) -> None:
    since = await kv.put("/things/a", b"1")
    await kv.put("/other/b", b"1")
    await kv.put("/thing", b"1")
    await kv.put("/things/c", b"1")
    changes = await seen(kv, 2, since=since, prefix="/things/")
    assert [change.key for change in changes] == ["/things/a", "/things/c"]


async def test_a_watch_may_start_in_the_future(kv: Kv) -> None:
    now = await kv.put("/a", b"0")

    async def more() -> None:
        for n in (1, 2, 3, 4):
            await kv.put("/a", b"%d" % n)

    changes = await seen(kv, 2, since=now + 3, until=more())
    assert [change.value for change in changes] == [b"3", b"4"]


async def test_two_watches_do_not_disturb_each_other(kv: Kv) -> None:
    since = await kv.put("/a", b"0")
    async with aclosing(kv.watch_prefix("/", since)) as idle:
        assert (await anext(idle)).value == b"0"

        async def more() -> None:
            for n in (1, 2, 3):
                await kv.put("/a", b"%d" % n)

        changes = await seen(kv, 4, since=since, until=more())
        assert [change.value for change in changes] == [b"0", b"1", b"2", b"3"]
        assert [(await anext(idle)).value for _ in range(3)] == [b"1", b"2", b"3"]


async def test_a_watch_that_is_given_up_leaves_the_others_alone(kv: Kv) -> None:
    since = await kv.put("/a", b"0")
    async with aclosing(kv.watch_prefix("/", since)) as quiet:
        await anext(quiet)
        with pytest.raises(TimeoutError):
            async with timeout(0.1):  # there is nothing to wait for
                await anext(quiet)
    changes = await seen(kv, 1, since=since + 1, until=kv.put("/a", b"1"))
    assert [change.value for change in changes] == [b"1"]


async def test_a_watch_from_a_compacted_revision_says_so(store: Store) -> None:
    kv = store.kv
    old = await kv.put("/a", b"1")
    now = await kv.put("/a", b"2")
    await store.compact(now)
    with pytest.raises(Compacted) as error:
        await seen(kv, 1, since=old)
    assert error.value.compacted_revision >= old


async def test_after_a_compaction_a_list_and_a_watch_from_there_work(store: Store) -> None:
    kv = store.kv
    await kv.put("/a", b"1")
    await store.compact(await kv.put("/a", b"2"))
    listing = await kv.list_prefix("/")
    assert [item.value for item in listing.items] == [b"2"]
    changes = await seen(kv, 1, since=listing.revision + 1, until=kv.put("/a", b"3"))
    assert [change.value for change in changes] == [b"3"]


# Leases.


async def test_a_lease_that_is_not_kept_alive_takes_its_keys_with_it(store: Store) -> None:
    kv, clock = store.kv, store.clock
    await kv.put("/kept", b"1")
    granted = clock.monotonic()
    _, since = await store.put_leased("/leased")
    await gone(kv, "/leased", since)
    assert clock.monotonic() - granted >= store.ttl
    assert await kv.get("/leased") is None
    assert await kv.get("/kept") is not None


async def test_a_watch_sees_a_lease_expire(store: Store) -> None:
    kv = store.kv
    _, since = await store.put_leased("/leased")
    changes = await seen(kv, 2, since=since)
    assert told(changes) == [(PUT, "/leased", b"1"), (DELETE, "/leased", b"")]
    assert changes[1].revision > changes[0].revision


async def test_a_lease_that_is_kept_alive_lives_on(store: Store) -> None:
    kv, clock = store.kv, store.clock

    async def lives_on() -> bool:
        began = renewed = clock.monotonic()
        lease, _ = await store.put_leased("/leased")
        while renewed - began <= 1.5 * store.ttl:
            await clock.sleep(store.ttl / 4)
            asked = clock.monotonic()
            left = await kv.keep_alive(lease)
            if clock.monotonic() - renewed >= store.ttl:
                return False
            assert left == store.ttl
            renewed = asked
        item = await kv.get("/leased")
        if clock.monotonic() - renewed >= store.ttl:
            return False
        assert item is not None
        return True

    await in_time(lives_on)


async def test_a_lease_that_was_kept_alive_expires_a_ttl_after_the_last_time(store: Store) -> None:
    kv, clock = store.kv, store.clock

    async def expires_later() -> bool:
        lease, since = await store.put_leased("/leased")
        await clock.sleep(store.ttl / 2)
        asked = clock.monotonic()
        if await kv.keep_alive(lease) == 0:
            return False
        await gone(kv, "/leased", since)
        assert clock.monotonic() - asked >= store.ttl
        return True

    await in_time(expires_later)


async def test_a_lease_that_is_gone_cannot_be_kept_alive(store: Store) -> None:
    kv = store.kv
    expired, revoked = await store.expired_lease(), await kv.grant_lease(AGES)
    await kv.revoke_lease(revoked)
    assert await kv.keep_alive(expired) == 0
    assert await kv.keep_alive(revoked) == 0
    assert await kv.keep_alive(LeaseId(987_654_321)) == 0


async def test_nothing_can_be_written_with_a_lease_that_is_gone(store: Store) -> None:
    kv = store.kv
    lease = await store.expired_lease()
    with pytest.raises(LeaseExpired):
        await kv.put("/a", b"1", lease)
    with pytest.raises(LeaseExpired):
        await kv.put_if_absent("/a", b"1", lease)
    assert await kv.get("/a") is None


async def test_revoking_a_lease_deletes_its_keys_at_once(kv: Kv) -> None:
    lease, other = await kv.grant_lease(AGES), await kv.grant_lease(AGES)
    await kv.put("/a", b"1", lease)
    await kv.put("/b", b"1", lease)
    since = await kv.put("/c", b"1", other)
    await kv.revoke_lease(lease)
    assert [item.key for item in (await kv.list_prefix("/")).items] == ["/c"]
    changes = await seen(kv, 2, since=since + 1)
    assert sorted(told(changes)) == [(DELETE, "/a", b""), (DELETE, "/b", b"")]


async def test_revoking_a_lease_that_is_gone_succeeds(store: Store) -> None:
    lease = await store.expired_lease()
    await store.kv.revoke_lease(lease)
    await store.kv.revoke_lease(lease)


async def test_a_key_written_without_its_lease_outlives_it(kv: Kv) -> None:
    lease = await kv.grant_lease(AGES)
    await kv.put("/a", b"1", lease)
    await kv.put("/a", b"2")
    await kv.revoke_lease(lease)
    item = await kv.get("/a")
    assert item is not None
    assert item.value == b"2"


async def test_a_key_belongs_to_the_lease_it_was_last_written_with(kv: Kv) -> None:
    old, new = await kv.grant_lease(AGES), await kv.grant_lease(AGES)
    await kv.put("/a", b"1", old)
    await kv.put("/a", b"2", new)
    await kv.revoke_lease(old)
    assert await kv.get("/a") is not None
    await kv.revoke_lease(new)
    assert await kv.get("/a") is None


async def test_a_key_that_expired_can_be_created_by_somebody_else(store: Store) -> None:
    kv = store.kv
    _, first = await store.put_leased("/leader")
    await gone(kv, "/leader", first)
    second = await kv.put_if_absent("/leader", b"bob", await kv.grant_lease(AGES))
    assert second is not None
    assert second > first
