"""PATty: the ports of a CML server that lead to its nodes, as their tags say, while they are booted.

A port outside 2000 to 7999 is not opened, and of two nodes that claim one port the first to boot has it: no
call of CML's API shows either.
"""

import asyncio
import sys
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, cast

from lcm.domain.lablet.ports import BadTag, PortKind, PortTag, read_tag
from lcm.simulator.cml.console import console_text
from lcm.simulator.cml.lab import BOOTED, Node

FIRST_PORT: Final = 2000
LAST_PORT: Final = 7999


class OpenPort(NamedTuple):
    """A port that leads to a node."""

    port: int
    is_udp: bool
    node: Node
    kind: PortKind

    @property
    def greeting(self) -> bytes:
        """What a client sees at once."""
        return console_text(self.node).encode() + b"\r\n" if self.kind is PortKind.SERIAL else b""


def open_ports(nodes: Iterable[Node]) -> list[OpenPort]:
    """The ports of booted nodes, in the order in which they were claimed."""
    booted = sorted((node for node in nodes if node.state is BOOTED and node.tags), key=lambda n: n.since)
    found: dict[tuple[int, bool], OpenPort] = {}
    for node in booted:
        for tag in filter(None, map(_read, node.tags)):
            if tag.outside.isdecimal() and _leads_somewhere(node, tag):
                port = OpenPort(int(tag.outside), tag.protocol == "udp", node, tag.kind)
                found.setdefault((port.port, port.is_udp), port)
    return list(found.values())


def _read(text: str) -> PortTag | None:
    try:
        return read_tag(text)
    except BadTag:
        return None


def _leads_somewhere(node: Node, tag: PortTag) -> bool:
    if not FIRST_PORT <= int(tag.outside) <= LAST_PORT:
        return False
    if tag.kind is PortKind.SERIAL:
        return tag.inside < len(node.console_keys)
    return tag.kind is PortKind.PAT or node.vnc_key is not None


class _Client(asyncio.Protocol):
    """A client of one port: it sees the greeting, and then nothing."""

    def __init__(self, port: OpenPort, clients: set[asyncio.Transport]) -> None:
        self._port = port
        self._clients = clients

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._clients.add(self._transport)
        self._transport.write(self._port.greeting)

    def connection_lost(self, exc: Exception | None) -> None:
        self._clients.discard(self._transport)


class _Listener:
    """One port on every address of a server."""

    def __init__(self, port: OpenPort) -> None:
        self.port = port
        self._clients: set[asyncio.Transport] = set()
        self._open: list[asyncio.Server | asyncio.DatagramTransport] = []

    async def listen(self, addresses: Iterable[str]) -> None:
        loop = asyncio.get_running_loop()
        for address in addresses:
            try:
                if self.port.is_udp:
                    at = (address, self.port.port)
                    self._open.append((await loop.create_datagram_endpoint(asyncio.DatagramProtocol, at))[0])
                else:
                    self._open.append(await loop.create_server(self._client, address, self.port.port))
            except OSError as failure:
                print(f"simulator: no PATty at {address}:{self.port.port}: {failure}", file=sys.stderr)

    def close(self) -> None:
        for listener in self._open:
            listener.close()
        for client in tuple(self._clients):
            client.abort()

    def _client(self) -> asyncio.Protocol:
        return _Client(self.port, self._clients)


class Patty:
    """Keeps the listeners of one server as its nodes say."""

    def __init__(self, wanted: Callable[[], list[OpenPort]], revision: Callable[[], int]) -> None:
        self._wanted = wanted
        self._revision = revision
        self._seen = -1
        self._changed = asyncio.Event()
        self._listeners: dict[tuple[int, bool], _Listener] = {}

    @property
    def ports(self) -> list[int]:
        """Open now."""
        return sorted(number for number, _ in self._listeners)

    def check(self) -> None:
        """Adjust the listeners if something has changed; call it after anything that may have."""
        if self._revision() != self._seen:
            self._changed.set()

    async def run(self, addresses: Iterable[str]) -> None:
        """Listen at these addresses until cancelled."""
        addresses = tuple(addresses)
        self._seen = -1
        try:
            while True:
                self._changed.clear()
                if self._revision() != self._seen:
                    self._seen = self._revision()
                    await self._adjust(addresses)
                else:
                    await self._changed.wait()
        finally:
            for key in tuple(self._listeners):
                self._listeners.pop(key).close()

    async def _adjust(self, addresses: tuple[str, ...]) -> None:
        wanted = {(port.port, port.is_udp): port for port in self._wanted()}
        for key, listener in tuple(self._listeners.items()):
            if wanted.get(key) != listener.port:
                self._listeners.pop(key).close()
        for key in wanted.keys() - self._listeners.keys():
            self._listeners[key] = _Listener(wanted[key])
            await self._listeners[key].listen(addresses)
