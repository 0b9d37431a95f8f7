"""Several control planes share the records: each tells its own streams what the others committed.

Every commit that a controller may have to act on is published to the coordination store by the process that
made it (`publisher.py`). Watching those keys works even when control planes cannot follow each other's feed
(`feed_client.py`), which is quicker and says more. A key only says that a record changed: it is read.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Collection
from contextlib import aclosing

import msgspec
import structlog

from lcm.control_plane.records.workers import Workers
from lcm.control_plane.store.port import StoreUnavailable
from lcm.core.clock import Clock
from lcm.core.hosted_service import HostedService
from lcm.core.kv.port import Change, ChangeKind, Kv, KvUnavailable
from lcm.core.timeouts import timeout
from lcm.domain.errors import NotFound
from lcm.domain.worker import Worker

log = structlog.get_logger(__name__)

CALL_TIMEOUT_SECONDS = 2.0
RETRY_SECONDS = 1.0


class Published(msgspec.Struct, frozen=True):
    """What a `state` key says."""

    version: int


class KvWatch(HostedService):
    """`on_found` hears of every record that changed and is not known, and decides whether it is news.

    `on_gone` hears of workers that are known here although their records were purged.
    """

    name = "peers"

    def __init__(
        self,
        workers: Workers,
        kv: Kv,
        *,
        clock: Clock,
        on_found: Callable[[Worker], None],
        is_known: Callable[[str, int], bool] = lambda _, __: False,
        known_ids: Callable[[], Collection[str]] = tuple,
        on_gone: Callable[[str], None] = lambda _: None,
        key_prefix: str = "/lcm",
        patience_seconds: float = 0.0,
    ) -> None:
        self._workers = workers
        self._kv = kv
        self._clock = clock
        self._on_found = on_found
        self._is_known = is_known
        self._known_ids = known_ids
        self._on_gone = on_gone
        self._prefix = f"{key_prefix}/workers/"
        self._patience_seconds = patience_seconds
        self._changed: dict[str, int | None] = {}
        """The version that was published of each worker; None if its key is gone."""
        self._something_changed = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_on(self._watch), name="watch")
            tasks.create_task(self._keep_on(self._look_at_what_changed), name="look")

    async def _keep_on(self, work: Callable[[], Awaitable[None]]) -> None:
        """Not around the group: one that fails at the moment it is cancelled tells its failure only."""
        while True:
            try:
                await work()
            except (KvUnavailable, StoreUnavailable, TimeoutError) as error:
                log.warning("commits of other control planes may be told late", error=repr(error))
            await self._clock.sleep(RETRY_SECONDS)

    async def _watch(self) -> None:
        async with timeout(CALL_TIMEOUT_SECONDS):
            listing = await self._kv.list_prefix(self._prefix)
        known = self._known_ids()
        workers = await self._workers.list_all()
        for worker in workers:  # what changed while nobody watched
            self._on_found(worker)
        for worker_id in sorted(set(known).difference(worker.id for worker in workers)):
            await self._look(worker_id)
        async with aclosing(self._kv.watch_prefix(self._prefix, listing.revision + 1)) as changes:
            async for change in changes:
                self._note(change)

    def _note(self, change: Change) -> None:
        worker_id, _, what = change.key.removeprefix(self._prefix).partition("/")
        if what != "state":
            return
        self._changed[worker_id] = None if change.kind is ChangeKind.DELETE else _version(change.value)
        self._something_changed.set()

    async def _look_at_what_changed(self) -> None:
        while True:
            await self._something_changed.wait()
            await self._clock.sleep(self._patience_seconds)
            for worker_id, version in list(self._changed.items()):
                is_gone = version is None
                if self._is_known(worker_id, version or 0) is is_gone:
                    await self._look(worker_id)
                if self._changed[worker_id] == version:  # nothing newer came meanwhile
                    del self._changed[worker_id]
            if not self._changed:
                self._something_changed.clear()

    async def _look(self, worker_id: str) -> None:
        try:
            self._on_found(await self._workers.get(worker_id))
        except NotFound:
            self._on_gone(worker_id)
        except msgspec.MsgspecError as error:
            log.error("a record that was published cannot be read", worker_id=worker_id, error=str(error))


def _version(value: bytes) -> int:
    """Of the record that was published; more than any if that cannot be told, so that it is looked at."""
    try:
        return msgspec.json.decode(value, type=Published).version
    except msgspec.MsgspecError:
        return sys.maxsize
