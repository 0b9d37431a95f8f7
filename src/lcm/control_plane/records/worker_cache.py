"""The workers that are not terminated, in memory: what hot paths read without touching the store.

Commits of this process come from its own listeners; commits of other control planes come through the feed
(`replication/feed.py`) and the key watch (`replication/kv_watch.py`). The publisher finds a commit that was
never confirmed and passes it to `learn` too. Commits may arrive out of order: an older version changes
nothing. Terminated workers are dropped.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from typing import Final

import msgspec

from lcm.domain.idle import idle_checks_expected_since
from lcm.domain.lablet.claim import ports_of
from lcm.domain.lifecycle import TERMINATED
from lcm.domain.worker import Worker
from lcm.rest.schemas import WorkerView

MAX_ENDED: Final = 1_000
"""Terminated workers that are remembered, so that a late report of one does not add it again."""


class CachedWorker:
    """The cached state of one worker; it changes in place, so a reference always shows the newest."""

    __slots__ = (
        "claims_retained",
        "id",
        "is_cml_overdue",
        "is_imported",
        "is_license_due",
        "is_live",
        "is_trusted",
        "judged_since",
        "labs_count",
        "monitor",
        "name",
        "ports_used",
        "region",
        "status",
        "template_name",
        "version",
        "view",
    )

    def __init__(self, worker: Worker) -> None:
        self.id = worker.id
        self.learn(worker)

    def learn(self, worker: Worker) -> None:
        self.version = worker.version
        self.name = worker.name
        self.status = worker.status
        self.template_name = worker.template_name
        self.region = worker.aws_region
        self.is_live = worker.is_live
        self.is_imported = worker.imported
        self.is_trusted = worker.is_trusted
        self.monitor = worker.connection.status
        self.is_license_due = worker.is_license_due
        self.is_cml_overdue = worker.cml.wait is not None and worker.cml.wait.alarmed_at is not None
        self.judged_since = idle_checks_expected_since(worker)
        self.labs_count = worker.cml.labs_count
        self.ports_used = len(ports_of(worker.claims))
        self.claims_retained = sum(claim.is_retained for claim in worker.claims)
        self.view = msgspec.json.encode(WorkerView.of(worker))
        """The public view, encoded once for all subscribers."""


class WorkerCache:
    """All workers that are not terminated."""

    def __init__(self, read_live: Callable[[], Awaitable[Sequence[Worker]]]) -> None:
        self._read_live = read_live
        self._known: dict[str, CachedWorker] = {}
        self._is_loaded = False
        self._loading = asyncio.Lock()
        self._ended: dict[str, datetime] = {}
        """When terminated workers were created: a later one of the same id is another worker."""
        self._end_listeners: list[Callable[[str], None]] = []

    def subscribe_to_ends(self, listener: Callable[[str], None]) -> None:
        """Call the listener with the id of each worker that stops being live."""
        self._end_listeners.append(listener)

    async def load(self) -> None:
        """Read the records once; later changes arrive through `learn`."""
        if self._is_loaded:
            return
        async with self._loading:
            if self._is_loaded:
                return
            for worker in await self._read_live():
                self.learn(worker)
            self._is_loaded = True

    def on_worker_commit(self, _: Worker | None, after: Worker) -> None:
        self.learn(after)

    def learn(self, worker: Worker) -> None:
        """Take over a record that is newer than the cached one."""
        known = self._known.get(worker.id)
        ended = self._ended.get(worker.id)
        if ended is not None and worker.created_at <= ended:
            return
        if known is not None and known.version > worker.version:
            return
        if known is None:
            known = CachedWorker(worker)
        else:
            known.learn(worker)
        if worker.status is TERMINATED:
            self._known.pop(worker.id, None)
            self._ended[worker.id] = worker.created_at
            if len(self._ended) > MAX_ENDED:
                del self._ended[next(iter(self._ended))]
        else:
            self._known[worker.id] = known
        if not known.is_live:
            self._publish_end(worker.id)

    def forget(self, worker_id: str) -> None:
        """Drop a worker whose record another control plane purged before its termination was known here."""
        if self._known.pop(worker_id, None) is not None:
            self._publish_end(worker_id)

    def _publish_end(self, worker_id: str) -> None:
        for listener in self._end_listeners:
            listener(worker_id)

    def on_worker_purge(self, worker: Worker) -> None:
        """Forget the terminated worker: a later record of its id is another worker."""
        self._ended.pop(worker.id, None)

    def get(self, worker_id: str) -> CachedWorker | None:
        return self._known.get(worker_id)

    def id_of(self, name: str) -> str | None:
        """Return the id of the worker of this name, which no two of the cached ones share."""
        return next((known.id for known in self._known.values() if known.name == name), None)

    def ids(self) -> list[str]:
        return list(self._known)

    def knows(self, worker_id: str, version: int) -> bool:
        """Return whether the worker is cached at this version or a later one."""
        known = self._known.get(worker_id)
        return known is not None and known.version >= version

    def is_live(self, worker_id: str) -> bool:
        known = self._known.get(worker_id)
        return known is not None and known.is_live

    def __iter__(self) -> Iterator[CachedWorker]:
        return iter(list(self._known.values()))

    def __len__(self) -> int:
        return len(self._known)
