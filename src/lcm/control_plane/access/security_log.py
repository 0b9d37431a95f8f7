"""The security audit log: every change that a person makes, and every credential that was refused.

A change carries its entry into the store: `AuditedStore` adds it to the commit of the first document of each
kind that an unsafe request writes, so neither can exist without the other. Refusals are kept apart: guesses
cannot push out what was done.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import structlog

from lcm.control_plane.access.roles import Principal
from lcm.control_plane.store.bounded_log import BoundedLog, entry_id
from lcm.control_plane.store.port import (
    LOG_KIND,
    Change,
    Delete,
    Document,
    Fence,
    Insert,
    Replace,
    Store,
    StoreUnavailable,
)
from lcm.core.clock import Clock
from lcm.core.ids import Ids, RandomIds
from lcm.core.redaction import redactor
from lcm.domain.security import AuditOutcome, SecurityEntry

log = structlog.get_logger(__name__)

REFUSAL_KIND: Final = "security-refusal"
MAX_ENTRIES: Final = 20_000
PIECE: Final = 500
"""How many entries are read at a time."""
MAX_REFUSALS: Final = 10_000

NOT_AUDITED: Final = frozenset({LOG_KIND, REFUSAL_KIND, "audit", "lablet-audit", "placement", "turn"})
"""Kinds of documents that are logs themselves, or only pace writers."""
WITHOUT_DETAILS: Final = frozenset({"secret", "lablet-topology", "lablet-evidence"})
"""Kinds whose content is sealed, or may name the passwords of labs."""
HIDDEN: Final = frozenset(
    {"id", "version", "generation", "created_at", "created_by", "updated_at", "state_history"}
    | {"verifier", "recent_requests", "seeded"}
)
"""Fields that the entry or the record says anyway, and those that say too much."""
EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})
MAX_VALUE: Final = 200
MAX_DETAILED_BYTES: Final = 64 * 1024


@dataclass
class AuditedRequest:
    """An unsafe request of a person, until it has ended."""

    action: str
    address: str
    principal: Principal
    recorded: set[str] = field(default_factory=set)
    """The kinds of documents whose first write carried an entry."""


_request: ContextVar[AuditedRequest | None] = ContextVar("audited_request", default=None)


@contextmanager
def one_request() -> Iterator[None]:
    """Serve one request within the block; what it declares ends with it."""
    token = _request.set(None)
    try:
        yield
    finally:
        _request.reset(token)


def audit_request(action: str, address: str, principal: Principal) -> None:
    """Have the changes of the present request audited."""
    _request.set(AuditedRequest(action, address, principal))


def acting_principal() -> Principal | None:
    """Return who makes the present request; None where LCM itself acts."""
    return request.principal if (request := _request.get()) is not None else None


class SecurityLog:
    """Both logs, read as one."""

    def __init__(self, store: Store, clock: Clock, ids: Ids | None = None) -> None:
        self._clock = clock
        self._ids = ids or RandomIds()
        self._changes = BoundedLog(store, LOG_KIND, SecurityEntry, MAX_ENTRIES)
        self._refusals = BoundedLog(store, REFUSAL_KIND, SecurityEntry, MAX_REFUSALS)

    def entry_of(
        self, request: AuditedRequest, target: str, before: bytes | None = None, after: bytes | None = None
    ) -> Document:
        """Return the document of an entry, to be committed together with the change of `target`."""
        return self._changes.document(self._entry_of(request, target, *_changed_fields(before, after)))

    async def record_action(self, target: str) -> None:
        """Record what the present request is about to do where no single commit does it."""
        request = _request.get()
        assert request is not None, "only requests of people are audited"
        await self._changes.append(self._entry_of(request, target, {}, {}))

    async def record_refusal(
        self, action: str, address: str, principal: Principal | None, target: str, reason: str
    ) -> None:
        """Record a refused credential. It is refused even if this fails."""
        entry = SecurityEntry(
            **self._stamp(),
            action=action,
            outcome=AuditOutcome.REFUSED,
            address=address,
            **_who(principal),
            target=redactor.clean(target)[:MAX_VALUE],
            reason=reason,
        )
        try:
            await self._refusals.append(entry)
        except StoreUnavailable as error:
            log.warning("refusal not recorded", address=address, error=str(error))

    async def changes(self, before: str | None, limit: int) -> tuple[list[SecurityEntry], str | None]:
        """Return some changes below this id, newest first, and below which to go on; None at the end."""
        return await self._changes.piece(before, limit)

    async def refusals(self, before: str | None, limit: int) -> tuple[list[SecurityEntry], str | None]:
        """Return some refusals below this id, newest first, and below which to go on; None at the end."""
        return await self._refusals.piece(before, limit)

    async def wanted(
        self, is_wanted: Callable[[SecurityEntry], bool], before: str | None, limit: int
    ) -> list[SecurityEntry]:
        """Return the newest wanted entries of both logs below this id, newest first; it reads none older."""
        found: list[SecurityEntry] = []
        for read in (self.changes, self.refusals):
            entries, rest = await read(before, PIECE)
            taken = [entry for entry in entries if is_wanted(entry)]
            while rest is not None and len(taken) < limit:
                entries, rest = await read(rest, PIECE)
                taken += filter(is_wanted, entries)
            found += taken
        return sorted(found, key=lambda entry: entry.id, reverse=True)[:limit]

    async def make_room(self) -> None:
        """Remove the oldest changes if there are too many; refusals make room when they are appended."""
        await self._changes.make_room()

    def _entry_of(
        self, request: AuditedRequest, target: str, before: dict[str, str], after: dict[str, str]
    ) -> SecurityEntry:
        return SecurityEntry(
            **self._stamp(),
            action=request.action,
            outcome=AuditOutcome.DONE,
            address=request.address,
            **_who(request.principal),
            target=target,
            before=before,
            after=after,
        )

    def _stamp(self) -> dict[str, Any]:
        now = self._clock.now()
        return {"id": entry_id(now, self._ids.new_id()), "at": now}


class AuditedStore:
    """A store that commits the entry of the present request together with its change."""

    def __init__(self, store: Store, clock: Clock, ids: Ids | None = None) -> None:
        self._store = store
        self._log = SecurityLog(store, clock, ids)

    async def get(self, kind: str, document_id: str) -> Document | None:
        return await self._store.get(kind, document_id)

    async def list_all(self, kind: str) -> Sequence[Document]:
        return await self._store.list_all(kind)

    async def list_holding(self, kind: str, prefix: str) -> Sequence[Document]:
        return await self._store.list_holding(kind, prefix)

    async def list_newest(self, kind: str, before: str | None, limit: int) -> Sequence[Document]:
        return await self._store.list_newest(kind, before, limit)

    async def insert(self, document: Document, fence: Fence | None = None) -> None:
        if (request := _audited(document.kind)) is None:
            await self._store.insert(document, fence)
        else:
            entry = self._log.entry_of(request, _target(document.kind, document.id), None, _shown(document))
            await self._commit(Insert(document, fence), document.kind, entry, request)

    async def replace(self, document: Document, fence: Fence | None = None) -> None:
        if (request := _audited(document.kind)) is None:
            await self._store.replace(document, fence)
        else:
            before = _shown(await self._store.get(document.kind, document.id))
            target = _target(document.kind, document.id)
            entry = self._log.entry_of(request, target, before, _shown(document))
            await self._commit(Replace(document, fence), document.kind, entry, request)

    async def delete(self, kind: str, document_id: str, expected_version: int) -> None:
        if (request := _audited(kind)) is None:
            await self._store.delete(kind, document_id, expected_version)
        else:
            before = _shown(await self._store.get(kind, document_id))
            entry = self._log.entry_of(request, _target(kind, document_id), before, None)
            await self._commit(Delete(kind, document_id, expected_version), kind, entry, request)

    async def commit(self, change: Change, entry: Document) -> None:
        await self._store.commit(change, entry)

    async def verify(self, kind: str, document_id: str, version: int, fence: Fence) -> None:
        await self._store.verify(kind, document_id, version, fence)

    async def list_unpublished(self, kind: str) -> Sequence[Document]:
        return await self._store.list_unpublished(kind)

    async def mark_published(self, kind: str, versions: Mapping[str, int]) -> None:
        await self._store.mark_published(kind, versions)

    async def _commit(self, change: Change, kind: str, entry: Document, request: AuditedRequest) -> None:
        await self._store.commit(change, entry)
        request.recorded.add(kind)


def _audited(kind: str) -> AuditedRequest | None:
    """Return the present request if its change of a document of this kind must be recorded."""
    request = _request.get()
    if request is None or kind in NOT_AUDITED or kind in request.recorded:
        return None
    return request


def _target(kind: str, document_id: str) -> str:
    return f"{kind}/{document_id}"


def _shown(document: Document | None) -> bytes | None:
    """Return the body, unless it may hold a secret or is too large to be read."""
    if document is None or document.kind in WITHOUT_DETAILS or len(document.body) > MAX_DETAILED_BYTES:
        return None
    return document.body


def _changed_fields(before: bytes | None, after: bytes | None) -> tuple[dict[str, str], dict[str, str]]:
    """Return the fields of a document that differ, as they were and as they became."""
    was, became = _fields(before), _fields(after)
    differing = {name for name in was.keys() | became.keys() if was.get(name) != became.get(name)}
    return (
        {name: text for name, text in was.items() if name in differing},
        {name: text for name, text in became.items() if name in differing},
    )


def _fields(body: bytes | None) -> dict[str, str]:
    try:
        document = msgspec.json.decode(body) if body is not None else {}
    except msgspec.DecodeError:
        return {}
    if not isinstance(document, dict):
        return {}
    return {
        name: _text(value)
        for name, value in sorted(document.items())
        if name not in HIDDEN and value not in EMPTY
    }


def _text(value: object) -> str:
    text = redactor.clean(value if isinstance(value, str) else msgspec.json.encode(value).decode())
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 1]}…"


def _who(principal: Principal | None) -> dict[str, Any]:
    if principal is None:
        return {}
    kind = principal.id.partition(":")[0]
    return {"principal_id": principal.id, "principal_name": principal.name, "kind": kind}
