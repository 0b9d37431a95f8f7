"""Versioned records of one kind: read, added and changed only by compare-and-set."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Generic, Protocol, TypeVar, cast

import msgspec
import structlog
from msgspec.structs import replace

from lcm.control_plane.access.roles import Principal
from lcm.control_plane.access.security_log import acting_principal
from lcm.control_plane.store.forward_compat import encode_over, is_all_of
from lcm.control_plane.store.port import (
    Document,
    Fence,
    FenceBroken,
    Store,
    UniqueKeyTaken,
    VersionConflict,
)
from lcm.domain.errors import Conflict, Fenced, NotFound, RequestError

log = structlog.get_logger(__name__)

MAX_ATTEMPTS = 8
MAX_WRITTEN = 2_000
"""How many of the records written last are kept as they were written."""


class Record(Protocol):
    """What every record has."""

    @property
    def id(self) -> str: ...

    @property
    def version(self) -> int: ...


R = TypeVar("R", bound=Record)


class Collection(ABC, Generic[R]):
    """All records of a kind. A subclass says how one is read, what is unique and what is final."""

    kind: ClassVar[str]
    noun: ClassVar[str]
    """What messages call one of them."""
    listed_at: ClassVar[str]
    """The route that lists them."""
    parts: ClassVar[tuple[str, ...]] = ()
    """The fields of a record that group other fields."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._decoded: dict[str, tuple[bytes, R]] = {}
        """The documents of the last list, decoded: most are the same in the next one."""
        self._written: dict[str, tuple[bytes, R]] = {}
        """What was written here last, the oldest first, if it is all that its document contains."""
        self._listeners: list[Callable[[R | None, R], None]] = []
        self._purge_listeners: list[Callable[[R], None]] = []

    @abstractmethod
    def read(self, document: Document) -> tuple[bytes, R]:
        """Return the body in the present form and its record."""

    def unique_keys(self, record: R) -> tuple[str, ...]:
        """Return the keys that no two records of the kind may share."""
        return ()

    def taken(self, key: str, record: R) -> RequestError:
        """Return the error that says what to do about a key of another record."""
        return Conflict(f"another {self.noun} has {key}")

    def accept(self, before: R, after: R) -> R:
        """Return the record to write, `before` to leave it; raise Conflict for one that is final."""
        return after

    def sign(self, before: R | None, after: R, person: Principal) -> R:
        """Return the record with what it keeps of the person who makes the present request."""
        return after

    def subscribe(self, listener: Callable[[R | None, R], None]) -> None:
        """Call on every commit, in order, with the record before (None for a new one) and after."""
        self._listeners.append(listener)

    def subscribe_to_purges(self, listener: Callable[[R], None]) -> None:
        self._purge_listeners.append(listener)

    async def get(self, record_id: str) -> R:
        _, record, _ = await self._get(record_id)
        return record

    async def find(self, record_id: str) -> R | None:
        document = await self._store.get(self.kind, record_id)
        return None if document is None else self._record_of(document)

    async def _get(self, record_id: str) -> tuple[bytes, R, bool]:
        """Return the body in the present form, its record, and whether that was written here last."""
        document = await self._store.get(self.kind, record_id)
        if document is None:
            raise NotFound(f"there is no {self.noun} {record_id!r}; list them with GET {self.listed_at}")
        written = self._written.get(record_id)
        if written is not None and written[0] == document.body:
            return *written, True
        return *self.read(document), False

    async def list_all(self) -> list[R]:
        """Return every readable record; one that cannot be decoded is logged and left out."""
        return self._remember_list(await self._store.list_all(self.kind))

    def _remember_list(self, documents: Sequence[Document]) -> list[R]:
        """Decode what is new in a list that is read again and again."""
        self._decoded = dict(self._readable(documents))
        return [record for _, record in self._decoded.values()]

    def _readable(self, documents: Sequence[Document]) -> Iterator[tuple[str, tuple[bytes, R]]]:
        for document in documents:
            try:
                yield document.id, (document.body, self._record_of(document))
            except msgspec.MsgspecError as error:
                log.error("unreadable record skipped", kind=self.kind, id=document.id, error=str(error))

    def _record_of(self, document: Document) -> R:
        """Decode it, unless it was listed or written before as it is."""
        for known in (self._decoded.get(document.id), self._written.get(document.id)):
            if known is not None and known[0] == document.body:
                return known[1]
        return self.read(document)[1]

    async def add(self, record: R, fence: Fence | None = None) -> R:
        if (person := acting_principal()) is not None:
            record = self.sign(None, record, person)
        try:
            await self._store.insert(self._document(record, msgspec.json.encode(record)), fence)
        except VersionConflict:
            raise Conflict(f"{self.noun} {record.id} exists already") from None
        except FenceBroken:
            raise _fenced() from None
        except UniqueKeyTaken as taken:
            raise self.taken(taken.key, record) from None
        self._notify_listeners(None, record)
        return record

    async def purge(self, record: R) -> None:
        """Remove a record for good. Raises Conflict if it is not at this version any more."""
        try:
            await self._store.delete(self.kind, record.id, record.version)
        except VersionConflict:
            raise Conflict(f"{self.noun} {record.id} changed meanwhile") from None
        self._written.pop(record.id, None)
        for listener in self._purge_listeners:
            listener(record)

    async def change(
        self,
        record_id: str,
        decide: Callable[[R], R],
        *,
        expected_version: int | None = None,
        fence: Fence | None = None,
    ) -> R:
        """Load, decide, compare-and-set. `decide` may run several times; an unchanged record is not written.

        With `expected_version` the change is made to exactly that version or not at all.
        """
        for _ in range(MAX_ATTEMPTS):
            stored, before, is_ours = await self._get(record_id)
            if expected_version is not None and before.version != expected_version:
                raise Conflict(
                    f"{self.noun} {record_id} is at version {before.version}, not {expected_version};"
                    " read again"
                )
            after = decide(before)
            if after == before or (after := self.accept(before, after)) == before:
                return before
            if (person := acting_principal()) is not None:
                after = self.sign(before, after, person)
            after = _at_version(after, before.version + 1)
            try:
                body = msgspec.json.encode(after)
                is_whole = is_ours or is_all_of(stored, _struct(before))
                if not is_whole:
                    body = encode_over(stored, _struct(before), _struct(after), self.parts)
                await self._store.replace(self._document(after, body), fence)
            except VersionConflict:
                continue
            except FenceBroken:
                raise _fenced() from None
            except UniqueKeyTaken as taken:
                raise self.taken(taken.key, after) from None
            if is_whole:
                self._remember(body, after)
            self._notify_listeners(before, after)
            return after
        raise Conflict(f"several requests change {self.noun} {record_id} at once; try again")

    async def verify(self, record_id: str, *, expected_version: int, fence: Fence) -> R:
        """Return the record if it is at this version under this fence. Nothing is written."""
        record = await self.get(record_id)
        try:
            await self._store.verify(self.kind, record_id, expected_version, fence)
        except VersionConflict:
            raise Conflict(
                f"{self.noun} {record_id} is no longer at version {expected_version}; read again"
            ) from None
        except FenceBroken:
            raise _fenced() from None
        return record

    def _remember(self, body: bytes, record: R) -> None:
        self._written.pop(record.id, None)
        self._written[record.id] = body, record
        if len(self._written) > MAX_WRITTEN:
            del self._written[next(iter(self._written))]

    def _document(self, record: R, body: bytes) -> Document:
        return Document(self.kind, record.id, record.version, body, self.unique_keys(record))

    def _notify_listeners(self, before: R | None, after: R) -> None:
        for listener in self._listeners:
            listener(before, after)


def _struct(record: Record) -> msgspec.Struct:
    """Every record is a struct, which a protocol cannot say."""
    return cast(msgspec.Struct, record)


def _at_version(record: R, version: int) -> R:
    return cast(R, replace(_struct(record), version=version))


def _fenced() -> Fenced:
    return Fenced("a newer leader exists; stop acting and campaign again")
