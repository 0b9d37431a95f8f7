"""HTTP/1.1 on a connection, and WebSocket once a client asks for it: bytes to requests and back.

A connection is a protocol with callbacks and has no task: a thousand quiet ones cost memory only.
The `RequestHandler` decides what to answer.
"""

import asyncio
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import httptools

from lcm.simulator.cml.api.routing import Answer, Query
from lcm.simulator.cml.websocket import accept_key

SMALL_BODY: Final = 100_000
LARGE_BODY: Final = 20_000_000
"""What nginx lets through for imports and for nodes with their configurations."""

TOO_LARGE: Final = Answer(
    413, b"<html>\r\n<head><title>413 Request Entity Too Large</title></head>\r\n</html>\r\n", "text/html"
)


class Reply(NamedTuple):
    """An answer, and its delay."""

    answer: Answer | Callable[[], Answer] | None
    """Called when the delay has passed; None: the connection is cut."""
    after_seconds: float = 0.0


class Stream(Protocol):
    """What takes the bytes of a connection after it was upgraded."""

    def feed(self, data: bytes) -> None: ...

    def lost(self) -> None: ...


class RequestHandler(Protocol):
    """Answers the requests of a connection."""

    def opened(self, connection: "Connection") -> None: ...

    def lost(self, connection: "Connection") -> None: ...

    def respond(self, query: Query) -> Reply: ...

    def refuse_upgrade(self, query: Query) -> Reply | None:
        """The reply that refuses a WebSocket; None if it is accepted."""

    def upgrade(self, transport: asyncio.Transport) -> Stream:
        """Switch to WebSocket: the handshake is done."""


class Connection(asyncio.Protocol):
    """One client, one request after the other."""

    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._stream: Stream | None = None
        self._waiting: asyncio.TimerHandle | None = None
        self._early = b""
        self._clear()

    def _clear(self) -> None:
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._body = bytearray()

    # From the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's TLS transport only behaves as one
        self._handler.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        if self._stream is not None:
            self._stream.lost()
        self._transport = None
        self._handler.lost(self)

    def data_received(self, data: bytes) -> None:
        if self._stream is not None:
            self._stream.feed(data)
            return
        if self._waiting is not None:
            self._early += data  # handled after the answer; reading continues, to notice a client that left
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # From the parser

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        if self._headers.get(b"expect", b"").lower() == b"100-continue" and self._transport is not None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        if len(self._body) <= LARGE_BODY:
            self._body += body

    def on_message_complete(self) -> None:
        if self._parser.should_upgrade():
            return
        query = self._query()
        keep_alive = self._parser.should_keep_alive()
        is_large = query.path.endswith("/import") or "/nodes" in query.path
        if len(self._body) > (LARGE_BODY if is_large else SMALL_BODY):
            self._send(TOO_LARGE, keep_alive=False)
        else:
            self._reply(self._handler.respond(query), keep_alive=keep_alive)
        self._clear()

    # To the client

    def _query(self) -> Query:
        split = urlsplit(self._url.decode("latin-1"))
        return Query(
            method=self._parser.get_method().decode(),
            path=unquote(split.path),
            parameters=dict(parse_qsl(split.query, keep_blank_values=True)),
            authorization=self._headers.get(b"authorization", b"").decode("latin-1"),
            body=bytes(self._body),
        )

    def _reply(self, reply: Reply, *, keep_alive: bool) -> None:
        if reply.after_seconds <= 0:
            self._finish(reply, keep_alive=keep_alive)
            return
        self._waiting = asyncio.get_running_loop().call_later(
            reply.after_seconds, self._finish_late, reply, keep_alive
        )

    def _finish_late(self, reply: Reply, keep_alive: bool) -> None:
        self._waiting = None
        self._finish(reply, keep_alive=keep_alive)
        early, self._early = self._early, b""
        if early:
            self.data_received(early)

    def _finish(self, reply: Reply, *, keep_alive: bool) -> None:
        answer = reply.answer() if callable(reply.answer) else reply.answer
        if answer is None:
            self.abort()
        else:
            self._send(answer, keep_alive=keep_alive)

    def _send(self, answer: Answer, *, keep_alive: bool) -> None:
        if self._transport is None:
            return
        phrase = HTTPStatus(answer.status).phrase if answer.status in _KNOWN else "Unknown"
        head = f"HTTP/1.1 {answer.status} {phrase}\r\nServer: nginx\r\nDate: {formatdate(usegmt=True)}\r\n"
        if answer.status != HTTPStatus.NO_CONTENT:
            head += f"Content-Type: {answer.content_type}\r\nContent-Length: {len(answer.body)}\r\n"
        if not keep_alive:
            head += "Connection: close\r\n"
        self._transport.write(head.encode("latin-1") + b"\r\n" + answer.body)
        if not keep_alive:
            self._transport.close()

    def _upgrade(self, rest: bytes) -> None:
        """Upgrade to WebSocket, if the request is valid and the handler accepts it."""
        query, key = self._query(), self._headers.get(b"sec-websocket-key")
        if self._headers.get(b"upgrade", b"").lower() != b"websocket" or key is None:
            self._reply(self._handler.respond(query), keep_alive=False)  # nginx knows no other upgrade
            return
        refusal = self._handler.refuse_upgrade(query)
        if refusal is not None:
            self._reply(refusal, keep_alive=False)
            return
        assert self._transport is not None
        accept = accept_key(key.decode("latin-1"))
        self._transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nServer: nginx\r\nUpgrade: websocket\r\n"
            b"Connection: upgrade\r\nSec-WebSocket-Accept: " + accept.encode() + b"\r\n\r\n"
        )
        self._stream = self._handler.upgrade(self._transport)
        self._clear()
        if rest:
            self._stream.feed(rest)


_KNOWN: Final = frozenset(int(status) for status in HTTPStatus)
