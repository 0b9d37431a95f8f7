"""CML's live feeds and system API in memory, behind the worker controller's ports.

What a server answers and pushes is what `lcm.simulator.cml` says. This module adds connections without a
network, and their faults.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from lcm.cml.connection import JSON, CmlAnswer, OnPiece
from lcm.core.clock import Clock
from lcm.domain.errors import CertificateChanged, LcmError, RegionNotConfigured, Unreachable
from lcm.domain.launch import InstanceId
from lcm.simulator.cml.accounts import ADMIN_ID
from lcm.simulator.cml.hardware import Hardware, Load, system_stats
from lcm.simulator.cml.licensing import LicensePool
from lcm.simulator.cml.load import Demand
from lcm.simulator.cml.server import Answer, CmlServer, Credentials, Query, ServerOptions, error
from lcm.simulator.cml.sessions import LIFETIME_SECONDS
from lcm.simulator.cml.ui import UNAUTHORIZED, token_in
from lcm.simulator.cml.websocket import Opcode, frame
from lcm.simulator.listing import ListedInstance
from lcm.simulator.pace import Delays, Pace
from lcm.worker_controller.ports import MAX_MESSAGE_BYTES, InstanceMetrics, WebSocket, WebSocketListener

PATIENCE_SECONDS = 5.0
"""How long clients wait for an answer."""
AT_REST_PERCENT = 7.25
"""The load of an idle instance."""
AT_ONCE = Pace(seed=0, speed=float("inf"), spread=0.0)
WITHOUT_BOOT = Delays(cml_boot_seconds=0.0, cml_gateway_seconds=0.0, cml_loading_seconds=0.0)
"""Whether a server is up is said by its owner."""
INSTANCE = ListedInstance(
    id="i-1",
    region="eu-west-1",
    state="running",
    private_ip="10.0.0.1",
    public_ip=None,
    image_name="CML-2.9.1-1",
    image_id="ami-1",
    instance_type="m5zn.metal",
    tags={},
    running_since=0.0,
    generation=1,
)

Carry = Callable[[Callable[[], None]], None]
"""Brings something to a client: at once, later or never."""


class SteadyLoad(Load):
    """A load that a test sets."""

    def __init__(self, percent: float = AT_REST_PERCENT) -> None:
        super().__init__("steady")
        self.percent = percent

    def cpu_percent(self, seconds_up: float) -> float:
        return self.percent

    def memory_share(self, seconds_up: float) -> float:
        return 0.25

    disk_share = memory_share


def stats_of(cpu_percent: float = AT_REST_PERCENT) -> dict[str, Any]:
    """What GET system_stats answers at this load."""
    demand = Demand(total_nodes=6, running_nodes=4)
    return system_stats(Hardware(16, 64, 64, "a CPU"), SteadyLoad(cpu_percent), 0.0, demand)


def at_once(hear: Callable[[], None]) -> None:
    hear()


class MemorySocket:
    """One connection, seen from both sides."""

    def __init__(
        self, server: "MemoryLiveServer", listener: WebSocketListener, carry: Carry = at_once
    ) -> None:
        self._server = server
        self._listener: WebSocketListener | None = listener
        self._carry = carry
        self._feed = _Feed(self, server)
        self.opened_at = server.clock.monotonic()
        self.is_authorized = False
        self.is_silent = False
        """It missed an event: no later one may arrive on it."""

    @property
    def is_open(self) -> bool:
        return self._listener is not None

    # The client's side.

    def send(self, text: bytes) -> None:
        if self.is_open and self in self._server.sockets:
            self._server.hear(self, text)

    def ping(self) -> None:
        if not self._server.is_frozen:
            self._carry(self._hear_pong)

    def close(self) -> None:
        self._listener = None
        self._leave()

    # The server's side.

    def admit(self) -> None:
        """Let it get events from now on."""
        self.is_authorized = True
        self._server.cml.subscribe(self._feed, self._server.unix_time)

    def push(self, payload: bytes) -> None:
        if len(payload) > MAX_MESSAGE_BYTES:
            self.end(1009, "message too big")
        elif not self.is_silent:
            self._carry(lambda: self._hear(payload))

    def end(self, code: int, reason: str = "") -> None:
        self._leave()
        self._carry(lambda: self._hear_end(code, reason))

    def _leave(self) -> None:
        self._server.sockets.pop(self, None)
        self._server.cml.subscribers.leave(self._feed)

    # What arrives, unless the client has closed.

    def _hear(self, payload: bytes) -> None:
        if self._listener is not None:
            self._listener.on_message(payload)

    def _hear_pong(self) -> None:
        if self._listener is not None:
            self._listener.on_pong()

    def _hear_end(self, code: int, reason: str) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.on_closed(code, reason)


class _Feed:
    """A socket as a subscriber of `/ws/ui`."""

    def __init__(self, socket: MemorySocket, server: "MemoryLiveServer") -> None:
        self._socket = socket
        self._server = server

    def send(self, data: bytes) -> None:
        if self._server.is_mute or self._server.is_frozen:
            self._socket.is_silent = True
        else:
            self._socket.push(data[{126: 4, 127: 10}.get(data[1], 2) :])

    def close(self, code: int, reason: str) -> None:
        self._socket.end(code, reason)


class MemoryLiveServer:
    """One CML server. Public fields are its faults; `logins`, `requests` and `sockets` its call log."""

    def __init__(
        self,
        clock: Clock,
        certificate: str = "a" * 64,
        load: SteadyLoad | None = None,
        *,
        instance: ListedInstance = INSTANCE,
        pace: Pace = AT_ONCE,
    ) -> None:
        self.clock = clock
        self._right_certificate = certificate
        self._right_password = "secret"
        self.load = load or SteadyLoad()
        self.clock_error = timedelta()
        """How wrong its wall clock is."""
        self.cml = CmlServer(
            instance,
            credentials=Credentials("admin", "secret"),
            pace=pace,
            delays=WITHOUT_BOOT,
            secret=certificate.encode(),
            pool=LicensePool("token", size=1),
            server_options=ServerOptions(people=False),
            load=self.load,
        )
        self.cml.power_on(instance)
        self.cml.licensing.register("token", reregister=False, now=0.0)
        self.sockets: dict[MemorySocket, None] = {}
        """In the order they were opened."""
        self.logins: list[float] = []
        self.requests: list[tuple[float, str]] = []
        self.connects: list[float] = []
        self.recover()

    def renew_certificate(self, sha256: str) -> None:
        """Present another certificate for good, as after a renewal."""
        self._right_certificate = self.certificate_sha256 = sha256

    def recover(self) -> None:
        """Clear every fault."""
        self.certificate_sha256 = self._right_certificate
        self.password = self._right_password
        self.cml.sessions.lifetime_seconds = LIFETIME_SECONDS
        self.refuses_connections = False
        self.refuses_sockets = False
        """REST works, the live feed does not."""
        self.is_mute = False
        """Sockets stay open and pings are answered, but no event comes."""
        self.refuses_tokens = False
        """The live feed does; REST does not."""
        self.is_frozen = False
        """Nothing is answered and nothing is pushed, and no connection is closed."""
        self.closes_with: tuple[int, str] | None = None
        """Every socket is closed like this right after its first frame."""
        self.failing: dict[str, int] = {}
        """Paths that answer with an error status."""
        self.answers_after = 0.0
        """Seconds; beyond what clients wait, it is no answer at all."""

    @property
    def password(self) -> str:
        """Of the administrator; set another one and LCM's is refused."""
        return self.cml.accounts.users[ADMIN_ID].password

    @password.setter
    def password(self, password: str) -> None:
        self.cml.accounts.users[ADMIN_ID].password = password

    # What people and faults do.

    def change_password(self, password: str, username: str = "admin") -> None:
        """Change the password, and the name that goes with it, as a person, which ends every session."""
        self.cml.accounts.users[ADMIN_ID].username = username
        self.password = self._right_password = password
        self.expire_tokens()
        self.drop(*UNAUTHORIZED)

    def push(self, event: Mapping[str, Any]) -> None:
        """Push an event to every open socket."""
        self.cml.subscribers.show(dict(event))

    def push_bytes(self, payload: bytes) -> None:
        self.cml.subscribers.send(frame(Opcode.TEXT, payload))

    def push_stats(self) -> None:
        """Push events whose loss is not checked."""
        if self.cml.subscribers and not (self.is_mute or self.is_frozen):
            self.cml.show_stats(self.unix_time)

    def drop(self, code: int = 1006, reason: str = "") -> None:
        """End every connection."""
        for socket in list(self.sockets):
            socket.end(code, reason)

    def expire_tokens(self) -> None:
        self.cml.sessions.close_all()

    def note(self, category: str, at: datetime, **data: Any) -> None:
        """Record an entry in the telemetry."""
        self.cml.telemetry.record(category, at.timestamp(), data)

    @property
    def wall_time(self) -> datetime:
        """The time of its own wall clock."""
        return self.clock.now() + self.clock_error

    @property
    def unix_time(self) -> float:
        return self.wall_time.timestamp()

    async def push_forever(self, every_seconds: float = 3.3) -> None:
        """Push statistics, as CML does."""
        while True:
            self.push_stats()
            await self.clock.sleep(every_seconds)

    # What clients see.

    async def check_reachable(self, pinned_sha256: str | None) -> None:
        if self.is_frozen or self.answers_after > PATIENCE_SECONDS:
            await self.clock.sleep(PATIENCE_SECONDS)
            raise Unreachable("CML: no answer")
        if self.answers_after:
            await self.clock.sleep(self.answers_after)
        if self.refuses_connections:
            raise Unreachable("CML: connection refused")
        if pinned_sha256 not in (None, self.certificate_sha256):
            raise CertificateChanged("CML shows another certificate", self.certificate_sha256)

    def answer(self, method: str, path: str, token: str | None, body: bytes | None) -> Answer:
        """The answer to one request."""
        self.requests.append((self.clock.monotonic(), path))
        if path in self.failing:
            return error(self.failing[path], "injected fault")
        if path == "/api/v0/authenticate":
            self.logins.append(self.clock.monotonic())
        query = Query(
            method=method,
            path=path,
            authorization=f"Bearer {token}" if token is not None else "",
            body=body or b"",
        )
        return self.cml.answer(query, self.unix_time)

    def hear(self, socket: MemorySocket, text: bytes) -> None:
        """The first frame must be a token; afterwards events follow."""
        if self.is_frozen:
            return
        token, now = token_in(text), self.unix_time
        if token is None or self.refuses_tokens or self.cml.user_of(token, now) is None:
            socket.end(*UNAUTHORIZED)
            return
        socket.admit()
        if self.is_mute:
            return
        socket.push(msgspec.json.encode(self.cml.stats_event(now)))
        if self.closes_with is not None:
            socket.end(*self.closes_with)


class MemoryLiveServers:
    """All of them, by host: the port to their live feeds and to their REST API."""

    def __init__(self, servers: Mapping[str, MemoryLiveServer], connect_seconds: float = 0.01) -> None:
        self.servers = dict(servers)
        self._connect_seconds = connect_seconds
        self._answer_seconds = connect_seconds
        self.bodies: dict[str, bytes] = {}
        """Answers of a test in place of CML's, by path."""
        self.most_at_once = 0
        self._at_once = 0

    async def connect(self, host: str, pinned_sha256: str | None, listener: WebSocketListener) -> WebSocket:
        server = self.servers.get(host)
        if server is None:
            raise Unreachable(f"no server at {host}")
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await server.clock.sleep(self._connect_seconds)
            server.connects.append(server.clock.monotonic())
            await server.check_reachable(pinned_sha256)
            if server.refuses_sockets:
                raise Unreachable("live feed: answered 502")
        finally:
            self._at_once -= 1
        socket = MemorySocket(server, listener)
        server.sockets[socket] = None
        return socket

    async def request(
        self,
        method: str,
        host: str,
        path: str,
        pinned_sha256: str | None,
        *,
        token: str | None = None,
        body: bytes | None = None,
        content_type: str | None = JSON,
        timeout_seconds: float | None = None,
        on_piece: OnPiece | None = None,
    ) -> CmlAnswer:
        """The port to their REST API."""
        server = self.servers.get(host)
        if server is None:
            raise Unreachable(f"no server at {host}")
        await server.clock.sleep(self._answer_seconds)
        await server.check_reachable(pinned_sha256)
        answer = server.answer(method, path, token, body)
        if path in self.bodies:
            answer = Answer(200, self.bodies[path])
        return delivered(
            CmlAnswer(answer.body, server.certificate_sha256, answer.status, server.wall_time), on_piece
        )


def delivered(answer: CmlAnswer, on_piece: OnPiece | None) -> CmlAnswer:
    """What the caller of a transport gets of an answer: its body in pieces, if it takes them."""
    if on_piece is None or answer.status != 200:
        return answer
    middle = len(answer.body) // 2
    for piece in (answer.body[:middle], answer.body[middle:]):
        on_piece(piece)
    return replace(answer, body=b"")


class MemoryMetrics:
    """CloudWatch in memory: what a test says an instance measures."""

    def __init__(self, regions: Sequence[str]) -> None:
        self._regions = frozenset(regions)
        self.measured: dict[InstanceId, InstanceMetrics] = {}
        self.error: LcmError | None = None

    async def get_instance_metrics(
        self, region: str, instance_ids: Sequence[InstanceId]
    ) -> Mapping[InstanceId, InstanceMetrics]:
        if region not in self._regions:
            raise RegionNotConfigured(f"region {region!r} is not configured")
        if self.error is not None:
            raise self.error
        return {id_: self.measured[id_] for id_ in instance_ids if id_ in self.measured}
