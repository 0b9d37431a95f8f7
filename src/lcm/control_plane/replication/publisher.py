"""Publishes the records to the coordination store, with no gap between the two writes.

A commit leaves its document unpublished; publishing writes the keys and then marks the version. A
crash at any point leaves a document unpublished, which the next sweep finds. A marker key proves that
the coordination store still has what was published: if it is gone (wiped, replaced), everything is
written again.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import structlog

from lcm.control_plane.records import sessions, workers
from lcm.control_plane.replication.settled_labs import SettledLabs
from lcm.control_plane.store.port import Document, Store, StoreUnavailable
from lcm.core.clock import Clock
from lcm.core.health import Health
from lcm.core.hosted_service import HostedService
from lcm.core.kv.port import Kv, KvUnavailable
from lcm.core.timeouts import timeout
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lifecycle import TERMINATED
from lcm.domain.observed import has_only_observed_changes
from lcm.domain.telemetry import LabChange, LabRecord
from lcm.domain.worker import Worker

log = structlog.get_logger(__name__)

CALL_TIMEOUT_SECONDS = 2.0
CAPACITY_REFRESH_SECONDS = 30.0
VIEWS = ("capacity", "ports")
"""Keys of a worker from which no controller decides: they show what the records say."""


class _Published(ABC):
    """The records of one kind that are to be published, and how."""

    kind: str
    folder: str
    """The part of the key before the id."""
    names: tuple[str, ...]
    """The part of the key after it: everything that may have been written."""
    live_key: str | None = None
    """Begins the unique key that a record holds until it is over; None: those that are over are removed."""

    def __init__(self, on_found: Callable[[Any], None] = lambda _: None) -> None:
        self.on_found = on_found
        self.committed: dict[str, Any] = {}
        self.wakes: set[str] = set()
        self.purged: dict[str, None] = {}
        self.seen: dict[str, int] = {}

    @abstractmethod
    def decode(self, document: Document) -> Any: ...

    @abstractmethod
    def needs_no_action(self, before: Any, after: Any) -> bool: ...

    @abstractmethod
    def is_over(self, record: Any) -> bool: ...

    @abstractmethod
    def values(self, record: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the name and the value of each key; the one that wakes controllers last."""

    def add(self, before: Any, after: Any) -> None:
        """Queue the record; a commit that needs no action wakes no controller, if the one before was seen."""
        is_next = before is not None and self.seen.get(after.id) == before.version
        if before is None or not is_next or not self.needs_no_action(before, after):
            self.wakes.add(after.id)
        self.seen[after.id] = after.version
        if self.is_over(after):
            del self.seen[after.id]
        self.committed[after.id] = after

    def take(self) -> tuple[list[Any], set[str]]:
        committed, self.committed = self.committed, {}
        wakes, self.wakes = self.wakes, set()
        return list(committed.values()), wakes


class _Workers(_Published):
    kind = workers.KIND
    folder = "workers"
    names = ("capacity", "desired_state", "license", "ports", "state")
    live_key = workers.NAME_KEY

    def decode(self, document: Document) -> Worker:
        return workers.decode_worker(document)

    def needs_no_action(self, before: Worker, after: Worker) -> bool:
        return has_only_observed_changes(before, after)

    def is_over(self, record: Worker) -> bool:
        return record.status is TERMINATED

    def values(self, record: Worker) -> Iterator[tuple[str, Mapping[str, Any]]]:
        yield "desired_state", {"desired_status": record.desired_status, "generation": record.generation}
        if record.license.changed_at is not None:
            yield "license", {"pending_operation": record.license.pending_operation}
        if record.declared_capacity is not None:
            yield (
                "capacity",
                {"declared": record.declared_capacity, "allocated": record.allocated_capacity},
            )
        if record.claims or record.freed_ports:
            yield "ports", {claim.session_id: claim.ports for claim in record.claims if claim.ports}
        yield "state", {"status": record.status, "version": record.version}


class _Sessions(_Published):
    """The seeds call a session an instance."""

    kind = sessions.KIND
    folder = "instances"
    names = ("desired_state", "lab", "state")

    def decode(self, document: Document) -> LabletSession:
        return sessions.decode_session(document)

    def needs_no_action(self, before: LabletSession, after: LabletSession) -> bool:
        return (before.status, before.generation) == (after.status, after.generation)

    def is_over(self, record: LabletSession) -> bool:
        return record.is_ended

    def values(self, record: LabletSession) -> Iterator[tuple[str, Mapping[str, Any]]]:
        yield "desired_state", {"desired_status": record.desired_status, "generation": record.generation}
        yield "state", {"status": record.status, "generation": record.generation}


async def _without_session(worker_id: str, lab_id: str) -> None:
    return None


class Publisher(HostedService):
    """Writes `<prefix>/workers/{id}/…` and `<prefix>/instances/{id}/…`, now and by sweep.

    `on_found` is called with unpublished workers: a write whose confirmation was lost called no listener.
    `session_of_lab` says whose lab has settled.
    """

    name = "publisher"

    def __init__(
        self,
        store: Store,
        kv: Kv,
        *,
        clock: Clock,
        health: Health,
        on_found: Callable[[Worker], None] = lambda _: None,
        session_of_lab: Callable[[str, str], Awaitable[str | None]] = _without_session,
        key_prefix: str = "/lcm",
        sweep_seconds: float = 5.0,
        capacity_refresh_seconds: float = CAPACITY_REFRESH_SECONDS,
    ) -> None:
        self._store = store
        self._kv = kv
        self._clock = clock
        self._health = health
        self._prefix = key_prefix
        self._sweep_seconds = sweep_seconds
        self._capacity_refresh_seconds = capacity_refresh_seconds
        self._refreshed_at = 0.0
        self._workers = _Workers(on_found)
        self._sessions = _Sessions()
        self._settled_labs = SettledLabs(session_of_lab)
        self._has_commits = asyncio.Event()
        self.is_behind = True
        self._must_find_orphaned_keys = True

    @property
    def _kinds(self) -> tuple[_Published, ...]:
        return (self._workers, self._sessions)

    def on_worker_commit(self, before: Worker | None, after: Worker) -> None:
        self._workers.add(before, after)
        self._has_commits.set()

    def on_worker_purge(self, worker: Worker) -> None:
        self._purge(self._workers, worker.id)

    def on_session_commit(self, before: LabletSession | None, after: LabletSession) -> None:
        self._sessions.add(before, after)
        self._has_commits.set()

    def on_session_purge(self, session: LabletSession) -> None:
        self._purge(self._sessions, session.id)

    def on_lab_change(
        self, changes: Sequence[LabChange], before: LabRecord | None, after: LabRecord | None
    ) -> None:
        if self._settled_labs.add(changes, before, after):
            self._has_commits.set()

    def _purge(self, kind: _Published, record_id: str) -> None:
        kind.committed.pop(record_id, None)
        kind.purged[record_id] = None
        self._has_commits.set()

    async def run(self) -> None:
        self._refreshed_at = self._clock.monotonic()
        while True:
            self._health.tick(self.name, self._sweep_seconds)
            try:
                await self._publish_unpublished()
                await self._refresh_capacity()
                await self._publish_commits_until(self._clock.monotonic() + self._sweep_seconds)
            except (KvUnavailable, TimeoutError) as error:
                await self._fall_behind("coordination store", error)
            except StoreUnavailable as error:
                await self._fall_behind("store", error)

    async def _fall_behind(self, authority: str, error: Exception) -> None:
        self.is_behind = True
        self._health.freeze(authority, str(error) or "no answer")
        log.warning("publishing failed; will retry", missing=authority, error=repr(error))
        await self._clock.sleep(1.0)

    async def _publish_commits_until(self, deadline: float) -> None:
        while (remaining := deadline - self._clock.monotonic()) > 0:
            try:
                async with timeout(remaining):
                    await self._has_commits.wait()
            except TimeoutError:
                return
            self._has_commits.clear()
            for kind in self._kinds:
                await self._publish(kind, *kind.take())
            for session_id, summary in await self._settled_labs.take():
                key = f"{self._prefix}/{self._sessions.folder}/{session_id}/lab"
                await self._put(key, msgspec.json.encode(summary))
            await self._drop_keys_of_purged()

    async def _drop_keys_of_purged(self) -> None:
        for kind in self._kinds:
            for record_id in list(kind.purged):
                for name in kind.names:
                    async with timeout(CALL_TIMEOUT_SECONDS):
                        await self._kv.delete(f"{self._prefix}/{kind.folder}/{record_id}/{name}")
                del kind.purged[record_id]

    async def _find_orphaned_keys(self) -> None:
        """Find keys without a record, left by a crash between a purge and the removal of its keys.

        Keys are read before records: a record that is created meanwhile is there by then.
        """
        for kind in self._kinds:
            folder = f"{self._prefix}/{kind.folder}/"
            async with timeout(CALL_TIMEOUT_SECONDS):
                listing = await self._kv.list_prefix(folder)
            if not listing.items:
                continue
            named = {item.key.removeprefix(folder).split("/")[0] for item in listing.items}
            named -= {document.id for document in await self._list_live(kind)}
            if named:
                named -= {document.id for document in await self._store.list_all(kind.kind)}
            kind.purged.update(dict.fromkeys(sorted(named)))
        self._must_find_orphaned_keys = False

    async def _publish_unpublished(self) -> None:
        async with timeout(CALL_TIMEOUT_SECONDS):
            marker = await self._kv.get(f"{self._prefix}/published")
        for kind in self._kinds:
            due = await (self._store.list_unpublished(kind.kind) if marker else self._list_live(kind))
            records = list(_readable(kind, due))
            for record in records:
                kind.on_found(record)
            await self._publish(kind, records, {record.id for record in records})
        if self._must_find_orphaned_keys:
            await self._find_orphaned_keys()
        await self._drop_keys_of_purged()
        if not marker:
            await self._put(f"{self._prefix}/published", b"{}")
        self.is_behind = False
        self._health.thaw("coordination store")
        self._health.thaw("store")

    async def _refresh_capacity(self) -> None:
        """Write the capacity keys that are not what the records say: two control planes may cross."""
        if self._clock.monotonic() - self._refreshed_at < self._capacity_refresh_seconds:
            return
        self._refreshed_at = self._clock.monotonic()
        kind, folder = self._workers, f"{self._prefix}/{self._workers.folder}/"
        async with timeout(CALL_TIMEOUT_SECONDS):
            listing = await self._kv.list_prefix(folder)
        published = {item.key: item.value for item in listing.items}
        for worker in _readable(kind, await self._list_live(kind)):
            for name, value in kind.values(worker):
                key, body = f"{folder}{worker.id}/{name}", msgspec.json.encode(value)
                if name in VIEWS and published.get(key) != body:
                    await self._put(key, body)

    async def _list_live(self, kind: _Published) -> Sequence[Document]:
        """Return the records of a kind on which a controller may have to act, however many have ended."""
        if kind.live_key is None:
            return await self._store.list_all(kind.kind)
        return await self._store.list_holding(kind.kind, kind.live_key)

    async def _publish(self, kind: _Published, records: list[Any], wakes: Collection[str]) -> None:
        """Write the keys of records on which a controller has to act; mark all as published."""
        for record in records:
            if record.id in wakes:
                for name, value in kind.values(record):
                    key = f"{self._prefix}/{kind.folder}/{record.id}/{name}"
                    await self._put(key, msgspec.json.encode(value))
        if records:
            await self._store.mark_published(kind.kind, {record.id: record.version for record in records})

    async def _put(self, key: str, value: bytes) -> None:
        """Write a key only if its value changed: an equal value must not wake a watcher."""
        async with timeout(CALL_TIMEOUT_SECONDS):
            current = await self._kv.get(key)
            if current is None or current.value != value:
                await self._kv.put(key, value)


def _readable(kind: _Published, documents: Collection[Document]) -> Iterator[Any]:
    for document in documents:
        try:
            yield kind.decode(document)
        except msgspec.MsgspecError as error:
            log.error("unreadable record not published", kind=kind.kind, id=document.id, error=str(error))
