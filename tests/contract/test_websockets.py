"""What every port to CML's live feeds promises: the one in memory and picows over TLS alike."""

import asyncio
import hashlib
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lcm.cml.tls import CmlTls
from lcm.core.clock import SystemClock
from lcm.domain.errors import CertificateChanged, Unreachable
from lcm.simulator.cml.accounts import ADMIN_ID
from lcm.worker_controller.adapters.picows_websocket import PicowsWebSockets
from lcm.worker_controller.ports import MAX_MESSAGE_BYTES, WebSocket, WebSockets
from support.cml_server import HOST, CmlServer, running_cml
from support.memory_live import MemoryLiveServer, MemoryLiveServers
from support.processes import eventually


class Ear:
    """Remembers what it heard."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.pongs = 0
        self.ends: list[tuple[int, str]] = []

    def on_message(self, payload: bytes) -> None:
        self.heard.append(payload)

    def on_pong(self) -> None:
        self.pongs += 1

    def on_closed(self, code: int, reason: str) -> None:
        self.ends.append((code, reason))

    async def until_heard(self, count: int = 1) -> None:
        async def enough() -> bool:
            return len(self.heard) >= count

        await eventually(enough)

    async def until_over(self) -> tuple[int, str]:
        async def is_over() -> bool:
            return bool(self.ends)

        await eventually(is_over)
        [end] = self.ends
        return end


class Feed(ABC):
    """A server and a port to it."""

    websockets: WebSockets
    certificate: str
    token: str

    async def connect(self, ear: Ear, pinned: str | None = None) -> WebSocket:
        return await self.websockets.connect(HOST, pinned or self.certificate, ear)

    async def listen(self, ear: Ear) -> WebSocket:
        """Connect, log in, hear the first event."""
        socket = await self.connect(ear)
        socket.send(f'{{"token":"{self.token}"}}'.encode())
        await ear.until_heard()
        return socket

    @abstractmethod
    async def push(self, payload: bytes) -> None: ...

    @abstractmethod
    async def end(self, code: int, reason: str) -> None: ...

    @abstractmethod
    async def refuse(self) -> None: ...

    @abstractmethod
    def heard_tokens(self) -> int: ...


class MemoryFeed(Feed):
    def __init__(self) -> None:
        self.server = MemoryLiveServer(SystemClock())
        self.websockets = MemoryLiveServers({HOST: self.server})
        self.certificate = self.server.certificate_sha256
        self.token = self.server.cml.sessions.open(ADMIN_ID, self.server.unix_time)

    async def push(self, payload: bytes) -> None:
        self.server.push_bytes(payload)

    async def end(self, code: int, reason: str) -> None:
        self.server.drop(code, reason)

    async def refuse(self) -> None:
        self.server.refuses_connections = True

    def heard_tokens(self) -> int:
        return sum(socket.is_authorized for socket in self.server.sockets)


class PicowsFeed(Feed):
    def __init__(self, server: CmlServer) -> None:
        self.server = server
        server.push_every_seconds = None
        self.websockets = PicowsWebSockets(CmlTls().context(), server.port)
        pem = ssl.get_server_certificate((HOST, server.port))
        self.certificate = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()
        self.token = server._new_token()

    async def push(self, payload: bytes) -> None:
        await self.server.has_sockets()
        await self.server.push(payload.decode())

    async def end(self, code: int, reason: str) -> None:
        await self.server.has_sockets()
        if code == 1006:
            await self.server.cut()
            return
        [socket] = self.server.sockets
        await socket.close(code=code, message=reason.encode())

    async def refuse(self) -> None:
        await self.server.stop()

    def heard_tokens(self) -> int:
        return len(self.server.first_frames)


@pytest.fixture(params=["memory", "picows"])
async def feed(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Feed]:
    if request.param == "memory":
        yield MemoryFeed()
        return
    async with running_cml(tmp_path) as server:
        loop = asyncio.get_running_loop()
        yield await loop.run_in_executor(None, PicowsFeed, server)


async def test_messages_arrive_whole_and_in_order(feed: Feed) -> None:
    ear = Ear()
    await feed.listen(ear)
    small, large = b'{"event_type":"x"}', b'"' + b"y" * 200_000 + b'"'
    await feed.push(small)
    await feed.push(large)
    await ear.until_heard(3)
    assert ear.heard[1:] == [small, large]
    assert ear.ends == []


async def test_the_reason_of_a_close_is_told_once(feed: Feed) -> None:
    ear = Ear()
    await feed.listen(ear)
    await feed.end(1001, "going away")
    assert await ear.until_over() == (1001, "going away")


async def test_a_connection_that_breaks_ends_with_1006(feed: Feed) -> None:
    ear = Ear()
    await feed.listen(ear)
    await feed.end(1006, "")
    assert (await ear.until_over())[0] == 1006


async def test_a_bad_token_ends_with_3000(feed: Feed) -> None:
    ear = Ear()
    socket = await feed.connect(ear)
    socket.send(b'{"token":"nonsense"}')
    assert await ear.until_over() == (3000, "Unauthorized")
    assert ear.heard == []


async def test_another_certificate_is_refused_before_anything_is_said(feed: Feed) -> None:
    ear = Ear()
    with pytest.raises(CertificateChanged):
        await feed.connect(ear, pinned="b" * 64)
    assert feed.heard_tokens() == 0
    assert (ear.heard, ear.ends) == ([], [])


async def test_nobody_there_is_unreachable(feed: Feed) -> None:
    await feed.refuse()
    with pytest.raises(Unreachable):
        await feed.connect(Ear())


async def test_a_message_that_is_too_big_ends_the_connection_with_1009(feed: Feed) -> None:
    ear = Ear()
    await feed.listen(ear)
    await feed.push(b"x" * (MAX_MESSAGE_BYTES + 1))
    assert (await ear.until_over())[0] == 1009
    assert len(ear.heard) == 1


async def test_nothing_is_heard_after_closing(feed: Feed) -> None:
    ear = Ear()
    socket = await feed.listen(ear)
    socket.close()
    socket.send(b"late")
    socket.ping()
    other = Ear()
    await feed.listen(other)
    assert len(ear.heard) == 1
    assert ear.ends == []


async def test_a_ping_is_answered(feed: Feed) -> None:
    ear = Ear()
    socket = await feed.listen(ear)
    socket.ping()

    async def has_pong() -> bool:
        return ear.pongs == 1

    await eventually(has_pong)
