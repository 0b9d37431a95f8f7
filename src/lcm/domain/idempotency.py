"""Idempotency keys: a record stores the last keyed requests that changed it, in the same write.

So the change and its key are durable together: after any crash a repeated request is either found in the
record or was never carried out.
"""

from typing import Final

import msgspec

from lcm.domain.errors import KeyReused

REMEMBERED_REQUESTS: Final = 16
"""A request that is repeated after so many other keyed requests would be carried out again."""


class KeyedRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Digests of the caller with its key, and of the request's content."""

    key: str
    content: str


def was_carried_out(recent: tuple[KeyedRequest, ...], request: KeyedRequest) -> bool:
    """Whether this request is stored. Raises KeyReused if its key is stored with other content."""
    for known in recent:
        if known.key == request.key:
            refuse_other_content(known.content, request)
            return True
    return False


def refuse_other_content(known_content: str | None, request: KeyedRequest) -> None:
    if known_content != request.content:
        raise KeyReused("this Idempotency-Key was used for another request; choose a new key")


def with_request(recent: tuple[KeyedRequest, ...], request: KeyedRequest) -> tuple[KeyedRequest, ...]:
    return (*recent, request)[-REMEMBERED_REQUESTS:]
