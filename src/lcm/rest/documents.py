"""Fetches small documents of untrusted servers, such as an issuer's keys: bounded in size and time, no
redirects."""

import aiohttp

from lcm.core.timeouts import timeout
from lcm.domain.errors import Unreachable

TIMEOUT_SECONDS = 5.0
MAX_BYTES = 256 * 1024


async def fetch_document(address: str) -> bytes:
    """Return the document at an address. Raises Unreachable."""
    try:
        async with (
            timeout(TIMEOUT_SECONDS),
            aiohttp.ClientSession() as session,
            session.get(address, allow_redirects=False) as response,
        ):
            if response.status != 200:
                raise Unreachable(f"{address} answers {response.status}")
            document = await response.content.read(MAX_BYTES + 1)
            while chunk := await response.content.read(MAX_BYTES + 1):
                document += chunk
                if len(document) > MAX_BYTES:
                    break
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Unreachable(f"{address}: {str(error) or 'no answer in time'}") from None
    if len(document) > MAX_BYTES:
        raise Unreachable(f"{address} is larger than {MAX_BYTES} bytes")
    return document
