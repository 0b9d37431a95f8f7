"""Publishes the records to the coordination store, with no gap between the two writes.

A commit leaves its document unpublished; publishing writes the keys and then marks the version. A
crash at any point leaves a document unpublished, which the next sweep finds. A marker key proves that
the coordination store still has what was published: if it is gone (wiped, replaced), everything is
written again.
"""

import asyncio
from collections.abc import Callable, Collection

import msgspec
import structlog

from lcm.control_plane.records.workers import KIND, decode_worker
from lcm.control_plane.store.port import Store, StoreUnavailable
from lcm.core.clock import Clock
from lcm.core.health import Health
from lcm.core.hosted_service import HostedService
from lcm.core.kv.port import Kv, KvUnavailable
from lcm.core.timeouts import timeout
from lcm.domain.lifecycle import TERMINATED
from lcm.domain.observed import has_only_observed_changes
from lcm.domain.worker import Worker

log = structlog.get_logger(__name__)

CALL_TIMEOUT_SECONDS = 2.0


class Publisher(HostedService):
    """Writes `<prefix>/workers/{id}/state`, `/desired_state`, `/license` and `/capacity`, now and by sweep.

    `on_found` is called with unpublished records: a write whose confirmation was lost called no listener.
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
        key_prefix: str = "/lcm",
        sweep_seconds: float = 5.0,
    ) -> None:
        self._store = store
        self._kv = kv
        self._clock = clock
        self._health = health
        self._on_found = on_found
        self._prefix = key_prefix
        self._sweep_seconds = sweep_seconds
        self._committed: dict[str, Worker] = {}
        self._wakes: set[str] = set()
        self._seen: dict[str, int] = {}
        self._has_commits = asyncio.Event()
        self.is_behind = True
        self._purged: dict[str, None] = {}
        self._must_find_orphaned_keys = True

    def on_worker_commit(self, before: Worker | None, after: Worker) -> None:
        """Queue the record; a commit that needs no action wakes no controller, if the one before was seen."""
        is_next = before is not None and self._seen.get(after.id) == before.version
        if before is None or not is_next or not has_only_observed_changes(before, after):
            self._wakes.add(after.id)
        self._seen[after.id] = after.version
        if after.status is TERMINATED:
            del self._seen[after.id]
        self._committed[after.id] = after
        self._has_commits.set()

    def on_worker_purge(self, worker: Worker) -> None:
        self._committed.pop(worker.id, None)
        self._purged[worker.id] = None
        self._has_commits.set()

    async def run(self) -> None:
        while True:
            self._health.tick(self.name, self._sweep_seconds)
            try:
                await self._publish_unpublished()
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
            committed, self._committed = self._committed, {}
            wakes, self._wakes = self._wakes, set()
            await self._publish(list(committed.values()), wakes)
            await self._drop_keys_of_purged()

    async def _drop_keys_of_purged(self) -> None:
        for worker_id in list(self._purged):
            for name in ("capacity", "desired_state", "license", "state"):
                async with timeout(CALL_TIMEOUT_SECONDS):
                    await self._kv.delete(f"{self._prefix}/workers/{worker_id}/{name}")
            del self._purged[worker_id]

    async def _find_orphaned_keys(self) -> None:
        """Find keys without a record, left by a crash between a purge and the removal of its keys.

        Keys are read before records: a worker that is created meanwhile has a record by then.
        """
        async with timeout(CALL_TIMEOUT_SECONDS):
            listing = await self._kv.list_prefix(f"{self._prefix}/workers/")
        known = {document.id for document in await self._store.list_all(KIND)}
        named = {item.key.removeprefix(f"{self._prefix}/workers/").split("/")[0] for item in listing.items}
        self._purged.update(dict.fromkeys(sorted(named - known)))
        self._must_find_orphaned_keys = False

    async def _publish_unpublished(self) -> None:
        async with timeout(CALL_TIMEOUT_SECONDS):
            marker = await self._kv.get(f"{self._prefix}/published")
        documents = await (self._store.list_unpublished(KIND) if marker else self._store.list_all(KIND))
        workers = []
        for document in documents:
            try:
                workers.append(decode_worker(document))
            except msgspec.MsgspecError as error:
                log.error("unreadable worker record not published", worker_id=document.id, error=str(error))
        for worker in workers:
            self._on_found(worker)
        await self._publish(workers, {worker.id for worker in workers})
        if self._must_find_orphaned_keys:
            await self._find_orphaned_keys()
        await self._drop_keys_of_purged()
        if not marker:
            await self._put(f"{self._prefix}/published", b"{}")
        self.is_behind = False
        self._health.thaw("coordination store")
        self._health.thaw("store")

    async def _publish(self, workers: list[Worker], wakes: Collection[str]) -> None:
        """Write the keys of workers on which a controller has to act; mark all as published."""
        for worker in workers:
            if worker.id not in wakes:
                continue
            base = f"{self._prefix}/workers/{worker.id}"
            desired = {"desired_status": worker.desired_status, "generation": worker.generation}
            observed = {"status": worker.status, "version": worker.version}
            await self._put(f"{base}/desired_state", msgspec.json.encode(desired))
            if worker.license.changed_at is not None:
                pending = {"pending_operation": worker.license.pending_operation}
                await self._put(f"{base}/license", msgspec.json.encode(pending))
            if worker.declared_capacity is not None:
                capacity = {"declared": worker.declared_capacity, "allocated": worker.allocated_capacity}
                await self._put(f"{base}/capacity", msgspec.json.encode(capacity))
            await self._put(f"{base}/state", msgspec.json.encode(observed))
        if workers:
            await self._store.mark_published(KIND, {worker.id: worker.version for worker in workers})

    async def _put(self, key: str, value: bytes) -> None:
        """Write a key only if its value changed: an equal value must not wake a watcher."""
        async with timeout(CALL_TIMEOUT_SECONDS):
            current = await self._kv.get(key)
            if current is None or current.value != value:
                await self._kv.put(key, value)
