"""CML's live feeds and system API in memory, behind the worker controller's ports.

A `MemoryLiveServer` is one CML server: it takes a login, pushes frames to sockets that sent a token, answers
its system API, and has the faults of real ones on demand.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from lcm.cml.connection import CmlAnswer
from lcm.core.clock import Clock
from lcm.domain.errors import CertificateChanged, LcmError, RegionNotConfigured, Unreachable
from lcm.domain.launch import InstanceId
from lcm.worker_controller.ports import MAX_MESSAGE_BYTES, InstanceMetrics, WebSocket, WebSocketListener

UNAUTHORIZED = (3000, "Unauthorized")
PATIENCE_SECONDS = 5.0
"""How long clients wait for an answer."""
AT_REST_PERCENT = 7.25
"""The load of an idle instance."""

Carry = Callable[[Callable[[], None]], None]
"""Brings something to a client: at once, later or never."""


def system_stats(cpu_percent: float = AT_REST_PERCENT, running_nodes: int = 4) -> dict[str, Any]:
    """What GET system_stats answers."""
    room = {"used": 1_000, "free": 3_000, "total": 4_000}
    dominfo = {"total_nodes": 6, "running_nodes": running_nodes, "total_orphans": 0, "running_orphans": 0}
    stats = {
        "cpu": {"count": 16, "percent": cpu_percent},
        "memory": room,
        "disk": room,
        "dominfo": dominfo,
    }
    return {
        "computes": {"c-1": {"hostname": "cml", "is_controller": True, "stats": stats}},
        "all": {"cpu": {"count": 16, "percent": cpu_percent}, "memory": room, "disk": room},
        "controller": {"disk": room},
    }


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
        self._server.sockets.pop(self, None)

    # The server's side.

    def push(self, payload: bytes) -> None:
        if len(payload) > MAX_MESSAGE_BYTES:
            self.end(1009, "message too big")
        elif not self.is_silent:
            self._carry(lambda: self._hear(payload))

    def end(self, code: int, reason: str = "") -> None:
        self._server.sockets.pop(self, None)
        self._carry(lambda: self._hear_end(code, reason))

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


class MemoryLiveServer:
    """One CML server. Public fields are its faults; `logins`, `requests` and `sockets` its call log."""

    def __init__(self, clock: Clock, certificate_sha256: str = "a" * 64) -> None:
        self.clock = clock
        self.certificate_sha256 = certificate_sha256
        self.password = self.right_password = "secret"
        self.token_seconds = 86_400.0
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
        self.clock_error = timedelta()
        """How wrong its wall clock is."""
        self.telemetry: list[dict[str, Any]] = []
        self.user_id = "our-account"
        self.health: dict[str, Any] = {
            "valid": True,
            "is_licensed": True,
            "computes": {},
        }
        self.licensing: dict[str, Any] = {
            "registration": {"status": "COMPLETED"},
            "authorization": {"status": "IN_COMPLIANCE"},
            "product_license": {"active": "CML_Enterprise", "is_enterprise": True},
        }
        self.tokens: dict[str, float] = {}
        self.sockets: dict[MemorySocket, None] = {}
        """In the order they were opened."""
        self.logins: list[float] = []
        self.requests: list[tuple[float, str]] = []
        self.connects: list[float] = []

    # What people and faults do.

    def change_password(self, password: str) -> None:
        """Change the password as a person, which ends every session."""
        self.password = self.right_password = password
        self.expire_tokens()
        self.drop(3000, "Unauthorized")

    def push(self, event: Mapping[str, Any]) -> None:
        """Push an event to every open socket."""
        self.push_bytes(msgspec.json.encode(event))

    def push_bytes(self, payload: bytes) -> None:
        for socket in self._audience():
            if self.is_mute or self.is_frozen:
                socket.is_silent = True
            else:
                socket.push(payload)

    def push_stats(self, cpu_percent: float | None = None) -> None:
        """Push events whose loss is not checked."""
        if not (self.is_mute or self.is_frozen):
            self.push({"event_type": "system_stats", "data": self._stats(cpu_percent)})

    def _audience(self) -> list[MemorySocket]:
        return [socket for socket in self.sockets if socket.is_authorized]

    def drop(self, code: int = 1006, reason: str = "") -> None:
        """End every connection."""
        for socket in list(self.sockets):
            socket.end(code, reason)

    def expire_tokens(self) -> None:
        self.tokens.clear()

    def note(self, category: str, at: datetime, **data: Any) -> None:
        """Record an entry in the telemetry."""
        self.telemetry.append({"category": category, "timestamp": at.isoformat(), "data": data})

    @property
    def wall_time(self) -> datetime:
        """The time of its own wall clock."""
        return self.clock.now() + self.clock_error

    async def push_forever(self, every_seconds: float = 3.3) -> None:
        """Push statistics, as CML does."""
        while True:
            self.push_stats()
            await self.clock.sleep(every_seconds)

    @property
    def cpu_percent(self) -> float:
        """The CPU load of its instance."""
        return AT_REST_PERCENT

    def _stats(self, cpu_percent: float | None = None) -> dict[str, Any]:
        return system_stats(self.cpu_percent if cpu_percent is None else cpu_percent)

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
            raise CertificateChanged("CML shows another certificate")

    def answer(self, path: str, token: str | None, body: bytes | None) -> tuple[int, Any]:
        """Status and content of the answer to one request."""
        self.requests.append((self.clock.monotonic(), path))
        if path in self.failing:
            return self.failing[path], {"code": self.failing[path], "description": "injected fault"}
        if path == "/api/v0/authenticate":
            self.logins.append(self.clock.monotonic())
            is_right = msgspec.json.decode(body or b"{}").get("password") == self.password
            return (200, self._new_token()) if is_right else (403, {"code": 403, "description": "no"})
        if token is None or not self.is_valid(token):
            return 401, {"code": 401, "description": "no"}
        return 200, {
            "/api/v0/system_stats": self._stats(),
            "/api/v0/telemetry/events": self.telemetry,
            "/api/v0/system_health": self.health,
            "/api/v0/licensing": self.licensing,
        }[path]

    def _new_token(self) -> str:
        ends = self.wall_time + timedelta(seconds=self.token_seconds)
        claims = {"exp": ends.timestamp(), "sub": self.user_id, "n": len(self.logins)}
        token = f"e30.{base64.urlsafe_b64encode(msgspec.json.encode(claims)).decode().rstrip('=')}.x"
        self.tokens[token] = self.clock.monotonic() + self.token_seconds
        return token

    def is_valid(self, token: str) -> bool:
        return self.tokens.get(token, float("-inf")) > self.clock.monotonic()

    def hear(self, socket: MemorySocket, text: bytes) -> None:
        """The first frame must be a token; afterwards events follow."""
        if self.is_frozen:
            return
        token = msgspec.json.decode(text).get("token", "")
        if not self.is_valid(token) or self.refuses_tokens:
            socket.end(*UNAUTHORIZED)
            return
        socket.is_authorized = True
        if self.is_mute:
            return
        socket.push(msgspec.json.encode({"event_type": "system_stats", "data": self._stats()}))
        if self.closes_with is not None:
            socket.end(*self.closes_with)


class MemoryLiveServers:
    """All of them, by host: the port to their live feeds and to their REST API."""

    def __init__(self, servers: Mapping[str, MemoryLiveServer], connect_seconds: float = 0.01) -> None:
        self.servers = dict(servers)
        self._connect_seconds = connect_seconds
        self._answer_seconds = connect_seconds
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
    ) -> CmlAnswer:
        """The port to their REST API."""
        server = self.servers.get(host)
        if server is None:
            raise Unreachable(f"no server at {host}")
        await server.clock.sleep(self._answer_seconds)
        await server.check_reachable(pinned_sha256)
        status, content = server.answer(path, token, body)
        return CmlAnswer(msgspec.json.encode(content), server.certificate_sha256, status, server.wall_time)


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
