"""`/ws/ui` of one server: its subscribers and the events they get.

An event is encoded once for any number of subscribers, and not at all without any.
"""

from collections.abc import Iterator
from typing import Any, Final, Protocol

import msgspec

from lcm.simulator.cml.websocket import Opcode, frame

UNAUTHORIZED: Final = (3000, "Unauthorized")

GARBAGE: Final = (
    frame(Opcode.TEXT, b'{"event_type":"system_stats","data":{"computes":'),
    frame(Opcode.TEXT, b"<html>502 Bad Gateway</html>"),
    frame(Opcode.BINARY, bytes(range(256))),
    frame(Opcode.TEXT, b'"just a string"'),
    frame(Opcode.TEXT, b'{"event_type":"system_stats","data":{"all":{"cpu":{"percent":"full"}}}}'),
    frame(Opcode.TEXT, b'{"event_type":"lab_event","lab_id":7,"event":["state"],"data":null}'),
    frame(Opcode.TEXT, b"\xff\xfe not utf-8"),
    frame(Opcode.TEXT, b'{"event_type":"a_kind_of_tomorrow","data":[1,2,3]}'),
    frame(Opcode.TEXT, b""),
)
"""One of each kind of invalid frame that has broken clients."""


class Subscriber(Protocol):
    """A connection that has sent a valid token."""

    def send(self, data: bytes, /) -> None: ...

    def close(self, code: int, reason: str, /) -> None: ...


class Subscribers:
    """The subscribers of one server."""

    def __init__(self) -> None:
        self._subscribers: dict[Subscriber, None] = {}
        self._round = 0
        self.frames = 0
        """How many frames were sent, each counted once per subscriber."""
        self.is_silent = False
        """A fault: connections stay open and get no events."""
        self.is_garbled = False
        """A fault: an invalid frame replaces every event."""

    def __len__(self) -> int:
        return len(self._subscribers)

    def __iter__(self) -> Iterator[Subscriber]:
        return iter(tuple(self._subscribers))

    def join(self, subscriber: Subscriber) -> None:
        self._subscribers[subscriber] = None

    def leave(self, subscriber: Subscriber) -> None:
        self._subscribers.pop(subscriber, None)

    def show(self, event: dict[str, Any]) -> None:
        """Send an event to every subscriber."""
        if self._subscribers and not self.is_silent:
            garbled = self._next_garbage() if self.is_garbled else None
            self.send(garbled or frame(Opcode.TEXT, msgspec.json.encode(event)))

    def send(self, data: bytes, *, frames: int = 1) -> None:
        """Send bytes that are frames already, whatever they are and whatever fault is in force."""
        for subscriber in self:
            subscriber.send(data)
        self.frames += frames * len(self._subscribers)

    def send_garbage(self, count: int) -> None:
        for _ in range(count):
            self.send(self._next_garbage())

    def close(self, code: int, reason: str) -> None:
        """Close every connection."""
        for subscriber in self:
            subscriber.close(code, reason)

    def _next_garbage(self) -> bytes:
        self._round += 1
        return GARBAGE[self._round % len(GARBAGE)]


def token_in(payload: bytes) -> str | None:
    """The token of a first frame: `{"token": …}` with any other keys; None if there is none."""
    try:
        shown = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    token = shown.get("token") if isinstance(shown, dict) else None
    return token if isinstance(token, str) else None
