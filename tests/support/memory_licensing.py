"""CML's licensing in memory, behind the worker controller's port.

Registrations, deregistrations and the pool are those of `lcm.simulator.cml`. A registration is decided when
`finish` is called, whatever the time is.
"""

import msgspec

from lcm.cml.sessions import CmlServer
from lcm.domain.license import LicenseTerms
from lcm.simulator.cml.licensing import AUTHORIZE_SECONDS, REGISTER_SECONDS, LicensePool, Licensing
from lcm.simulator.cml.refusal import Refused
from lcm.simulator.pace import Pace
from lcm.worker_controller.adapters.cml_licensing import license_state
from lcm.worker_controller.ports import HAS_NONE, POOL_NOT_NOTIFIED, LicenseState

TOKEN = "a-token-of-the-pool"
STEADY = Pace(seed=0, speed=1.0, spread=0.0)


class MemoryLicensing:
    """The licensing agents of all servers, and their pool."""

    def __init__(self, pool: int = 100) -> None:
        self.pool = LicensePool(TOKEN, pool)
        self.agents: dict[str, Licensing] = {}
        self.unreachable: Exception | None = None
        self.refusal = ""
        """The answer to a registration that it does not accept."""
        self.calls: list[str] = []

    async def state(self, server: CmlServer) -> LicenseState:
        return self.state_of(server.host)

    async def prepare(self, server: CmlServer, terms: LicenseTerms, state: LicenseState) -> str:
        return self.set_product(server.host, terms, state)

    def set_product(self, host: str, terms: LicenseTerms, state: LicenseState) -> str:
        agent = self._agent(host)
        try:
            if terms.product_license not in (None, state.tier):
                self.calls.append(f"product {terms.product_license}")
                agent.set_product(terms.product_license)
        except Refused as refused:
            return refused.description
        return ""

    async def set_node_count(self, server: CmlServer, feature: str, count: int) -> str:
        return self.set_nodes(server.host, feature, count)

    def set_nodes(self, host: str, feature: str, count: int) -> str:
        self.calls.append(f"nodes {count}")
        try:
            self._agent(host).set_features({feature: count})
        except Refused as refused:
            return refused.description
        return ""

    async def register(self, server: CmlServer, token: str, *, again: bool = False) -> str:
        refusal = self.begin(server.host, token, again=again)
        if not refusal:
            self.finish(server.host)
        return refusal

    async def deregister(self, server: CmlServer, *, within_seconds: float) -> str:
        return self.give_back(server.host)

    def state_of(self, host: str) -> LicenseState:
        self._agent(host)  # raises unless it can be reached
        return self.truth_of(host)

    def truth_of(self, host: str) -> LicenseState:
        """The state of a server, whether it can be reached or not."""
        return license_state(msgspec.json.encode(self.agent_of(host).status(now=0.0)))

    def give_back(self, host: str) -> str:
        agent = self._agent(host)
        self.calls.append(f"deregister {host}")
        try:
            return "" if agent.deregister(now=0.0) else POOL_NOT_NOTIFIED
        except Refused:
            return HAS_NONE

    def begin(self, host: str, token: str, *, again: bool = False) -> str:
        """Accept a registration, which is decided later, or return why not."""
        agent = self._agent(host)
        self.calls.append(f"register {host}")
        try:
            if not self.refusal:
                agent.register(token, reregister=again, now=0.0)
        except Refused as refused:
            return refused.description
        return self.refusal

    def finish(self, host: str) -> None:
        """The registration that is under way, if there is one, takes a license or fails."""
        self.agents[host].is_licensed(now=REGISTER_SECONDS + AUTHORIZE_SECONDS)  # a read advances it

    def lose_power(self, host: str) -> None:
        self.agents[host].lose_power(at=0.0)

    @property
    def registered(self) -> set[str]:
        return {host for host, agent in self.agents.items() if agent.is_licensed(now=0.0)}

    @property
    def held(self) -> set[str]:
        """The servers that the pool counts."""
        return set(self.pool.holders.values())

    @property
    def owed(self) -> set[str]:
        """Deregistered on the server, and still counted by the pool."""
        return self.held - self.registered

    def _agent(self, host: str) -> Licensing:
        if self.unreachable is not None:
            raise self.unreachable
        return self.agent_of(host)

    def agent_of(self, host: str) -> Licensing:
        if host not in self.agents:
            self.agents[host] = Licensing(pool=self.pool, pace=STEADY, name=host)
        return self.agents[host]
