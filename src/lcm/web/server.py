"""An HTTP server as a hosted service: its port is known before it runs, and it stops politely."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import structlog
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from lcm.core.hosted_service import HostedService
from lcm.core.telemetry import Telemetry
from lcm.core.tls import TlsFiles, is_loopback
from lcm.web.connections import DEFAULT_LIMITS, ConnectionLimits, Connections, raise_descriptor_limit

log = structlog.get_logger(__name__)

DRAIN_SECONDS = 2
"""How long open requests get to finish when the server stops."""

HEADER_SECONDS = 10.0
"""How long a client may take to send its request headers, from the connection or its first byte on.

A TLS handshake may take as long; connections are counted when it is done.
"""

SEGMENT_BYTES = 1448
"""As on Ethernet. On loopback a segment has 64 kB, and a reader confirms every second one at once, but a
single one 40 ms later: a small send buffer, which holds one of them, would stall each long answer."""

WRITE_SECONDS = 60.0
"""How long a client may leave an answer unread once the buffers are full."""

MAX_HEADER_BYTES = 64 * 1024

BACKLOG = 2048
"""Connections that may wait to be accepted."""


class _Config(uvicorn.Config):
    """Uvicorn's, how long the head of a request and an unread answer may take, and the open connections."""

    header_seconds = HEADER_SECONDS
    write_seconds = WRITE_SECONDS
    connections: Connections


class _Protocol(HttpToolsProtocol):
    """Uvicorn's, which waits for ever for the head of a request and for the reader of an answer.

    It also takes any amount of a head, and any number of connections.

    The rest of a body whose request was answered already has the same time to arrive.
    """

    _deadline: asyncio.TimerHandle | None = None
    _write_deadline: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _is_in_body = False
    _counted_as: str | None = None
    _client_certificate: str | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        assert isinstance(self.config, _Config)
        address = str((transport.get_extra_info("peername") or ("",))[0])
        if not self.config.connections.open(address):
            transport.abort()
            return
        self._counted_as = address
        self._client_certificate = _subject_of(transport.get_extra_info("peercert"))
        self._set_deadline()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._client_certificate is not None:
            self.scope["extensions"] = {"tls": {"client_cert_name": self._client_certificate}}

    def pause_writing(self) -> None:
        super().pause_writing()
        assert isinstance(self.config, _Config)
        self._write_deadline = self.loop.call_later(self.config.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._drop_write_deadline()

    def data_received(self, data: bytes) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        if self._deadline is None and (cycle is None or cycle.response_complete):
            self._set_deadline()
        if not self._is_in_body:
            self._head_bytes += len(data)
        super().data_received(data)
        if not self._is_in_body and self._head_bytes > MAX_HEADER_BYTES:
            self._give_up()

    def on_headers_complete(self) -> None:
        self._is_in_body = True
        self._drop_deadline()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_in_body = False
        self._head_bytes = 0
        if self._deadline is not None:
            self._set_deadline()
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._drop_deadline()
        self._drop_write_deadline()
        if self._counted_as is not None:
            assert isinstance(self.config, _Config)
            self.config.connections.close(self._counted_as)
        super().connection_lost(exc)

    def _set_deadline(self) -> None:
        self._drop_deadline()
        assert isinstance(self.config, _Config)
        self._deadline = self.loop.call_later(self.config.header_seconds, self._give_up)

    def _drop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _drop_write_deadline(self) -> None:
        if self._write_deadline is not None:
            self._write_deadline.cancel()
            self._write_deadline = None

    def _give_up(self) -> None:
        self._drop_deadline()
        self.transport.close()


def _subject_of(certificate: Mapping[str, Any] | None) -> str | None:
    """The subject of a verified client certificate; None if the client showed none."""
    if not certificate:
        return None
    parts = (part for parts in certificate.get("subject", ()) for part in parts)
    return ",".join(f"{name}={value}" for name, value in parts)


class _Server(uvicorn.Server):
    """Signals belong to the process, not to one of its servers; a TLS handshake has a limit of our own."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        config, loop = self.config, asyncio.get_running_loop()
        assert isinstance(config, _Config)

        def connected() -> _Protocol:
            return _Protocol(config, self.server_state, self.lifespan.state, loop)

        self.servers = [
            await loop.create_server(
                connected,
                sock=listener,
                ssl=config.ssl,
                ssl_handshake_timeout=config.header_seconds if config.ssl else None,
                backlog=config.backlog,
            )
            for listener in sockets or ()
        ]
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer(HostedService):
    """Serves one application on one address. Port 0 takes any free port; `port` says which."""

    def __init__(
        self,
        name: str,
        app: ASGIApp,
        host: str,
        port: int,
        before_stop: Callable[[], None] | None = None,
        send_buffer_bytes: int | None = None,
        header_seconds: float = HEADER_SECONDS,
        trusted_proxies: Sequence[str] = (),
        limits: ConnectionLimits = DEFAULT_LIMITS,
        tls: TlsFiles | None = None,
    ) -> None:
        """`trusted_proxies` may say for whom they ask; of all others the headers of a proxy are ignored.

        Serves TLS if there is a certificate. Raises ConfigurationError if it cannot be used.
        """
        self.name = name
        self._before_stop = before_stop
        context = tls.server_context() if tls is not None else None
        self._scheme = "http" if context is None else "https"
        self._context = context
        self._socket = listen(host, port, send_buffer_bytes)
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        config = _Config(
            app,
            http=_Protocol,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=bool(trusted_proxies),
            forwarded_allow_ips=list(trusted_proxies),
            timeout_keep_alive=30,
            timeout_graceful_shutdown=DRAIN_SECONDS,
            ssl_context_factory=(lambda *_: context) if context is not None else None,
        )
        config.header_seconds = header_seconds
        self.connections = Connections(limits.within(raise_descriptor_limit()), trusted_proxies)
        config.connections = self.connections
        self._server = _Server(config)

    @property
    def url(self) -> str:
        return f"{self._scheme}://{self.host}:{self.port}"

    def register_metrics(self, telemetry: Telemetry) -> None:
        """Register when the certificate ends that the next handshake shows."""
        context = self._context
        if context is not None:
            telemetry.gauge(
                "lcm_tls_certificate_expiry_timestamp_seconds",
                "When the certificate ends that this process serves, in seconds since 1970.",
                lambda: [(context.in_use.get().expires_at.timestamp(), {})],
            )

    async def run(self) -> None:
        if self._scheme == "http" and not is_loopback(self.host):
            log.warning(
                "address served without TLS",
                service=self.name,
                host=self.host,
                port=self.port,
                consequence="tokens, keys and passwords of workers can be read on the network",
                remedy="set LCM_TLS_CERT_FILE and LCM_TLS_KEY_FILE, or listen on 127.0.0.1 behind a proxy",
            )
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(self._server.serve(sockets=[self._socket]), name=self.name)
            try:
                await asyncio.shield(serving)
            except asyncio.CancelledError:
                if self._before_stop is not None:
                    self._before_stop()
                self._server.should_exit = True
                await serving
                raise


class AddressInUse(Exception):
    """Something else listens there already."""


def listen(host: str, port: int, send_buffer_bytes: int | None = None) -> socket.socket:
    """A socket that callers may already knock at, or a clear word about why it cannot be had.

    Its connections inherit the send buffer; left alone, the kernel keeps up to 4 MB for a reader that stalls.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    if send_buffer_bytes is not None:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise AddressInUse(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another port"
        ) from error
    return listener
