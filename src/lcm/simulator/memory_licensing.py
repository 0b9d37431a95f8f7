"""CML's licensing in memory: a pool of licenses that registrations take and deregistrations give back."""

from lcm.worker_controller.ports import LicenseState

TOKEN = "a-token-of-the-pool"


class MemoryLicensing:
    """Takes one token, and has so many licenses."""

    def __init__(self, pool: int = 100) -> None:
        self.pool = pool
        self.registered: set[str] = set()
        self.failures: dict[str, str] = {}
        self.unreachable: Exception | None = None
        self.forgets_to_tell = False
        """A deregistration is done on the server, but the pool does not hear of it."""
        self.calls: list[str] = []

    async def state(self, host: str, pinned_sha256: str | None) -> LicenseState:
        self._answer()
        return LicenseState(host in self.registered, "CML_Enterprise", self.failures.get(host, ""))

    async def register(self, host: str, pinned_sha256: str | None, token: str) -> str:
        self._answer()
        self.calls.append(f"register {host}")
        self.failures.pop(host, None)
        if token != TOKEN:
            self.failures[host] = f"'{token}' is not valid"
        elif len(self.registered) >= self.pool:
            self.failures[host] = "no license is left"
        else:
            self.registered.add(host)
        return ""

    async def deregister(self, host: str, pinned_sha256: str | None) -> str:
        self._answer()
        self.calls.append(f"deregister {host}")
        if self.forgets_to_tell:
            return "the pool was not told"
        self.registered.discard(host)
        return ""

    def _answer(self) -> None:
        if self.unreachable is not None:
            raise self.unreachable
