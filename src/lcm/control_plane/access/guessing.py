"""Wrong secrets: counted per address and in all. A valid secret is never refused for those of others.

A secret that needs a read of the store is looked up before it is judged. Addresses that guess share a few
look-ups at a time, so that their guesses queue behind each other and load the store no further.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import IPv6Address, ip_network
from typing import Final

from starlette.requests import HTTPConnection

from lcm.control_plane.access.rate_limit import Buckets
from lcm.control_plane.access.roles import TooManyRequests
from lcm.core.clock import Clock

WRONG_BURST: Final = 50
WRONG_PER_SECOND: Final = 1.0
WRONG_BURST_IN_ALL: Final = 1_000
WRONG_PER_SECOND_IN_ALL: Final = 20.0
LOOKUPS_OF_GUESSERS: Final = 4
"""How many secrets of addresses that guess are looked up at once."""

_TOO_MANY = "too many invalid tokens were sent from this address; wait and try again"
_ALL: Final = "all"


class Guesses:
    """The wrong secrets that were sent lately."""

    def __init__(self, clock: Clock) -> None:
        self._by_address = Buckets(clock, per_second=WRONG_PER_SECOND, burst=WRONG_BURST)
        self._in_all = Buckets(clock, per_second=WRONG_PER_SECOND_IN_ALL, burst=WRONG_BURST_IN_ALL)
        self._lookups = asyncio.Semaphore(LOOKUPS_OF_GUESSERS)
        self.total = 0
        """Wrong secrets since the start of the process."""

    @asynccontextmanager
    async def lookup(self, request: HTTPConnection) -> AsyncIterator[None]:
        """Look up a secret within the block; one from an address that guesses waits for its turn."""
        if self._by_address.wait_seconds(_network_of(request)) <= 0:
            yield
            return
        async with self._lookups:
            yield

    def count(self, request: HTTPConnection) -> None:
        """Count a wrong secret. Raises TooManyRequests if there were too many."""
        self.total += 1
        wait = max(self._by_address.take(_network_of(request)), self._in_all.take(_ALL))
        if wait > 0:
            raise TooManyRequests(wait, _TOO_MANY)


def address_of(request: HTTPConnection) -> str:
    """Return the address of the client, as a trusted proxy gave it or else that of the connection."""
    return request.client.host if request.client else "unknown"


def _network_of(request: HTTPConnection) -> str:
    """Return what one client can choose addresses from: its IPv4 address, or the /64 of its IPv6 address."""
    address = address_of(request)
    try:
        IPv6Address(address)
    except ValueError:
        return address
    return str(ip_network(f"{address.partition('%')[0]}/64", strict=False))
