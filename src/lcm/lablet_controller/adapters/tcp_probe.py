"""Connects to the ports of workers over TCP."""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress

from lcm.core.timeouts import timeout
from lcm.domain.lablet.probe import PortAnswer


class TcpProbe:
    """Opens a connection and closes it at once; so many at a time, whatever the number of sessions is."""

    def __init__(self, *, seconds: float = 2.0, seconds_in_all: float = 10.0, at_once: int = 64) -> None:
        self._seconds = seconds
        self._seconds_in_all = seconds_in_all
        self._slots = asyncio.Semaphore(at_once)

    async def probe(self, host: str, ports: Collection[int]) -> Mapping[int, PortAnswer]:
        answers = dict.fromkeys(ports, PortAnswer.SILENT)

        async def connect(port: int) -> None:
            async with self._slots:
                answers[port] = await self._connect(host, port)

        with suppress(TimeoutError):
            async with timeout(self._seconds_in_all), asyncio.TaskGroup() as tasks:
                for port in answers:
                    tasks.create_task(connect(port), name="probe")
        return answers

    async def _connect(self, host: str, port: int) -> PortAnswer:
        try:
            async with timeout(self._seconds):
                _, writer = await asyncio.open_connection(host, port)
        except ConnectionRefusedError:
            return PortAnswer.REFUSED
        except OSError:  # which a timeout is too
            return PortAnswer.SILENT
        writer.close()
        return PortAnswer.OPEN
