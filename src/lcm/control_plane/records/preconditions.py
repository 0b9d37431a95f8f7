"""When a request may be carried out: once under its key, and only on the version its sender has seen.

The conditions are checked inside the compare-and-set that makes the change, never before it. A request
that is sent again is recognised first: the version it named is no longer the newest because of itself.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from msgspec.structs import replace

from lcm.domain.errors import PreconditionFailed
from lcm.domain.idempotency import KeyedRequest, remembering, was_carried_out
from lcm.domain.worker import Worker

T = TypeVar("T", bound=Any)  # a struct with `recent_requests`


@dataclass(frozen=True)
class Conditions:
    """What a request says about itself; nothing, unless its sender cares."""

    request: KeyedRequest | None = None
    if_match: frozenset[str] | None = None
    """The entity tags of which one must be the record's."""

    def guard(self, decide: Callable[[Worker], Worker]) -> Callable[[Worker], Worker]:
        """The same decision, made once and on the right version only."""

        def decide_on_version(worker: Worker) -> Worker:
            if self.if_match is not None and etag(worker.version) not in self.if_match:
                raise PreconditionFailed(
                    f"worker {worker.id} is at version {worker.version} now; look again and decide anew"
                )
            return decide(worker)

        return self.once(decide_on_version)

    def once(self, decide: Callable[[T], T]) -> Callable[[T], T]:
        """The same decision, made once. A decision to change nothing is remembered too."""
        request = self.request
        if request is None:
            return decide

        def decide_once(record: T) -> T:
            if was_carried_out(record.recent_requests, request):
                return record
            decided = decide(record)
            return replace(decided, recent_requests=remembering(decided.recent_requests, request))

        return decide_once


UNCONDITIONAL = Conditions()


def etag(version: int) -> str:
    return f'"{version}"'


def keyed_request(principal_id: str, key: str, *content: bytes) -> KeyedRequest:
    """Keys of different people are different keys. The key is part of both: a record must not give away
    the digest of a password that somebody could guess."""
    return KeyedRequest(
        key=_digest(principal_id.encode(), key.encode()), content=_digest(key.encode(), *content)
    )


def _digest(*parts: bytes) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "big") + part)
    return whole.hexdigest()[:32]
