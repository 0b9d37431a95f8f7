"""A network between browser and server that can go silent: connections stay open and carry nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

CHUNK = 65536


class SilentProxy:
    """Passes bytes on to a port of this machine, until it is silent."""

    def __init__(self, port: int, tasks: asyncio.TaskGroup) -> None:
        self._port = port
        self._tasks = tasks
        self._is_passing = asyncio.Event()
        self._is_passing.set()
        self._ways: set[asyncio.Task[None]] = set()
        self._accepted: list[asyncio.StreamWriter] = []
        self.port = 0

    def fall_silent(self) -> None:
        """As the network of a computer that sleeps: nobody is told, and no connection works again."""
        self._is_passing.clear()
        self._cut()

    def wake(self) -> None:
        """Connections that were made in the silence, and new ones, work."""
        self._is_passing.set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._accepted.append(writer)
        way = self._tasks.create_task(self._pass(reader, writer))
        self._ways.add(way)
        way.add_done_callback(self._ways.discard)

    def close(self) -> None:
        self._cut()
        for writer in self._accepted:
            writer.close()

    def _cut(self) -> None:
        for way in self._ways:
            way.cancel()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._is_passing.wait()
        onward_reader, onward = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(reader, onward))
                both.create_task(_pump(onward_reader, writer))
        finally:
            onward.close()
        writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


@asynccontextmanager
async def silent_proxy(port: int) -> AsyncIterator[SilentProxy]:
    async with asyncio.TaskGroup() as tasks:
        proxy = SilentProxy(port, tasks)
        server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
        proxy.port = server.sockets[0].getsockname()[1]
        async with server:
            yield proxy
        proxy.close()
