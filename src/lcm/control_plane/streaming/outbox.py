"""Who listens to the stream, and what each has not been sent yet: bounded, whoever reads how slowly."""

import asyncio
from collections import deque
from typing import Final

from lcm.control_plane.streaming.encoding import PIECE_BYTES, EventFilter

SEND_BUFFER_BYTES: Final = 32 * 1024
"""For the listening socket; the kernel doubles it. With what waits here and in the server a stalled browser
costs 450 KB."""
SUBSCRIBER_BYTES: Final = 256 * 1024
FLUSH_BYTES: Final = 64 * 1024
"""What one flush gives a channel; the rest waits for the next, so that a quick reader is never swamped."""

CHANNEL_BYTES: Final = 1024 * 1024
"""What may wait for a channel's next flushes; everybody on it starts afresh if more comes."""

TOO_SLOW: Final = "you read too slowly"


class Subscriber:
    """What one browser has not been sent yet: references to what all share, and a bound."""

    __slots__ = ("_bytes", "_limit", "_waiting", "is_sent_away", "overflowed", "something_waits")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self.something_waits = asyncio.Event()
        self.overflowed = ""
        """Why it has to start afresh, if it has."""
        self.is_sent_away = False

    def send_away(self) -> None:
        """Its credential is no longer good."""
        self.is_sent_away = True
        self.something_waits.set()

    def offer(self, chunk: bytes) -> None:
        if self._bytes + len(chunk) > self._limit and self._waiting:
            self.overflow()
        elif not self.overflowed:
            self._waiting.append(chunk)
            self._bytes += len(chunk)
        self.something_waits.set()

    def overflow(self, reason: str = TOO_SLOW) -> None:
        """Events have to be dropped, or were never heard of."""
        self.drop()
        self.overflowed = reason
        self.something_waits.set()

    def drop(self) -> None:
        self._waiting.clear()
        self._bytes = 0
        self.overflowed = ""

    def take(self) -> bytes:
        """About a piece of what waits; empty if nothing does."""
        if not self._waiting:
            self.something_waits.clear()
            return b""
        taken = [self._waiting.popleft()]
        size = len(taken[0])
        while self._waiting and size + len(self._waiting[0]) <= PIECE_BYTES:
            taken.append(self._waiting.popleft())
            size += len(taken[-1])
        self._bytes -= size
        return taken[0] if len(taken) == 1 else b"".join(taken)


class Channel:
    """Everybody with the same filter, and what the next flush gives them."""

    __slots__ = ("pending", "pending_bytes", "subscribers", "wanted")

    def __init__(self, wanted: EventFilter) -> None:
        self.wanted = wanted
        self.subscribers: dict[Subscriber, None] = {}  # in the order they came
        self.pending: deque[bytes] = deque()
        self.pending_bytes = 0

    def add(self, chunk: bytes) -> None:
        self.pending.append(chunk)
        self.pending_bytes += len(chunk)
        if self.pending_bytes > CHANNEL_BYTES:
            self.overflow()

    def flush(self) -> None:
        """Give everybody one piece of bytes; the rest stays for the next time."""
        taken: list[bytes] = []
        size = 0
        while self.pending and (not taken or size + len(self.pending[0]) <= FLUSH_BYTES):
            taken.append(self.pending.popleft())
            size += len(taken[-1])
        self.pending_bytes -= size
        if taken:
            chunk = b"".join(taken)
            for subscriber in self.subscribers:
                subscriber.offer(chunk)

    def overflow(self, reason: str = TOO_SLOW) -> None:
        self.pending.clear()
        self.pending_bytes = 0
        for subscriber in self.subscribers:
            subscriber.overflow(reason)
