# Generated from `aio` by `make docs`; change that instead.
"""One LCM: calls that are repeated where that is safe, and its event stream."""

from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

from lcm.client.calls import Call, Tries, is_outage
from lcm.client.errors import ClientError, Unreachable
from lcm.client.events import LISTENING, Event, EventParser
from lcm.client.sync_transport import Access, Stream, Transport
from lcm.core.blocking_clock import BlockingClock

T = TypeVar("T")

SILENCE_SECONDS: Final = 75.0
"""LCM sends a heartbeat every 30 seconds: a stream that is silent for longer is broken."""
RECONNECT_SECONDS: Final = 1.0


class Link:
    """Sends calls to one LCM, and repeats those that may be repeated."""

    def __init__(
        self, transport: Transport, access: Access, clock: BlockingClock, retry_seconds: float
    ) -> None:
        self._transport = transport
        self._access = access
        self._retry_seconds = retry_seconds
        self.clock = clock

    def send(self, call: Call[T]) -> T:
        """Return what LCM answers. Raises Refused, Unreachable or SignInFailed."""
        headers, content = {**self._access.headers(), **call.headers()}, call.content()
        tries = Tries(call, self.clock.monotonic(), self._retry_seconds)
        while True:
            try:
                return call.read(self._transport.send(call.method, call.target, headers, content))
            except ClientError as error:
                delay = tries.delay_after(error, self.clock.monotonic())
            self.clock.sleep(delay)

    def open_stream(self, call: Call[bytes], last_event_id: str | None) -> Stream:
        """Open the event stream after this event. Raises Refused or Unreachable."""
        headers = {**self._access.headers(), "Accept": "text/event-stream"}
        if last_event_id is not None:
            headers["Last-Event-ID"] = last_event_id
        answer, stream = self._transport.open_stream(call.target, headers)
        if stream is None:
            call.read(answer)
            raise Unreachable("no event stream answers there", was_sent=True)
        return stream

    def close(self) -> None:
        self._transport.close()


class Events:
    """Events as they are published; after a broken connection the missed ones are replayed.

    Use as `with`. An event of type `listening` says that a connection is open: what is read after it
    and what follows it leave no gap.
    """

    def __init__(
        self,
        link: Link,
        *,
        worker_ids: Sequence[str] = (),
        types: Sequence[str] = (),
        last_event_id: str | None = None,
    ) -> None:
        query = {"worker_ids": tuple(worker_ids), "event_types": tuple(types)}
        self._call = Call(path="/api/events/stream", query=query, answer=bytes)
        self._link = link
        self._last_event_id = last_event_id
        self._stream: Stream | None = None
        self._parser = EventParser()
        self._read: list[Event] = []
        self._heard_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def next(self, within_seconds: float) -> Event | None:
        """Return the next event; None if there was none in time. Raises Refused; an outage is waited out."""
        deadline = self._link.clock.monotonic() + within_seconds
        while not self._read:
            now = self._link.clock.monotonic()
            if now >= deadline:
                return None
            self._read_more(deadline - now)
        event = self._read.pop(0)
        self._last_event_id = event.id or self._last_event_id
        return event

    def _read_more(self, within_seconds: float) -> None:
        now = self._link.clock.monotonic()
        if self._stream is None:
            try:
                self._stream = self._link.open_stream(self._call, self._last_event_id)
            except ClientError as error:
                if not is_outage(error):
                    raise
                self._link.clock.sleep(min(RECONNECT_SECONDS, within_seconds))
                return
            self._parser = EventParser()
            self._heard_at = now
            self._read.append(Event(LISTENING, b""))
            return
        piece = self._stream.read(min(within_seconds, SILENCE_SECONDS))
        if piece:
            self._heard_at = self._link.clock.monotonic()
            self._read.extend(self._parser.feed(piece))
        elif piece is not None:
            self._close()
            self._link.clock.sleep(min(RECONNECT_SECONDS, within_seconds))
        elif self._link.clock.monotonic() - self._heard_at >= SILENCE_SECONDS:
            self._close()

    def reconnect(self) -> None:
        """Open the stream anew: `listening` comes again, and then what was missed."""
        self._close()

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
