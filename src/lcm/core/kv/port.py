"""The coordination store as the core needs it: etcd's model, in few words.

Every change gets a revision that only grows. A lease that is not kept alive expires and takes its
keys with it. A watch shows every change after a revision, in order, or says that it cannot.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType, Protocol

LeaseId = NewType("LeaseId", int)


class KvUnavailable(Exception):
    """The store cannot be reached, or a watch broke. Nothing may be concluded."""


class Compacted(KvUnavailable):
    """The changes asked for are no longer kept: list, then watch from the list's revision."""

    def __init__(self, compacted_revision: int) -> None:
        self.compacted_revision = compacted_revision
        super().__init__(f"changes up to revision {compacted_revision} are no longer kept")


class LeaseExpired(Exception):
    """The lease is gone, and with it every key it held."""


class ChangeKind(StrEnum):
    PUT = "put"
    DELETE = "delete"


@dataclass(frozen=True)
class Item:
    """A key as it is now."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int


@dataclass(frozen=True)
class Listing:
    """Everything under a prefix at one revision."""

    items: Sequence[Item]
    revision: int


@dataclass(frozen=True)
class Change:
    """One change, as a watch shows it. A DELETE has no value."""

    kind: ChangeKind
    key: str
    value: bytes
    revision: int


class Kv(Protocol):
    """Every call may raise KvUnavailable; then the effect may or may not have happened."""

    async def cluster_id(self) -> str:
        """The identity of this store's history: another one after its data was lost."""
        ...

    async def get(self, key: str) -> Item | None: ...

    async def list_prefix(self, prefix: str) -> Listing: ...

    async def put(self, key: str, value: bytes, lease: LeaseId | None = None) -> int:
        """Write and return the revision. Raises LeaseExpired if the lease is gone."""
        ...

    async def put_if_absent(self, key: str, value: bytes, lease: LeaseId | None = None) -> int | None:
        """Create the key and return its create-revision, or None if it exists."""
        ...

    async def delete(self, key: str) -> bool:
        """Whether there was something to delete."""
        ...

    async def grant_lease(self, ttl_seconds: int) -> LeaseId: ...

    async def keep_alive(self, lease: LeaseId) -> int:
        """Renew and return the seconds left; 0 if the lease is gone."""
        ...

    async def revoke_lease(self, lease: LeaseId) -> None:
        """End the lease and delete its keys. Revoking one that is gone succeeds."""
        ...

    def watch_prefix(self, prefix: str, start_revision: int) -> AsyncGenerator[Change, None]:
        """Every change under the prefix from that revision on, in order, for ever.

        Raises Compacted if the start is no longer kept, KvUnavailable if the stream breaks.
        """
        ...
