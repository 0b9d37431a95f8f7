"""An HTTP server as a hosted service: its port is known before it runs, and it stops politely."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from lcm.core.hosted_service import HostedService

DRAIN_SECONDS = 2
"""How long open requests get to finish when the server stops."""


BACKLOG = 2048
"""Connections that may wait to be accepted."""


class _Server(uvicorn.Server):
    """Signals belong to the process, not to one of its servers."""

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
    ) -> None:
        self.name = name
        self._before_stop = before_stop
        self._socket = listen(host, port, send_buffer_bytes)
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        self._server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=DRAIN_SECONDS,
                h11_max_incomplete_event_size=64 * 1024,
            )
        )

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def run(self) -> None:
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
