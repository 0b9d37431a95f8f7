"""Bounds on the connections of a server: in all and per address, within what the process may open.

A connection that exceeds a bound is closed at once: those that are open go on.
"""

import resource
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Final

MAX_CONNECTIONS: Final = 4_000
MAX_CONNECTIONS_PER_ADDRESS: Final = 2_000
DESCRIPTORS_PER_CONNECTION: Final = 2
"""The socket, and the file that it may be sent."""
OTHER_DESCRIPTORS: Final = 64
"""What the process needs besides: store, log, connections of its own."""


@dataclass(frozen=True)
class ConnectionLimits:
    """How many connections a server keeps open; those of its proxies count in all only."""

    in_all: int = MAX_CONNECTIONS
    per_address: int = MAX_CONNECTIONS_PER_ADDRESS

    def within(self, descriptors: int) -> "ConnectionLimits":
        """Return the limits for a process that may have so many files open."""
        in_all = min(self.in_all, max(8, (descriptors - OTHER_DESCRIPTORS) // DESCRIPTORS_PER_CONNECTION))
        return ConnectionLimits(in_all, min(self.per_address, max(4, in_all // 2)))


DEFAULT_LIMITS: Final = ConnectionLimits()


class Connections:
    """The connections that are open now."""

    def __init__(self, limits: ConnectionLimits, trusted_proxies: Sequence[str] = ()) -> None:
        self._limits = limits
        self._proxies = [ip_network(proxy) for proxy in trusted_proxies]
        self._by_address: Counter[str] = Counter()
        self.refused = 0

    @property
    def in_all(self) -> int:
        return self._by_address.total()

    def open(self, address: str) -> bool:
        """Count a new connection; return False if there is no room for it."""
        is_full = self.in_all >= self._limits.in_all
        if is_full or (self._by_address[address] >= self._limits.per_address and not self._is_proxy(address)):
            self.refused += 1
            return False
        self._by_address[address] += 1
        return True

    def close(self, address: str) -> None:
        """Forget a connection that was counted."""
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def _is_proxy(self, address: str) -> bool:
        try:
            return any(ip_address(address) in proxy for proxy in self._proxies)
        except ValueError:
            return False


def raise_descriptor_limit() -> int:
    """Allow this process as many open files as it may have; return how many. Go programs do the same."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if hard != resource.RLIM_INFINITY else max(soft, 65_536)
    if wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(soft, wanted)
