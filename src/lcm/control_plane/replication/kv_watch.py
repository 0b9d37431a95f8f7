"""Several control planes share the records: each publishes the commits of the others to its own streams.

Every commit that a controller may have to act on is published to the coordination store by the process that
made it (`publisher.py`). Watching those keys works even when control planes cannot follow each other's feed
(`feed_client.py`), which is faster and more detailed. A key only shows that a record changed: it is read.
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
    """The value of a `state` key."""

    version: int


class KvWatch(HostedService):
    """Calls `on_found` with every changed record that is not known; it decides whether the record is newer.

    Calls `on_gone` with workers that are known here although their records were purged.
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
        self._has_changes = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._run_forever(self._watch), name="watch")
            tasks.create_task(self._run_forever(self._read_changed), name="read")

    async def _run_forever(self, work: Callable[[], Awaitable[None]]) -> None:
        """Retry in the task, not around the group, where a failure would hide the cancellation."""
        while True:
            try:
                await work()
            except (KvUnavailable, StoreUnavailable, TimeoutError) as error:
                log.warning("coordination store watch failed; peer commits may be late", error=repr(error))
            await self._clock.sleep(RETRY_SECONDS)

    async def _watch(self) -> None:
        async with timeout(CALL_TIMEOUT_SECONDS):
            listing = await self._kv.list_prefix(self._prefix)
        known = self._known_ids()
        workers = await self._workers.list_live()
        for worker in workers:  # changes from before the watch
            self._on_found(worker)
        for worker_id in sorted(set(known).difference(worker.id for worker in workers)):
            await self._read(worker_id)
        async with aclosing(self._kv.watch_prefix(self._prefix, listing.revision + 1)) as changes:
            async for change in changes:
                self._note(change)

    def _note(self, change: Change) -> None:
        worker_id, _, what = change.key.removeprefix(self._prefix).partition("/")
        if what != "state":
            return
        self._changed[worker_id] = None if change.kind is ChangeKind.DELETE else _version(change.value)
        self._has_changes.set()

    async def _read_changed(self) -> None:
        while True:
            await self._has_changes.wait()
            await self._clock.sleep(self._patience_seconds)
            for worker_id, version in list(self._changed.items()):
                is_gone = version is None
                if self._is_known(worker_id, version or 0) is is_gone:
                    await self._read(worker_id)
                if self._changed[worker_id] == version:  # no newer change arrived meanwhile
                    del self._changed[worker_id]
            if not self._changed:
                self._has_changes.clear()

    async def _read(self, worker_id: str) -> None:
        try:
            self._on_found(await self._workers.get(worker_id))
        except NotFound:
            self._on_gone(worker_id)
        except msgspec.MsgspecError as error:
            log.error("published worker record unreadable", worker_id=worker_id, error=str(error))


def _version(value: bytes) -> int:
    """Return the published version; the maximum if it cannot be decoded, so that the record is read."""
    try:
        return msgspec.json.decode(value, type=Published).version
    except msgspec.MsgspecError:
        return sys.maxsize
