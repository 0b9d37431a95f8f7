"""What goes wrong in a network, in a few words; and which of our addresses reaches another."""

import os
import socket
import ssl


def plainly(error: Exception) -> str:
    """For people who read logs: the texts of libraries carry addresses, objects or nothing at all."""
    if isinstance(error, TimeoutError):
        return "timed out"
    # TLS numbers its errors in its own way, name servers theirs below zero.
    if isinstance(error, OSError) and not isinstance(_cause(error), ssl.SSLError) and (error.errno or 0) > 0:
        return os.strerror(error.errno or 0).lower()
    return str(error) or type(error).__name__


def _cause(error: OSError) -> BaseException:
    """aiohttp wraps what the system said."""
    return getattr(error, "os_error", error)


def own_address_towards(target: str) -> str | None:
    """The address of this host from which it reaches another one; None without a route. Sends nothing."""
    family = socket.AF_INET6 if ":" in target else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as unconnected:
        try:
            unconnected.connect((target, 9))  # any port: UDP only chooses the route
        except OSError:
            return None
        address: str = unconnected.getsockname()[0]
        return address
