"""HTTP for the asynchronous client."""

import asyncio
from collections.abc import Mapping

import aiohttp

from lcm.client.calls import Answer
from lcm.client.contexts import Context, address_of, trust_in
from lcm.client.errors import Unreachable
from lcm.client.sync_transport import Access
from lcm.core.network import plainly
from lcm.core.timeouts import timeout


class AsyncAccess:
    """The access token of a context; a new one is asked for in a thread."""

    def __init__(self, context: Context) -> None:
        self._access = Access(context)
        self._asking = asyncio.Lock()

    async def headers(self) -> dict[str, str]:
        """Raises SignInFailed, and Unreachable if there is no valid token without the identity provider."""
        if not self._access.is_due:
            return self._access.headers()
        async with self._asking:
            return await asyncio.get_running_loop().run_in_executor(None, self._access.headers)


class AsyncStream:
    """The body of an answer, as it comes."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def read(self, within_seconds: float) -> bytes | None:
        """Return the next piece, empty at the end; None if none came in time."""
        try:
            async with timeout(within_seconds):
                return await self._response.content.readany()
        except TimeoutError:
            return None
        except (aiohttp.ClientError, OSError):
            return b""

    async def close(self) -> None:
        self._response.close()


class AsyncTransport:
    """One connection pool to one address."""

    def __init__(self, url: str, ca_file: str | None, timeout_seconds: float) -> None:
        self._url = url.rstrip("/")
        self._timeout_seconds = timeout_seconds
        address_of(self._url)
        self._tls = trust_in(ca_file) if ca_file else True
        self._session: aiohttp.ClientSession | None = None

    async def send(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        """Raises Unreachable."""
        try:
            async with (
                timeout(self._timeout_seconds),
                self._opened().request(
                    method,
                    self._url + target,
                    data=body,
                    headers=headers,
                    ssl=self._tls,
                    allow_redirects=False,
                ) as response,
            ):
                answered = {name.lower(): value for name, value in response.headers.items()}
                return Answer(response.status, answered, await response.read())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(error) from None

    async def open_stream(self, target: str, headers: Mapping[str, str]) -> tuple[Answer, AsyncStream | None]:
        """Return the stream, or the answer that refuses it. Raises Unreachable."""
        forever = aiohttp.ClientTimeout(total=None)
        try:
            async with timeout(self._timeout_seconds):
                response = await self._opened().get(
                    self._url + target, headers=headers, ssl=self._tls, timeout=forever, allow_redirects=False
                )
                if response.status == 200:
                    return Answer(200, {}, b""), AsyncStream(response)
                async with response:
                    return Answer(response.status, {}, await response.read()), None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(error) from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        return self._session

    def _unreachable(self, error: Exception) -> Unreachable:
        was_sent = not isinstance(error, aiohttp.ClientConnectorError)
        return Unreachable(f"no answer from {self._url}: {plainly(error)}", was_sent=was_sent)
