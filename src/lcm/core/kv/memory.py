"""The coordination store inside one process: the embedded default, and etcd's model in tests."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from lcm.core.clock import Clock
from lcm.core.hosted_service import HostedService
from lcm.core.ids import Ids
from lcm.core.kv.port import (
    Change,
    ChangeKind,
    Compacted,
    Item,
    LeaseExpired,
    LeaseId,
    Listing,
)
from lcm.core.timeouts import timeout


@dataclass
class _Lease:
    ttl_seconds: int
    expires_at: float
    keys: set[str] = field(default_factory=set)


class MemoryKv(HostedService):
    """Keeps the newest `history_limit` changes; `run` expires leases between calls.

    Every change has a revision of its own, so the history is indexed by it and a watch needs no queue.
    """

    name = "coordination"

    def __init__(self, clock: Clock, ids: Ids, history_limit: int = 10_000) -> None:
        self._clock = clock
        self._ids = ids
        self._cluster_id = ids.new_id()
        self._revision = 0
        self._compacted = 0
        self._items: dict[str, Item] = {}
        self._lease_of: dict[str, LeaseId] = {}
        self._leases: dict[LeaseId, _Lease] = {}
        self._history: deque[Change] = deque()
        self._history_limit = history_limit
        self._changed: asyncio.Future[None] | None = None
        self._leases_changed = asyncio.Event()

    async def run(self) -> None:
        while True:
            self._leases_changed.clear()
            self._expire_leases()
            next_expiry = min((lease.expires_at for lease in self._leases.values()), default=None)
            patience = None if next_expiry is None else max(0.0, next_expiry - self._clock.monotonic())
            try:
                async with timeout(patience):
                    await self._leases_changed.wait()
            except TimeoutError:
                continue

    async def cluster_id(self) -> str:
        return self._cluster_id

    async def get(self, key: str) -> Item | None:
        self._expire_leases()
        return self._items.get(key)

    async def list_prefix(self, prefix: str) -> Listing:
        self._expire_leases()
        items = [item for key, item in sorted(self._items.items()) if key.startswith(prefix)]
        return Listing(items, self._revision)

    async def put(self, key: str, value: bytes, lease: LeaseId | None = None) -> int:
        self._expire_leases()
        return self._put(key, value, lease)

    async def put_if_absent(self, key: str, value: bytes, lease: LeaseId | None = None) -> int | None:
        self._expire_leases()
        return None if key in self._items else self._put(key, value, lease)

    async def delete(self, key: str) -> bool:
        self._expire_leases()
        return self._delete(key)

    async def grant_lease(self, ttl_seconds: int) -> LeaseId:
        # Unguessable, as etcd's: a lease of a store that was lost must not mean one of its successor's.
        lease_id = LeaseId(int(self._ids.new_id().replace("-", "")[:15], 16))
        self._leases[lease_id] = _Lease(ttl_seconds, self._clock.monotonic() + ttl_seconds)
        self._leases_changed.set()
        return lease_id

    async def keep_alive(self, lease: LeaseId) -> int:
        self._expire_leases()
        held = self._leases.get(lease)
        if held is None:
            return 0
        held.expires_at = self._clock.monotonic() + held.ttl_seconds
        return held.ttl_seconds

    async def revoke_lease(self, lease: LeaseId) -> None:
        held = self._leases.pop(lease, None)
        for key in sorted(held.keys) if held else ():
            self._delete(key)

    async def watch_prefix(self, prefix: str, start_revision: int) -> AsyncGenerator[Change, None]:
        next_revision = start_revision
        while True:
            # Checked again for every change: a slow reader may be overtaken by compaction.
            if next_revision <= self._compacted:
                raise Compacted(self._compacted)
            if next_revision > self._revision:
                await self._wait_for_change()
                continue
            change = self._history[next_revision - self._history[0].revision]
            next_revision += 1
            if change.key.startswith(prefix):
                yield change

    def compact(self, revision: int) -> None:
        """Forget the changes up to a revision, as etcd does on request."""
        while self._history and self._history[0].revision <= revision:
            self._history.popleft()
        self._compacted = max(self._compacted, revision)
        self._announce()

    async def _wait_for_change(self) -> None:
        if self._changed is None or self._changed.done():
            self._changed = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._changed)

    def _announce(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def _put(self, key: str, value: bytes, lease: LeaseId | None) -> int:
        if lease is not None and lease not in self._leases:
            raise LeaseExpired(f"lease {lease} is gone")
        self._detach(key)
        if lease is not None:
            self._leases[lease].keys.add(key)
            self._lease_of[key] = lease
        self._revision += 1
        before = self._items.get(key)
        self._items[key] = Item(
            key, value, before.create_revision if before else self._revision, self._revision
        )
        self._record(Change(ChangeKind.PUT, key, value, self._revision))
        return self._revision

    def _delete(self, key: str) -> bool:
        self._detach(key)
        if self._items.pop(key, None) is None:
            return False
        self._revision += 1
        self._record(Change(ChangeKind.DELETE, key, b"", self._revision))
        return True

    def _detach(self, key: str) -> None:
        lease = self._leases.get(self._lease_of.pop(key, LeaseId(0)))
        if lease is not None:
            lease.keys.discard(key)

    def _record(self, change: Change) -> None:
        self._history.append(change)
        if len(self._history) > self._history_limit:
            self._compacted = self._history.popleft().revision
        self._announce()

    def _expire_leases(self) -> None:
        now = self._clock.monotonic()
        for lease_id in [i for i, lease in self._leases.items() if lease.expires_at <= now]:
            for key in sorted(self._leases.pop(lease_id).keys):
                self._delete(key)
