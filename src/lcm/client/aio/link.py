"""One LCM: calls that are repeated where that is safe, and its event stream."""

from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

from lcm.client.aio_transport import AsyncAccess, AsyncStream, AsyncTransport
from lcm.client.calls import Call, Tries, is_outage
from lcm.client.errors import ClientError, Unreachable
from lcm.client.events import LISTENING, Event, EventParser
from lcm.core.clock import SystemClock

T = TypeVar("T")

SILENCE_SECONDS: Final = 75.0
"""LCM sends a heartbeat every 30 seconds: a stream that is silent for longer is broken."""
RECONNECT_SECONDS: Final = 1.0


class AsyncLink:
    """Sends calls to one LCM, and repeats those that may be repeated."""

    def __init__(
        self, transport: AsyncTransport, access: AsyncAccess, clock: SystemClock, retry_seconds: float
    ) -> None:
        self._transport = transport
        self._access = access
        self._retry_seconds = retry_seconds
        self.clock = clock

    async def send(self, call: Call[T]) -> T:
        """Return what LCM answers. Raises Refused, Unreachable or SignInFailed."""
        headers, content = {**await self._access.headers(), **call.headers()}, call.content()
        tries = Tries(call, self.clock.monotonic(), self._retry_seconds)
        while True:
            try:
                return call.read(await self._transport.send(call.method, call.target, headers, content))
            except ClientError as error:
                delay = tries.delay_after(error, self.clock.monotonic())
            await self.clock.sleep(delay)

    async def open_stream(self, call: Call[bytes], last_event_id: str | None) -> AsyncStream:
        """Open the event stream after this event. Raises Refused or Unreachable."""
        headers = {**await self._access.headers(), "Accept": "text/event-stream"}
        if last_event_id is not None:
            headers["Last-Event-ID"] = last_event_id
        answer, stream = await self._transport.open_stream(call.target, headers)
        if stream is None:
            call.read(answer)
            raise Unreachable("no event stream answers there", was_sent=True)
        return stream

    async def close(self) -> None:
        await self._transport.close()


class AsyncEvents:
    """Events as they are published; after a broken connection the missed ones are replayed.

    Use as `async with`. An event of type `listening` says that a connection is open: what is read after it
    and what follows it leave no gap.
    """

    def __init__(
        self,
        link: AsyncLink,
        *,
        worker_ids: Sequence[str] = (),
        types: Sequence[str] = (),
        last_event_id: str | None = None,
    ) -> None:
        query = {"worker_ids": tuple(worker_ids), "event_types": tuple(types)}
        self._call = Call(path="/api/events/stream", query=query, answer=bytes)
        self._link = link
        self._last_event_id = last_event_id
        self._stream: AsyncStream | None = None
        self._parser = EventParser()
        self._read: list[Event] = []
        self._heard_at = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def next(self, within_seconds: float) -> Event | None:
        """Return the next event; None if there was none in time. Raises Refused; an outage is waited out."""
        deadline = self._link.clock.monotonic() + within_seconds
        while not self._read:
            now = self._link.clock.monotonic()
            if now >= deadline:
                return None
            await self._read_more(deadline - now)
        event = self._read.pop(0)
        self._last_event_id = event.id or self._last_event_id
        return event

    async def _read_more(self, within_seconds: float) -> None:
        now = self._link.clock.monotonic()
        if self._stream is None:
            try:
                self._stream = await self._link.open_stream(self._call, self._last_event_id)
            except ClientError as error:
                if not is_outage(error):
                    raise
                await self._link.clock.sleep(min(RECONNECT_SECONDS, within_seconds))
                return
            self._parser = EventParser()
            self._heard_at = now
            self._read.append(Event(LISTENING, b""))
            return
        piece = await self._stream.read(min(within_seconds, SILENCE_SECONDS))
        if piece:
            self._heard_at = self._link.clock.monotonic()
            self._read.extend(self._parser.feed(piece))
        elif piece is not None:
            await self._close()
            await self._link.clock.sleep(min(RECONNECT_SECONDS, within_seconds))
        elif self._link.clock.monotonic() - self._heard_at >= SILENCE_SECONDS:
            await self._close()

    async def reconnect(self) -> None:
        """Open the stream anew: `listening` comes again, and then what was missed."""
        await self._close()

    async def _close(self) -> None:
        if self._stream is not None:
            await self._stream.close()
            self._stream = None
