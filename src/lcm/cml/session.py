"""A login to one CML server, shared by all its clients.

One login at a time; a token is used for 80 % of its lifetime. A password that was refused
three times is not tried again for two minutes: CML could lock the account.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from lcm.cml.connection import JSON, CmlAnswer, CmlLimits, CmlTransport, OnPiece
from lcm.core.clock import Clock
from lcm.domain.errors import CertificateChanged, CredentialsRefused, Throttled, Unreachable

TOKEN_SECONDS: Final = 86_400.0
"""Lifetime of a token without an `exp` claim."""
MIN_TOKEN_SECONDS: Final = 60.0
"""Whatever its `exp` claim says: two clocks may disagree about it."""
USED_LIFE: Final = 0.8
MAX_REFUSALS: Final = 3
REFUSED_PAUSE_SECONDS: Final = 120.0


@dataclass(frozen=True)
class Credentials:
    username: str
    password: str = field(repr=False)
    set_by: str = "CML_WORKER_API_USERNAME and CML_WORKER_API_PASSWORD, or give the worker its own login"
    """Where an operator can correct them."""


Login = Callable[[], Awaitable[Credentials]]
"""Called before every login, so that a password need not be kept."""


def always(credentials: Credentials) -> Login:
    async def login() -> Credentials:
        return credentials

    return login


@dataclass(frozen=True)
class _Token:
    text: str = field(repr=False)
    obtained_at: float
    renew_at: float
    user_id: str | None


class TokenClaims(msgspec.Struct, frozen=True):
    """What is read of a token."""

    exp: float | None = None
    sub: str | None = None


class CmlSession:
    """Tokens and authorized requests for one server, as long as it presents the same certificate."""

    def __init__(
        self,
        transport: CmlTransport,
        login: Login,
        host: str,
        pinned_sha256: str | None,
        clock: Clock,
        login_seconds: float = CmlLimits.login,
    ) -> None:
        self._transport = transport
        self._credentials = login
        self._clock = clock
        self._login_seconds = login_seconds
        self._one_login = asyncio.Lock()
        self._token: _Token | None = None
        self._refusals = 0
        self._refused_at = float("-inf")
        self.host = host
        self.pinned_sha256 = pinned_sha256
        """Learnt at first contact if it was not known."""
        self.is_certificate_refused = False
        """Whether the server presented another certificate when it was last called."""

    @property
    def user_id(self) -> str | None:
        """LCM's user id at this server; None if its token names none."""
        return self._token.user_id if self._token is not None else None

    async def token(self, newer_than: float = float("-inf")) -> str:
        """A token obtained after that monotonic time, by a login if need be.

        Raises CredentialsRefused if the server refuses the login, or refused it too often lately.
        """
        async with self._one_login:
            token = self._token
            if token is None or token.obtained_at <= newer_than or self._clock.monotonic() >= token.renew_at:
                token = self._token = await self._login()
            return token.text

    @property
    def renew_at(self) -> float:
        """Monotonic time by which the present token should be replaced."""
        return self._token.renew_at if self._token is not None else float("inf")

    def inherit_refusals(self, earlier: "CmlSession") -> None:
        """Continue the count of refusals: it is the same instance, and the same password."""
        self._refusals, self._refused_at = earlier._refusals, earlier._refused_at

    def discard(self, token: str) -> None:
        """Drop a token that the server no longer accepts."""
        if self._token is not None and self._token.text == token:
            self._token = None

    async def get(
        self, path: str, *, timeout_seconds: float | None = None, on_piece: OnPiece | None = None
    ) -> CmlAnswer:
        """Return an answer with status 200; a refused token is replaced once."""
        answer = await self.request("GET", path, timeout_seconds=timeout_seconds, on_piece=on_piece)
        if answer.status != 200:
            raise Unreachable(f"CML at {self.host} answered {answer.status} to {path}")
        return answer

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str | None = JSON,
        timeout_seconds: float | None = None,
        on_piece: OnPiece | None = None,
    ) -> CmlAnswer:
        """Return any answer to an authorized request; a refused token is replaced once."""
        for is_last in (False, True):
            token = await self.token()
            answer = await self._send(
                method,
                path,
                body,
                token=token,
                content_type=content_type,
                timeout_seconds=timeout_seconds,
                on_piece=on_piece,
            )
            if answer.status != 401:
                break
            self.discard(token)
            if is_last:
                raise CredentialsRefused(f"CML at {self.host} accepts no token for {path}")
        if answer.status == 403:
            raise CredentialsRefused(f"CML at {self.host} does not permit {path}")
        return answer

    async def _send(
        self,
        method: str,
        path: str,
        body: bytes | None,
        *,
        token: str | None = None,
        content_type: str | None = JSON,
        timeout_seconds: float | None = None,
        on_piece: OnPiece | None = None,
    ) -> CmlAnswer:
        try:
            answer = await self._transport.request(
                method,
                self.host,
                path,
                self.pinned_sha256,
                token=token,
                body=body,
                content_type=content_type,
                timeout_seconds=timeout_seconds,
                on_piece=on_piece,
            )
        except CertificateChanged:
            self.is_certificate_refused = True
            raise
        self.is_certificate_refused = False
        return answer

    async def _login(self) -> _Token:
        asked_at = self._clock.monotonic()
        again_at = self._refused_at + REFUSED_PAUSE_SECONDS
        if self._refusals >= MAX_REFUSALS and asked_at < again_at:
            raise CredentialsRefused(
                f"CML at {self.host} refused the login {self._refusals} times;"
                f" next try in {again_at - asked_at:.0f} s"
            )
        ours = await self._credentials()
        body = msgspec.json.encode({"username": ours.username, "password": ours.password})
        answer = await self._send("POST", "/api/v0/authenticate", body, timeout_seconds=self._login_seconds)
        self.pinned_sha256 = self.pinned_sha256 or answer.certificate_sha256
        if answer.status in (401, 403):
            self._refusals += 1
            self._refused_at = self._clock.monotonic()
            raise CredentialsRefused(
                f"CML at {self.host} refuses the login of {ours.username!r}; check {ours.set_by}"
            )
        if answer.status == 429:
            raise Throttled(f"CML at {self.host} limits the rate of logins")
        if answer.status != 200:
            raise Unreachable(f"CML at {self.host} answered {answer.status} to a login")
        try:
            text = msgspec.json.decode(answer.body, type=str)
        except (msgspec.MsgspecError, ValueError):
            text = ""
        if not (text and text.isascii() and text.isprintable()):  # it has to fit into a header
            raise Unreachable(f"CML at {self.host} answered a login without a token")
        self._refusals = 0
        claims = claims_of(text)
        if claims.exp is None:
            life = TOKEN_SECONDS
        else:
            life = max(MIN_TOKEN_SECONDS, claims.exp - (answer.date or self._clock.now()).timestamp())
        return _Token(text, asked_at, asked_at + USED_LIFE * life, claims.sub)


def claims_of(token: str) -> TokenClaims:
    """The expiry and the user of a token; nothing else in it is read."""
    try:
        middle = token.split(".")[1]
        padded = middle + "=" * (-len(middle) % 4)
        return msgspec.json.decode(base64.urlsafe_b64decode(padded), type=TokenClaims)
    except (IndexError, ValueError, RecursionError, msgspec.MsgspecError):
        return TokenClaims()
