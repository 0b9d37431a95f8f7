"""Forecasts of a moment ago: a rush of bookings of one lab asks the same question again and again."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Final

from lcm.core.clock import Clock
from lcm.rest.scheduling import Forecast

FRESH_SECONDS: Final = 1.0
MAX_KEPT: Final = 100


class ForecastCache:
    """Answers equal questions once a second; what is asked meanwhile waits for that answer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[Hashable, tuple[float, Forecast]] = {}
        self._computing = asyncio.Lock()

    async def get(self, question: Hashable, compute: Callable[[], Awaitable[Forecast]]) -> Forecast:
        """Return the answer, at most a second old."""
        async with self._computing:
            now = self._clock.monotonic()
            known = self._known.get(question)
            if known is not None and now - known[0] < FRESH_SECONDS:
                return known[1]
            found = await compute()
            self._known[question] = (now, found)
            while len(self._known) > MAX_KEPT:
                del self._known[next(iter(self._known))]
            return found
