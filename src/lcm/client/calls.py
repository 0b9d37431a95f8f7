"""Requests and answers without any I/O: what is sent, what an answer means, and whether to send it again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar, cast
from urllib.parse import quote, urlencode

import msgspec

from lcm.client.errors import ClientError, Refused, ServerFault, TooManyRequests, Unreachable, refusal_of
from lcm.core.backoff import Backoff
from lcm.core.ids import RandomIds
from lcm.rest.schemas import Problem

T = TypeVar("T")

PAGE: Final = 500
"""Resources in one answer."""
IDEMPOTENCY_KEY: Final = "Idempotency-Key"
BACKOFF: Final = Backoff(base_seconds=0.2, max_seconds=5.0)
_IDS: Final = RandomIds()


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Call(Generic[T]):
    """One request, and the type of its answer."""

    method: str = "GET"
    path: str
    answer: type[T]
    """`bytes` for a document as it is, `type(None)` for none."""
    query: Mapping[str, Any] = field(default_factory=dict)
    """A parameter that is None is left out; one that is a tuple is repeated."""
    body: Any = None
    if_match: str | None = None
    """The version of the resource, or `*`: any other is refused."""
    is_keyed: bool = False
    """Whether it is sent with an idempotency key, which makes it safe to send it again."""
    key: str | None = None
    """The idempotency key; without one a keyed call gets a new one."""

    @property
    def target(self) -> str:
        """The path with its query."""
        given = {name: _text(value) for name, value in self.query.items() if value not in (None, ())}
        return f"{self.path}?{urlencode(given, doseq=True)}" if given else self.path

    @property
    def is_repeatable(self) -> bool:
        return self.is_keyed or self.method != "POST"

    def headers(self) -> dict[str, str]:
        """Return the headers, with a new idempotency key: send the same ones again when you repeat it."""
        headers = {"Accept": "application/json"}
        if self.body is not None:
            headers["Content-Type"] = "application/json"
        if self.if_match is not None:
            headers["If-Match"] = self.if_match
        if self.is_keyed:
            headers[IDEMPOTENCY_KEY] = self.key or _IDS.new_id()
        return headers

    def content(self) -> bytes | None:
        return None if self.body is None else msgspec.json.encode(self.body)

    def read(self, answer: Answer) -> T:
        """Return what the answer says. Raises Refused, or Unreachable for what LCM never answers."""
        if not 200 <= answer.status < 300:  # a redirection has done nothing
            raise _refusal(answer)
        if self.answer is bytes:
            return cast(T, answer.body)
        if self.answer is type(None):
            return None
        try:
            return msgspec.json.decode(answer.body, type=self.answer)
        except msgspec.MsgspecError as error:
            raise Unreachable(f"what answers is no LCM of this version: {error}", was_sent=True) from None


def route(template: str, *names: str) -> str:
    """Return the path with these names in the place of its `{}`."""
    return template.format(*(quote(name, safe="") for name in names))


class Tries:
    """How often one call is sent: until it is answered, or the time for it is over."""

    def __init__(self, call: Call[Any], started_at: float, retry_seconds: float) -> None:
        self._call = call
        self._deadline = started_at + retry_seconds
        self._retries = 0

    def delay_after(self, error: ClientError, now: float) -> float:
        """Return how long to wait before the next try. Raises the error if there is none."""
        if not _is_worth_a_retry(error, self._call):
            raise error
        delay = BACKOFF.delay_seconds(self._retries)
        self._retries += 1
        if isinstance(error, Refused) and error.retry_after_seconds is not None:
            delay = max(delay, error.retry_after_seconds)
        if now + delay > self._deadline:
            raise error
        return delay


def _is_worth_a_retry(error: ClientError, call: Call[Any]) -> bool:
    if isinstance(error, TooManyRequests):
        return True
    if isinstance(error, Unreachable) and not error.was_sent:
        return True
    return is_outage(error) and call.is_repeatable


def is_outage(error: ClientError) -> bool:
    """Whether LCM, or what stands before it, is away for now."""
    is_away = isinstance(error, ServerFault) and error.status in (502, 503, 504)
    return is_away or isinstance(error, Unreachable)


def _refusal(answer: Answer) -> ClientError:
    try:
        problem = msgspec.json.decode(answer.body, type=Problem)
    except msgspec.MsgspecError:
        problem = Problem(
            type="about:blank",
            title="No problem document",
            status=answer.status,
            detail=f"the answer is {answer.status} without a reason; is this the URL of an LCM?",
        )
    after = answer.headers.get("retry-after", "")
    return refusal_of(problem, float(after) if after.isdecimal() else None)


def _text(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return [str(part) for part in value] if isinstance(value, (tuple, list)) else str(value)
