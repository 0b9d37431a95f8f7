"""The ports of workers in memory, behind the lablet controller's port: those that PATty would open."""

from collections.abc import Collection, Mapping

from lcm.core.clock import Clock
from lcm.domain.lablet.probe import PortAnswer
from lcm.simulator.cml.server import CmlServer as SimulatedCml


class MemoryPortProbe:
    """The servers by host; one that is missing does not answer."""

    def __init__(self, clock: Clock, servers: Mapping[str, SimulatedCml]) -> None:
        self._clock = clock
        self.servers = servers
        self.tries: list[list[int]] = []
        """The ports of each call."""

    async def probe(self, host: str, ports: Collection[int]) -> Mapping[int, PortAnswer]:
        self.tries.append(sorted(ports))
        cml = self.servers.get(host)
        if cml is None:
            return dict.fromkeys(ports, PortAnswer.SILENT)
        cml.labs.advance(self._clock.now().timestamp())
        is_open = {each.port for each in cml.open_ports() if not each.is_udp}
        return {port: PortAnswer.OPEN if port in is_open else PortAnswer.REFUSED for port in ports}
