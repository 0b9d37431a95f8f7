"""What outlives simulated processes and can be inspected: the disk and the coordination store."""

from collections.abc import Callable

import msgspec

from lcm.control_plane.records.reservations import ReservationList
from lcm.control_plane.records.sessions import ARCHIVE, decode_session
from lcm.control_plane.records.sessions import KIND as SESSION
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import Document, Fence
from lcm.core.kv.memory import MemoryKv
from lcm.domain.lablet.listed_lab import LabAdoption
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lifecycle import TERMINATED
from lcm.domain.telemetry import LabRecord
from lcm.domain.worker import Worker

OnCommit = Callable[[Document | None, Document, Fence | None], None]

_decoder = msgspec.json.Decoder(Worker)
_lab_decoder = msgspec.json.Decoder(LabRecord)


class WatchedStore(MemoryStore):
    """The disk. Notifies its listeners of every commit, and shows records to invariants."""

    def __init__(self) -> None:
        super().__init__()
        self.on_commit: list[OnCommit] = []
        self._decoded: dict[str, tuple[Document, Worker]] = {}
        self._sessions: dict[str, tuple[Document, LabletSession]] = {}
        self.only_listed: set[str] = set()
        """The workers and labs whose last commit only said when they were listed."""

    async def insert(self, document: Document, fence: Fence | None = None) -> None:
        await super().insert(document, fence)
        self._notify(None, document, fence)

    async def replace(self, document: Document, fence: Fence | None = None) -> None:
        before = await self.get(document.kind, document.id)
        await super().replace(document, fence)
        if document.kind in ("worker", "lab") and before is not None:
            note = self.only_listed.add if _is_listing(before, document) else self.only_listed.discard
            note(document.id)
        self._notify(before, document, fence)

    def peek(self, worker_id: str) -> Worker | None:
        document = self._documents.get(("worker", worker_id))
        if document is None:
            return None
        known, worker = self._decoded.get(worker_id, (None, None))
        if worker is None or known is not document:
            worker = _decoder.decode(document.body)
            self._decoded[worker_id] = (document, worker)
        return worker

    def peek_all(self) -> list[Worker]:
        found = (self.peek(document_id) for kind, document_id in sorted(self._documents) if kind == "worker")
        return [worker for worker in found if worker is not None]

    def session(self, session_id: str) -> LabletSession | None:
        document = self._documents.get((SESSION, session_id)) or self._documents.get((ARCHIVE, session_id))
        if document is None:
            return None
        known, session = self._sessions.get(session_id, (None, None))
        if session is None or known is not document:
            session = decode_session(document)
            self._sessions[session_id] = (document, session)
        return session

    def sessions(self) -> list[LabletSession]:
        """In the order of their ids."""
        ids = sorted({document_id for kind, document_id in self._documents if kind in (SESSION, ARCHIVE)})
        return [session for session_id in ids if (session := self.session(session_id)) is not None]

    def recorded_labs(self) -> set[tuple[str, str]]:
        """Worker and CML's id of every lab that has a record."""
        return {(name.split("/")[0], name.split("/")[1]) for kind, name in self._documents if kind == "lab"}

    def adoption_of(self, worker_id: str, lab_id: str) -> LabAdoption | None:
        """Who keeps a lab of no session, as its record says."""
        document = self._documents.get(("lab", f"{worker_id}/{lab_id}"))
        return _lab_decoder.decode(document.body).adoption if document is not None else None

    @property
    def is_growing(self) -> bool:
        """Whether a scale-up has reserved workers that it has not created yet."""
        turns = (d.body for (kind, name), d in self._documents.items() if kind == "turn" and "scale" in name)
        return any(msgspec.json.decode(body, type=ReservationList).reserved for body in turns)

    def has(self, kind: str, document_id: str) -> bool:
        return (kind, document_id) in self._documents

    def owner_of(self, instance_id: str) -> Worker | None:
        """The worker whose record names this instance; a terminated one owns nothing."""
        named = (worker for worker in self.peek_all() if worker.instance.id == instance_id)
        return next((worker for worker in named if worker.status is not TERMINATED), None)

    def _notify(self, before: Document | None, after: Document, fence: Fence | None) -> None:
        for listener in self.on_commit:
            listener(before, after, fence)


def _is_listing(before: Document, after: Document) -> bool:
    was, now = (msgspec.json.decode(document.body) for document in (before, after))
    for body in (was, now):
        if after.kind == "worker":
            body["version"] = body["cml"].get("labs", {})["listed_at"] = None
        for seen in (body, *body.get("nodes", {}).values()):
            seen["updated_at"] = None
    return bool(was == now)


class WatchedKv(MemoryKv):
    """The coordination store; shows the current holder of a key."""

    def peek(self, key: str) -> str | None:
        self._expire_leases()
        item = self._items.get(key)
        return item.value.decode() if item else None
