"""Several control planes share the records: each tells its own streams what the others committed.

Every commit is published to the coordination store by whoever made it (`publisher.py`). Watching those keys
is how the others learn of it. The key only says "look": what is told is the record. Reports that never become
records go to the plane they were sent to, and from there to its own streams only.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import msgspec
import structlog

from lcm.control_plane.store.port import StoreUnavailable
from lcm.control_plane.workers import Workers
from lcm.core.clock import Clock
from lcm.core.hosted_service import HostedService
from lcm.core.kv.port import Change, ChangeKind, Kv, KvUnavailable
from lcm.domain.errors import NotFound
from lcm.domain.worker import Worker

log = structlog.get_logger(__name__)

CALL_TIMEOUT_SECONDS = 2.0
RETRY_SECONDS = 1.0


class PeerWatch(HostedService):
    """`on_found` hears of every record that changed, and decides whether it is news."""

    name = "peers"

    def __init__(
        self,
        workers: Workers,
        kv: Kv,
        *,
        clock: Clock,
        on_found: Callable[[Worker], None],
        key_prefix: str = "/lcm",
    ) -> None:
        self._workers = workers
        self._kv = kv
        self._clock = clock
        self._on_found = on_found
        self._prefix = f"{key_prefix}/workers/"

    async def run(self) -> None:
        while True:
            try:
                await self._follow()
            except (KvUnavailable, StoreUnavailable, TimeoutError) as error:
                log.warning("commits of other control planes may be told late", error=repr(error))
            await self._clock.sleep(RETRY_SECONDS)

    async def _follow(self) -> None:
        async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
            listing = await self._kv.list_prefix(self._prefix)
        for worker in await self._workers.list_all():  # what changed while nobody watched
            self._on_found(worker)
        async with aclosing(self._kv.watch_prefix(self._prefix, listing.revision + 1)) as changes:  # type: ignore[type-var]
            async for change in changes:
                await self._look(change)

    async def _look(self, change: Change) -> None:
        worker_id, _, what = change.key.removeprefix(self._prefix).partition("/")
        if what != "state" or change.kind is ChangeKind.DELETE:
            return
        try:
            self._on_found(await self._workers.get(worker_id))
        except (NotFound, msgspec.MsgspecError) as error:
            log.error("a record that was published cannot be read", worker_id=worker_id, error=str(error))
