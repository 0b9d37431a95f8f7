"""Preconditions of a request: once per idempotency key, and only on the version its sender has read.

They are checked inside the compare-and-set that makes the change, never before it. A request
that is sent again is recognised first: its own change has replaced the version that it names.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from msgspec.structs import replace

from lcm.domain.errors import PreconditionFailed
from lcm.domain.idempotency import KeyedRequest, was_carried_out, with_request

T = TypeVar("T", bound=Any)  # a struct with `id`, `version` and `recent_requests`


@dataclass(frozen=True)
class Preconditions:
    """The idempotency key and the `If-Match` of a request; both are optional."""

    request: KeyedRequest | None = None
    if_match: frozenset[str] | None = None
    """The entity tags of which one must be the record's."""

    def guard(self, decide: Callable[[T], T], *, noun: str = "worker") -> Callable[[T], T]:
        """Return the decision, made once and on a matching version only."""

        def decide_on_version(record: T) -> T:
            self.refuse_other_version(record, noun=noun)
            return decide(record)

        return self.once(decide_on_version)

    def refuse_other_version(self, record: T, *, noun: str) -> None:
        """Raise PreconditionFailed unless the record is at a version that the caller named."""
        if self.if_match is not None and etag(record.version) not in self.if_match:
            raise PreconditionFailed(
                f"{noun} {record.id} is at version {record.version} now; read it before you change it"
            )

    def once(self, decide: Callable[[T], T]) -> Callable[[T], T]:
        """Return the decision, made once. A decision to change nothing is remembered too."""
        request = self.request
        if request is None:
            return decide

        def decide_once(record: T) -> T:
            if was_carried_out(record.recent_requests, request):
                return record
            decided = decide(record)
            return replace(decided, recent_requests=with_request(decided.recent_requests, request))

        return decide_once


UNCONDITIONAL = Preconditions()


def etag(version: int) -> str:
    return f'"{version}"'


def keyed_request(principal_id: str, key: str, *content: bytes) -> KeyedRequest:
    """Return the digests of key and content. Keys of different principals differ. The key is part of both
    digests: a record must not contain the digest of a password that could be guessed."""
    return KeyedRequest(
        key=_digest(principal_id.encode(), key.encode()), content=_digest(key.encode(), *content)
    )


def _digest(*parts: bytes) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "big") + part)
    return whole.hexdigest()[:32]
