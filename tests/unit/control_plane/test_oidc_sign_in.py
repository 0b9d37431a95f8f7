"""Signing in at an identity provider: for the browser that began, with the tokens of this answer alone."""

from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from msgspec.structs import replace

from lcm.control_plane.access.identity import Attempt
from lcm.control_plane.access.oidc import OidcConfig, OidcVerifier
from lcm.control_plane.access.oidc_sign_in import OidcClient, OidcSignIn
from lcm.control_plane.access.roles import AccessDenied, Principal, Role
from support.issuer import AUDIENCE, CLIENT, Issuer
from support.virtual_time import BEGINNING, VirtualClock

BACK = "https://lcm.example/api/session/oidc/callback"
ROLES = {"lcm-operator": Role.OPERATOR, "lcm-admin": Role.ADMIN}


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


def provider(issuer: Issuer, secret: str = "") -> OidcSignIn:
    clock = VirtualClock()
    verifier = OidcVerifier(OidcConfig(issuer.address, AUDIENCE, "roles", ROLES), issuer.fetch, clock)
    return OidcSignIn(OidcClient(CLIENT, secret), verifier, issuer.post, clock)


async def at_the_issuer(issuer: Issuer, page: OidcSignIn) -> tuple[Attempt, dict[str, str]]:
    """What the browser keeps, and what the issuer sends it back with."""
    address, attempt = await page.begin(BACK)
    return attempt, dict(parse_qsl(urlsplit(issuer.sign_in(address)).query))


async def signed_in(issuer: Issuer, secret: str = "") -> Principal:
    page = provider(issuer, secret)
    attempt, answer = await at_the_issuer(issuer, page)
    return await page.finish(attempt, answer, BACK)


async def test_a_person_of_the_issuer_is_signed_in_until_the_token_ends(issuer: Issuer) -> None:
    person = await signed_in(issuer)
    assert (person.id, person.name, person.role) == ("oidc:42", "oidc:ada", Role.OPERATOR)
    assert person.expires_at == BEGINNING.replace(microsecond=0) + timedelta(seconds=300)


async def test_the_address_of_the_page_does_not_show_what_the_code_is_exchanged_with(issuer: Issuer) -> None:
    address, attempt = await provider(issuer).begin(BACK)
    assert attempt.verifier not in address
    other, another = await provider(issuer).begin(BACK)
    assert other != address
    assert {attempt.state, attempt.nonce, attempt.verifier}.isdisjoint(
        {another.state, another.nonce, another.verifier}
    )


async def test_a_code_is_refused_in_a_browser_that_did_not_begin(issuer: Issuer) -> None:
    page = provider(issuer)
    _, answer = await at_the_issuer(issuer, page)
    _, other = await page.begin(BACK)
    calls = len(issuer.calls)
    for attempt in (None, other):
        with pytest.raises(AccessDenied, match="not begun in this browser"):
            await page.finish(attempt, answer, BACK)
    with pytest.raises(AccessDenied, match="not begun in this browser"):
        await page.finish(other, {**answer, "state": ""}, BACK)
    with pytest.raises(AccessDenied, match="not begun in this browser"):
        await page.finish(other, {**answer, "state": "naïve"}, BACK)
    assert len(issuer.calls) == calls, "the code was not sent on"


async def test_a_code_that_was_stolen_is_of_no_use_without_the_verifier(issuer: Issuer) -> None:
    page = provider(issuer)
    attempt, answer = await at_the_issuer(issuer, page)
    with pytest.raises(AccessDenied, match="refused the code: invalid_grant"):
        await page.finish(replace(attempt, verifier="of-another"), answer, BACK)


async def test_a_code_is_of_use_once_and_for_one_address(issuer: Issuer) -> None:
    page = provider(issuer)
    attempt, answer = await at_the_issuer(issuer, page)
    await page.finish(attempt, answer, BACK)
    with pytest.raises(AccessDenied, match="invalid_grant"):
        await page.finish(attempt, answer, BACK)
    attempt, answer = await at_the_issuer(issuer, page)
    with pytest.raises(AccessDenied, match="invalid_grant"):
        await page.finish(attempt, answer, "https://elsewhere.example/callback")


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "of-another-sign-in"},
        {"nonce": None},
        {"aud": "another-client"},
        {"aud": [CLIENT, "another-client"]},
        {"aud": [CLIENT, "another-client"], "azp": "another-client"},
        {"iss": "https://other.example"},
        {"at_hash": "b2YgYW5vdGhlcg"},
        {"exp": int(BEGINNING.timestamp()) - 120},
        {"exp": None},
        {"sub": None},
    ],
)
async def test_an_id_token_that_is_not_for_this_sign_in_is_refused(
    issuer: Issuer, claims: dict[str, Any]
) -> None:
    issuer.id_claims = claims
    with pytest.raises(AccessDenied) as denied:
        await signed_in(issuer)
    assert denied.value.status == 401


async def test_an_id_token_with_another_signature_is_refused(issuer: Issuer) -> None:
    page = provider(issuer)
    attempt, answer = await at_the_issuer(issuer, page)
    issuer.keys = Issuer().keys
    with pytest.raises(AccessDenied) as denied:
        await page.finish(attempt, answer, BACK)
    assert denied.value.status == 401


async def test_a_role_may_be_in_the_access_token_of_the_same_person_only(issuer: Issuer) -> None:
    issuer.id_claims, issuer.access_claims = {"roles": None}, {"roles": ["lcm-admin"]}
    assert (await signed_in(issuer)).role is Role.ADMIN
    issuer.access_claims = {"roles": ["lcm-admin"], "sub": "43"}
    with pytest.raises(AccessDenied, match="different people"):
        await signed_in(issuer)
    issuer.access_claims = {"roles": ["lcm-admin"], "aud": "another-service"}
    with pytest.raises(AccessDenied) as denied:
        await signed_in(issuer)
    assert denied.value.status == 401


async def test_the_session_ends_with_the_token_that_ends_first(issuer: Issuer) -> None:
    issuer.id_claims = {"roles": None, "exp": int(BEGINNING.timestamp()) + 60}
    assert (await signed_in(issuer)).expires_at == BEGINNING.replace(microsecond=0) + timedelta(seconds=60)


async def test_an_account_without_a_role_is_refused_as_such(issuer: Issuer) -> None:
    issuer.id_claims, issuer.access_claims = {"roles": ["staff"]}, {"roles": ["staff"]}
    with pytest.raises(AccessDenied) as denied:
        await signed_in(issuer)
    assert denied.value.status == 403


async def test_a_client_with_a_secret_shows_it_and_one_with_a_wrong_secret_is_refused(issuer: Issuer) -> None:
    issuer.client_secret = "the-secret-of-the-client"
    assert (await signed_in(issuer, issuer.client_secret)).id == "oidc:42"
    with pytest.raises(AccessDenied, match="invalid_client"):
        await signed_in(issuer, "another")


async def test_what_the_issuer_refuses_is_said_without_its_words(issuer: Issuer) -> None:
    page = provider(issuer)
    attempt, answer = await at_the_issuer(issuer, page)
    del answer["code"]
    for error, says in (("access_denied", "access_denied"), ("<script>", "no code")):
        with pytest.raises(AccessDenied, match=f"refused: {says}$"):
            await page.finish(attempt, {**answer, "error": error}, BACK)
    with pytest.raises(AccessDenied, match="another identity provider"):
        await page.finish(attempt, {**answer, "iss": "https://other.example"}, BACK)


async def test_an_issuer_that_does_not_answer_is_no_wrong_answer(issuer: Issuer) -> None:
    page = provider(issuer)
    attempt, answer = await at_the_issuer(issuer, page)
    issuer.is_away = True
    with pytest.raises(AccessDenied) as denied:
        await page.finish(attempt, answer, BACK)
    assert denied.value.status == 503


@pytest.mark.parametrize("endpoint", ["authorization_endpoint", "token_endpoint"])
async def test_an_endpoint_in_clear_is_not_used(issuer: Issuer, endpoint: str) -> None:
    issuer.extra = {endpoint: "http://issuer.example/page"}
    with pytest.raises(AccessDenied) as denied:
        await signed_in(issuer)
    assert denied.value.status == 503
