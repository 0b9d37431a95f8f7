"""A server of MongoDB's protocol for the store's suite: the one that is named, or FerretDB."""

import asyncio
import os
import random
import subprocess
import sys
import tempfile
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import bson
import pytest

from lcm.core.clock import SystemClock
from support.etcd import DIES_WITH_ITS_PARENT
from support.patience import PATIENCE_SECONDS

FERRETDB: Final = Path(sys.prefix) / "bin" / "ferretdb"
OP_MSG: Final = 2013

Command = dict[str, Any]
Ask = Callable[[bytes], Awaitable[bytes]]


@dataclass(frozen=True)
class MongoServer:
    """Where it is. `what` is for reports: FerretDB is not MongoDB."""

    url: str
    what: str

    def database(self, name: str) -> str:
        """The address of a database of its own."""
        base, question_mark, options = self.url.partition("?")
        return f"{base.rstrip('/')}/{name}{question_mark}{options}"


@contextmanager
def mongo_server() -> Iterator[MongoServer]:
    """Skips the test, and says why, where there is none."""
    if url := os.environ.get("LCM_TEST_MONGODB_URL"):
        yield MongoServer(url, "the server of LCM_TEST_MONGODB_URL")
        return
    if not FERRETDB.exists():
        pytest.skip(
            "no MongoDB-wire server: no Go to build FerretDB with, and LCM_TEST_MONGODB_URL is not set"
        )
    with (
        tempfile.TemporaryDirectory(prefix="lcm-ferretdb-") as directory,
        subprocess.Popen(
            [*DIES_WITH_ITS_PARENT, FERRETDB, directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield MongoServer(process.stdout.readline().strip(), "FerretDB")
        finally:
            process.stdin.close()
            process.wait(PATIENCE_SECONDS)


@dataclass
class UnsteadyFront:
    """Between a store and its server: answers take their time, and one can be lost on the way."""

    url: str
    lose_answer_to: bytes | None = None
    """The next request with these bytes in it is carried out, and its connection breaks."""


@asynccontextmanager
async def unsteady_front(url: str, chance: random.Random) -> AsyncIterator[UnsteadyFront]:
    """Lets requests of concurrent connections overtake each other in an order the seed decides."""
    clock = SystemClock()

    def delay_seconds() -> float:
        """Most take a millisecond or two; a few take long enough for a whole story to happen meanwhile."""
        return 0.05 if chance.random() < 0.05 else chance.random() * 0.002

    async def pass_on(request: bytes, ask: Ask) -> bytes | None:
        is_lost = front.lose_answer_to is not None and front.lose_answer_to in request
        await clock.sleep(delay_seconds())
        answer = await ask(request)
        if is_lost:
            front.lose_answer_to = None
            return None
        await clock.sleep(delay_seconds())
        return answer

    async with _front(url, pass_on) as front_url:
        front = UnsteadyFront(front_url)
        yield front


@asynccontextmanager
async def watched_front(url: str, before: Callable[[Command], Awaitable[None]]) -> AsyncIterator[str]:
    """An address whose server is asked nothing before `before` is through with the command."""

    async def pass_on(request: bytes, ask: Ask) -> bytes | None:
        await before(_command(request))
        return await ask(request)

    async with _front(url, pass_on) as front_url:
        yield front_url


@asynccontextmanager
async def _front(url: str, pass_on: Callable[[bytes, Ask], Awaitable[bytes | None]]) -> AsyncIterator[str]:
    """The address of something between a store and its server; without an answer the connection breaks."""
    address = urlsplit(url)

    async def serve(client: StreamReader, answers: StreamWriter) -> None:
        with closing(answers):
            reader, writer = await asyncio.open_connection(address.hostname, address.port)

            async def ask(request: bytes) -> bytes:
                writer.write(request)
                return await _message(reader)

            with closing(writer), suppress(asyncio.IncompleteReadError, ConnectionError):
                while (answer := await pass_on(await _message(client), ask)) is not None:
                    answers.write(answer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        yield urlunsplit(address._replace(netloc=f"127.0.0.1:{port}"))


def _command(request: bytes) -> Command:
    """What a request asks for; its name is its first field. Documents may follow it apart."""
    is_op_msg = int.from_bytes(request[12:16], "little") == OP_MSG
    if not is_op_msg:
        return {}  # the greeting of a new connection
    length = int.from_bytes(request[21:25], "little")
    return bson.decode(request[21 : 21 + length])


async def _message(reader: StreamReader) -> bytes:
    length = await reader.readexactly(4)
    return length + await reader.readexactly(int.from_bytes(length, "little") - 4)
