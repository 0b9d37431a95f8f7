"""HTTPS to CML servers, whose certificates are self-signed: trust on first use, then a pin.

The first contact learns the certificate's SHA-256; it is stored with the worker, and from then on
any other certificate stops the conversation before a byte of it is sent.
"""

import asyncio
import hashlib
import ssl
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import aiohttp

from lcm.domain.errors import CertificateChanged, Unreachable


@dataclass(frozen=True)
class CmlAnswer:
    """A successful answer and the certificate it came under."""

    body: bytes
    certificate_sha256: str


class CmlConnections:
    """Use as `async with`. One TLS context for all servers: a context each would cost a megabyte."""

    def __init__(self, port: int = 443, timeout_seconds: float = 5.0) -> None:
        self._port = port
        self._timeout_seconds = timeout_seconds
        self._unverified = ssl.create_default_context()
        self._unverified.check_hostname = False
        self._unverified.verify_mode = ssl.CERT_NONE
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True, limit=100), cookie_jar=aiohttp.DummyCookieJar()
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, host: str, path: str, pinned_sha256: str | None) -> CmlAnswer:
        """GET a path of CML's API. Anything but 200 is Unreachable: a booting CML answers 502."""
        assert self._session is not None, "use it as a context manager"
        url = f"https://{host}:{self._port}{path}"
        try:
            async with asyncio.timeout(self._timeout_seconds):
                trusted = pinned_sha256 or await self._certificate_of(host)
                pin = aiohttp.Fingerprint(bytes.fromhex(trusted))
                async with self._session.get(url, ssl=pin, allow_redirects=False) as response:
                    body = await response.read()
        except aiohttp.ServerFingerprintMismatch as mismatch:
            raise CertificateChanged(
                f"{host} shows the certificate {mismatch.got.hex()[:16]}…, pinned is {trusted[:16]}…;"
                " if CML was reinstalled on purpose, delete the worker and create it anew"
            ) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"CML at {host}: {str(error) or type(error).__name__}") from error
        if response.status != 200:
            raise Unreachable(f"CML at {host} answered {response.status} to {path}")
        return CmlAnswer(body, trusted)

    async def _certificate_of(self, host: str) -> str:
        """Look at the certificate without saying anything; the request then insists on this very one."""
        _, writer = await asyncio.open_connection(host, self._port, ssl=self._unverified)
        try:
            certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        finally:
            writer.transport.abort()
        return hashlib.sha256(certificate).hexdigest()
