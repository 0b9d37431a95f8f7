"""Time comes in through here, so that a simulation can hand out its own."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """The only way to ask for the time or to let it pass."""

    def now(self) -> datetime:
        """Wall time in UTC: for records and people, never for measuring."""
        ...

    def monotonic(self) -> float:
        """Seconds that only ever grow: for deadlines and durations."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let that much monotonic time pass."""
        ...


class SystemClock:
    """The time of the host."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    monotonic = staticmethod(time.monotonic)
    """Without a call in between: some ask for every frame that comes in."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
