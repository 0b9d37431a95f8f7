"""A token bucket: how fast one API may be called by all callers of a process. Urgent callers go first.

When the API answers that it is throttled, all callers pause for a random time, so that they do not return all
at once.
"""

import asyncio
import heapq
import itertools
import random
from dataclasses import dataclass, field
from typing import Final

from lcm.core.backoff import Backoff
from lcm.core.clock import Clock
from lcm.core.timeouts import timeout

MAX_WAITING: Final = 1_000
PAUSES: Final = Backoff(base_seconds=0.5, max_seconds=4.0)


class Saturated(Exception):
    """No permit came in the time the caller can wait."""


@dataclass(frozen=True)
class Rate:
    """So many calls a second, and so many at once after a quiet time."""

    per_second: float
    burst: int


@dataclass(order=True)
class _Ticket:
    """A caller's place: urgent ones first, then in the order they came."""

    rank: tuple[bool, int]
    is_first: asyncio.Event = field(default_factory=asyncio.Event, compare=False)


class TokenBucket:
    """Permits for calls."""

    def __init__(self, rate: Rate, clock: Clock, chance: random.Random) -> None:
        self._rate = rate
        self._clock = clock
        self._chance = chance
        self._permits = float(rate.burst)
        self._counted_at = clock.monotonic()
        self._paused_until = float("-inf")
        self._refusals = 0
        self._last_refusal = ""
        self._numbers = itertools.count()
        self._waiting: list[_Ticket] = []

    async def take(self, *, urgent: bool, within_seconds: float) -> None:
        """Wait for a permit. Raises Saturated if none comes in time or too many wait already."""
        if not self._waiting and self._seconds_to_permit() <= 0:
            self._permits -= 1
            return
        if len(self._waiting) >= MAX_WAITING:
            raise Saturated(f"{MAX_WAITING} calls are waiting for a permit{self._last_refusal}")
        ticket = _Ticket((not urgent, next(self._numbers)))
        heapq.heappush(self._waiting, ticket)
        try:
            async with timeout(within_seconds):
                await self._wait_for_turn(ticket)
            self._permits -= 1
        except TimeoutError:
            raise Saturated(f"no permit within {within_seconds:g} seconds{self._last_refusal}") from None
        finally:
            self._waiting.remove(ticket)
            heapq.heapify(self._waiting)
            if self._waiting:
                self._waiting[0].is_first.set()

    def refused(self, reason: str) -> None:
        """The API throttled a call: pause all callers, longer each time in a row."""
        self._last_refusal = f"; the last call was refused: {reason}"
        pause = PAUSES.delay_seconds(self._refusals) * self._chance.uniform(0.5, 1.0)
        self._refusals += 1
        self._permits = 0.0
        self._counted_at = self._paused_until = self._clock.monotonic() + pause

    def accepted(self) -> None:
        """A call went through."""
        self._refusals = 0
        self._last_refusal = ""

    async def _wait_for_turn(self, ticket: _Ticket) -> None:
        while True:
            if self._waiting[0] is not ticket:
                ticket.is_first.clear()
                await ticket.is_first.wait()
            elif (seconds := self._seconds_to_permit()) > 0:
                await self._clock.sleep(seconds)
            else:
                return

    def _seconds_to_permit(self) -> float:
        now = self._clock.monotonic()
        if now < self._paused_until:
            return self._paused_until - now + 1 / self._rate.per_second
        gained = (now - self._counted_at) * self._rate.per_second
        self._permits = min(self._rate.burst, self._permits + gained)
        self._counted_at = now
        # A permit that is short by a rounding error is a permit: no clock sleeps that little.
        return 0.0 if self._permits >= 1 - 1e-6 else (1 - self._permits) / self._rate.per_second
