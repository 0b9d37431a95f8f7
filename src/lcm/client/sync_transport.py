"""HTTP for the synchronous client, by the standard library alone: a command must not wait for imports."""

import select
import socket
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final, Protocol

from lcm.client.calls import Answer
from lcm.client.contexts import Context, address_of, config_path, trust_in
from lcm.client.errors import Unreachable
from lcm.core.blocking_clock import BlockingClock
from lcm.core.network import plainly

PIECE_BYTES = 64 * 1024
RENEWED_BEFORE: Final = timedelta(seconds=30)
"""The end of a token of an identity provider."""


class Clock(Protocol):
    """A clock for code without an event loop."""

    def now(self) -> datetime: ...
    def monotonic(self) -> float: ...
    def sleep(self, seconds: float) -> None: ...


def is_due(context: Context, clock: Clock) -> bool:
    """Return whether a new token of the identity provider has to be asked for."""
    return context.renewal is not None and clock.now() >= context.renewal.expires_at - RENEWED_BEFORE


class Access:
    """The access token of a context: always a valid one, where the identity provider gives new ones."""

    def __init__(self, context: Context, clock: Clock | None = None) -> None:
        self._context = context
        self._clock = clock or BlockingClock()

    @property
    def is_due(self) -> bool:
        """Whether the token ends so soon that the next question for it asks for a new one."""
        return is_due(self._context, self._clock)

    def headers(self) -> dict[str, str]:
        """Raises SignInFailed, and Unreachable if there is no valid token without the identity provider."""
        if self.is_due:
            self._renew()
        token = self._context.token
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _renew(self) -> None:
        from lcm.client.oauth import over_http, renewed

        renewal = self._context.renewal
        assert renewal is not None
        try:
            self._context = renewed(self._context, config_path(), over_http, self._clock)
        except Unreachable:
            if self._clock.now() >= renewal.expires_at:
                raise


class Stream:
    """The body of an answer, as it comes: read by a thread, so that a wait for it can end."""

    def __init__(self, connection: HTTPConnection, its_socket: socket.socket, response: HTTPResponse) -> None:
        self._connection = connection
        self._socket = its_socket
        self._response = response
        self._pieces: SimpleQueue[bytes] = SimpleQueue()
        Thread(target=self._read_all, name="lcm-events", daemon=True).start()

    def read(self, within_seconds: float) -> bytes | None:
        """Return the next piece, empty at the end; None if none came in time."""
        try:
            return self._pieces.get(timeout=max(within_seconds, 0.0))
        except Empty:
            return None

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # this also ends the read of the thread
        self._connection.close()

    def _read_all(self) -> None:
        try:
            while piece := self._response.read1(PIECE_BYTES):
                self._pieces.put(piece)
        except (OSError, HTTPException, ValueError, AttributeError):
            pass  # the connection was closed, here or there
        finally:
            self._pieces.put(b"")


class Transport:
    """One connection to one address, kept between requests. Not for several threads."""

    def __init__(self, url: str, ca_file: str | None, timeout_seconds: float) -> None:
        self._url = url.rstrip("/")
        self._parts = address_of(self._url)
        self._timeout_seconds = timeout_seconds
        self._ca_file = ca_file
        self._connection: HTTPConnection | None = None

    def send(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        """Raises Unreachable."""
        is_kept = self._connection is not None
        try:
            return self._send(method, target, headers, body)
        except Unreachable as error:
            if not (is_kept and method == "GET"):
                raise
            del error  # the server has closed the connection meanwhile, as it may
            return self._send(method, target, headers, body)

    def open_stream(self, target: str, headers: Mapping[str, str]) -> tuple[Answer, Stream | None]:
        """Return the stream, or the answer that refuses it. Raises Unreachable."""
        connection = self._connected()
        try:
            connection.request("GET", self._parts.path + target, headers=dict(headers))
            its_socket: socket.socket = connection.sock
            response = connection.getresponse()
            if response.status != 200:
                answer = Answer(response.status, {}, response.read())
                connection.close()
                return answer, None
            its_socket.settimeout(None)
        except (OSError, HTTPException) as error:
            connection.close()
            raise self._unreachable(error, was_sent=True) from None
        return Answer(200, {}, b""), Stream(connection, its_socket, response)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _send(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        if self._connection is None or _is_closed(self._connection):
            self.close()
            self._connection = self._connected()
        try:
            self._connection.request(method, self._parts.path + target, body=body, headers=dict(headers))
            response = self._connection.getresponse()
            answered = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, answered, response.read())
        except (OSError, HTTPException) as error:
            self.close()
            raise self._unreachable(error, was_sent=True) from None

    def _connected(self) -> HTTPConnection:
        """Connect before anything is sent, so that it is known whether something was."""
        host = self._parts.hostname or ""
        if self._parts.scheme == "https":
            connection: HTTPConnection = HTTPSConnection(
                host, self._parts.port, timeout=self._timeout_seconds, context=trust_in(self._ca_file)
            )
        else:
            connection = HTTPConnection(host, self._parts.port, timeout=self._timeout_seconds)
        try:
            connection.connect()
        except OSError as error:
            raise self._unreachable(error, was_sent=False) from None
        return connection

    def _unreachable(self, error: Exception, *, was_sent: bool) -> Unreachable:
        return Unreachable(f"no answer from {self._url}: {plainly(error)}", was_sent=was_sent)


def _is_closed(connection: HTTPConnection) -> bool:
    """Whether the server has closed a kept connection, as it may: not everything can be sent again."""
    if connection.sock is None:
        return True
    waiting = select.poll()
    waiting.register(connection.sock, select.POLLIN)
    return bool(waiting.poll(0))
