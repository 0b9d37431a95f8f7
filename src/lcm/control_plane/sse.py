"""The live stream to browsers: every event is encoded once and shared by all subscribers.

Ids are `<boot>-<n>`. A browser that comes back with its last id gets what it missed from a bounded
buffer, or `reset` and fresh snapshots. A subscriber that does not read is bounded and told `reset`;
the others never wait for it.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
import structlog

from lcm.core.chance import Ids
from lcm.core.clock import Clock
from lcm.domain.lifecycle import TERMINATED
from lcm.domain.worker import Worker
from lcm.rest.schemas import WorkerView

log = structlog.get_logger(__name__)

Snapshot = Callable[[], Awaitable[Sequence[Worker]]]


class _Subscriber:
    """What one browser has not been sent yet."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: deque[bytes] = deque()
        self.something_waits = asyncio.Event()
        self.overflowed = False

    def offer(self, chunk: bytes) -> bool:
        """False if it did not read for so long that events had to be dropped."""
        if len(self._waiting) >= self._limit:
            self._waiting.clear()
            self.overflowed = True
        if not self.overflowed:
            self._waiting.append(chunk)
        self.something_waits.set()
        return not self.overflowed

    def take(self) -> bytes:
        self.something_waits.clear()
        chunk = b"".join(self._waiting)
        self._waiting.clear()
        return chunk


class EventHub:
    """Publishes to all subscribers; `SSEEventRelay` in the seeds."""

    def __init__(
        self,
        clock: Clock,
        ids: Ids,
        snapshot: Snapshot,
        *,
        heartbeat_seconds: float = 30.0,
        buffer_size: int = 1_000,
        subscriber_limit: int = 1_000,
    ) -> None:
        self._clock = clock
        self._snapshot = snapshot
        self._heartbeat_seconds = heartbeat_seconds
        self._subscriber_limit = subscriber_limit
        self._boot = ids.new_id()[:8]
        self._count = 0
        self._buffer: deque[tuple[int, bytes]] = deque(maxlen=buffer_size)
        self._subscribers: set[_Subscriber] = set()
        self._told: dict[str, int] = {}
        self._is_closing = False
        self.resets = 0

    @property
    def subscriber_count(self) -> int:
        return len(self._subscribers)

    def on_worker_commit(self, before: Worker | None, after: Worker) -> None:
        """Every committed change of a worker becomes the event that says best what happened."""
        kind = _event_type(before, after)
        if kind is not None:
            self._publish_worker(kind, before, after)

    def on_worker_found(self, worker: Worker) -> None:
        """A record turned out newer than what was told: its commit was never confirmed to its writer."""
        if worker.version > self._told.get(worker.id, 0):
            self._publish_worker("worker.status.updated", None, worker)

    def _publish_worker(self, kind: str, before: Worker | None, after: Worker) -> None:
        self._told[after.id] = after.version
        previous = before.status if before else None
        view = WorkerView.of(after)
        self.publish(kind, {"worker_id": after.id, "worker": view, "previous_status": previous})

    def publish(self, event_type: str, data: Mapping[str, Any]) -> None:
        self._count += 1
        chunk = _encode(event_type, data, f"{self._boot}-{self._count}")
        self._buffer.append((self._count, chunk))
        for subscriber in self._subscribers:
            if not subscriber.offer(chunk):
                self.resets += 1

    async def stream(self, last_event_id: str | None) -> AsyncIterator[bytes]:
        """Everything one browser gets, for as long as it stays."""
        subscriber = _Subscriber(self._subscriber_limit)
        self._subscribers.add(subscriber)
        try:
            yield await self._opening(last_event_id)
            while not self._is_closing:
                try:
                    async with asyncio.timeout(self._heartbeat_seconds):
                        await subscriber.something_waits.wait()
                except TimeoutError:
                    yield _encode("heartbeat", {"server_time": self._clock.now()})
                    continue
                if subscriber.overflowed:
                    subscriber.take()
                    subscriber.overflowed = False
                    yield await self._fresh_start("reset", {"reason": "you read too slowly"})
                yield subscriber.take()
            yield _encode("system.sse.shutdown", {})
        finally:
            self._subscribers.discard(subscriber)

    def close(self) -> None:
        """End every stream with a word of goodbye."""
        self._is_closing = True
        for subscriber in self._subscribers:
            subscriber.something_waits.set()

    async def _opening(self, last_event_id: str | None) -> bytes:
        greeting = {"boot": self._boot, "server_time": self._clock.now()}
        if not last_event_id:
            return await self._fresh_start("connected", greeting)
        missed = self._missed_since(last_event_id)
        if missed is None:
            return await self._fresh_start("reset", {"reason": "what you missed is no longer kept"})
        return _encode("connected", {**greeting, "workers": 0}) + b"".join(missed)

    def _missed_since(self, last_event_id: str) -> list[bytes] | None:
        """The events after this id; None if that cannot be told."""
        boot, _, number = last_event_id.rpartition("-")
        if boot != self._boot or not number.isascii() or not number.isdigit():
            return None
        last = int(number)
        oldest_kept = self._buffer[0][0] if self._buffer else self._count + 1
        if last > self._count or last < oldest_kept - 1:
            return None
        return [chunk for n, chunk in self._buffer if n > last]

    async def _fresh_start(self, event_type: str, data: Mapping[str, Any]) -> bytes:
        """An id of now, then one snapshot per worker; newer events follow and carry newer versions."""
        event_id = f"{self._boot}-{self._count}"
        workers = [w for w in await self._snapshot() if w.status is not TERMINATED]
        chunks = [_encode(event_type, {**data, "workers": len(workers)}, event_id)]
        chunks += [_encode("worker.snapshot", {"worker": WorkerView.of(w)}, event_id) for w in workers]
        return b"".join(chunks)


def _event_type(before: Worker | None, after: Worker) -> str | None:
    if before is None:
        return "worker.imported" if after.imported else "worker.created"
    if before.status is not after.status and after.status is TERMINATED:
        return "worker.terminated"
    if (before.public_ip, before.private_ip) != (after.public_ip, after.private_ip) and (
        before.status is after.status
    ):
        return "worker.endpoint.updated"
    if WorkerView.of(before) != WorkerView.of(after):
        return "worker.status.updated"
    return None


def _encode(event_type: str, data: Mapping[str, Any], event_id: str | None = None) -> bytes:
    """One event on the wire. JSON has no raw newlines, so one data line always suffices."""
    head = f"id: {event_id}\n" if event_id else ""
    return f"{head}event: {event_type}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"
