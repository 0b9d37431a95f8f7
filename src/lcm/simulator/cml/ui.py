"""`/ws/ui` of one server: who listens, and what they get to see.

An event is encoded once, however many listen, and not at all when nobody does.
"""

from collections.abc import Iterator
from typing import Any, Final, Protocol

import msgspec

from lcm.simulator.cml.websocket import Opcode, frame

AUTH_SECONDS: Final = 10.0
"""How long a connection may stay without showing a token."""
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
"""One of each kind of nonsense that has been seen to break clients."""


class Listener(Protocol):
    """A connection that has shown a token."""

    def send(self, data: bytes, /) -> None: ...

    def close(self, code: int, reason: str, /) -> None: ...


class Audience:
    """Everyone who listens to one server."""

    def __init__(self) -> None:
        self._listeners: dict[Listener, None] = {}
        self._round = 0
        self.frames = 0
        """How many were shown, each counted once per listener."""
        self.is_silent = False
        """A fault: connections stay open and nothing comes."""
        self.is_garbled = False
        """A fault: nonsense comes in the place of every event."""

    def __len__(self) -> int:
        return len(self._listeners)

    def __iter__(self) -> Iterator[Listener]:
        return iter(tuple(self._listeners))

    def join(self, listener: Listener) -> None:
        self._listeners[listener] = None

    def leave(self, listener: Listener) -> None:
        self._listeners.pop(listener, None)

    def show(self, event: dict[str, Any]) -> None:
        """Send an event to everyone."""
        if self._listeners and not self.is_silent:
            garbled = self._next_garbage() if self.is_garbled else None
            self.send(garbled or frame(Opcode.TEXT, msgspec.json.encode(event)))

    def send(self, data: bytes, *, frames: int = 1) -> None:
        """Send bytes that are frames already, whatever they are and whatever fault is in force."""
        for listener in self:
            listener.send(data)
        self.frames += frames * len(self._listeners)

    def send_garbage(self, count: int) -> None:
        for _ in range(count):
            self.send(self._next_garbage())

    def close(self, code: int, reason: str) -> None:
        """Close every connection."""
        for listener in self:
            listener.close(code, reason)

    def _next_garbage(self) -> bytes:
        self._round += 1
        return GARBAGE[self._round % len(GARBAGE)]


def token_in(payload: bytes) -> str | None:
    """What a first frame shows: `{"token": …}` with any other keys; None if it is something else."""
    try:
        shown = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    token = shown.get("token") if isinstance(shown, dict) else None
    return token if isinstance(token, str) else None
