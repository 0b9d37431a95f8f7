"""Networks of the simulated instances: loopback only, no two regions overlap."""

import itertools
from ipaddress import IPv4Network
from typing import Final

LOOPBACK: Final = IPv4Network("127.0.0.0/8")
"""All that can reach them."""
VPC: Final = IPv4Network("127.64.0.0/16")
SUBNETS: Final = {
    "us-east-1": IPv4Network("127.64.0.0/18"),
    "eu-west-1": IPv4Network("127.64.64.0/18"),
}
PUBLIC: Final = IPv4Network("127.64.128.0/17")


class PublicAddresses:
    """Allocates public addresses; a released one is reused as late as possible."""

    def __init__(self, network: IPv4Network = PUBLIC) -> None:
        self._round = itertools.cycle(map(str, network.hosts()))
        self._in_use: set[str] = set()

    def allocate(self) -> str:
        """A free address. There are more of them than instances fit into the subnets."""
        address = next(candidate for candidate in self._round if candidate not in self._in_use)
        self._in_use.add(address)
        return address

    def release(self, address: str) -> None:
        self._in_use.discard(address)
