"""CML's licensing in memory: a pool of licenses that registrations take and deregistrations release."""

from lcm.worker_controller.ports import POOL_NOT_NOTIFIED, CmlServer, LicenseState

TOKEN = "a-token-of-the-pool"


class MemoryLicensing:
    """Accepts one token, and has so many licenses."""

    def __init__(self, pool: int = 100) -> None:
        self.pool = pool
        self.registered: set[str] = set()
        self.under_way: dict[str, str] = {}
        """Registrations that CML accepted and has not finished, with their tokens."""
        self.owed: set[str] = set()
        """Deregistered on the server, and still counted by the pool."""
        self.failures: dict[str, str] = {}
        self.unreachable: Exception | None = None
        self.refusal = ""
        """The answer to a registration that it does not accept."""
        self.loses_deregistrations = False
        """A deregistration is done on the server, but does not reach the pool."""
        self.calls: list[str] = []

    async def state(self, server: CmlServer) -> LicenseState:
        return self.state_of(server.host)

    async def register(self, server: CmlServer, token: str) -> str:
        self.begin(server.host, token)
        if not self.refusal:
            self.finish(server.host)
        return self.refusal

    async def deregister(self, server: CmlServer) -> str:
        return self.give_back(server.host)

    def state_of(self, host: str) -> LicenseState:
        self._answer()
        is_free = host not in self.registered and host not in self.under_way
        return LicenseState(
            host in self.registered, "CML_Enterprise", self.failures.get(host, ""), is_free=is_free
        )

    def give_back(self, host: str) -> str:
        self._answer()
        self.calls.append(f"deregister {host}")
        if self.loses_deregistrations:
            self.owed |= self.registered & {host}
        self.registered.discard(host)
        return POOL_NOT_NOTIFIED if self.loses_deregistrations else ""

    def begin(self, host: str, token: str) -> None:
        """Accept a registration; it is decided later."""
        self._answer()
        self.calls.append(f"register {host}")
        if not self.refusal:
            self.failures.pop(host, None)
            self.under_way[host] = token

    def finish(self, host: str) -> None:
        """The registration that is under way, if there is one, takes a license or fails."""
        token = self.under_way.pop(host, None)
        if token is None or host in self.registered:
            return
        if token != TOKEN:
            self.failures[host] = f"'{token}' is not valid"
        elif len(self.held) >= self.pool:
            self.failures[host] = "no license is left"
        else:
            self.registered.add(host)
            self.owed.discard(host)  # the pool identifies a server by its name: one license each

    @property
    def held(self) -> set[str]:
        """The servers that the pool counts."""
        return self.registered | self.owed

    def _answer(self) -> None:
        if self.unreachable is not None:
            raise self.unreachable
