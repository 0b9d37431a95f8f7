"""Tells the coordination store what the records say, with no hole between the two writes.

A commit leaves its document unpublished; publishing writes the keys and then marks the version. A
crash at any point leaves something unpublished, which the next round finds. A marker key shows that
the coordination store still has what we wrote: if it is gone (wiped, replaced), everything is
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
from lcm.domain.observed import is_only_news
from lcm.domain.worker import Worker

log = structlog.get_logger(__name__)

CALL_TIMEOUT_SECONDS = 2.0


class Publisher(HostedService):
    """Writes `<prefix>/workers/{id}/state`, `/desired_state`, `/license` and `/capacity`, at once and again.

    `on_found` hears of records that were behind: a write whose confirmation was lost told nobody else.
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
        self._fresh: dict[str, Worker] = {}
        self._wakes: set[str] = set()
        self._heard: dict[str, int] = {}
        self._something_fresh = asyncio.Event()
        self.is_behind = True
        self._purged: dict[str, None] = {}
        self._must_look_for_leftovers = True

    def on_worker_commit(self, before: Worker | None, after: Worker) -> None:
        """FeedMessage that nobody acts on wake nobody, unless the commit before them was never heard of."""
        is_next = before is not None and self._heard.get(after.id) == before.version
        if before is None or not is_next or not is_only_news(before, after):
            self._wakes.add(after.id)
        self._heard[after.id] = after.version
        if after.status is TERMINATED:
            del self._heard[after.id]
        self._fresh[after.id] = after
        self._something_fresh.set()

    def on_worker_purge(self, worker: Worker) -> None:
        self._fresh.pop(worker.id, None)
        self._purged[worker.id] = None
        self._something_fresh.set()

    async def run(self) -> None:
        while True:
            self._health.tick(self.name, self._sweep_seconds)
            try:
                await self._publish_whatever_is_behind()
                await self._publish_fresh_until(self._clock.monotonic() + self._sweep_seconds)
            except (KvUnavailable, TimeoutError) as error:
                await self._fall_behind("coordination store", error)
            except StoreUnavailable as error:
                await self._fall_behind("store", error)

    async def _fall_behind(self, authority: str, error: Exception) -> None:
        self.is_behind = True
        self._health.freeze(authority, str(error) or "no answer")
        log.warning("cannot publish; will catch up", missing=authority, error=repr(error))
        await self._clock.sleep(1.0)

    async def _publish_fresh_until(self, deadline: float) -> None:
        while (remaining := deadline - self._clock.monotonic()) > 0:
            try:
                async with timeout(remaining):
                    await self._something_fresh.wait()
            except TimeoutError:
                return
            self._something_fresh.clear()
            fresh, self._fresh = self._fresh, {}
            wakes, self._wakes = self._wakes, set()
            await self._publish(list(fresh.values()), wakes)
            await self._drop_keys_of_purged()

    async def _drop_keys_of_purged(self) -> None:
        for worker_id in list(self._purged):
            for name in ("capacity", "desired_state", "license", "state"):
                async with timeout(CALL_TIMEOUT_SECONDS):
                    await self._kv.delete(f"{self._prefix}/workers/{worker_id}/{name}")
            del self._purged[worker_id]

    async def _find_leftovers(self) -> None:
        """A crash between a purge and the removal of its keys leaves keys that nobody owns.

        Keys first, then records: a worker that is made meanwhile has a record by then.
        """
        async with timeout(CALL_TIMEOUT_SECONDS):
            listing = await self._kv.list_prefix(f"{self._prefix}/workers/")
        known = {document.id for document in await self._store.list_all(KIND)}
        named = {item.key.removeprefix(f"{self._prefix}/workers/").split("/")[0] for item in listing.items}
        self._purged.update(dict.fromkeys(sorted(named - known)))
        self._must_look_for_leftovers = False

    async def _publish_whatever_is_behind(self) -> None:
        async with timeout(CALL_TIMEOUT_SECONDS):
            marker = await self._kv.get(f"{self._prefix}/published")
        documents = await (self._store.list_unpublished(KIND) if marker else self._store.list_all(KIND))
        workers = []
        for document in documents:
            try:
                workers.append(decode_worker(document))
            except msgspec.MsgspecError as error:
                log.error("unreadable record not published", worker_id=document.id, error=str(error))
        for worker in workers:
            self._on_found(worker)
        await self._publish(workers, {worker.id for worker in workers})
        if self._must_look_for_leftovers:
            await self._find_leftovers()
        await self._drop_keys_of_purged()
        if not marker:
            await self._put(f"{self._prefix}/published", b"{}")
        self.is_behind = False
        self._health.thaw("coordination store")
        self._health.thaw("store")

    async def _publish(self, workers: list[Worker], wakes: Collection[str]) -> None:
        """Write the keys of those whose watchers have something to do; all of them count as published."""
        for worker in workers:
            if worker.id not in wakes:
                continue
            base = f"{self._prefix}/workers/{worker.id}"
            wish = {"desired_status": worker.desired_status, "generation": worker.generation}
            truth = {"status": worker.status, "version": worker.version}
            await self._put(f"{base}/desired_state", msgspec.json.encode(wish))
            if worker.license.changed_at is not None:
                pending = {"pending_operation": worker.license.pending_operation}
                await self._put(f"{base}/license", msgspec.json.encode(pending))
            if worker.declared_capacity is not None:
                room = {"declared": worker.declared_capacity, "allocated": worker.allocated_capacity}
                await self._put(f"{base}/capacity", msgspec.json.encode(room))
            await self._put(f"{base}/state", msgspec.json.encode(truth))
        if workers:
            await self._store.mark_published(KIND, {worker.id: worker.version for worker in workers})

    async def _put(self, key: str, value: bytes) -> None:
        """Write only what changed: a key that stays the same must not wake anybody."""
        async with timeout(CALL_TIMEOUT_SECONDS):
            current = await self._kv.get(key)
            if current is None or current.value != value:
                await self._kv.put(key, value)
