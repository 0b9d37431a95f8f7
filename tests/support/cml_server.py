"""One CML server over real TLS, as far as monitoring sees it, with faults a test can switch on."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from lcm.simulator.cml.certificate import self_signed_context
from support.memory_live import stats_of
from support.processes import eventually

HOST = "127.0.0.1"


class CmlServer:
    """Listens on a port of the loopback. Public fields are its faults and its call log."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._runner: web.ServerRunner | None = None
        self._site: web.TCPSite | None = None
        self._pushing: asyncio.Task[None] | None = None
        self.port = 0
        self.password = "secret"
        self.push_every_seconds: float | None = 0.05
        self.refuses_sockets = False
        self.is_silent = False
        """Sockets stay open and get no events."""
        self.closes_with: tuple[int, str] | None = None
        """Every socket is closed like this after its first event."""
        self.failing: dict[str, int] = {}
        self.telemetry: list[dict[str, Any]] = []
        self.tokens: set[str] = set()
        self.sockets: set[web.WebSocketResponse] = set()
        self.upgrades = 0
        self.first_frames: list[str] = []
        self.requests: list[str] = []

    @property
    def logins(self) -> int:
        return self.requests.count("/api/v0/authenticate")

    async def start(self, *, port: int = 0) -> None:
        """Listen, with a new certificate every time."""
        self._runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=0.1)
        await self._runner.setup()
        context = self_signed_context("cml", self._directory)
        self._site = web.TCPSite(
            self._runner, HOST, port or self.port, ssl_context=context, reuse_address=True
        )
        await self._site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        for socket in list(self.sockets):
            await socket.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def push(self, event: dict[str, Any] | bytes | str) -> None:
        for socket in list(self.sockets):
            if isinstance(event, bytes):
                await socket.send_bytes(event)
            else:
                await socket.send_str(event if isinstance(event, str) else json.dumps(event))

    def push_raw(self, frames: bytes) -> None:
        """Send encoded frames: many cost no more than one. Does not wait until they are sent."""
        for socket in list(self.sockets):
            transport = socket._req.transport if socket._req else None
            if transport is not None:
                transport.write(frames)

    async def cut(self, code: int = 1006) -> None:
        """End every socket; 1006 sends no close frame."""
        for socket in list(self.sockets):
            if code == 1006:
                transport = socket._req.transport if socket._req else None
                if transport is not None:
                    transport.abort()
            else:
                await socket.close(code=code)

    async def has_sockets(self, count: int = 1) -> None:
        async def enough() -> bool:
            return len(self.sockets) == count

        await eventually(enough)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request.path)
        if request.path in self.failing:
            return web.Response(status=self.failing[request.path], text="injected fault")
        if request.path == "/ws/ui":
            if self.refuses_sockets:
                return web.Response(status=502, text="<html>")
            return await self._serve_socket(request)
        if request.path == "/api/v0/system_information":
            return web.json_response({"version": "2.9.1+build.7", "ready": True})
        if request.path == "/api/v0/authenticate":
            given = json.loads(await request.read())
            if given["password"] != self.password:
                return web.json_response({"code": 403, "description": "no"}, status=403)
            return web.json_response(self._new_token())
        if request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens:
            return web.json_response({"code": 401, "description": "no"}, status=401)
        answers: dict[str, Any] = {
            "/api/v0/system_stats": stats_of(),
            "/api/v0/telemetry/events": self.telemetry,
            "/api/v0/system_health": {"valid": True, "is_licensed": True, "computes": {}},
            "/api/v0/licensing": {"registration": {"status": "COMPLETED"}},
        }
        return web.json_response(answers[request.path])

    def _new_token(self) -> str:
        claims = {"exp": 4_000_000_000, "sub": "our-account", "n": len(self.requests)}
        token = f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.x"
        self.tokens.add(token)
        return token

    async def _serve_socket(self, request: web.BaseRequest) -> web.StreamResponse:
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)
        self.upgrades += 1
        try:
            first = await socket.receive_str(timeout=10)
        except (TimeoutError, TypeError):
            await socket.close(code=3000, message=b"Unauthorized")
            return socket
        self.first_frames.append(first)
        if self.is_silent:
            await self._hold(socket)
            return socket
        if json.loads(first).get("token") not in self.tokens:
            await socket.close(code=3000, message=b"Unauthorized")
            return socket
        await socket.send_json({"event_type": "system_stats", "data": stats_of()})
        if self.closes_with is not None:
            await socket.close(code=self.closes_with[0], message=self.closes_with[1].encode())
            return socket
        await self._hold(socket)
        return socket

    async def _hold(self, socket: web.WebSocketResponse) -> None:
        self.sockets.add(socket)
        try:
            async for _ in socket:
                pass
        finally:
            self.sockets.discard(socket)

    async def push_forever(self) -> None:
        while True:
            if self.push_every_seconds is not None and not self.is_silent:
                with suppress(ConnectionError, aiohttp.ClientError):
                    await self.push({"event_type": "system_stats", "data": stats_of()})
            await asyncio.sleep(self.push_every_seconds or 0.05)  # noqa: TID251 - in real time


@asynccontextmanager
async def running_cml(directory: Path) -> AsyncIterator[CmlServer]:
    server = CmlServer(directory)
    await server.start()
    async with asyncio.TaskGroup() as tasks:
        pushing = tasks.create_task(server.push_forever())
        try:
            yield server
        finally:
            pushing.cancel()
            await server.stop()
