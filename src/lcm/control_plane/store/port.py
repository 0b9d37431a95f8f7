"""The port to the store of records: versioned documents, changed only by compare-and-set.

A document's body is opaque here. Every accepted write is durable when the call returns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

GUARD_KIND: Final = "leadership"
"""The kind of document that a fence checks. Claiming an epoch writes one; stores may do extra work then."""

LOG_KIND: Final = "security-audit"
"""The kind of the entries that are committed with a change; stores may do extra work to read them."""


class StoreUnavailable(Exception):
    """The store cannot answer, or could not make a write durable."""


class WriteUnconfirmed(StoreUnavailable):
    """A write was sent and not confirmed: it may have happened, or may still happen."""


class VersionConflict(Exception):
    """The document is not at the version the writer read, or exists already."""


class UniqueKeyTaken(Exception):
    """Another document of this kind holds a key that must be unique."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(key)


class FenceBroken(Exception):
    """A newer epoch has been claimed: the writer no longer leads."""


@dataclass(frozen=True)
class Document:
    """One version of one record."""

    kind: str
    id: str
    version: int
    body: bytes
    unique_keys: tuple[str, ...] = ()
    """Claimed by a write, released by the next one that does not name them; not shown by reads."""


@dataclass(frozen=True)
class StoredDocument:
    """A document with everything a store keeps of it: what a copy to another store must preserve."""

    document: Document
    is_published: bool


@dataclass(frozen=True)
class Fence:
    """Admits a write only while this leadership document is at this version.

    An epoch is the version of its leadership document, so claiming the next one fences the last: no write
    of an earlier epoch happens after a claim was confirmed or read.
    """

    kind: str
    id: str
    version: int


@dataclass(frozen=True)
class Insert:
    """Add version 1 of a document."""

    document: Document
    fence: Fence | None = None


@dataclass(frozen=True)
class Replace:
    """Replace version n-1 of a document by version n."""

    document: Document
    fence: Fence | None = None


@dataclass(frozen=True)
class Delete:
    """Remove a document that is at this version."""

    kind: str
    id: str
    version: int


Change = Insert | Replace | Delete


class Store(Protocol):
    """Every call may raise StoreUnavailable: nothing was written, unless it is a WriteUnconfirmed."""

    async def get(self, kind: str, document_id: str) -> Document | None: ...

    async def list_all(self, kind: str) -> Sequence[Document]:
        """Return all documents of a kind, by id."""
        ...

    async def list_holding(self, kind: str, prefix: str) -> Sequence[Document]:
        """Return the documents of a kind that hold a unique key that begins so, by id. It reads no other."""
        ...

    async def list_newest(self, kind: str, before: str | None, limit: int) -> Sequence[Document]:
        """Return the documents of a kind with the highest ids, those below `before` only, highest first."""
        ...

    async def insert(self, document: Document, fence: Fence | None = None) -> None:
        """Add version 1. Raises VersionConflict if the id exists, UniqueKeyTaken, FenceBroken."""
        ...

    async def replace(self, document: Document, fence: Fence | None = None) -> None:
        """Replace version n-1 by version n. Raises VersionConflict, UniqueKeyTaken, FenceBroken."""
        ...

    async def delete(self, kind: str, document_id: str, expected_version: int) -> None:
        """Remove the document and its unique keys. Raises VersionConflict."""
        ...

    async def commit(self, change: Change, entry: Document) -> None:
        """Make one change and add `entry`, a new document of LOG_KIND, in the same commit: both or neither.

        Raises what the change alone would raise.
        """
        ...

    async def verify(self, kind: str, document_id: str, version: int, fence: Fence) -> None:
        """Prove that the document is at this version under this fence, as a write would; nothing is written.

        Raises FenceBroken, VersionConflict.
        """
        ...

    async def list_unpublished(self, kind: str) -> Sequence[Document]:
        """Return the documents whose version is not marked as published."""
        ...

    async def mark_published(self, kind: str, versions: Mapping[str, int]) -> None:
        """Mark these versions as published; a mark never moves back."""
        ...
