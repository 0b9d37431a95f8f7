"""Clients that send slowly, endlessly or nothing at all are sent away; the others do not notice."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiohttp
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from lcm.core.timeouts import timeout
from lcm.web.connections import DEFAULT_LIMITS, ConnectionLimits
from lcm.web.server import HttpServer, _Config
from support.patience import PATIENCE_SECONDS
from support.processes import eventually

BRIEF, AGES = 0.3, 600.0
"""Seconds for the head of a request: of a client that is sent away, and of one that must not be."""


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("hello")(scope, receive, send)


@asynccontextmanager
async def serving(
    header_seconds: float = BRIEF,
    app: ASGIApp = hello,
    limits: ConnectionLimits = DEFAULT_LIMITS,
    trusted_proxies: Sequence[str] = (),
) -> AsyncIterator[HttpServer]:
    server = HttpServer(
        "test",
        app,
        "127.0.0.1",
        0,
        send_buffer_bytes=4096,
        header_seconds=header_seconds,
        limits=limits,
        trusted_proxies=trusted_proxies,
    )
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(server.run())
        yield server
        running.cancel()


async def test_a_small_send_buffer_holds_several_segments_of_a_connection() -> None:
    """A reader confirms a lone segment only after 40 ms, for which a long answer would stall."""
    async with serving() as server:
        _, writer = await asyncio.open_connection(server.host, server.port)
        connection = writer.get_extra_info("socket")
        assert 2 * connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) <= 4096
        writer.close()
        await writer.wait_closed()


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


async def connected(server: HttpServer, source: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", server.port, local_addr=(source, 0))


async def status_of(server: HttpServer, source: str) -> bytes:
    """The status line of an answer to this address; empty if the connection is closed instead."""
    reader, writer = await connected(server, source)
    try:
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return (await everything_until_closed(reader)).partition(b"\r\n")[0]
    finally:
        writer.close()


async def until_open(server: HttpServer, number: int) -> None:
    async def are_so_many() -> bool:
        return server.connections.in_all == number

    await eventually(are_so_many)


async def test_connections_of_one_address_never_keep_others_out() -> None:
    async with serving(AGES, limits=ConnectionLimits(in_all=20, per_address=10)) as server:
        silent = [await connected(server, "127.0.0.1") for _ in range(30)]
        for reader, _ in silent[10:]:
            assert await everything_until_closed(reader) == b""
        assert server.connections.in_all == 10
        assert await status_of(server, "127.0.0.1") == b""
        assert await status_of(server, "127.0.0.2") == b"HTTP/1.1 200 OK"
        for _, writer in silent:
            writer.close()
        await until_open(server, 0)
        assert await status_of(server, "127.0.0.1") == b"HTTP/1.1 200 OK"


async def test_connections_are_bounded_in_all() -> None:
    async with serving(AGES, limits=ConnectionLimits(in_all=10, per_address=10)) as server:
        silent = [await connected(server, f"127.0.0.{number}") for number in range(1, 11)]
        await until_open(server, 10)
        assert await status_of(server, "127.0.0.100") == b""
        for _, writer in silent:
            writer.close()
        await until_open(server, 0)
        assert server.connections.refused == 1


async def test_a_trusted_proxy_has_the_connections_of_all_its_clients() -> None:
    limits = ConnectionLimits(in_all=20, per_address=2)
    async with serving(AGES, limits=limits, trusted_proxies=("127.0.0.9",)) as server:
        open_ones = [await connected(server, "127.0.0.9") for _ in range(5)]
        assert await status_of(server, "127.0.0.9") == b"HTTP/1.1 200 OK"
        for _, writer in open_ones:
            writer.close()


@pytest.mark.parametrize(
    ("trusted_proxies", "seen"),
    [((), "127.0.0.7 http"), (("127.0.0.8",), "127.0.0.7 http"), (("127.0.0.0/29",), "10.1.2.3 https")],
)
async def test_only_a_named_proxy_speaks_for_another_address(
    trusted_proxies: Sequence[str], seen: str
) -> None:
    async def tell(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse(f"{scope['client'][0]} {scope['scheme']}")(scope, receive, send)

    async with serving(AGES, tell, trusted_proxies=trusted_proxies) as server:
        reader, writer = await connected(server, "127.0.0.7")
        headers = b"X-Forwarded-For: 10.1.2.3\r\nX-Forwarded-Proto: https\r\nConnection: close\r\n"
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n")
        assert (await everything_until_closed(reader)).endswith(f"\r\n\r\n{seen}".encode())
        writer.close()


async def test_who_never_reads_the_answer_is_sent_away() -> None:
    async def large(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("x" * 20_000_000)(scope, receive, send)

    async with serving(AGES, large) as server:
        config = server._server.config
        assert isinstance(config, _Config)
        config.write_seconds = BRIEF
        reader, writer = await connected(server, "127.0.0.1")
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await until_open(server, 1)
        await until_open(server, 0)
        assert len(await everything_until_closed(reader)) < 20_000_000
        writer.close()


def test_connections_leave_descriptors_for_the_rest_of_the_process() -> None:
    assert DEFAULT_LIMITS.within(1_000_000) == DEFAULT_LIMITS
    assert ConnectionLimits().within(256) == ConnectionLimits(in_all=96, per_address=48)
    assert ConnectionLimits().within(32) == ConnectionLimits(in_all=8, per_address=4)
