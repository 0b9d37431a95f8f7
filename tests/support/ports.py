"""Ports for servers that cannot choose their own, or that must come back where they were."""

import socket
from functools import cache
from typing import Final

PORTS: Final = range(10_000, 20_000)
"""Below those that systems hand out to connections, and apart from those that `lcm up --ha` chooses."""
PORTS_OF_SESSIONS: Final = 100


def reserve_port() -> int:
    """A port reserved until this process ends, whether a server listens on it or not.

    The UDP port of the same number is kept as the sign of it: only one process can have that one.
    """
    return _reserve(PORTS)


@cache
def session_ports() -> dict[str, str]:
    """The ports that lablet sessions are granted, as settings: no other test process has one of them.

    Simulated workers of all processes share their addresses, at which PATty opens these ports.
    """
    first = _reserve(range(3_000, 8_000, PORTS_OF_SESSIONS))  # a demo on this host has the lowest
    return {"PORT_RANGE_MIN": str(first), "PORT_RANGE_MAX": str(first + PORTS_OF_SESSIONS - 1)}


def _reserve(ports: range) -> int:
    for port in ports:
        sign = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            sign.bind(("127.0.0.1", port))
            socket.create_server(("127.0.0.1", port)).close()  # another program may listen there
        except OSError:
            sign.close()
        else:
            sign.detach()  # open until the end
            return port
    raise AssertionError("no port is free")
