"""A queue of keys with the guarantees a controller needs (those of client-go's workqueue):

- a key waits at most once, however often it is added;
- a key is never handed out twice at the same time;
- a key added while it is being worked on is handed out once more afterwards;
- a key can be added for later; the earliest time wins.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from lcm.core.clock import Clock
from lcm.core.timeouts import timeout

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """One event loop, many producers, many consumers. `release_due` must run beside them."""

    def __init__(self, clock: Clock, capacity: int = 100_000) -> None:
        self._clock = clock
        self._capacity = capacity
        self._ready: deque[K] = deque()
        self._wanted: set[K] = set()
        self._in_progress: set[K] = set()
        self._due_at: dict[K, float] = {}
        self._timers: list[tuple[float, int, K]] = []
        self._timer_count = 0
        self._timers_changed = asyncio.Event()
        self._getters: deque[asyncio.Future[None]] = deque()
        self._some_ready = asyncio.Event()
        self.dropped = 0
        """Keys refused because the queue was full; the next poll brings them again."""

    def __len__(self) -> int:
        """Keys that wait, now or for their time."""
        return len(self._ready) + len(self._due_at)

    @property
    def ready_count(self) -> int:
        return len(self._ready)

    def add(self, key: K) -> None:
        """Ask for a run as soon as possible; a later time asked for before is forgotten."""
        self._due_at.pop(key, None)
        if key in self._wanted or self._is_full():
            return
        self._wanted.add(key)
        if key not in self._in_progress:
            self._make_ready(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Ask for a run later; of several times the earliest counts."""
        if seconds <= 0:
            self.add(key)
            return
        if key in self._wanted or (key not in self._due_at and self._is_full()):
            return
        due = self._clock.monotonic() + seconds
        if due < self._due_at.get(key, float("inf")):
            self._due_at[key] = due
            self._timer_count += 1
            heapq.heappush(self._timers, (due, self._timer_count, key))
            self._timers_changed.set()

    def offer(self, key: K) -> bool:
        """Ask for a run unless one is going on, waiting, or held back by backoff."""
        if key in self._in_progress or key in self._due_at or key in self._wanted or self._is_full():
            return False
        self._wanted.add(key)
        self._make_ready(key)
        return True

    async def get(self) -> K:
        """The next key. The caller works on it alone until it calls `done`."""
        while not self._ready:
            getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                # The wake-up meant for us must not be lost: hand it on.
                if getter.done() and not getter.cancelled() and self._ready:
                    self._wake_one()
                raise
            finally:
                if getter in self._getters:
                    self._getters.remove(getter)
        key = self._ready.popleft()
        if not self._ready:
            self._some_ready.clear()
        self._wanted.discard(key)
        self._in_progress.add(key)
        return key

    async def until_ready(self) -> None:
        """Return once a key could be handed out, without taking it."""
        await self._some_ready.wait()

    def done(self, key: K) -> None:
        """The work on a key is over; if it was added meanwhile it becomes ready again."""
        self._in_progress.discard(key)
        if key in self._wanted:
            self._make_ready(key)

    async def release_due(self) -> None:
        """Move keys whose time has come to the ready ones, for ever."""
        while True:
            self._timers_changed.clear()
            now = self._clock.monotonic()
            while self._timers and self._timers[0][0] <= now:
                due, _, key = heapq.heappop(self._timers)
                if self._due_at.get(key) == due:
                    self.add(key)
            if not self._timers:
                await self._timers_changed.wait()
                continue
            try:
                async with timeout(self._timers[0][0] - now):
                    await self._timers_changed.wait()
            except TimeoutError:
                continue

    def _make_ready(self, key: K) -> None:
        self._ready.append(key)
        self._some_ready.set()
        self._wake_one()

    def _wake_one(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def _is_full(self) -> bool:
        if len(self._wanted) + len(self._due_at) < self._capacity:
            return False
        self.dropped += 1
        return True
