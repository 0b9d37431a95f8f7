"""A port probe says whether ports take connections: over real sockets to PATty's listeners, and in memory."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Protocol

import pytest

from lcm.core.clock import SystemClock
from lcm.core.timeouts import timeout
from lcm.domain.lablet.probe import PortAnswer
from lcm.lablet_controller.adapters.tcp_probe import TcpProbe
from lcm.lablet_controller.ports import PortProbe
from lcm.simulator.cml.accounts import ADMIN_ID
from lcm.simulator.cml.server import CmlServer, ServerOptions
from lcm.simulator.cml.site import Site
from lcm.simulator.pace import steady_unix_time
from support.labs_over_tls import HOST, cml_over_tls, simulated_cml
from support.memory_ports import MemoryPortProbe
from support.patience import PATIENCE_SECONDS
from support.processes import eventually

OPEN, REFUSED, SILENT = PortAnswer.OPEN, PortAnswer.REFUSED, PortAnswer.SILENT


class Bench(Protocol):
    host: str
    probe: PortProbe

    async def boot(self, *tags: str) -> None:
        """Boot a node with these tags."""
        ...

    def switch_patty_off(self) -> None: ...

    def silent_host(self) -> AbstractContextManager[tuple[str, int]]:
        """A host, and a port of it that answers nothing."""
        ...


class MemoryBench:
    host = HOST

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._cml = simulated_cml(speed=1e6, running_since=self._clock.now().timestamp())
        self.probe: PortProbe = MemoryPortProbe(self._clock, {HOST: self._cml})

    async def boot(self, *tags: str) -> None:
        _start(self._cml, self._clock.now().timestamp(), *tags)

    def switch_patty_off(self) -> None:
        self._cml.server_options = ServerOptions(people=False, patty=False)

    @contextmanager
    def silent_host(self) -> Iterator[tuple[str, int]]:
        yield "192.0.2.1", 2101


class SocketBench:
    def __init__(self, site: Site) -> None:
        self._site = site
        self.host = site.server.instance.private_ip
        self.probe: PortProbe = TcpProbe(seconds=PATIENCE_SECONDS, seconds_in_all=PATIENCE_SECONDS)

    async def boot(self, *tags: str) -> None:
        _start(self._site.server, steady_unix_time(), *tags)
        self._site._settled(self._site)

    def switch_patty_off(self) -> None:
        self._site.server.apply_options(ServerOptions(people=False, patty=False), steady_unix_time())
        self._site._settled(self._site)

    @contextmanager
    def silent_host(self) -> Iterator[tuple[str, int]]:
        """A listener whose queue is full: the system drops what comes."""
        with ExitStack() as stack:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
            for _ in range(4):
                client = stack.enter_context(socket.socket())
                client.setblocking(False)
                client.connect_ex(listener.getsockname())
            yield listener.getsockname()


def _start(cml: CmlServer, now: float, *tags: str) -> None:
    lab = cml.labs.create(now, title="t", owner_id=ADMIN_ID)
    cml.labs.add_node(lab, now, label="n", definition_id="alpine", tags=list(tags))
    cml.labs.start(lab, now, ADMIN_ID)


async def in_memory() -> AsyncIterator[Bench]:
    yield MemoryBench()


async def over_sockets() -> AsyncIterator[Bench]:
    async with cml_over_tls() as (site, _):
        yield SocketBench(site)


@pytest.fixture(params=[in_memory, over_sockets])
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    way: Callable[[], AsyncIterator[Bench]] = request.param
    async for found in way():
        yield found


async def until(bench: Bench, **answers: PortAnswer) -> None:
    """Ports open when their node has booted, and close, a moment later."""
    wanted = {int(name.removeprefix("port")): answer for name, answer in answers.items()}

    async def is_so() -> bool:
        return await bench.probe.probe(bench.host, wanted.keys()) == wanted

    await eventually(is_so)


async def test_a_port_that_patty_serves_is_open_and_another_is_refused(bench: Bench) -> None:
    await until(bench, port2101=REFUSED)
    await bench.boot("serial:2101", "pat:udp:2102:53")
    await until(bench, port2101=OPEN, port2102=REFUSED, port2103=REFUSED)


async def test_every_port_is_refused_where_patty_is_off(bench: Bench) -> None:
    await bench.boot("serial:2101")
    await until(bench, port2101=OPEN)
    bench.switch_patty_off()
    await until(bench, port2101=REFUSED)


async def test_no_ports_are_no_answers(bench: Bench) -> None:
    assert await bench.probe.probe(bench.host, []) == {}


async def test_a_host_that_cannot_be_reached_is_silent(bench: Bench) -> None:
    probe = TcpProbe(seconds=0.1) if isinstance(bench, SocketBench) else bench.probe
    with bench.silent_host() as (host, port):
        assert await probe.probe(host, [port]) == {port: SILENT}


class Stuck(TcpProbe):
    """Connects to nothing, as if a firewall dropped every packet."""

    def __init__(self, **limits: float) -> None:
        super().__init__(at_once=4, **limits)
        self.now = 0
        self.most = 0

    async def _connect(self, host: str, port: int) -> PortAnswer:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.Event().wait()
        finally:
            self.now -= 1
        return OPEN


async def test_many_ports_are_tested_a_few_at_a_time_and_within_a_limit() -> None:
    probe = Stuck(seconds=PATIENCE_SECONDS, seconds_in_all=0.05)
    async with timeout(PATIENCE_SECONDS):
        answers = await probe.probe(HOST, range(3000, 3100))
    assert set(answers.values()) == {SILENT}
    assert (len(answers), probe.most, probe.now) == (100, 4, 0)
