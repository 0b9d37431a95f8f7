"""The worker records: read, added and changed only through here, by compare-and-set."""

from collections.abc import Callable

import msgspec
import structlog
from msgspec.structs import replace

from lcm.control_plane.records.worker_forms import current_form
from lcm.control_plane.store.forward_compat import encode_over
from lcm.control_plane.store.port import (
    Document,
    Fence,
    FenceBroken,
    Store,
    UniqueKeyTaken,
    VersionConflict,
)
from lcm.domain.errors import Conflict, Fenced, InstanceTaken, NameTaken, NotFound
from lcm.domain.lifecycle import TERMINATED
from lcm.domain.worker import Worker

log = structlog.get_logger(__name__)

KIND = "worker"
_PARTS = ("launch", "instance", "cml", "connection", "activity", "pause")
MAX_ATTEMPTS = 8

Listener = Callable[[Worker | None, Worker], None]
"""Called on every commit, in order, with the record before (None for a new one) and after."""


class Workers:
    """All workers, live and terminated."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._decoded: dict[str, tuple[bytes, Worker]] = {}
        """The documents of the last list, decoded: most are the same in the next one."""
        self._listeners: list[Listener] = []
        self._purge_listeners: list[Callable[[Worker], None]] = []

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def subscribe_to_purges(self, listener: Callable[[Worker], None]) -> None:
        self._purge_listeners.append(listener)

    async def get(self, worker_id: str) -> Worker:
        return decode_worker(await self._get(worker_id))

    async def _get(self, worker_id: str) -> Document:
        document = await self._store.get(KIND, worker_id)
        if document is None:
            raise NotFound(f"there is no worker {worker_id!r}; list them with GET /api/workers")
        return document

    async def list_all(self) -> list[Worker]:
        """Return every readable record; one that cannot be decoded is logged and left out."""
        documents = await self._store.list_all(KIND)
        decoded = {}
        for document in documents:
            known = self._decoded.get(document.id)
            if known is not None and known[0] == document.body:
                decoded[document.id] = known
                continue
            try:
                decoded[document.id] = (document.body, decode_worker(document))
            except msgspec.MsgspecError as error:
                log.error("unreadable worker record skipped", worker_id=document.id, error=str(error))
        self._decoded = decoded
        return [worker for _, worker in decoded.values()]

    async def add(self, worker: Worker, fence: Fence | None = None) -> Worker:
        try:
            await self._store.insert(_document(worker, msgspec.json.encode(worker)), fence)
        except VersionConflict:
            raise Conflict(f"worker {worker.id} exists already") from None
        except FenceBroken:
            raise Fenced("a newer leader exists; stop acting and campaign again") from None
        except UniqueKeyTaken as taken:
            raise _taken(taken, worker) from None
        self._notify_listeners(None, worker)
        return worker

    async def purge(self, worker: Worker) -> None:
        """Remove a record for good. Raises Conflict if it is not at this version any more."""
        try:
            await self._store.delete(KIND, worker.id, worker.version)
        except VersionConflict:
            raise Conflict(f"worker {worker.id} changed meanwhile") from None
        for listener in self._purge_listeners:
            listener(worker)

    async def change(
        self,
        worker_id: str,
        decide: Callable[[Worker], Worker],
        *,
        expected_version: int | None = None,
        fence: Fence | None = None,
    ) -> Worker:
        """Load, decide, compare-and-set. `decide` may run several times; an unchanged record is not written.

        With `expected_version` the change is made to exactly that version or not at all.
        """
        for _ in range(MAX_ATTEMPTS):
            stored, before = _read(await self._get(worker_id))
            if expected_version is not None and before.version != expected_version:
                raise Conflict(
                    f"worker {worker_id} is at version {before.version}, not {expected_version}; read again"
                )
            after = decide(before)
            if after == before:
                return before
            if before.status is TERMINATED:
                if replace(after, recent_requests=before.recent_requests) == before:
                    return before
                raise Conflict(f"worker {worker_id} is terminated; its record is only kept for the audit")
            after = replace(after, version=before.version + 1)
            try:
                body = encode_over(stored, before, after, _PARTS)
                await self._store.replace(_document(after, body), fence)
            except VersionConflict:
                continue
            except FenceBroken:
                raise Fenced("a newer leader exists; stop acting and campaign again") from None
            except UniqueKeyTaken as taken:
                raise _taken(taken, after) from None
            self._notify_listeners(before, after)
            return after
        raise Conflict(f"several requests change worker {worker_id} at once; try again")

    async def verify(self, worker_id: str, *, expected_version: int, fence: Fence) -> Worker:
        """Return the record if it is at this version under this fence. Nothing is written."""
        worker = decode_worker(await self._get(worker_id))
        try:
            await self._store.verify(KIND, worker_id, expected_version, fence)
        except VersionConflict:
            raise Conflict(
                f"worker {worker_id} is no longer at version {expected_version}; read again"
            ) from None
        except FenceBroken:
            raise Fenced("a newer leader exists; stop acting and campaign again") from None
        return worker

    def _notify_listeners(self, before: Worker | None, after: Worker) -> None:
        for listener in self._listeners:
            listener(before, after)


def _document(worker: Worker, body: bytes) -> Document:
    """A name and an instance are unique among workers that are not terminated."""
    keys: tuple[str, ...] = ()
    if worker.status is not TERMINATED:
        keys = (f"name:{worker.name}",)
        if worker.instance.id is not None:
            keys += (f"instance:{worker.instance.id}",)
    return Document(KIND, worker.id, worker.version, body, keys)


def _taken(taken: UniqueKeyTaken, worker: Worker) -> NameTaken | InstanceTaken:
    if taken.key.startswith("instance:"):
        return InstanceTaken(f"instance {worker.instance.id} belongs to another worker")
    return NameTaken(f"a worker named {worker.name!r} exists; choose another name or delete that one first")


_decoder = msgspec.json.Decoder(Worker)


def decode_worker(document: Document) -> Worker:
    """Return the record of a document of this kind, in whichever form it was written."""
    return _read(document)[1]


def _read(document: Document) -> tuple[bytes, Worker]:
    """Return the record and its body in the present form."""
    try:
        return document.body, _decoder.decode(document.body)
    except msgspec.ValidationError:
        body = current_form(document.body)
        return body, _decoder.decode(body)
