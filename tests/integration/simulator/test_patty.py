"""The ports that tags of nodes name, over real sockets: open while the node is booted, and no longer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from lcm.core.timeouts import timeout
from lcm.simulator.cml.accounts import ADMIN_ID
from lcm.simulator.cml.lab import Lab, Node
from lcm.simulator.cml.server import ServerOptions
from lcm.simulator.cml.site import Site
from lcm.simulator.pace import steady_unix_time
from support.labs_over_tls import cml_over_tls
from support.patience import PATIENCE_SECONDS
from support.ports import reserve_port
from support.processes import eventually


class Bench:
    """One lab on one server with an address of its own."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.labs = site.server.labs
        self.host = site.server.instance.private_ip
        self.lab: Lab = self.labs.create(self.now, title="t", owner_id=ADMIN_ID)

    @property
    def now(self) -> float:
        return steady_unix_time()

    def node(self, *tags: str, definition: str = "alpine") -> Node:
        number = len(self.lab.nodes)
        return self.labs.add_node(
            self.lab, self.now, label=f"n{number}", definition_id=definition, tags=list(tags)
        )

    async def start(self) -> None:
        self.labs.start(self.lab, self.now, ADMIN_ID)
        self.settle()
        await eventually(self._has_converged)

    def stop(self, node: Node) -> None:
        self.labs.stop_node(node, self.now, ADMIN_ID)
        self.settle()

    def settle(self) -> None:
        self.site._settled(self.site)

    async def opens(self, *ports: int) -> None:
        """Wait until these and no others are open."""

        async def are_open() -> bool:
            return self.site.patty.ports == sorted(ports)

        await eventually(are_open)

    async def greeting(self, port: int) -> str:
        async with timeout(PATIENCE_SECONDS):
            reader, writer = await asyncio.open_connection(self.host, port)
            try:
                return (await reader.readuntil(b"\r\n")).decode()
            finally:
                writer.close()

    async def is_refused(self, port: int) -> bool:
        try:
            _, writer = await asyncio.open_connection(self.host, port)
        except ConnectionRefusedError:
            return True
        writer.close()
        return False

    async def _has_converged(self) -> bool:
        return self.lab.has_converged


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    own = reserve_port()
    async with cml_over_tls(host=f"127.64.{own // 256}.{own % 256}") as (site, _):
        yield Bench(site)


async def test_ports_are_open_exactly_while_their_node_is_booted(bench: Bench) -> None:
    node = bench.node("serial:4001", "pat:tcp:4002:22", "pat:udp:4003:53", "vnc:4004", "a tag of its own")
    assert await bench.is_refused(4001)
    await bench.start()
    await bench.opens(4001, 4002, 4003, 4004)
    assert "n0 login:" in await bench.greeting(4001)
    assert not await bench.is_refused(4002)
    reader, writer = await asyncio.open_connection(bench.host, 4002)
    bench.stop(node)
    await bench.opens()
    async with timeout(PATIENCE_SECONDS):
        with suppress(ConnectionResetError):
            assert await reader.read() == b"", "the connection ends with its node"
    writer.close()
    assert await bench.is_refused(4001)


async def test_a_port_that_patty_does_not_serve_stays_closed(bench: Bench) -> None:
    bench.node("serial:1999", "serial:8000", "serial:4001:7", "pat:tcp:40", "serial:${PORT_X}")
    bench.node("serial:4002", definition="unmanaged_switch")
    bench.node("pat:tcp:4003:22")
    await bench.start()
    await bench.opens(4003)
    assert await bench.is_refused(8000)


async def test_of_two_nodes_with_one_port_the_first_to_boot_has_it(bench: Bench) -> None:
    first = bench.node("serial:4001")
    await bench.start()
    bench.node("serial:4001")
    await bench.start()
    await bench.opens(4001)
    assert "n0 login:" in await bench.greeting(4001)
    bench.stop(first)

    async def is_the_second() -> bool:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            return "n1 login:" in await bench.greeting(4001)
        return False

    await eventually(is_the_second)


async def test_other_tags_open_other_ports_at_once(bench: Bench) -> None:
    node = bench.node("serial:4001")
    await bench.start()
    bench.labs.change_node(node, bench.now, tags=["serial:4002"])
    bench.settle()
    await bench.opens(4002)


async def test_with_patty_off_no_port_is_open(bench: Bench) -> None:
    bench.node("serial:4001")
    await bench.start()
    await bench.opens(4001)
    for is_on, ports in ((False, ()), (True, (4001,))):
        bench.site.server.apply_options(ServerOptions(people=False, patty=is_on), bench.now)
        bench.settle()
        await bench.opens(*ports)
