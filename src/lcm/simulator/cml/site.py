"""One server on the network: its connections, its certificate and its faults."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from lcm.simulator.cml import faults
from lcm.simulator.cml.api.routing import Answer, Query
from lcm.simulator.cml.certificate import self_signed_context, show_new_certificate
from lcm.simulator.cml.lab_faults import ImportTrouble, LabFault
from lcm.simulator.cml.patty import Patty
from lcm.simulator.cml.server import BAD_GATEWAY, CmlServer, error
from lcm.simulator.cml.ui_socket import UiSocket
from lcm.simulator.cml.websocket import Opcode, frame
from lcm.simulator.cml.wire import Connection, Reply

UI_PATH: Final = "/ws/ui"
IMPORT_PATH: Final = "/api/v0/import"
LATE_IMPORT_SECONDS: Final = 20.0
"""Of an import that takes effect late because the seed decides so."""


@dataclass
class _Struck:
    fault: faults.Http | faults.Answered | faults.Late
    left: int | None


class Site:
    """One server and everything between it and its clients: the `RequestHandler` of its connections.

    `settled` is called after anything that may have changed when the server has to do something next.
    """

    def __init__(
        self,
        server: CmlServer,
        *,
        directory: Path | None,
        clock: Callable[[], float],
        settled: Callable[["Site"], None],
    ) -> None:
        self.server = server
        self.due_at: float | None = None
        """When the fleet advances it next."""
        self.is_powered = False
        self.tls = self_signed_context(server.instance.id, directory)
        self.patty = Patty(server.open_ports, lambda: server.labs.tags_revision)
        self.answers_pings = True
        self._directory = directory
        self._clock = clock
        self._settled = settled
        self._connections: set[Connection] = set()
        self._requests: list[_Struck] = []
        self._slow: list[faults.Slow] = []
        self._close: faults.Close | None = None
        self._oversize: faults.Oversize | None = None
        self._greeting: faults.Greeting | None = None
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._is_shut = asyncio.Event()

    # Connections

    def connection(self) -> Connection:
        return Connection(self)

    def opened(self, connection: Connection) -> None:
        self._connections.add(connection)
        self.server.counters["connections"] += 1

    def lost(self, connection: Connection) -> None:
        self._connections.discard(connection)

    def hang_up(self) -> None:
        """Break every connection, as an instance without power does."""
        for connection in tuple(self._connections):
            connection.abort()

    async def until_open(self) -> None:
        """Wait until connections may be accepted."""
        await self._is_open.wait()

    async def until_shut(self) -> None:
        """Wait until they must be refused."""
        await self._is_shut.wait()

    # Requests

    def respond(self, query: Query) -> Reply:
        match self._strike(query):
            case faults.Http() as fault:
                if fault.applied:
                    self._perform(query)
                return Reply(_failure(fault, query.path), self._delay(query))
            case faults.Answered(status=status, body=body):
                return Reply(Answer(status, msgspec.json.encode(body)), self._delay(query))
            case faults.Late(seconds=seconds):
                return self._perform_later(query, seconds)
            case _:
                seconds = self.server.duration(query, self._clock())
                if seconds:
                    return self._perform_later(query, seconds)
                return Reply(self._perform(query), self._delay(query))

    def _perform(self, query: Query) -> Answer:
        answer = self.server.answer(query, self._clock())
        self._settled(self)
        return answer

    def _perform_later(self, query: Query, seconds: float) -> Reply:
        """The effect comes once, from a timer of its own: the connection may be closed by then."""
        perform = cache(lambda: self._perform(query))
        asyncio.get_running_loop().call_later(seconds, perform)
        return Reply(perform, seconds)

    def refuse_upgrade(self, query: Query) -> Reply | None:
        self.server.counters["handshakes"] += 1
        fault = self._strike(query)
        if isinstance(fault, faults.Http):
            return Reply(_failure(fault, query.path), self._delay(query))
        answer = None
        if not self.server.is_serving(self._clock()):
            answer = Answer(502, BAD_GATEWAY, "text/html")
        if answer is None and (query.path != UI_PATH or not self.server.version.has_ui_socket):
            answer = error(404, f"The requested URL {query.path} was not found on the server.")
        return None if answer is None else Reply(answer, self._delay(query))

    def upgrade(self, transport: asyncio.Transport) -> UiSocket:
        return UiSocket(self, transport)

    def _strike(self, query: Query) -> faults.Http | faults.Answered | faults.Late | None:
        for struck in self._requests:
            fault = struck.fault
            if query.path.startswith(fault.path) and fault.method in (None, query.method):
                if struck.left is not None:
                    struck.left -= 1
                    if struck.left <= 0:
                        self._requests.remove(struck)
                return fault
        return self._drawn(query)

    def _drawn(self, query: Query) -> faults.Http | faults.Late | None:
        """What the seed decides of an import; labs themselves refuse other requests."""
        if (query.method, query.path) != ("POST", IMPORT_PATH):
            return None
        match self.server.labs.faults.import_trouble():
            case ImportTrouble.ANSWER_LOST:
                return faults.Http(status=None, applied=True)
            case ImportTrouble.LATE:
                return faults.Late(seconds=LATE_IMPORT_SECONDS)
            case None:
                return None

    def _delay(self, query: Query) -> float:
        return max((slow.seconds for slow in self._slow if query.path.startswith(slow.path)), default=0.0)

    # WebSockets

    @property
    def auth_seconds(self) -> float:
        return self.server.server_options.auth_seconds

    def admit(self, token: str, socket: UiSocket) -> bool:
        now = self._clock()
        if self.server.user_of(token, now) is None:
            self.server.counters["refused_tokens"] += 1
            return False
        self.server.counters["sockets"] += 1
        self.server.subscribe(socket, now)
        self._settled(self)
        if self._greeting is not None:
            socket.send(frame(Opcode.TEXT, msgspec.json.encode(self._greeting.event)))
        if self._oversize is not None:
            socket.send(_oversize(self._oversize.size))
        if self._close is not None:
            socket.close(self._close.code, self._close.reason)
        return True

    def dismiss(self, socket: UiSocket) -> None:
        self.server.subscribers.leave(socket)

    # Faults

    def apply_fault(self, fault: faults.Fault) -> None:
        """Apply a fault, once or from now on, as it says."""
        match fault:
            case faults.FeedFault():
                self._disturb_feed(fault)
            case LabFault():
                self.server.labs.faults.add(fault)
            case faults.Http() | faults.Answered() | faults.Late():
                self._requests.append(_Struck(fault, fault.count))
            case faults.Slow():
                self._slow.append(fault)
            case faults.ExpiredToken():
                self.server.sessions.close_all()
                self.server.sessions.gives_expired_tokens = fault.lasting
            case faults.Certificate():
                show_new_certificate(self.tls, self.server.instance.id, self._directory)
            case faults.Refuse():
                self._is_open.clear()
                self._is_shut.set()
            case faults.NotReady():
                self.server.has_no_compute = True

    def _disturb_feed(self, fault: faults.FeedFault) -> None:
        subscribers = self.server.subscribers
        match fault:
            case faults.Close():
                subscribers.close(fault.code, fault.reason)
                self._close = fault if fault.lasting else self._close
            case faults.Silence():
                subscribers.is_silent = True
                self.answers_pings = fault.answer_pings
            case faults.Garbage():
                subscribers.send_garbage(fault.frames)
                subscribers.is_garbled = subscribers.is_garbled or fault.lasting
            case faults.Oversize():
                subscribers.send(_oversize(fault.size))
                self._oversize = fault if fault.lasting else self._oversize
            case faults.Greeting():
                self._greeting = fault

    def recover(self) -> None:
        """End every fault that lasts."""
        self._requests.clear()
        self.server.labs.faults.clear()
        self._slow.clear()
        self._close = self._oversize = self._greeting = None
        self.answers_pings = True
        self.server.subscribers.is_silent = self.server.subscribers.is_garbled = False
        self.server.sessions.gives_expired_tokens = False
        self.server.has_no_compute = False
        self._is_shut.clear()
        self._is_open.set()


def _failure(fault: faults.Http, path: str) -> Answer | None:
    status = fault.status
    if status is None:
        return None
    if status == 502:
        return Answer(502, BAD_GATEWAY, "text/html")
    if status == 401:
        return error(401, "Authorization token is invalid or has expired.")
    if status == 500:
        return error(500, f"The API at {path} encountered an unexpected error.")
    return error(status, "Fault injected by the simulator.")


def _oversize(size: int) -> bytes:
    head, tail = b'{"event_type":"system_stats","data":"', b'"}'
    return frame(Opcode.TEXT, head + b"x" * (size - len(head) - len(tail)) + tail)
