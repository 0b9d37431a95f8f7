"""The proxy through which CML is reached (HTTPS_PROXY, NO_PROXY)."""

import asyncio
import base64
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Self
from urllib.parse import unquote, urlsplit

MAX_REPLY_BYTES = 64 * 1024


@dataclass(frozen=True)
class Proxy:
    """An HTTP proxy that opens tunnels (CONNECT)."""

    host: str
    port: int
    url: str = field(repr=False)
    """As aiohttp and picows want it; it may carry a password."""
    authorization: str = field(default="", repr=False)
    exceptions: tuple[str, ...] = ()
    """Hosts reached directly: names with their subdomains, addresses, networks, or `*`."""

    @classmethod
    def parse(cls, url: str, no_proxy: str = "") -> Self:
        """Raises ValueError for anything but http://[user:password@]host[:port]."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError("write http://host:port; CML is reached through no other kind of proxy")
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
        return cls(
            host=parts.hostname,
            port=parts.port or 80,
            url=parts.geturl(),
            authorization=f"Basic {base64.b64encode(login.encode()).decode()}" if login else "",
            exceptions=tuple(filter(None, (name.strip().lower() for name in no_proxy.split(",")))),
        )

    def serves(self, host: str) -> bool:
        """Whether a host is reached through it; loopback never is."""
        if _matches(host.lower(), "127.0.0.0/8") or host in ("::1", "localhost"):
            return False
        return not any(_matches(host.lower(), exception) for exception in self.exceptions)

    async def open_tunnel(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection to the host. Raises OSError if the proxy opens none."""
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=MAX_REPLY_BYTES)
        try:
            login = f"Proxy-Authorization: {self.authorization}\r\n" if self.authorization else ""
            writer.write(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n{login}\r\n".encode())
            reply = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            reply = b"no HTTP"
        except BaseException:
            writer.transport.abort()
            raise
        status = reply.split(b"\r\n", 1)[0].decode("latin-1")
        if status.split(" ", 2)[1:2] != ["200"]:
            writer.transport.abort()
            raise ConnectionRefusedError(f"the proxy {self.host}:{self.port} answered {status!r}")
        return reader, writer


def _matches(host: str, exception: str) -> bool:
    if exception == "*":
        return True
    with suppress(ValueError):
        return ip_address(host) in ip_network(exception, strict=False)
    name = exception.removeprefix("*").removeprefix(".")
    return host == name or host.endswith(f".{name}")
