"""One connection to `/ws/ui`: a token first, then events, until either side closes."""

import asyncio
from typing import Final, Protocol

from lcm.simulator.cml.faults import Close
from lcm.simulator.cml.ui import UNAUTHORIZED, token_in
from lcm.simulator.cml.websocket import FrameReader, Message, Opcode, ProtocolViolation, close_frame, frame

CLOSE_SECONDS: Final = 2.0
"""How long the client has to answer a close."""
MAX_UNREAD: Final = 64 * 1024 * 1024
"""A client with more unread bytes than this is disconnected."""
NO_CODE: Final = 1005
"""RFC 6455's name for a close frame without a code."""


class UiHost(Protocol):
    """The server behind the socket."""

    answers_pings: bool

    @property
    def auth_seconds(self) -> float:
        """How long a connection may stay open without sending a token."""

    def admit(self, token: str, socket: "UiSocket") -> bool:
        """Whether the token is valid; then the socket gets events from now on."""

    def dismiss(self, socket: "UiSocket") -> None:
        """Stop sending events to the socket."""


class UiSocket:
    """A `Stream` of a connection and a `Subscriber` of a server."""

    def __init__(self, host: UiHost, transport: asyncio.Transport) -> None:
        self._host = host
        self._transport = transport
        self._reader = FrameReader()
        self._is_admitted = False
        self._is_closing = False
        self._timer = asyncio.get_running_loop().call_later(host.auth_seconds, self.close, *UNAUTHORIZED)

    # From the client

    def feed(self, data: bytes) -> None:
        try:
            for message in self._reader.feed(data):
                self._take(message)
        except ProtocolViolation as violation:
            self.close(violation.code, "")

    def lost(self) -> None:
        self._timer.cancel()
        self._host.dismiss(self)

    def _take(self, message: Message) -> None:
        match message.opcode:
            case Opcode.PING:
                if self._host.answers_pings:
                    self.send(frame(Opcode.PONG, message.payload))
            case Opcode.CLOSE:
                if not self._is_closing:
                    self._transport.write(frame(Opcode.CLOSE, message.payload[:2]))
                self._transport.close()
            case Opcode.TEXT | Opcode.BINARY if not self._is_admitted and not self._is_closing:
                self._authenticate(message.payload)
            case _:
                pass  # a pong, or a lab_filter: what that changes on real servers is not known

    def _authenticate(self, payload: bytes) -> None:
        token = token_in(payload)
        if token is None or not self._host.admit(token, self):
            self.close(*UNAUTHORIZED)
            return
        self._is_admitted = True
        if not self._is_closing:
            self._timer.cancel()

    # To the client

    def send(self, data: bytes) -> None:
        if self._is_closing:
            return
        if self._transport.get_write_buffer_size() > MAX_UNREAD:
            self._transport.abort()
        else:
            self._transport.write(data)

    def close(self, code: int, reason: str) -> None:
        """Send a close frame and wait briefly for the answer; 1006 cuts the connection without one."""
        if code == Close.ABNORMAL:
            self._transport.abort()
        elif not self._is_closing:
            self._transport.write(frame(Opcode.CLOSE, b"") if code == NO_CODE else close_frame(code, reason))
            self._is_closing = True
            self._host.dismiss(self)
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(CLOSE_SECONDS, self._transport.abort)
