"""Links that sign a browser in once."""

import aiohttp

from lcm.cli.processes import StartFailed
from lcm.core.timeouts import timeout
from lcm.core.tls import ClientContext, trust_of

LINK_SECONDS = 10.0


async def sign_in_link(url: str, token: str, tls: ClientContext | None = None) -> str:
    """Return a link that signs a browser in as the principal of this token: once, within ten minutes."""
    try:
        async with (
            timeout(LINK_SECONDS),
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session,
            session.post(f"{url}/api/session/links", ssl=trust_of(tls)) as response,
        ):
            answer = await response.json()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise StartFailed(f"no sign-in link from {url}: {str(error) or 'timed out'}") from None
    if response.status != 201:
        raise StartFailed(f"no sign-in link from {url}: {answer['detail']}")
    return f"{url}/?code={answer['code']}"
