"""Bearer tokens of an identity provider: which count, which do not, and how often it is asked for keys."""

import base64
import json
from datetime import timedelta
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey

from lcm.control_plane.access.oidc import (
    KEYS_FRESH_SECONDS,
    KEYS_USABLE_SECONDS,
    REFETCH_SECONDS,
    OidcConfig,
    OidcVerifier,
)
from lcm.control_plane.access.roles import AccessDenied, Role
from lcm.core.configuration import ConfigurationError
from support.issuer import AUDIENCE, Issuer
from support.virtual_time import VirtualClock

ROLES = {"lcm-viewer": Role.VIEWER, "lcm-operator": Role.OPERATOR, "lcm-admin": Role.ADMIN}


@pytest.fixture(scope="module")
def shared_issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def issuer(shared_issuer: Issuer) -> Issuer:
    fresh = Issuer.__new__(Issuer)
    fresh.__dict__.update(shared_issuer.__dict__, keys=list(shared_issuer.keys), calls=[], extra={})
    return fresh


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def verifier(
    issuer: Issuer, clock: VirtualClock, role_claim: str = "roles", token_type: str = ""
) -> OidcVerifier:
    config = OidcConfig(issuer.address, AUDIENCE, role_claim, ROLES, token_type)
    return OidcVerifier(config, issuer.fetch, clock)


async def test_a_token_of_the_issuer_is_a_person_with_a_role(issuer: Issuer, clock: VirtualClock) -> None:
    principal = await verifier(issuer, clock).verify(issuer.token(clock.now()))
    assert (principal.id, principal.name, principal.role) == ("oidc:42", "oidc:ada", Role.OPERATOR)
    assert principal.expires_at == clock.now().replace(microsecond=0) + timedelta(seconds=300)


@pytest.mark.parametrize(
    ("claims", "role"),
    [
        ({"roles": ["lcm-viewer", "lcm-admin", "other"]}, Role.ADMIN),
        ({"roles": "lcm-viewer openid"}, Role.VIEWER),
    ],
)
async def test_the_highest_role_counts(
    claims: dict[str, Any], role: Role, issuer: Issuer, clock: VirtualClock
) -> None:
    assert (await verifier(issuer, clock).verify(issuer.token(clock.now(), **claims))).role is role


async def test_a_role_may_be_nested(issuer: Issuer, clock: VirtualClock) -> None:
    token = issuer.token(clock.now(), realm_access={"roles": ["lcm-admin"]})
    assert (await verifier(issuer, clock, "realm_access.roles").verify(token)).role is Role.ADMIN


@pytest.mark.parametrize("roles", [[], ["other"], None, 5, {"lcm-admin": True}, [["lcm-admin"]], [None]])
async def test_an_account_without_a_role_is_authenticated_but_refused(
    roles: Any, issuer: Issuer, clock: VirtualClock
) -> None:
    with pytest.raises(AccessDenied) as denied:
        await verifier(issuer, clock).verify(issuer.token(clock.now(), roles=roles))
    assert denied.value.status == 403


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://other.example"},
        {"aud": "another-service"},
        {"aud": ["another-service"]},
        {"aud": None},
        {"sub": None},
        {"exp": None},
        {"exp": "tomorrow"},
        {"exp": 1},
        {"nbf": 10**12},
        {"iat": 10**12},
    ],
    ids=str,
)
async def test_a_token_that_is_not_meant_for_here_and_now_does_not_count(
    claims: dict[str, Any], issuer: Issuer, clock: VirtualClock
) -> None:
    with pytest.raises(AccessDenied) as denied:
        await verifier(issuer, clock).verify(issuer.token(clock.now(), **claims))
    assert denied.value.status == 401


@pytest.mark.parametrize(
    ("header", "claims", "token_type", "is_accepted"),
    [
        ({"typ": "JWT"}, {}, "", True),
        ({"typ": "application/at+jwt"}, {}, "", True),
        ({"typ": "logout+jwt"}, {}, "", False),
        ({}, {"at_hash": "x"}, "", False),
        ({}, {"typ": "ID"}, "", False),
        ({"typ": "JWT"}, {}, "at+jwt", False),
        ({"typ": "at+jwt"}, {}, "at+jwt", True),
    ],
)
async def test_an_id_token_opens_nothing(
    header: dict[str, Any],
    claims: dict[str, Any],
    token_type: str,
    is_accepted: bool,
    issuer: Issuer,
    clock: VirtualClock,
) -> None:
    token = issuer.token(clock.now(), header, **claims)
    strict = verifier(issuer, clock, token_type=token_type)
    if is_accepted:
        assert (await strict.verify(token)).role is Role.OPERATOR
        return
    with pytest.raises(AccessDenied, match="no access token"):
        await strict.verify(token)


async def test_clocks_may_differ_by_a_minute(issuer: Issuer, clock: VirtualClock) -> None:
    checked = verifier(issuer, clock)
    token = issuer.token(clock.now(), nbf=int(clock.now().timestamp()) + 50)
    await checked.verify(token)
    await clock.sleep(300 + 55)
    await checked.verify(token)
    await clock.sleep(10)
    with pytest.raises(AccessDenied, match="expired"):
        await checked.verify(token)


async def test_only_signatures_by_the_issuers_public_keys_count(issuer: Issuer, clock: VirtualClock) -> None:
    good = issuer.token(clock.now())
    head, claims, signature = good.split(".")
    impostor = Issuer(issuer.address)
    public = json.dumps(issuer.keys[0].as_dict(private=False))
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    shared = OctKey.import_key(public.encode() * 2, {"kid": "first"})
    admin = base64.urlsafe_b64encode(b'{"sub":"1","roles":["lcm-admin"]}').decode().rstrip("=")
    for forged in (
        impostor.token(clock.now()),
        f"{none}.{claims}.",
        f"{head}.{claims}.",
        f"{head}.{admin}.{signature}",
        jwt.encode({"alg": "HS256", "kid": "first"}, {"sub": "1"}, shared, algorithms=["HS256"]),
        "a.b.c",
        "..",
        "x" * 20_000 + "..",
    ):
        with pytest.raises(AccessDenied) as denied:
            await verifier(issuer, clock).verify(forged)
        assert denied.value.status == 401, forged


@pytest.mark.parametrize(
    "header",
    [
        b'{"alg":["RS256"]}',
        b'{"alg":{},"kid":"first"}',
        b'{"alg":"RS256","kid":["first"]}',
        b'{"alg":"RS256","kid":"first","crit":["unheard-of"],"unheard-of":1}',
        b'{"alg":"RS256","kid":"first","crit":5}',
        b'{"alg":"RS256","kid":"first","b64":false,"crit":["b64"]}',
        b"[]",
        b"5",
        b"[" * 10_000,
        b"\xff\xfe",
    ],
)
async def test_a_made_up_head_is_refused_like_any_wrong_token(
    header: bytes, issuer: Issuer, clock: VirtualClock
) -> None:
    head = base64.urlsafe_b64encode(header).decode().rstrip("=")
    _, claims, signature = issuer.token(clock.now()).split(".")
    with pytest.raises(AccessDenied) as denied:
        await verifier(issuer, clock).verify(f"{head}.{claims}.{signature}")
    assert denied.value.status == 401


async def test_a_shared_secret_among_the_published_keys_is_ignored(
    issuer: Issuer, clock: VirtualClock
) -> None:
    secret = OctKey.generate_key(256, {"kid": "shared"})

    async def fetch(address: str) -> bytes:
        document = json.loads(await issuer.fetch(address))
        if "keys" in document:
            document["keys"] = [secret.as_dict(private=True), {"kty": "new"}, 5, *document["keys"]]
        return json.dumps(document).encode()

    checked = OidcVerifier(OidcConfig(issuer.address, AUDIENCE, "roles", ROLES), fetch, clock)
    await checked.verify(issuer.token(clock.now()))
    forged = jwt.encode({"alg": "HS256", "kid": "shared"}, {"sub": "1"}, secret, algorithms=["HS256"])
    with pytest.raises(AccessDenied):
        await checked.verify(forged)


async def test_keys_are_read_once_and_again_when_they_are_old(issuer: Issuer, clock: VirtualClock) -> None:
    checked = verifier(issuer, clock)
    for _ in range(100):
        await checked.verify(issuer.token(clock.now()))
    assert len(issuer.calls) == 2
    await clock.sleep(KEYS_FRESH_SECONDS + 1)
    await checked.verify(issuer.token(clock.now()))
    assert len(issuer.calls) == 4


async def test_a_new_key_is_fetched_when_a_token_names_it(issuer: Issuer, clock: VirtualClock) -> None:
    checked = verifier(issuer, clock)
    await checked.verify(issuer.token(clock.now()))
    await clock.sleep(REFETCH_SECONDS)
    issuer.add_key("second")
    await checked.verify(issuer.token(clock.now()))


async def test_made_up_key_names_do_not_make_us_ask_all_the_time(issuer: Issuer, clock: VirtualClock) -> None:
    checked = verifier(issuer, clock)
    for number in range(600):
        forged = issuer.token(clock.now(), header={"kid": f"made-up-{number}"})
        with pytest.raises(AccessDenied):
            await checked.verify(forged)
        await clock.sleep(0.1)
    assert len(issuer.calls) <= 2 * (1 + 60 / REFETCH_SECONDS)


async def test_while_the_issuer_is_away_its_known_keys_count_for_a_day(
    issuer: Issuer, clock: VirtualClock
) -> None:
    checked = verifier(issuer, clock)
    await checked.verify(issuer.token(clock.now()))
    issuer.is_away = True
    await clock.sleep(KEYS_USABLE_SECONDS - 60)
    await checked.verify(issuer.token(clock.now()))
    await clock.sleep(120)
    with pytest.raises(AccessDenied) as denied:
        await checked.verify(issuer.token(clock.now()))
    assert denied.value.status == 503
    issuer.is_away = False
    await clock.sleep(REFETCH_SECONDS)
    await checked.verify(issuer.token(clock.now()))


@pytest.mark.parametrize(
    "extra", [{"issuer": "https://other.example"}, {"jwks_uri": "http://elsewhere.example/keys"}]
)
async def test_keys_of_another_issuer_or_over_a_plain_connection_are_not_read(
    extra: dict[str, Any], issuer: Issuer, clock: VirtualClock
) -> None:
    issuer.extra = extra
    with pytest.raises(AccessDenied) as denied:
        await verifier(issuer, clock).verify(issuer.token(clock.now()))
    assert denied.value.status == 503
    assert len(issuer.calls) == 1


@pytest.mark.parametrize("address", ["http://issuer.example", "issuer.example", "ftp://issuer.example", ""])
def test_an_issuer_over_a_plain_connection_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError, match="https"):
        OidcConfig(address, AUDIENCE, "roles", ROLES)


def test_an_audience_is_a_must() -> None:
    with pytest.raises(ConfigurationError, match="OIDC_AUDIENCE"):
        OidcConfig("https://issuer.example", "", "roles", ROLES)
