"""The replication feed of another control plane over HTTP, line by line."""

from collections.abc import AsyncGenerator

import aiohttp

from lcm.core.tls import ClientContext, trust_of
from lcm.domain.errors import Unreachable
from lcm.rest.schemas import API_KEY_HEADER, CONTROL_PLANE, SERVICE_HEADER

PATH = "/api/internal/peers/feed"
CONNECT_SECONDS = 5.0
MAX_LINE_BYTES = 4 * 1024 * 1024


async def peer_feed(address: str, key: str, tls: ClientContext | None = None) -> AsyncGenerator[bytes, None]:
    """Yield the lines of the feed. Raises Unreachable when it ends; the caller limits the silence."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, read_bufsize=MAX_LINE_BYTES) as session,
            session.get(
                f"{address.rstrip('/')}{PATH}",
                headers={API_KEY_HEADER: key, SERVICE_HEADER: CONTROL_PLANE},
                allow_redirects=False,
                ssl=trust_of(tls),
            ) as response,
        ):
            if response.status != 200:
                raise Unreachable(f"{address} answers {response.status}")
            async for line in response.content:
                yield line
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise Unreachable(f"{address}: {str(error) or 'no answer in time'}") from None
    raise Unreachable(f"{address} ended the feed")
