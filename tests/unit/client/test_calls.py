"""What is sent again and what is not, and what a refusal becomes."""

import msgspec
import pytest

from lcm.client.calls import IDEMPOTENCY_KEY, Answer, Call, Tries, route
from lcm.client.errors import (
    AccessDenied,
    ClientError,
    Conflict,
    Invalid,
    NotFound,
    Refused,
    ServerFault,
    TooManyRequests,
    Unreachable,
    refusal_of,
)
from lcm.rest.schemas import Problem

READ = Call(path="/api/workers", answer=bytes)
KEYED = Call(method="POST", path="/api/workers", answer=bytes, is_keyed=True)
UNKEYED = Call(method="POST", path="/api/tokens", answer=bytes)
SENT, NEVER_SENT = (Unreachable("no answer", was_sent=was_sent) for was_sent in (True, False))


def refusal(status: int, retry_after: float | None = None) -> Refused:
    problem = Problem(type="urn:lcm:problem:x", title="X", status=status, detail="do this")
    return refusal_of(problem, retry_after)


@pytest.mark.parametrize(
    ("call", "error", "is_repeated"),
    [
        (READ, SENT, True),
        (KEYED, SENT, True),
        (UNKEYED, SENT, False),
        (UNKEYED, NEVER_SENT, True),
        (UNKEYED, refusal(429), True),
        (KEYED, refusal(503), True),
        (UNKEYED, refusal(503), False),
        (READ, refusal(500), False),
        (READ, refusal(404), False),
        (KEYED, refusal(409), False),
    ],
)
def test_a_call_is_repeated_only_where_that_is_safe_and_helps(
    call: Call[bytes], error: ClientError, is_repeated: bool
) -> None:
    tries = Tries(call, started_at=0.0, retry_seconds=20.0)
    if is_repeated:
        assert tries.delay_after(error, 0.0) == 0.2
    else:
        with pytest.raises(type(error)):
            tries.delay_after(error, 0.0)


def test_tries_end_when_the_time_for_them_is_over() -> None:
    tries = Tries(READ, started_at=100.0, retry_seconds=1.0)
    assert [tries.delay_after(SENT, 100.0), tries.delay_after(SENT, 100.2)] == [0.2, 0.4]
    with pytest.raises(Unreachable):
        tries.delay_after(SENT, 100.6)


def test_a_retry_waits_as_long_as_it_was_told_to() -> None:
    assert Tries(READ, 0.0, retry_seconds=20.0).delay_after(refusal(429, 7.0), 0.0) == 7.0
    with pytest.raises(TooManyRequests):
        Tries(READ, 0.0, retry_seconds=5.0).delay_after(refusal(429, 7.0), 0.0)


def test_each_call_has_an_idempotency_key_of_its_own_and_only_one_that_needs_it() -> None:
    first, second = KEYED.headers(), KEYED.headers()
    assert first[IDEMPOTENCY_KEY] != second[IDEMPOTENCY_KEY]
    assert IDEMPOTENCY_KEY not in UNKEYED.headers()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((401, AccessDenied), (403, AccessDenied), (404, NotFound), (409, Conflict), (412, Conflict)),
        *((422, Invalid), (429, TooManyRequests), (500, ServerFault), (503, ServerFault), (413, Refused)),
    ],
)
def test_a_problem_document_becomes_an_error_of_its_kind(status: int, kind: type[Refused]) -> None:
    problem = Problem(
        type="urn:lcm:problem:name-taken", title="T", status=status, detail="say so", allowed=["start"]
    )
    answer = Answer(status, {"retry-after": "3"}, msgspec.json.encode(problem))
    with pytest.raises(Refused, match="say so") as caught:
        READ.read(answer)
    error = caught.value
    assert type(error) is kind
    assert (error.kind, error.allowed, error.retry_after_seconds) == ("name-taken", ["start"], 3.0)


def test_an_answer_that_is_none_of_lcms_says_so() -> None:
    with pytest.raises(Refused, match="is this the URL of an LCM"):
        READ.read(Answer(404, {}, b"<html>"))
    with pytest.raises(Unreachable, match="no LCM of this version"):
        Call(path="/", answer=Problem).read(Answer(200, {}, b"<html>"))


@pytest.mark.parametrize("kind", [bytes, type(None), Problem])
def test_a_redirection_is_not_taken_for_a_success(kind: type[object]) -> None:
    """A proxy that wants https answers 301 to a deletion, too."""
    with pytest.raises(Refused, match="the answer is 301"):
        Call(method="DELETE", path="/api/workers/w", answer=kind).read(Answer(301, {}, b"<html>"))


def test_names_and_parameters_cannot_leave_their_place_in_the_address() -> None:
    assert route("/api/workers/{}/stop", "a/../b?c") == "/api/workers/a%2F..%2Fb%3Fc/stop"
    call = Call(path="/x", query={"a": None, "b": (), "c": ("1", "2"), "d": True, "e": "&"}, answer=bytes)
    assert call.target == "/x?c=1&c=2&d=true&e=%26"
