"""HTTPS to CML servers, whose certificates are self-signed: trust on first use, then a pin.

The first contact learns the certificate's SHA-256, which is stored with the worker; from then on a server
with any other certificate is refused before a byte of the request is sent. Where CML servers have
certificates of a CA they can be verified against it instead.
"""

import asyncio
import hashlib
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from types import TracebackType
from typing import Final, Protocol, Self

import aiohttp

from lcm.cml.proxy import Proxy
from lcm.cml.tls import CmlTls
from lcm.core.network import plainly
from lcm.core.timeouts import timeout
from lcm.domain.errors import CertificateChanged, NoCml, Unreachable

MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""Of an answer that is kept whole. The telemetry, which can be larger, is taken in pieces."""
MAX_CONNECTIONS: Final = 100
"""In use at a time."""
JSON: Final = "application/json"

_NO_OTHER_LIMIT: Final = aiohttp.ClientTimeout(total=None)


@dataclass(frozen=True, kw_only=True)
class CmlLimits:
    """How many seconds a call may take, by its kind."""

    request: float = 10.0
    """Small answers: system information, statistics, health, license."""
    login: float = 30.0
    """CML hashes passwords with all its CPUs busy while labs boot."""
    telemetry: float = 25.0
    """The whole telemetry, which has no paging."""
    websocket: float = 20.0
    """From the connection to the answer to its upgrade."""


@dataclass(frozen=True)
class CmlAnswer:
    """A response, and the certificate of its server."""

    body: bytes
    certificate_sha256: str | None
    """None where certificates are not pinned."""
    status: int = 200
    date: datetime | None = None
    """The server's own time."""


OnPiece = Callable[[bytes], None]


class CmlTransport(Protocol):
    """Carries one request to a CML server."""

    async def request(
        self,
        method: str,
        host: str,
        path: str,
        pinned_sha256: str | None,
        *,
        token: str | None = None,
        body: bytes | None = None,
        content_type: str | None = JSON,
        timeout_seconds: float | None = None,
        on_piece: OnPiece | None = None,
    ) -> CmlAnswer:
        """Return any answer, whatever its status. Raises Unreachable without one, or CertificateChanged.

        Without a time limit that of the transport applies. `on_piece` is given the body of a 200 as it comes,
        which the answer then lacks; what it raises ends the request.
        """
        ...


@lru_cache(maxsize=10_000)
def _fingerprint(sha256: str) -> aiohttp.Fingerprint:
    """The same object for the same certificate: a connection is used again only under the same one."""
    return aiohttp.Fingerprint(bytes.fromhex(sha256))


class CmlConnections:
    """Use as `async with`."""

    def __init__(
        self,
        port: int = 443,
        timeout_seconds: float = CmlLimits.request,
        tls: CmlTls | None = None,
        *,
        keep_alive_seconds: float | None = None,
        proxy: Proxy | None = None,
    ) -> None:
        """Connections are kept for so long after a request; by default each request has its own."""
        self._port = port
        self._timeout_seconds = timeout_seconds
        self._is_pinned = tls is None or tls.is_pinned
        self._keep_alive_seconds = keep_alive_seconds
        self._proxy = proxy
        self.context = (tls or CmlTls()).context()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        keep_alive = self._keep_alive_seconds
        connector = (
            aiohttp.TCPConnector(force_close=True, limit=MAX_CONNECTIONS)
            if keep_alive is None
            else aiohttp.TCPConnector(keepalive_timeout=keep_alive, limit=MAX_CONNECTIONS)
        )
        self._session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, host: str, path: str, pinned_sha256: str | None) -> CmlAnswer:
        """GET a path of CML's API. Anything but 200 raises NoCml: a booting CML answers 502."""
        answer = await self.request("GET", host, path, pinned_sha256)
        if answer.status != 200:
            raise NoCml(f"CML at {host} answered {answer.status} to {path}")
        return answer

    async def request(
        self,
        method: str,
        host: str,
        path: str,
        pinned_sha256: str | None,
        *,
        token: str | None = None,
        body: bytes | None = None,
        content_type: str | None = JSON,
        timeout_seconds: float | None = None,
        on_piece: OnPiece | None = None,
    ) -> CmlAnswer:
        assert self._session is not None, "use it as a context manager"
        url = f"https://{host}:{self._port}{path}"
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        if body is not None and content_type is not None:
            headers["Content-Type"] = content_type
        trusted = pinned_sha256
        try:
            async with timeout(timeout_seconds or self._timeout_seconds):
                how: ssl.SSLContext | aiohttp.Fingerprint = self.context
                if self._is_pinned:
                    trusted = pinned_sha256 or await self._certificate_of(host)
                    how = _fingerprint(trusted)
                async with self._session.request(
                    method,
                    url,
                    ssl=how,
                    headers=headers,
                    data=body,
                    allow_redirects=False,
                    skip_auto_headers=("Content-Type",),
                    timeout=_NO_OTHER_LIMIT,
                    proxy=self._proxy.url if self._proxy and self._proxy.serves(host) else None,
                ) as response:
                    content = await _read(response, on_piece)
        except aiohttp.ServerFingerprintMismatch as mismatch:
            shown = mismatch.got.hex()
            raise CertificateChanged(
                f"{host} presents the certificate {shown[:16]}…, pinned is {str(trusted)[:16]}…;"
                " if it was renewed on purpose, an admin can accept it on the worker's page",
                shown,
            ) from None
        except aiohttp.ClientConnectorCertificateError as error:
            why = getattr(error.certificate_error, "verify_message", error.certificate_error)
            raise CertificateChanged(f"{host}: its certificate is not accepted: {why}") from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"CML at {host}: {plainly(error)}") from error
        certificate = trusted if self._is_pinned else None
        return CmlAnswer(content, certificate, response.status, _date(response.headers.get("Date")))

    async def _certificate_of(self, host: str) -> str:
        """Read the certificate without sending a request; the request then requires this very one."""
        if self._proxy is not None and self._proxy.serves(host):
            _, writer = await self._proxy.open_tunnel(host, self._port)
        else:
            _, writer = await asyncio.open_connection(host, self._port, ssl=self.context)
        try:
            if writer.get_extra_info("ssl_object") is None:
                await writer.start_tls(self.context, server_hostname=host)
            certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        finally:
            writer.transport.abort()
        return hashlib.sha256(certificate).hexdigest()


async def _read(response: aiohttp.ClientResponse, on_piece: OnPiece | None) -> bytes:
    """The whole body, up to a limit, unless its pieces are taken."""
    pieces: list[bytes] = []
    size = 0
    async for piece in response.content.iter_any():
        if on_piece is not None and response.status == 200:
            on_piece(piece)
            continue
        size += len(piece)
        if size > MAX_ANSWER_BYTES:
            raise aiohttp.ClientPayloadError("the answer is too big")
        pieces.append(piece)
    return b"".join(pieces)


def _date(header: str | None) -> datetime | None:
    try:
        return parsedate_to_datetime(header).astimezone(UTC) if header else None
    except ValueError:
        return None
