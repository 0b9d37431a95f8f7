"""etcd keeps to the suite, as one server and as a cluster of three, and to what only it can promise."""

import asyncio
import re
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from contract.kv_suite import *  # noqa: F403
from contract.kv_suite import AGES, Store, in_time, seen
from lcm.core.clock import SystemClock
from lcm.core.ids import RandomIds
from lcm.core.kv.etcd import EtcdKv
from lcm.core.kv.etcd_options import EtcdOptions, Tls, parse_endpoints
from lcm.core.kv.port import Change, Kv, KvUnavailable
from lcm.core.timeouts import timeout
from support.etcd import EtcdCluster, etcd_cluster, make_certificates
from support.patience import PATIENCE_SECONDS
from support.processes import eventually

T = TypeVar("T")

HASTE_SECONDS = 0.9
"""Of calls to members that may never answer."""


@asynccontextmanager
async def etcd(cluster: EtcdCluster) -> AsyncIterator[Store]:
    """Leases are short, and expire in real time."""

    async def compact(revision: int) -> None:
        cluster.ctl("compact", str(revision)).check_returncode()

    @asynccontextmanager
    async def new_cluster() -> AsyncIterator[Kv]:
        with etcd_cluster() as other:
            async with connected(other) as kv:
                yield kv

    cluster.clear()
    async with connected(cluster) as kv:
        yield Store(kv, 1, SystemClock(), compact, new_cluster)


async def eventually_answers(call: Callable[[], Awaitable[T]]) -> T:
    """Ask until there is an answer, as LCM's own loops do."""
    async with timeout(PATIENCE_SECONDS):
        while True:
            try:
                return await call()
            except KvUnavailable:
                await SystemClock().sleep(0.05)


@asynccontextmanager
async def connected(cluster: EtcdCluster, **options: Any) -> AsyncIterator[Kv]:
    """A client whose calls do not have to wait for a connection any more."""
    async with cluster.kv(**options) as kv:
        await eventually_answers(lambda: kv.get("/lcm/nothing"))
        yield kv


@pytest.fixture(scope="module")
def single_node() -> Iterator[EtcdCluster]:
    with etcd_cluster(1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[EtcdCluster]:
    with etcd_cluster(3) as cluster:
        yield cluster


@pytest.fixture(params=["single_node", "three_nodes"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    async with etcd(request.getfixturevalue(request.param)) as opened:
        yield opened


# What only etcd has: members that fail, silence, a history that can be lost, answers of limited size.


async def test_while_most_members_live_calls_are_answered(three_nodes: EtcdCluster) -> None:
    for member in three_nodes.members:
        async with connected(three_nodes, call_timeout_seconds=HASTE_SECONDS) as kv:
            member.kill()
            lease = await eventually_answers(partial(kv.grant_lease, AGES))
            await eventually_answers(partial(kv.put, "/b", b"1", lease))
            assert await eventually_answers(partial(kv.keep_alive, lease)) == AGES
        member.start()
        three_nodes.wait_until_healthy()


async def test_a_member_that_hangs_is_left_for_another(three_nodes: EtcdCluster) -> None:
    async with connected(three_nodes) as kv:
        await kv.put("/a", b"1")
    async with three_nodes.kv(call_timeout_seconds=HASTE_SECONDS) as kv:
        three_nodes.members[0].freeze()
        try:
            item = await eventually_answers(lambda: kv.get("/a"))
        finally:
            three_nodes.members[0].thaw()
        assert item is not None


async def test_no_change_is_lost_or_repeated_when_the_leading_member_is_killed(
    three_nodes: EtcdCluster,
) -> None:
    count, told = 300, list[Change]()

    async def write(kv: Kv) -> None:
        for number in range(count):
            await eventually_answers(partial(kv.put, f"/n/{number:03}", b"1"))
            if number == count // 3:
                await kill_the_leader()

    async def kill_the_leader() -> None:
        while (leader := three_nodes.leader()) is None:
            await SystemClock().sleep(0.05)
        leader.kill()

    async def read(kv: Kv, since: int) -> None:
        while len({change.key for change in told}) < count:
            with suppress(KvUnavailable):
                async with aclosing(kv.watch_prefix("/n/", since)) as changes:
                    async for change in changes:
                        told.append(change)
                        since = change.revision + 1
                        if change.key == f"/n/{count - 1:03}":
                            return

    async with (
        timeout(PATIENCE_SECONDS),
        connected(three_nodes, call_timeout_seconds=HASTE_SECONDS) as writer,
        connected(three_nodes, call_timeout_seconds=HASTE_SECONDS) as reader,
    ):
        since = (await eventually_answers(lambda: reader.list_prefix("/"))).revision + 1
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(read(reader, since))
            tasks.create_task(write(writer))
        kept = (await eventually_answers(lambda: writer.list_prefix("/n/"))).items
    three_nodes.restart()
    assert [change.key for change in told] == sorted(change.key for change in told)
    assert len({change.revision for change in told}) == len(told)
    assert {item.key for item in kept} == {change.key for change in told}
    assert len(kept) == count


async def test_a_watch_on_a_server_that_dies_breaks_at_once(single_node: EtcdCluster) -> None:
    async with connected(single_node) as kv:
        since = await kv.put("/a", b"1")
        async with aclosing(kv.watch_prefix("/", since)) as changes:
            await anext(changes)
            single_node.kill()
            try:
                with pytest.raises(KvUnavailable) as broken:
                    await anext(changes)
                assert not re.search("silent|ping", str(broken.value)), "only after a time-out"
                with pytest.raises(KvUnavailable):
                    await kv.put("/a", b"2")
            finally:
                single_node.start()
        assert await eventually_answers(lambda: kv.put("/a", b"2")) > since


async def test_a_server_that_hangs_breaks_its_watches_and_calls(single_node: EtcdCluster) -> None:
    async with connected(single_node) as kv, single_node.kv(call_timeout_seconds=HASTE_SECONDS) as hasty:
        since = await kv.put("/a", b"1")
        async with aclosing(kv.watch_prefix("/", since)) as changes:
            await anext(changes)
            single_node.members[0].freeze()
            try:
                with pytest.raises(KvUnavailable):
                    await hasty.get("/a")
                with pytest.raises(KvUnavailable, match="ping timeout"):
                    await anext(changes)
            finally:
                single_node.members[0].thaw()
        assert await eventually_answers(lambda: kv.get("/a")) is not None


async def test_a_server_that_takes_its_time_to_greet_is_waited_for(single_node: EtcdCluster) -> None:
    async with slow_front(single_node.members[0].client, seconds=0.4) as address:
        options = EtcdOptions(endpoints=(address,), call_timeout_seconds=PATIENCE_SECONDS)
        async with EtcdKv(options, SystemClock(), RandomIds()) as kv:
            assert await kv.get("/nothing") is None


@asynccontextmanager
async def slow_front(address: str, *, seconds: float) -> AsyncIterator[str]:
    """Passes on what a server says, the first word later than it was said."""
    host, _, port = address.rpartition(":")
    served: list[asyncio.Task[None]] = []

    async def pass_on(reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)

    async def serve(from_client: StreamReader, to_client: StreamWriter) -> None:
        with closing(to_client):
            from_server, to_server = await asyncio.open_connection(host, int(port))
            with closing(to_server):
                async with asyncio.TaskGroup() as both_ways:
                    both_ways.create_task(pass_on(from_client, to_server))
                    await SystemClock().sleep(seconds)
                    both_ways.create_task(pass_on(from_server, to_client))

    async with asyncio.TaskGroup() as tasks:

        def accept(reader: StreamReader, writer: StreamWriter) -> None:
            served.append(tasks.create_task(serve(reader, writer)))

        front = await asyncio.start_server(accept, "127.0.0.1", 0)
        try:
            yield f"127.0.0.1:{front.sockets[0].getsockname()[1]}"
        finally:
            front.close()
            for task in served:
                task.cancel()


async def test_a_watch_from_which_nothing_is_heard_is_broken_off(single_node: EtcdCluster) -> None:
    async with connected(single_node, silence_seconds=1.0) as kv:
        since = await kv.put("/a", b"1")
        changes = await eventually_answers(lambda: watch_that_told_something(kv, since))
        async with aclosing(changes):
            single_node.members[0].freeze()
            try:
                with pytest.raises(KvUnavailable, match="silent for"):
                    await anext(changes)
            finally:
                single_node.members[0].thaw()


async def watch_that_told_something(kv: Kv, since: int) -> AsyncGenerator[Change]:
    changes = kv.watch_prefix("/", since)
    assert isinstance(changes, AsyncGenerator)
    await anext(changes)
    return changes


async def test_a_quiet_watch_is_not_taken_for_a_silent_one(single_node: EtcdCluster) -> None:
    silence, clock = 2.0, SystemClock()
    async with connected(single_node, silence_seconds=silence) as kv:

        async def is_heard_after_a_long_quiet() -> bool:
            since = await kv.put("/a", b"1") + 1
            steady = 0.0

            async def later() -> None:
                """So often that it is known whether this process, too, could listen all the time."""
                nonlocal steady
                began = last = clock.monotonic()
                while last - began < 1.5 * silence:
                    await clock.sleep(0.05)
                    steady = max(steady, clock.monotonic() - last)
                    last = clock.monotonic()
                await kv.put("/a", b"2")

            try:
                changes = await seen(kv, 1, since=since, until=later())
            except KvUnavailable:
                assert steady > silence / 4, "the machine did not stand still"
                return False
            assert [change.value for change in changes] == [b"2"]
            return True

        await in_time(is_heard_after_a_long_quiet)


async def test_a_wiped_server_has_another_history() -> None:
    with etcd_cluster() as cluster:
        async with connected(cluster) as kv:
            before = await kv.cluster_id()
            cluster.kill()
            cluster.start()
            assert await eventually_answers(kv.cluster_id) == before
            cluster.kill()
            cluster.members[0].wipe()
            cluster.start()
            assert await eventually_answers(kv.cluster_id) != before


async def test_a_listing_may_be_larger_than_one_answer(single_node: EtcdCluster) -> None:
    async with connected(single_node) as kv:
        for number in range(12):
            await kv.put(f"/large/{number:02}", bytes(1_000_000))
        listing = await kv.list_prefix("/large/")
        assert [item.key for item in listing.items] == [f"/large/{number:02}" for number in range(12)]
        single_node.clear()


async def test_a_listing_in_pages_is_of_one_revision(single_node: EtcdCluster) -> None:
    async with connected(single_node, page_size=7) as kv:
        single_node.clear()
        revisions = [await kv.put(f"/p/{number:02}", b"1") for number in range(30)]
        listing = await kv.list_prefix("/p/")
        assert [item.mod_revision for item in listing.items] == revisions
        assert listing.revision == revisions[-1]


async def test_a_slow_reader_is_held_back_and_loses_nothing(single_node: EtcdCluster) -> None:
    async with connected(single_node) as kv:
        since = await kv.put("/a", b"")
        async with aclosing(kv.watch_prefix("/a", since)) as slow:
            await anext(slow)
            revisions = [await kv.put("/a", bytes(100_000)) for _ in range(100)]
            assert [(await anext(slow)).revision for _ in revisions] == revisions


# Secured servers.

PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def guarded() -> Iterator[EtcdCluster]:
    """Users and passwords; tokens that expire when they were not used for a second, or a little later."""
    with etcd_cluster(1, "--auth-token-ttl", "1") as cluster:
        for command in (
            "user add root --interactive=false --new-user-password=root",
            "user grant-role root root",
            "role add lcm",
            "role grant-permission lcm --prefix=true readwrite /lcm",
            "user add lcm --interactive=false --new-user-password=",
            "user grant-role lcm lcm",
            "auth enable",
        ):
            words = command.split()
            if words[-1].endswith("--new-user-password="):
                words[-1] += PASSWORD
            cluster.ctl(*words).check_returncode()
        yield cluster


async def test_a_user_signs_in_with_a_password(guarded: EtcdCluster) -> None:
    async with connected(guarded, username="lcm", password=PASSWORD) as kv:
        since = await kv.put("/lcm/a", b"1")
        changes = await seen(kv, 1, since=since, prefix="/lcm/")
        assert [change.value for change in changes] == [b"1"]


@pytest.mark.parametrize("options", [{}, {"username": "lcm", "password": "wrong"}], ids=["nobody", "wrong"])
async def test_without_the_right_password_nothing_is_answered(
    guarded: EtcdCluster, options: dict[str, str]
) -> None:
    async with guarded.kv(**options) as kv:
        with pytest.raises(KvUnavailable) as refused:
            await kv.get("/lcm/a")
        assert "wrong" not in str(refused.value)
        with pytest.raises(KvUnavailable):
            await seen(kv, 1, since=1, prefix="/lcm/")


async def test_an_expired_token_is_renewed(guarded: EtcdCluster) -> None:
    user = {"username": "lcm", "password": PASSWORD}
    async with connected(guarded, **user) as writer, connected(guarded, **user) as reader:
        await writer.put("/lcm/a", b"1")

        async def reader_is_told_of_its_end() -> bool:
            await reader.get("/lcm/a")
            await SystemClock().sleep(2.5)  # only time ends a token
            try:
                await seen(reader, 1, since=1, prefix="/lcm/")
            except KvUnavailable as refusal:
                return "cancelled" in str(refusal)  # as a watch is told
            return False

        await eventually(reader_is_told_of_its_end)
        await writer.put("/lcm/a", b"2")
        assert len(await seen(reader, 1, since=1, prefix="/lcm/")) == 1


async def test_a_watch_the_server_cancels_says_so(guarded: EtcdCluster) -> None:
    async with connected(guarded, username="lcm", password=PASSWORD) as kv:
        with pytest.raises(KvUnavailable, match="permission denied"):
            await seen(kv, 1, since=1, prefix="/elsewhere/")


async def test_tls_is_spoken_both_ways(tmp_path: Path) -> None:
    authority, files = make_certificates(tmp_path)
    flags = ["--cert-file", files.certificate, "--key-file", files.key]
    flags += ["--trusted-ca-file", authority, "--client-cert-auth"]
    with etcd_cluster(1, *map(str, flags), scheme="https") as cluster:
        cluster.arguments = [f"--cacert={authority}", f"--cert={files.certificate}", f"--key={files.key}"]
        cluster.wait_until_healthy()
        tls = Tls(authority.read_bytes(), files.certificate.read_bytes(), files.key.read_bytes())
        async with connected(cluster, tls=tls) as kv:
            since = await kv.put("/a", b"1")
            assert len(await seen(kv, 1, since=since)) == 1
        async with cluster.kv(tls=Tls(authority.read_bytes())) as stranger:
            with pytest.raises(KvUnavailable):
                await stranger.get("/a")
        async with cluster.kv() as plain:
            with pytest.raises(KvUnavailable):
                await plain.get("/a")


# Addresses.


@pytest.mark.parametrize(
    ("given", "parsed", "is_tls"),
    [
        (["etcd"], ("etcd:2379",), False),
        (["127.0.0.1:1", "b:2"], ("127.0.0.1:1", "b:2"), False),
        ([" http://a:1/ "], ("a:1",), False),
        (["https://a:1", "https://b"], ("a:1", "b:2379"), True),
    ],
)
def test_members_are_named_by_address_or_url(given: list[str], parsed: tuple[str, ...], is_tls: bool) -> None:
    assert parse_endpoints(given) == (parsed, is_tls)


@pytest.mark.parametrize("given", [[""], ["ftp://a:1"], ["a:b"], [":2379"], ["http://a:1", "https://b:1"]])
def test_what_is_no_address_is_refused(given: list[str]) -> None:
    with pytest.raises(ValueError, match=r"etcd|https"):
        parse_endpoints(given)
