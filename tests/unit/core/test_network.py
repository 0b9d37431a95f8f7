"""Errors of the network, in words."""

import errno
import socket
import ssl

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from lcm.core.network import plainly

KEY = ConnectionKey("10.0.0.1", 443, True, True, None, None, None)
REFUSED = OSError(errno.ECONNREFUSED, "Connect call failed ('10.0.0.1', 443)")
NO_HANDSHAKE = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")
NO_SUCH_NAME = socket.gaierror(-2, "Name or service not known")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TimeoutError(), "timed out"),
        (REFUSED, "connection refused"),
        (aiohttp.ClientConnectorError(KEY, REFUSED), "connection refused"),
        (ConnectionResetError(errno.ECONNRESET, "x"), "connection reset by peer"),
        (OSError(errno.EHOSTUNREACH, "x"), "no route to host"),
        (aiohttp.ServerDisconnectedError(), "Server disconnected"),
        (OSError(), "OSError"),
    ],
)
def test_an_error_says_what_happened_and_nothing_else(error: Exception, said: str) -> None:
    assert plainly(error) == said


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (NO_HANDSHAKE, "wrong version number"),
        (aiohttp.ClientConnectorSSLError(KEY, NO_HANDSHAKE), "wrong version number"),
        (NO_SUCH_NAME, "Name or service not known"),
    ],
)
def test_numbers_that_are_not_the_systems_own_are_not_taken_for_its(error: Exception, part: str) -> None:
    assert part in plainly(error)
