"""Where a worker may be: only addresses that cannot lead LCM, and the logins it sends, anywhere else.

A name would be looked up anew at every connection; the cloud's metadata service has a link-local address.
"""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address

from lcm.domain.errors import InvalidAddress
from lcm.domain.worker import Instance

Network = IPv4Network | IPv6Network


def require_worker_addresses(instance: Instance, networks: Sequence[Network]) -> None:
    """Raise InvalidAddress unless its addresses are IP addresses, and inside the networks if any are set."""
    for address in (instance.public_ip, instance.private_ip):
        if address is not None:
            _require(address, networks)


def _require(text: str, networks: Sequence[Network]) -> None:
    try:
        address = ip_address(text)
    except ValueError:
        raise InvalidAddress(f"{text[:100]!r} is not an IP address; report the one that EC2 names") from None
    if address.is_link_local or address.is_multicast or address.is_unspecified:
        raise InvalidAddress(f"{address} is no address of a worker")
    if networks and not any(address in network for network in networks):
        raise InvalidAddress(f"{address} is in none of WORKER_NETWORKS; add its network there if it is yours")
