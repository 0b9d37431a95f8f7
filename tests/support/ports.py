"""Ports for servers that cannot choose their own, or that must come back where they were."""

import socket
from typing import Final

PORTS: Final = range(10_000, 20_000)
"""Below those that systems hand out to connections, and apart from those that `lcm up --ha` chooses."""


def reserve_port() -> int:
    """A port reserved until this process ends, whether a server listens on it or not.

    The UDP port of the same number is kept as the sign of it: only one process can have that one.
    """
    for port in PORTS:
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
