"""Clients that send slowly, endlessly or nothing at all are sent away; the others do not notice."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from lcm.core.timeouts import timeout
from lcm.web.server import HttpServer, _Config
from support.patience import PATIENCE_SECONDS

BRIEF, AGES = 0.3, 600.0
"""Seconds for the head of a request: of a client that is sent away, and of one that must not be."""


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("hello")(scope, receive, send)


@asynccontextmanager
async def serving(header_seconds: float = BRIEF, app: ASGIApp = hello) -> AsyncIterator[HttpServer]:
    server = HttpServer("test", app, "127.0.0.1", 0, header_seconds=header_seconds)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(server.run())
        yield server
        running.cancel()


def be_brief(server: HttpServer) -> None:
    """From now on, also with connections that are open."""
    config = server._server.config
    assert isinstance(config, _Config)
    config.header_seconds = BRIEF


async def everything_until_closed(reader: asyncio.StreamReader) -> bytes:
    async with timeout(PATIENCE_SECONDS):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


@pytest.mark.parametrize("head", [b"", b"GET / HTT", b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "])
async def test_who_does_not_finish_the_head_of_a_request_is_sent_away(head: bytes) -> None:
    async with serving() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(head)
        assert await everything_until_closed(reader) == b""
        writer.close()


async def test_who_sends_one_byte_now_and_then_is_sent_away_too() -> None:
    async with serving() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)

        async def drip() -> None:
            writer.write(b"GET / HTTP/1.1\r\nX: ")
            while not writer.is_closing():
                writer.write(b"x")
                await asyncio.sleep(0.02)  # noqa: TID251 - a slow sender, in real time

        async with asyncio.TaskGroup() as tasks:
            dripping = tasks.create_task(drip())
            assert await everything_until_closed(reader) == b""
            dripping.cancel()
        writer.close()


async def test_the_second_request_of_a_connection_has_a_deadline_as_well() -> None:
    async with serving(AGES) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")
        be_brief(server)
        writer.write(b"GET / HTTP/1.1\r\nHost: ")
        assert await everything_until_closed(reader) == b""
        writer.close()


async def test_a_head_without_end_is_cut_off() -> None:
    async with serving(AGES) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\n")
        for number in range(100):
            writer.write(b"X-%d: " % number + b"x" * 1000 + b"\r\n")
        assert await everything_until_closed(reader) == b""
        writer.close()


async def test_a_body_that_comes_after_the_answer_is_read_to_its_end_but_not_for_ever() -> None:
    async with serving(AGES) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n")
        await reader.readuntil(b"hello")
        for _ in range(30):
            writer.write(b"x" * 10_000)
            await writer.drain()
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"hello")
        be_brief(server)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n")
        await reader.readuntil(b"hello")
        writer.write(b"x")
        assert await everything_until_closed(reader) == b""
        writer.close()


async def test_many_silent_connections_do_not_keep_others_waiting() -> None:
    async with serving(AGES) as server, aiohttp.ClientSession() as session:
        async with session.get(server.url) as response:
            assert await response.text() == "hello"
        be_brief(server)
        silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(200)]
        async with session.get(server.url) as response:
            assert await response.text() == "hello"
        for reader, writer in silent:
            assert await everything_until_closed(reader) == b""
            writer.close()


async def test_an_answer_may_take_longer_than_the_head() -> None:
    async def slowly(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(2 * BRIEF)  # noqa: TID251 - longer than the head may take
        await hello(scope, receive, send)

    async with serving(AGES, slowly) as server, aiohttp.ClientSession() as session:
        async with session.get(server.url) as response:
            assert await response.text() == "hello"
        be_brief(server)
        async with session.get(server.url) as response:
            assert await response.text() == "hello"
