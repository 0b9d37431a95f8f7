"""Limit handshakes: so many at once, so many per second.

When a thousand connections break together they must not all reconnect at once.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lcm.core.clock import Clock


class HandshakeLimiter:
    """Use as `async with limiter.slot()` around one handshake."""

    def __init__(self, clock: Clock, at_once: int, per_second: float) -> None:
        self._clock = clock
        self._places = asyncio.Semaphore(at_once)
        self._spacing_seconds = 1.0 / per_second
        self._next_at = float("-inf")

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        async with self._places:
            now = self._clock.monotonic()
            mine = max(now, self._next_at)
            self._next_at = mine + self._spacing_seconds
            if mine > now:
                await self._clock.sleep(mine - now)
            yield
