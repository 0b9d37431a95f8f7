"""The subscribers of the event stream and their outboxes, bounded however slowly a browser reads."""

import asyncio
from collections import deque
from typing import Final

from lcm.control_plane.streaming.encoding import PIECE_BYTES, EventFilter

SEND_BUFFER_BYTES: Final = 32 * 1024
"""For the listening socket; the kernel doubles it. With the outbox and the server's buffer a stalled browser
costs 450 KB."""
SUBSCRIBER_BYTES: Final = 256 * 1024
FLUSH_BYTES: Final = 64 * 1024
"""What one flush gives a channel; the rest waits for the next, so that no fast reader overflows."""

CHANNEL_BYTES: Final = 1024 * 1024
"""What may wait for a channel's next flushes; with more, all its subscribers are reset."""

TOO_SLOW: Final = "the browser reads too slowly"


class Subscriber:
    """The outbox of one browser: references to chunks that all subscribers share, and a bound."""

    __slots__ = ("_bytes", "_limit", "_waiting", "has_data", "is_expired", "overflowed")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self.has_data = asyncio.Event()
        self.overflowed = ""
        """Why the subscriber has to be reset; empty if it has not."""
        self.is_expired = False

    def expire(self) -> None:
        """End the stream: the credential is no longer valid."""
        self.is_expired = True
        self.has_data.set()

    def offer(self, chunk: bytes) -> None:
        if self._bytes + len(chunk) > self._limit and self._waiting:
            self.overflow()
        elif not self.overflowed:
            self._waiting.append(chunk)
            self._bytes += len(chunk)
        self.has_data.set()

    def overflow(self, reason: str = TOO_SLOW) -> None:
        """Drop the outbox and reset the subscriber: events were lost."""
        self.drop()
        self.overflowed = reason
        self.has_data.set()

    def drop(self) -> None:
        self._waiting.clear()
        self._bytes = 0
        self.overflowed = ""

    def take(self) -> bytes:
        """Return about one piece of the outbox; empty if the outbox is."""
        if not self._waiting:
            self.has_data.clear()
            return b""
        taken = [self._waiting.popleft()]
        size = len(taken[0])
        while self._waiting and size + len(self._waiting[0]) <= PIECE_BYTES:
            taken.append(self._waiting.popleft())
            size += len(taken[-1])
        self._bytes -= size
        return taken[0] if len(taken) == 1 else b"".join(taken)


class Channel:
    """All subscribers with the same filter, and what the next flush gives them."""

    __slots__ = ("pending", "pending_bytes", "subscribers", "wanted")

    def __init__(self, wanted: EventFilter) -> None:
        self.wanted = wanted
        self.subscribers: dict[Subscriber, None] = {}  # in order of subscription
        self.pending: deque[bytes] = deque()
        self.pending_bytes = 0

    def add(self, chunk: bytes) -> None:
        self.pending.append(chunk)
        self.pending_bytes += len(chunk)
        if self.pending_bytes > CHANNEL_BYTES:
            self.overflow()

    def flush(self) -> None:
        """Give every subscriber up to `FLUSH_BYTES`; the rest waits for the next flush."""
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
