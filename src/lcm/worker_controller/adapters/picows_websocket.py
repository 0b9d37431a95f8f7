"""CML's WebSocket feed by picows, which costs a tenth of what other clients cost per frame.

It leaves to its user: joining fragments, refusing what is too big even when it was delivered,
copying what is kept (its buffers are reused), and never raising in a callback. Its read buffer grows
with what one read brings and never shrinks, so what the TLS layer takes in one read is kept small.
"""

import asyncio
import hashlib
import logging
import socket
import ssl
from contextlib import suppress
from typing import Any, Final

import structlog
from picows import WSCloseCode, WSError, WSFrame, WSListener, WSMsgType, WSParsedURL, WSTransport, ws_connect

from lcm.cml.connection import CmlLimits
from lcm.cml.proxy import Proxy
from lcm.cml.tls import NamedContext
from lcm.core.network import plainly
from lcm.core.timeouts import timeout
from lcm.domain.errors import CertificateChanged, Unreachable
from lcm.worker_controller.ports import MAX_MESSAGE_BYTES, WebSocket, WebSocketListener

log = structlog.get_logger(__name__)

TLS_RECORD_BYTES: Final = 16 * 1024 + 512
RECEIVE_BUFFER_BYTES: Final = 256 * 1024
"""In the kernel, empty when idle. With a quarter of it a flood costs a third more: reads are smaller."""
READ_BUFFER_BYTES: Final = 8 * 1024
"""Two of CML's usual frames; picows touches all of it at once, and makes it larger when it must."""

_TEXT, _BINARY, _CONTINUATION = WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.CONTINUATION
_PONG, _CLOSE = WSMsgType.PONG, WSMsgType.CLOSE

# One for all connections (picows would make a logger for each), and silent: listeners report the end.
_quiet = logging.LoggerAdapter(logging.Logger("picows", logging.CRITICAL + 1))  # noqa: LOG001


class PicowsWebSockets:
    """One TLS context for all servers: a context each would cost a megabyte."""

    def __init__(
        self,
        context: ssl.SSLContext,
        port: int = 443,
        timeout_seconds: float = CmlLimits.websocket,
        proxy: Proxy | None = None,
    ) -> None:
        self._context = context
        self._port = port
        self._timeout_seconds = timeout_seconds
        self._proxy = proxy

    async def connect(self, host: str, pinned_sha256: str | None, listener: WebSocketListener) -> WebSocket:
        connection = _Connection(listener, pinned_sha256, self._context)
        try:
            async with timeout(self._timeout_seconds):
                await self._shake_hands(host, connection)
        except ssl.SSLCertVerificationError as error:
            raise CertificateChanged(f"{host}: {error.verify_message}") from None
        except (WSError, TimeoutError, OSError) as error:
            raise Unreachable(f"WebSocket of {host}: {plainly(error)}") from None
        if connection.wrong_name is not None:
            raise CertificateChanged(f"{host}: {connection.wrong_name}")
        if connection.shown_sha256 is not None:
            raise CertificateChanged(
                f"{host} presents the certificate {connection.shown_sha256[:16]}…, pinned is"
                f" {str(pinned_sha256)[:16]}…",
                connection.shown_sha256,
            )
        if not connection.was_open:
            raise Unreachable(f"WebSocket of {host}: closed without an answer")
        return connection

    async def _shake_hands(self, host: str, connection: "_Connection") -> None:
        own = _OwnSocket()
        try:
            await ws_connect(
                lambda: connection,
                f"wss://{host}:{self._port}/ws/ui",
                ssl_context=self._context,
                websocket_handshake_timeout=None,
                logger_name=_quiet,
                max_frame_size=MAX_MESSAGE_BYTES,
                max_redirects=0,
                proxy=self._proxy.url if self._proxy and self._proxy.serves(host) else None,
                socket_factory=own.connect,
                read_buffer_init_size=READ_BUFFER_BYTES,
                ssl_incoming_bio_size=2 * TLS_RECORD_BYTES,
                ssl_outgoing_bio_size=TLS_RECORD_BYTES,
            )
        except BaseException:
            own.shut_down()
            raise


class _OwnSocket:
    """The socket of one attempt: when the attempt is cancelled, picows leaves it open."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    async def connect(self, url: WSParsedURL) -> socket.socket:
        """Return a connected socket: one that fails to connect inside picows would stay open."""
        family = socket.AF_INET6 if ":" in url.host else socket.AF_INET
        connected = socket.socket(family, socket.SOCK_STREAM)
        try:
            connected.setblocking(False)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            await asyncio.get_running_loop().sock_connect(connected, (url.host, url.port))
        except BaseException:
            connected.close()
            raise
        self._socket = connected
        return connected

    def shut_down(self) -> None:
        """Shut it down; its reader notices and closes it."""
        if self._socket is not None:
            with suppress(OSError):  # it is closed already
                self._socket.shutdown(socket.SHUT_RDWR)


class _Connection(WSListener):
    """Both sides of one connection: picows' listener and our WebSocket."""

    __slots__ = (
        "_context",
        "_end",
        "_listener",
        "_pieces",
        "_pinned_sha256",
        "_transport",
        "shown_sha256",
        "was_open",
        "wrong_name",
    )

    def __init__(
        self, listener: WebSocketListener, pinned_sha256: str | None, context: ssl.SSLContext
    ) -> None:
        self._context = context
        self._listener: WebSocketListener | None = listener
        self._pinned_sha256 = pinned_sha256
        self._transport: WSTransport | None = None
        self._pieces: bytearray | None = None
        self._end: tuple[int, str] = (1006, "")
        self.shown_sha256: str | None = None
        """The presented certificate, if it is not the pinned one."""
        self.wrong_name: str | None = None
        """Why the name in its certificate is not accepted; picows' TLS does not ask for that."""
        self.was_open = False

    # Our WebSocket.

    def send(self, text: bytes) -> None:
        if self._transport is not None:
            self._transport.send(WSMsgType.TEXT, text)

    def ping(self) -> None:
        if self._transport is not None:
            self._transport.send_ping()

    def close(self) -> None:
        self._listener = None
        if self._transport is not None:
            self._transport.send_close(WSCloseCode.OK)
            self._transport.disconnect(False)
            self._transport = None

    # picows' listener.

    def on_ws_connected(self, transport: WSTransport) -> None:
        if not self._is_trusted(transport.underlying_transport.get_extra_info("ssl_object")):
            self._listener = None
            transport.disconnect(False)
            return
        self._transport = transport
        self.was_open = True

    def _is_trusted(self, tls: ssl.SSLObject) -> bool:
        if self._pinned_sha256 is not None:
            shown = tls.getpeercert(binary_form=True) or b""
            shown_sha256 = hashlib.sha256(shown).hexdigest()
            if shown_sha256 != self._pinned_sha256:
                self.shown_sha256 = shown_sha256
                return False
        if isinstance(self._context, NamedContext):
            try:
                self._context.require_name(tls.getpeercert())
            except ssl.SSLCertVerificationError as error:
                self.wrong_name = error.verify_message
                return False
        return True

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        listener = self._listener
        if listener is None:
            return
        try:
            # Only data frames are longer than 125 bytes; asking picows for the type costs as much as a copy.
            if self._pieces is None and frame.fin and 125 < frame.payload_size <= MAX_MESSAGE_BYTES:
                listener.on_message(frame.get_payload_as_bytes())
            else:
                self._on_rare_frame(listener, frame)
        except Exception:
            log.exception("listener failed")

    def _on_rare_frame(self, listener: WebSocketListener, frame: WSFrame) -> None:
        match frame.msg_type:
            case kind if kind in (_TEXT, _BINARY, _CONTINUATION):
                self._join(listener, frame)
            case kind if kind is _PONG:
                listener.on_pong()
            case kind if kind is _CLOSE:
                self._on_close_frame(frame)

    def _on_close_frame(self, frame: WSFrame) -> None:
        code, transport = frame.get_close_code(), self._transport
        if transport is None or transport.is_close_frame_sent:
            return  # the answer to our own close frame
        self._end = (code.value or 1005, frame.get_close_reason() or "")
        transport.send_close(code)
        transport.disconnect(False)

    def _join(self, listener: WebSocketListener, frame: WSFrame) -> None:
        if frame.msg_type is not _CONTINUATION:
            self._pieces = bytearray()
        pieces = self._pieces
        if pieces is None:
            return  # a continuation without a beginning
        if len(pieces) + frame.payload_size > MAX_MESSAGE_BYTES:
            self._pieces = None
            self._end_with(WSCloseCode.MESSAGE_TOO_BIG, "message too big")
            return
        pieces += frame.get_payload_as_memoryview()
        if frame.fin:
            self._pieces = None
            listener.on_message(bytes(pieces))

    def _end_with(self, code: WSCloseCode, reason: str) -> None:
        self._end = (code.value, reason)
        if self._transport is not None:
            self._transport.send_close(code, reason.encode())
            self._transport.disconnect(False)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        listener, self._listener, self._transport = self._listener, None, None
        if transport.is_close_frame_sent:
            _read_failure(transport)
        if listener is None:
            return
        if self._end == (1006, "") and transport.is_close_frame_sent:
            self._end = (1009, "message too big")  # picows read the length and did not wait for the rest
        try:
            listener.on_closed(*self._end)
        except Exception:
            log.exception("listener failed")


def _read_failure(transport: WSTransport) -> None:
    """Retrieve picows' disconnect exception, which asyncio would log as never retrieved."""
    waiting: Any = transport.wait_disconnected()
    outcome: asyncio.Future[None] = waiting.send(None)
    outcome.add_done_callback(lambda done: done.cancelled() or done.exception())
    waiting.close()
