"""Authentication of requests, the lifetime of credentials, and the end of streams."""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from starlette.requests import HTTPConnection

from lcm.control_plane.access.credentials import CACHED_SECONDS, Credential
from lcm.control_plane.access.guessing import LOOKUPS_OF_GUESSERS, WRONG_BURST
from lcm.control_plane.access.identity import (
    COOKIE,
    LINK_LIFETIME,
    MAX_LINKS_PER_PRINCIPAL,
    MAX_SESSIONS_PER_PRINCIPAL,
    MAX_STREAMS,
    MAX_STREAMS_PER_PRINCIPAL,
    SESSION_LIFETIME,
    AccessLimits,
    Identity,
    IdentityKeeper,
    cookie_name,
)
from lcm.control_plane.access.rate_limit import Buckets
from lcm.control_plane.access.roles import AccessDenied, AccessKeys, Principal, Role, TooManyRequests
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import Document, StoreUnavailable
from lcm.core.configuration import ConfigurationError
from lcm.core.health import Health
from lcm.core.timeouts import timeout
from support.virtual_time import VirtualClock

KEYS = AccessKeys("viewer-key", "operator-key", "admin-key", "controller-key")


class CountingStore(MemoryStore):
    """Counts reads, and can be away."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.is_away = False

    async def get(self, kind: str, document_id: str) -> Document | None:
        self.reads += 1
        if self.is_away:
            raise StoreUnavailable("away")
        return await super().get(kind, document_id)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def identity(store: CountingStore, clock: VirtualClock) -> Identity:
    return Identity(KEYS, store, clock)


def request(headers: Mapping[str, str], method: str = "GET", peer: str = "10.0.0.1") -> HTTPConnection:
    raw = [(name.lower().encode(), value.encode()) for name, value in {"host": "lcm", **headers}.items()]
    return HTTPConnection(
        {
            "type": "http",
            "method": method,
            "scheme": "http",
            "path": "/",
            "query_string": b"",
            "headers": raw,
            "client": (peer, 1),
            "server": ("lcm", 80),
        }
    )


def bearer(token: str, peer: str = "10.0.0.1") -> HTTPConnection:
    return request({"Authorization": f"Bearer {token}"}, peer=peer)


async def issue(
    identity: Identity, clock: VirtualClock, lifetime: timedelta | None = None
) -> tuple[str, Credential]:
    expires_at = clock.now() + lifetime if lifetime else None
    return await identity.tokens.issue(name="ci", role=Role.OPERATOR, by="admin", expires_at=expires_at)


async def test_a_token_lasts_until_it_expires(identity: Identity, clock: VirtualClock) -> None:
    token, _ = await issue(identity, clock, timedelta(hours=1))
    principal = await identity.authenticate(bearer(token))
    assert (principal.name, principal.role) == ("ci", Role.OPERATOR)
    await clock.sleep(3599)
    await identity.authenticate(bearer(token))
    await clock.sleep(1)
    with pytest.raises(AccessDenied):
        await identity.authenticate(bearer(token))


async def test_another_control_plane_notices_a_revocation_within_two_seconds(
    store: CountingStore, clock: VirtualClock
) -> None:
    here, there = Identity(KEYS, store, clock), Identity(KEYS, store, clock)
    token, credential = await issue(here, clock)
    await there.authenticate(bearer(token))
    await here.tokens.revoke(credential.id)
    with pytest.raises(AccessDenied):
        await here.authenticate(bearer(token))
    await clock.sleep(CACHED_SECONDS)
    with pytest.raises(AccessDenied):
        await there.authenticate(bearer(token))


async def test_a_busy_token_costs_one_read_in_two_seconds(
    identity: Identity, store: CountingStore, clock: VirtualClock
) -> None:
    token, _ = await issue(identity, clock)
    for _ in range(1000):
        await identity.authenticate(bearer(token))
        await clock.sleep(0.01)
    assert store.reads <= 6


async def guess(identity: Identity, number: int, peer: str = "10.0.0.1") -> type[Exception]:
    with pytest.raises((AccessDenied, TooManyRequests)) as refusal:
        await identity.authenticate(bearer(f"guess {number}", peer))
    return refusal.type


async def test_guessing_never_keeps_out_who_knows_a_token_session_or_key(
    identity: Identity, store: CountingStore, clock: VirtualClock
) -> None:
    token, _ = await issue(identity, clock)
    browser = await signed_in(identity, token)
    refusals = [await guess(identity, number) for number in range(100)]
    assert refusals[0] is AccessDenied
    assert refusals[-1] is TooManyRequests
    cold = Identity(KEYS, store, clock)
    for number in range(100):
        await guess(cold, number)
    assert (await cold.principal_of(token, bearer(token))).name == "ci", "signing in"
    await clock.sleep(CACHED_SECONDS)
    await guess(cold, 100)
    await cold.authenticate(browser)
    await clock.sleep(CACHED_SECONDS)
    await cold.authenticate(bearer(token))
    await cold.authenticate(bearer("admin-key"))
    assert await guess(cold, 101, peer="10.0.0.2") is AccessDenied, "another address has guessed nothing"


async def test_guesses_of_one_address_are_not_looked_up_all_at_once(clock: VirtualClock) -> None:
    class SlowStore(MemoryStore):
        now = most = 0

        async def get(self, kind: str, document_id: str) -> Document | None:
            self.now += 1
            self.most = max(self.most, self.now)
            await clock.sleep(0.01)
            self.now -= 1
            return await super().get(kind, document_id)

    store = SlowStore()
    identity = Identity(KEYS, store, clock)
    token, _ = await issue(identity, clock)
    for number in range(WRONG_BURST):
        await guess(identity, number)
    assert store.most == 1
    async with asyncio.TaskGroup() as tasks:
        for number in range(200):
            tasks.create_task(guess(identity, number))
        knowing = tasks.create_task(identity.authenticate(bearer(token)))
    assert store.most == LOOKUPS_OF_GUESSERS
    assert knowing.result().name == "ci"


async def test_guesses_from_all_addresses_of_an_ipv6_network_count_together(identity: Identity) -> None:
    refusals = [await guess(identity, n, peer=f"2001:db8:1:2::{n:x}") for n in range(WRONG_BURST + 1)]
    assert refusals[-1] is TooManyRequests
    assert await guess(identity, 0, peer="2001:db8:1:3::1") is AccessDenied


async def test_guesses_from_many_addresses_count_in_all(identity: Identity) -> None:
    refusals = [await guess(identity, n, peer=f"10.{n // 250}.0.{n % 250}") for n in range(1_001)]
    assert set(refusals[:1_000]) == {AccessDenied}
    assert refusals[-1] is TooManyRequests
    assert identity.guesses.total == 1_001
    await identity.authenticate(bearer("viewer-key"))


async def test_guessing_the_controllers_key_is_slowed_down_too(identity: Identity) -> None:
    refusals = set()
    for number in range(100):
        try:
            await identity.require_service(request({"X-API-Key": f"guess {number}"}))
        except (AccessDenied, TooManyRequests) as refusal:
            refusals.add(type(refusal))
    assert refusals == {AccessDenied, TooManyRequests}
    await identity.require_service(request({"X-API-Key": "controller-key"}))


async def signed_in(identity: Identity, token: str) -> HTTPConnection:
    principal = await identity.principal_of(token, request({}))
    secret, _ = await identity.open_session(principal)
    return request({"Cookie": f"{COOKIE}_80={secret}"})


async def test_a_session_is_the_person_who_opened_it_and_lasts_twelve_hours(
    identity: Identity, clock: VirtualClock
) -> None:
    browser = await signed_in(identity, "operator-key")
    principal = await identity.authenticate(browser)
    assert (principal.name, principal.role) == ("operator", Role.OPERATOR)
    assert principal.id == (await identity.authenticate(bearer("operator-key"))).id
    await clock.sleep(SESSION_LIFETIME.total_seconds() - 1)
    await identity.authenticate(browser)
    await clock.sleep(1)
    with pytest.raises(AccessDenied):
        await identity.authenticate(browser)


async def test_a_session_does_not_outlast_the_token_it_was_opened_with(
    identity: Identity, clock: VirtualClock
) -> None:
    token, credential = await issue(identity, clock, timedelta(hours=1))
    browser = await signed_in(identity, token)
    await identity.authenticate(browser)
    await identity.tokens.revoke(credential.id)
    with pytest.raises(AccessDenied):
        await identity.authenticate(browser)


async def test_a_link_signs_in_once_as_the_principal_that_made_it(
    identity: Identity, clock: VirtualClock
) -> None:
    token, _ = await issue(identity, clock, timedelta(hours=1))
    maker = await identity.authenticate(bearer(token))
    code, _ = await identity.make_link(maker)
    used = await identity.use_link(code, request({}))
    assert (used.id, used.role, used.expires_at) == (maker.id, maker.role, maker.expires_at)
    for _ in range(2):
        with pytest.raises(AccessDenied):
            await identity.use_link(code, request({}))
        await clock.sleep(CACHED_SECONDS)
    with pytest.raises(AccessDenied):
        await identity.authenticate(bearer(code))


async def test_of_two_browsers_with_one_link_only_one_is_signed_in(
    store: CountingStore, clock: VirtualClock
) -> None:
    here, there = Identity(KEYS, store, clock), Identity(KEYS, store, clock)
    code, _ = await here.make_link(await here.authenticate(bearer("admin-key")))
    outcomes: list[bool] = []

    async def attempt(plane: Identity) -> None:
        try:
            await plane.use_link(code, request({}))
            outcomes.append(True)
        except AccessDenied:
            outcomes.append(False)

    async with asyncio.TaskGroup() as tasks:
        for plane in (here, there, here, there):
            tasks.create_task(attempt(plane))
    assert sorted(outcomes) == [False, False, False, True]


async def test_a_link_expires_after_ten_minutes_and_with_its_maker(
    identity: Identity, clock: VirtualClock
) -> None:
    token, credential = await issue(identity, clock)
    maker = await identity.authenticate(bearer(token))
    revoked, _ = await identity.make_link(maker)
    late, _ = await identity.make_link(await identity.authenticate(bearer("admin-key")))
    await identity.revoke_token(credential.id)
    await clock.sleep(LINK_LIFETIME.total_seconds())
    for code in (revoked, late):
        with pytest.raises(AccessDenied):
            await identity.use_link(code, request({}))
    account = Principal("oidc:42", "oidc:ada", Role.VIEWER)
    with pytest.raises(AccessDenied):
        await identity.make_link(account)


async def test_a_principal_cannot_pile_up_sessions(identity: Identity, clock: VirtualClock) -> None:
    other = await signed_in(identity, "viewer-key")
    browsers = []
    for _ in range(MAX_SESSIONS_PER_PRINCIPAL + 5):
        browsers.append(await signed_in(identity, "operator-key"))
        await clock.sleep(1)
    assert len(await identity.sessions.list_all()) == MAX_SESSIONS_PER_PRINCIPAL + 1
    for dropped in browsers[:5]:
        with pytest.raises(AccessDenied):
            await identity.authenticate(dropped)
    for kept in (*browsers[5:], other):
        await identity.authenticate(kept)


async def test_signing_out_everywhere_ends_every_browser_and_no_token(
    identity: Identity, clock: VirtualClock
) -> None:
    token, _ = await issue(identity, clock)
    person = await identity.authenticate(bearer(token))
    other = KEYS.principal_of("viewer-key")
    assert other is not None
    cookies = [(await identity.open_session(who))[0] for who in (person, person, other)]
    assert len(await identity.list_sessions(person.id)) == 2
    assert len(await identity.list_sessions()) == 3
    await identity.end_sessions(person.id)
    for cookie in cookies[:2]:
        with pytest.raises(AccessDenied):
            await identity.authenticate(request({"Cookie": f"{COOKIE}_80={cookie}"}))
    assert [each.owner_id for each in await identity.list_sessions()] == [other.id]
    await identity.authenticate(bearer(token))


async def test_whoever_is_signed_out_everywhere_does_not_come_back_with_a_link(
    identity: Identity, clock: VirtualClock
) -> None:
    token, _ = await issue(identity, clock)
    person = await identity.authenticate(bearer(token))
    viewer = await identity.authenticate(bearer("viewer-key"))
    stolen, _ = await identity.make_link(person)
    of_another, _ = await identity.make_link(viewer)
    await identity.end_sessions(person.id)
    with pytest.raises(AccessDenied):
        await identity.use_link(stolen, request({}))
    assert (await identity.use_link(of_another, request({}))).id == viewer.id


async def test_no_token_outlives_the_longest_life_not_even_one_that_exists(
    store: CountingStore, clock: VirtualClock
) -> None:
    before = Identity(KEYS, store, clock)
    token, _ = await issue(before, clock)
    bounded = Identity(KEYS, store, clock, limits=AccessLimits(max_token_life=timedelta(days=1)))
    _, credential = await bounded.tokens.issue(
        name="long", role=Role.ADMIN, by="admin", expires_at=clock.now() + timedelta(days=9)
    )
    assert credential.expires_at == clock.now() + timedelta(days=1)
    assert (await bounded.authenticate(bearer(token))).expires_at == clock.now() + timedelta(days=1)
    await clock.sleep(24 * 3600)
    with pytest.raises(AccessDenied):
        await bounded.authenticate(bearer(token))
    await before.authenticate(bearer(token))


async def test_keys_that_are_switched_off_let_nobody_in_but_controllers(
    store: CountingStore, clock: VirtualClock
) -> None:
    open_to_keys = Identity(KEYS, store, clock)
    admin = await open_to_keys.authenticate(bearer("admin-key"))
    cookie, _ = await open_to_keys.open_session(admin)
    without = Identity(KEYS, store, clock, limits=AccessLimits(are_keys_enabled=False))
    for wrong in (bearer("admin-key"), request({"Cookie": f"{COOKIE}_80={cookie}"})):
        with pytest.raises(AccessDenied):
            await without.authenticate(wrong)
    await without.require_service(request({"X-API-Key": "controller-key"}))


async def test_keys_are_not_switched_off_while_no_admin_has_another_way_in(
    store: CountingStore, clock: VirtualClock
) -> None:
    without = Identity(KEYS, store, clock, limits=AccessLimits(are_keys_enabled=False))
    await issue(without, clock)
    with pytest.raises(ConfigurationError, match="role admin"):
        await without.require_way_in()
    await without.tokens.issue(
        name="boss", role=Role.ADMIN, by="admin", expires_at=clock.now() + timedelta(days=1)
    )
    await without.require_way_in()
    await clock.sleep(24 * 3600)
    with pytest.raises(ConfigurationError):
        await without.require_way_in()


async def test_no_session_is_kept_of_a_revoked_token(identity: Identity, clock: VirtualClock) -> None:
    token, credential = await issue(identity, clock)
    await signed_in(identity, token)
    await signed_in(identity, "viewer-key")
    await identity.revoke_token(credential.id)
    assert [session.name for session in await identity.sessions.list_all()] == ["viewer"]


async def test_a_principal_cannot_keep_links_without_bound(identity: Identity, clock: VirtualClock) -> None:
    viewer = await identity.authenticate(bearer("viewer-key"))
    first, _ = await identity.make_link(viewer)
    await identity.make_link(await identity.authenticate(bearer("admin-key")))
    for _ in range(MAX_LINKS_PER_PRINCIPAL):
        await clock.sleep(1)
        last, _ = await identity.make_link(viewer)
    kept = [link.owner_id for link in await identity.links.list_all()]
    assert kept.count(viewer.id) == len(kept) - 1 == MAX_LINKS_PER_PRINCIPAL
    with pytest.raises(AccessDenied):
        await identity.use_link(first, request({}))
    assert (await identity.use_link(last, request({}))).id == viewer.id


async def test_a_principal_cannot_open_streams_without_bound(identity: Identity) -> None:
    viewer = await identity.authenticate(bearer("viewer-key"))
    browser = await identity.authenticate(await signed_in(identity, "viewer-key"))
    with ExitStack() as streams:
        for number in range(MAX_STREAMS_PER_PRINCIPAL):
            identity.require_room_for_stream(viewer)
            streams.enter_context(identity.watch((viewer, browser)[number % 2], lambda: None))
        for person in (viewer, browser):
            with pytest.raises(TooManyRequests):
                identity.require_room_for_stream(person)
        identity.require_room_for_stream(await identity.authenticate(bearer("admin-key")))
    identity.require_room_for_stream(viewer)


async def test_all_principals_together_cannot_open_streams_without_bound(identity: Identity) -> None:
    with ExitStack() as streams:
        for number in range(MAX_STREAMS):
            each = Principal(f"token:{number}", "somebody", Role.VIEWER)
            identity.require_room_for_stream(each)
            streams.enter_context(identity.watch(each, lambda: None))
        with pytest.raises(TooManyRequests):
            identity.require_room_for_stream(Principal("token:new", "new", Role.VIEWER))


async def test_a_replaced_start_up_key_ends_the_sessions_opened_with_the_old_one(
    identity: Identity, store: CountingStore, clock: VirtualClock
) -> None:
    browser = await signed_in(identity, "admin-key")
    replaced = Identity(AccessKeys("viewer-key", "operator-key", "new-key", "c"), store, clock)
    with pytest.raises(AccessDenied):
        await replaced.authenticate(browser)


async def test_a_stream_ends_within_seconds_after_its_token_was_revoked(
    store: CountingStore, clock: VirtualClock
) -> None:
    here, there = Identity(KEYS, store, clock), Identity(KEYS, store, clock)
    token, credential = await issue(here, clock)
    principal = await there.authenticate(bearer(token))
    ended = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        keeping = tasks.create_task(IdentityKeeper(there, clock, Health(clock)).run())
        with there.watch(principal, ended.set):
            await clock.sleep(60)
            assert not ended.is_set()
            await here.tokens.revoke(credential.id)
            async with timeout(CACHED_SECONDS + 1.1):
                await ended.wait()
        keeping.cancel()


async def test_a_stream_ends_with_its_session_however_that_ends(
    identity: Identity, clock: VirtualClock
) -> None:
    ended: list[str] = []
    signing_out, expiring = await signed_in(identity, "admin-key"), await signed_in(identity, "viewer-key")
    async with asyncio.TaskGroup() as tasks:
        keeping = tasks.create_task(IdentityKeeper(identity, clock, Health(clock)).run())
        with (
            identity.watch(await identity.authenticate(signing_out), lambda: ended.append("signed out")),
            identity.watch(await identity.authenticate(expiring), lambda: ended.append("expired")),
        ):
            await identity.close_session(await identity.authenticate(signing_out))
            await clock.sleep(2)
            assert ended == ["signed out"]
            await clock.sleep(SESSION_LIFETIME.total_seconds())
            assert ended == ["signed out", "expired"]
        keeping.cancel()


async def test_no_stream_ends_because_the_store_does_not_answer(
    identity: Identity, store: CountingStore, clock: VirtualClock
) -> None:
    token, _ = await issue(identity, clock)
    ended: list[Principal] = []
    principal = await identity.authenticate(bearer(token))
    async with asyncio.TaskGroup() as tasks:
        keeping = tasks.create_task(IdentityKeeper(identity, clock, Health(clock)).run())
        with identity.watch(principal, lambda: ended.append(principal)):
            store.is_away = True
            await clock.sleep(60)
            assert ended == []
        keeping.cancel()


async def test_last_use_is_written_down_and_what_expired_is_forgotten(
    identity: Identity, store: CountingStore, clock: VirtualClock
) -> None:
    token, credential = await issue(identity, clock, timedelta(minutes=30))
    await signed_in(identity, "admin-key")
    await identity.authenticate(bearer(token))
    async with asyncio.TaskGroup() as tasks:
        keeping = tasks.create_task(IdentityKeeper(identity, clock, Health(clock)).run())
        await clock.sleep(40)
        (seen_elsewhere,) = await Identity(KEYS, store, clock).tokens.list_all()
        assert seen_elsewhere.last_used_at is not None
        assert (seen_elsewhere.id, seen_elsewhere.verifier) == (credential.id, credential.verifier)
        await clock.sleep(13 * 3600)
        assert await identity.tokens.list_all() == []
        assert await identity.sessions.list_all() == []
        keeping.cancel()


async def test_nothing_of_a_secret_is_kept(
    identity: Identity, store: CountingStore, clock: VirtualClock
) -> None:
    token, _ = await issue(identity, clock)
    secret, _ = await identity.open_session(await identity.authenticate(bearer(token)))
    documents = [*await store.list_all("access-token"), *await store.list_all("browser-session")]
    kept = b"".join(document.body + document.id.encode() for document in documents)
    assert kept
    for shown in (token, secret, "admin-key"):
        assert shown.encode() not in kept
        assert shown[:8].encode() not in kept


async def test_a_bucket_lets_a_burst_through_and_then_its_rate(clock: VirtualClock) -> None:
    buckets = Buckets(clock, per_second=2.0, burst=10)
    assert [buckets.take("a") for _ in range(10)] == [0.0] * 10
    assert buckets.take("a") == pytest.approx(0.5)
    assert buckets.take("b") == 0.0, "each key has its own"
    await clock.sleep(0.5)
    assert buckets.take("a") == 0.0
    assert buckets.take("a") > 0
    await clock.sleep(3600)
    assert [buckets.take("a") for _ in range(11)].count(0.0) == 10


async def test_buckets_are_bounded(clock: VirtualClock) -> None:
    buckets = Buckets(clock, per_second=1.0, burst=1, max_keys=100)
    buckets.take("busy")
    for number in range(10_000):
        buckets.take(str(number))
        assert buckets.take("busy") > 0, "a key in use is not dropped"
    assert len(buckets) <= 100


def test_two_control_planes_on_one_host_have_cookies_of_their_own() -> None:
    """Browsers send a cookie to every port of its host."""
    names = {cookie_name(request({"host": host})) for host in ("127.0.0.1:8080", "127.0.0.1:8090")}
    assert names == {f"{COOKIE}_8080", f"{COOKIE}_8090"}
    assert cookie_name(request({"host": "lcm:x;y=z"})) == f"{COOKIE}_80"


def test_keys_that_every_user_of_the_host_could_read_are_hidden(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    keys = AccessKeys.load_or_create(path)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    assert AccessKeys.load_or_create(path) == keys
    assert path.stat().st_mode & 0o007 == 0
