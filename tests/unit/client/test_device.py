"""Signing in with a code, and what keeps a sign-in alive: at an issuer that is strict."""

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

import pytest

from lcm.client.calls import Answer
from lcm.client.contexts import Context, config_path, read_contexts, remember_context
from lcm.client.device import DeviceSignIn
from lcm.client.errors import ContextError, SignInFailed, Unreachable
from lcm.client.oauth import over_http, renewed
from lcm.rest.schemas import DeviceClient
from support.issuer import DEVICE_CLIENT, DEVICE_CODE_LIFE, Issuer
from support.virtual_time import BEGINNING

LCM = "https://lcm.example"


class PatientClock:
    """Whoever sleeps on it has slept."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        self.naps: list[float] = []

    def now(self) -> datetime:
        return BEGINNING + timedelta(seconds=self.elapsed)

    def monotonic(self) -> float:
        return self.elapsed

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.elapsed += seconds


class Terminal:
    """A person who signs in with a code."""

    def __init__(self) -> None:
        self.issuer = Issuer()
        self.clock = PatientClock()
        self.answers: list[Callable[[], Answer]] = []
        """Instead of those of the token endpoint, one after the other."""
        self.scope = "openid"

    def ask(self, address: str, form: Mapping[str, str] | None) -> Answer:
        path = address.removeprefix(self.issuer.address)
        if form is None:
            found = self.issuer.published(path)
            return Answer(404 if found is None else 200, {}, json.dumps(found).encode())
        if path == "/device-code":
            status, content = self.issuer.device_code(urlencode(form), self.clock.now())
        elif self.answers:
            return self.answers.pop(0)()
        else:
            status, content = self.issuer.exchange({}, urlencode(form), self.clock.now())
        return Answer(status, {}, json.dumps(content).encode())

    def sign_in(self, client_id: str = DEVICE_CLIENT) -> Context:
        client = DeviceClient(issuer=self.issuer.address, client_id=client_id, scope=self.scope)
        attempt = DeviceSignIn(client, self.ask, self.clock)
        return attempt.context(LCM, None, attempt.finish(attempt.begin()))

    def renew(self, context: Context, path: Path) -> Context:
        return renewed(context, path, self.ask, self.clock)


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return config_path({"XDG_CONFIG_HOME": str(tmp_path)})


def no_answer() -> Answer:
    raise Unreachable("no answer", was_sent=True)


def answer(status: int, error: str = "") -> Callable[[], Answer]:
    return lambda: Answer(status, {}, json.dumps({"error": error}).encode())


def test_the_tokens_come_once_the_person_has_entered_the_code(terminal: Terminal) -> None:
    found = terminal.sign_in()
    assert terminal.clock.naps == [5.0, 5.0, 5.0]
    assert found.renewal is not None
    assert found.renewal.expires_at == terminal.clock.now() + timedelta(seconds=300)
    for secret in (found.token, found.renewal.refresh_token):
        assert secret not in repr((found, found.renewal))


def test_a_provider_that_is_asked_too_often_is_asked_more_slowly(terminal: Terminal) -> None:
    terminal.answers = [answer(400, "slow_down"), answer(400, "authorization_pending"), answer(429)]
    terminal.sign_in()
    assert terminal.clock.naps[:4] == [5.0, 10.0, 10.0, 15.0]


def test_a_provider_that_is_away_is_asked_again_until_the_code_ends(terminal: Terminal) -> None:
    terminal.answers = [no_answer, answer(502)]
    terminal.sign_in()
    assert terminal.clock.naps[:3] == [5.0, 10.0, 15.0]
    terminal.answers = [no_answer] * 100
    begun = terminal.clock.elapsed
    with pytest.raises(SignInFailed, match="was not entered in time"):
        terminal.sign_in()
    assert terminal.clock.elapsed - begun <= DEVICE_CODE_LIFE.total_seconds()


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ("access_denied", "was denied there"),
        ("expired_token", "was not entered in time"),
        ("unauthorized_client", "issuer.example gives no token: unauthorized_client"),
        ("<script>", "issuer.example gives no token: status 400"),
    ],
)
def test_a_refusal_ends_the_sign_in_with_what_to_do(terminal: Terminal, error: str, says: str) -> None:
    terminal.answers = [answer(400, error)]
    with pytest.raises(SignInFailed, match=says):
        terminal.sign_in()


def test_a_person_who_denies_is_not_signed_in(terminal: Terminal) -> None:
    terminal.issuer.is_denied = True
    with pytest.raises(SignInFailed, match="was denied there"):
        terminal.sign_in()


def test_a_client_that_the_provider_does_not_know_is_named(terminal: Terminal) -> None:
    with pytest.raises(SignInFailed, match=r"client 'other' \(invalid_client\): an admin registers it"):
        terminal.sign_in("other")


@pytest.mark.parametrize(
    ("published", "says"),
    [
        ({"issuer": "https://elsewhere.example"}, "is of another issuer"),
        ({"device_authorization_endpoint": None}, "offers no sign-in from a terminal"),
        ({"token_endpoint": 7}, "not understood"),
    ],
)
def test_a_provider_that_cannot_be_used_is_named(
    terminal: Terminal, published: dict[str, object], says: str
) -> None:
    terminal.issuer.extra = published
    with pytest.raises(SignInFailed, match=says):
        terminal.sign_in()


def test_nothing_is_sent_to_a_provider_without_tls() -> None:
    with pytest.raises(ContextError, match="must begin with https://"):
        over_http("http://issuer.example/token", {"refresh_token": "secret"})


def test_a_provider_without_refresh_tokens_gives_a_context_that_ends(terminal: Terminal) -> None:
    terminal.issuer.gives_refresh_tokens = False
    assert terminal.sign_in().renewal is None


def test_a_renewal_is_kept_where_the_context_is_kept_whatever_it_is_called(
    terminal: Terminal, path: Path
) -> None:
    old = terminal.sign_in()
    remember_context(path, "renamed", old)
    remember_context(path, "other", terminal.sign_in())
    new = terminal.renew(old, path)
    kept = read_contexts(path).contexts
    assert kept["renamed"] == new != old
    assert kept["other"].token != new.token


def test_whoever_comes_second_takes_what_the_first_one_was_given(terminal: Terminal, path: Path) -> None:
    old = terminal.sign_in()
    remember_context(path, "here", old)
    assert terminal.renew(old, path) == terminal.renew(old, path), "a refresh token is accepted once"


def test_what_the_first_one_was_given_long_ago_is_renewed_by_whoever_comes_second(
    terminal: Terminal, path: Path
) -> None:
    old = terminal.sign_in()
    remember_context(path, "here", old)
    first = terminal.renew(old, path)
    assert first.renewal is not None
    terminal.clock.sleep((first.renewal.expires_at - terminal.clock.now()).total_seconds())
    second = terminal.renew(old, path)
    assert second.renewal is not None
    assert second.renewal.expires_at > terminal.clock.now()
    assert read_contexts(path).contexts["here"] == second


def test_a_renewal_brings_back_no_context_that_was_forgotten(terminal: Terminal, path: Path) -> None:
    terminal.renew(terminal.sign_in(), path)
    assert read_contexts(path).contexts == {}


def test_a_provider_that_keeps_its_refresh_token_is_asked_with_it_again(
    terminal: Terminal, path: Path
) -> None:
    old = terminal.sign_in()
    terminal.issuer.gives_refresh_tokens = False
    new = terminal.renew(old, path)
    assert old.renewal is not None
    assert new.renewal is not None
    assert new.renewal.refresh_token == old.renewal.refresh_token
    assert new.token != old.token


def test_a_sign_in_that_is_over_says_how_to_begin_again(terminal: Terminal, path: Path) -> None:
    found = terminal.sign_in()
    terminal.issuer.end_all_sign_ins()
    with pytest.raises(SignInFailed, match=f"lcm login {LCM} --device"):
        terminal.renew(found, path)


@pytest.mark.parametrize("status", [429, 503])
def test_a_provider_that_answers_no_question_now_does_not_end_a_sign_in(
    terminal: Terminal, path: Path, status: int
) -> None:
    found = terminal.sign_in()
    terminal.answers = [answer(status)]
    with pytest.raises(Unreachable, match=f"answers {status} instead of a new token"):
        terminal.renew(found, path)
