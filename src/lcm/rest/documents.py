"""Small documents of untrusted servers, such as an issuer's keys and tokens: bounded in size and time, no
redirects."""

from collections.abc import Mapping

import aiohttp

from lcm.core.timeouts import timeout
from lcm.domain.errors import Unreachable

TIMEOUT_SECONDS = 5.0
MAX_BYTES = 256 * 1024


async def fetch_document(address: str) -> bytes:
    """Return the document at an address. Raises Unreachable."""
    status, document = await _ask("GET", address)
    if status != 200:
        raise Unreachable(f"{address} answers {status}")
    return document


async def post_form(address: str, headers: Mapping[str, str], form: str) -> tuple[int, bytes]:
    """Return status and body of the answer to a form. Raises Unreachable."""
    return await _ask("POST", address, headers, form.encode())


async def _ask(
    method: str, address: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> tuple[int, bytes]:
    try:
        async with (
            timeout(TIMEOUT_SECONDS),
            aiohttp.ClientSession() as session,
            session.request(method, address, headers=headers, data=body, allow_redirects=False) as response,
        ):
            document = await response.content.read(MAX_BYTES + 1)
            while chunk := await response.content.read(MAX_BYTES + 1):
                document += chunk
                if len(document) > MAX_BYTES:
                    break
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Unreachable(f"{address}: {str(error) or 'no answer in time'}") from None
    if len(document) > MAX_BYTES:
        raise Unreachable(f"{address} is larger than {MAX_BYTES} bytes")
    return response.status, document
