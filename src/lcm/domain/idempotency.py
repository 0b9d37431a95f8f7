"""Requests that are sent again: a record remembers the last ones it was changed by, in the same write.

So a request and the memory of it are durable together: whatever crashes, one sent again either finds
itself remembered or was never carried out.
"""

from typing import Final

import msgspec

from lcm.domain.errors import KeyReused

REMEMBERED_REQUESTS: Final = 16
"""A request that is repeated after so many others with a key would be carried out again."""


class KeyedRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Digests of who asks under which key, and of what they ask for."""

    key: str
    content: str


def was_carried_out(recent: tuple[KeyedRequest, ...], request: KeyedRequest) -> bool:
    """Whether this very request is remembered. Raises KeyReused if its key is, for another request."""
    for known in recent:
        if known.key == request.key:
            refuse_other_content(known.content, request)
            return True
    return False


def refuse_other_content(known_content: str | None, request: KeyedRequest) -> None:
    if known_content != request.content:
        raise KeyReused("this Idempotency-Key was used for another request; choose a new key")


def remembering(recent: tuple[KeyedRequest, ...], request: KeyedRequest) -> tuple[KeyedRequest, ...]:
    return (*recent, request)[-REMEMBERED_REQUESTS:]
