"""The time of the host, for code without an event loop; apart from `clock`, which loads asyncio."""

import time
from datetime import UTC, datetime


class BlockingClock:
    """What the synchronous client and the commands take for a clock."""

    monotonic = staticmethod(time.monotonic)

    def now(self) -> datetime:
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
