"""Live feeds that never begin: no answer, no connection left open."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lcm.cml.tls import CmlTls
from lcm.core.timeouts import timeout
from lcm.domain.errors import Unreachable
from lcm.simulator.cml.certificate import self_signed_context
from lcm.worker_controller.adapters.picows_websocket import PicowsWebSockets
from support.patience import PATIENCE_SECONDS

HOST = "127.0.0.1"


class Deaf:
    def on_message(self, payload: bytes) -> None: ...

    def on_pong(self) -> None: ...

    def on_closed(self, code: int, reason: str) -> None: ...


class SilentServer:
    """Takes connections and says nothing."""

    def __init__(self) -> None:
        self.port = 0
        self.was_asked = asyncio.Event()
        self.was_left = asyncio.Event()

    async def listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        self.was_asked.set()
        while await reader.read(1_000):
            pass
        self.was_left.set()
        writer.close()

    async def hang_up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.close()


Manner = Callable[[SilentServer], Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]]


@asynccontextmanager
async def serving(
    context: ssl.SSLContext | None, manner: Manner = lambda server: server.listen
) -> AsyncIterator[SilentServer]:
    server = SilentServer()
    listening = await asyncio.start_server(manner(server), HOST, 0, ssl=context)
    server.port = listening.sockets[0].getsockname()[1]
    async with listening, timeout(PATIENCE_SECONDS):
        yield server


def websockets(server: SilentServer, timeout_seconds: float) -> PicowsWebSockets:
    return PicowsWebSockets(CmlTls().context(), server.port, timeout_seconds)


@pytest.mark.parametrize("speaks_tls", [True, False])
async def test_who_does_not_answer_in_time_is_left(tmp_path: Path, speaks_tls: bool) -> None:
    async with serving(self_signed_context("i-1", tmp_path) if speaks_tls else None) as server:
        while not server.was_asked.is_set():  # a slow machine may not even get so far in time
            with pytest.raises(Unreachable, match="timed out"):
                await websockets(server, 0.3).connect(HOST, None, Deaf())
        await server.was_left.wait()


async def test_when_nobody_wants_the_answer_any_more_the_server_is_left(tmp_path: Path) -> None:
    async with serving(self_signed_context("i-1", tmp_path)) as server, asyncio.TaskGroup() as tasks:
        connecting = tasks.create_task(websockets(server, PATIENCE_SECONDS).connect(HOST, None, Deaf()))
        await server.was_asked.wait()
        connecting.cancel()
        await server.was_left.wait()


async def test_who_hangs_up_without_an_answer_is_unreachable_at_once(tmp_path: Path) -> None:
    async with serving(self_signed_context("i-1", tmp_path), lambda server: server.hang_up) as server:
        with pytest.raises(Unreachable, match="closed without an answer"):
            await websockets(server, PATIENCE_SECONDS).connect(HOST, None, Deaf())
