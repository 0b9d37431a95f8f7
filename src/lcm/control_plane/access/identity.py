"""Authentication: a request carries a start-up key, a token, a session cookie or an OIDC bearer token.

`watch` calls back when a credential has ended, so that a stream opened with it ends too.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

import msgspec
import structlog
from starlette.requests import HTTPConnection

from lcm.control_plane.access.credentials import LINK, SESSION, TOKEN, Credential, Credentials
from lcm.control_plane.access.guessing import Guesses, address_of
from lcm.control_plane.access.rate_limit import Buckets
from lcm.control_plane.access.roles import (
    TOKEN_PREFIX,
    AccessDenied,
    AccessKeys,
    Fingerprint,
    Principal,
    Role,
    TooManyRequests,
    refuse_foreign_origin,
)
from lcm.control_plane.access.security_log import SecurityLog
from lcm.control_plane.access.services import ServiceKeys
from lcm.control_plane.store.port import Store, StoreUnavailable
from lcm.core.clock import Clock
from lcm.core.configuration import ConfigurationError
from lcm.core.health import Health
from lcm.core.hosted_service import HostedService
from lcm.core.ids import Ids
from lcm.domain.errors import NotFound
from lcm.rest.schemas import API_KEY_HEADER, SERVICE_HEADER, DeviceClient

log = structlog.get_logger(__name__)

SESSION_LIFETIME: Final = timedelta(hours=12)
LINK_LIFETIME: Final = timedelta(minutes=10)

PASS_SECONDS: Final = 15.0
"""What one pass of the keeper may take; a call to a hanging store fails after ten seconds."""

MAX_SESSIONS_PER_PRINCIPAL: Final = 20
"""Beyond these the oldest session ends."""

MAX_LINKS_PER_PRINCIPAL: Final = 20
"""Beyond these the oldest link is not valid any more."""

MAX_STREAMS_PER_PRINCIPAL: Final = 20
MAX_STREAMS: Final = 2_000
STREAM_RETRY_SECONDS: Final = 30.0

UNNAMED: Final = "unnamed"
"""A client of the internal routes that names no service, as the shared key allows."""

COOKIE: Final = "lcm_session"
_HOST_ONLY_COOKIE: Final = "__Host-lcm_session"

_SIGN_IN_FIRST = "sign in first: send 'Authorization: Bearer <token>' or open the link printed at start"
_NOT_VALID = "this token is not valid: it is wrong, has expired or was revoked"


class Attempt(msgspec.Struct, frozen=True):
    """What only the browser that began to sign in at the identity provider has."""

    state: str
    nonce: str
    verifier: str


class BearerVerifier(Protocol):
    """Verifies bearer tokens of another issuer."""

    def recognises(self, token: str) -> bool:
        """Return whether the token has the form of the issuer's."""
        ...

    async def verify(self, token: str) -> Principal:
        """Return the principal of the token. Raises AccessDenied."""
        ...


class Provider(Protocol):
    """The identity provider's page, at which people sign in."""

    name: str

    async def begin(self, redirect_uri: str) -> tuple[str, Attempt]:
        """Return the address of the page, and what its answer is recognised by. Raises AccessDenied."""
        ...

    async def finish(
        self, attempt: Attempt | None, answer: Mapping[str, str], redirect_uri: str
    ) -> Principal:
        """Return the person of the answer to this attempt. Raises AccessDenied."""
        ...


@dataclass(frozen=True)
class AccessLimits:
    """What does not let people in any more."""

    are_keys_enabled: bool = True
    """Whether the keys of people in keys.json are valid. That of the controllers always is."""
    max_token_life: timedelta | None = None


class Identity:
    """All principals, and the requests that were refused."""

    def __init__(
        self,
        keys: AccessKeys,
        store: Store,
        clock: Clock,
        issuer: BearerVerifier | None = None,
        *,
        streams_per_principal: int = MAX_STREAMS_PER_PRINCIPAL,
        ids: Ids | None = None,
        services: ServiceKeys | None = None,
        provider: Provider | None = None,
        device_client: DeviceClient | None = None,
        requires_client_certificates: bool = False,
        limits: AccessLimits | None = None,
    ) -> None:
        self.keys = keys
        self.services = services or ServiceKeys((keys.controller,))
        self._limits = limits = limits or AccessLimits()
        self.tokens = Credentials(
            store, clock, TOKEN, secret_prefix=TOKEN_PREFIX, max_life=limits.max_token_life
        )
        self.sessions = Credentials(store, clock, SESSION)
        self.links = Credentials(store, clock, LINK)
        self.provider = provider
        self.device_client = device_client
        self._clock = clock
        self._issuer = issuer
        self._streams_per_principal = streams_per_principal
        self._requires_client_certificates = requires_client_certificates
        self.guesses = Guesses(clock)
        self.log = SecurityLog(store, clock, ids)
        self._denials = Buckets(clock, per_second=0.1, burst=20)
        self.refusals: Counter[int] = Counter()
        """Refused requests by HTTP status."""
        self._watched: dict[Principal, list[Callable[[], None]]] = {}

    async def authenticate(self, request: HTTPConnection) -> Principal:
        """Return the person behind a request, by bearer token or session cookie."""
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and bearer:
            return await self.principal_of(bearer.strip(), request)
        cookie = request.cookies.get(cookie_name(request))
        if not cookie:
            raise AccessDenied(401, _SIGN_IN_FIRST)
        principal = await self._guarded(request, cookie, self.sessions, self._principal_of_session)
        refuse_foreign_origin(request)
        return principal

    async def principal_of(self, token: str, request: HTTPConnection) -> Principal:
        """Return the principal of a token. Raises AccessDenied, and TooManyRequests after many failures."""
        by_key = self.keys.principal_of(token) if self._limits.are_keys_enabled else None
        if by_key is not None:
            return by_key
        if self._issuer is not None and self._issuer.recognises(token):
            try:
                return await self._issuer.verify(token)
            except AccessDenied as denied:
                if denied.status == 401:
                    await self._record_wrong(request, denied.detail)
                raise
        return await self._guarded(request, token, self.tokens, self._principal_of_token)

    async def require_service(self, request: HTTPConnection) -> str:
        """Return the service that sent a request: its name, key and, where required, certificate are right.

        Raises AccessDenied.
        """
        if self._requires_client_certificates and not _has_client_certificate(request):
            raise AccessDenied(403, "a controller must show a client certificate here: LCM_TLS_CERT_FILE")
        key = request.headers.get(API_KEY_HEADER, "")
        service = request.headers.get(SERVICE_HEADER, UNNAMED)
        if self.services.opens(key, service):
            return service
        if key:
            await self._record_wrong(request, "the key of a service is wrong, or the name beside it")
        raise AccessDenied(
            401,
            f"the key of the controller in {API_KEY_HEADER} is missing or wrong, or not that of the service"
            f" in {SERVICE_HEADER}; send both",
        )

    async def require_route(self, request: HTTPConnection, service: str, path: str) -> None:
        """Require that a service needs this route, named by its template. Raises AccessDenied."""
        if self.services.allows(service, request.scope["method"], path):
            return
        reason = f"the key of the {service} does not open this route"
        if self._denials.take(service) == 0:
            await self.log.record_refusal("authorize", address_of(request), None, _asked(request), reason)
        raise AccessDenied(403, reason)

    async def open_session(self, principal: Principal) -> tuple[str, Credential]:
        """Return a secret for the cookie; the session ends with the credential that opened it, or earlier."""
        expires_at = self._clock.now() + SESSION_LIFETIME
        if principal.expires_at is not None:
            expires_at = min(expires_at, principal.expires_at)
        opened = await self.sessions.issue(
            name=principal.name,
            role=principal.role,
            by=principal.name,
            expires_at=expires_at,
            owner_id=principal.id,
        )
        await _revoke_oldest(self.sessions, principal.id, MAX_SESSIONS_PER_PRINCIPAL)
        return opened

    async def signed_in(self, request: HTTPConnection) -> Principal | None:
        """Return the person whose session cookie the request has, if the session is valid."""
        cookie = request.cookies.get(cookie_name(request))
        return await self._principal_of_session(cookie) if cookie else None

    async def make_link(self, principal: Principal) -> tuple[str, Credential]:
        """Return a code that signs a browser in as this principal, once and soon. Raises AccessDenied.

        A principal of the issuer has none: its session must end with a token that LCM does not keep.
        """
        if principal.id.startswith("oidc:"):
            raise AccessDenied(403, "links are for keys and tokens of LCM; sign in at your identity provider")
        made = await self.links.issue(
            name=principal.name,
            role=principal.role,
            by=principal.name,
            expires_at=self._clock.now() + LINK_LIFETIME,
            owner_id=principal.id,
        )
        await _revoke_oldest(self.links, principal.id, MAX_LINKS_PER_PRINCIPAL)
        return made

    async def use_link(self, code: str, request: HTTPConnection) -> Principal:
        """Return the principal that a code signs in; the code is used up. Raises AccessDenied."""
        principal = await self._guarded(request, code, self.links, self._principal_of_link)
        try:
            await self.links.revoke(Fingerprint.of(code).id)
        except NotFound:  # another request was faster
            raise AccessDenied(401, _NOT_VALID) from None
        return principal

    async def sign_in_at_provider(
        self,
        provider: Provider,
        attempt: Attempt | None,
        request: HTTPConnection,
        redirect_uri: str,
    ) -> Principal:
        """Return the person whom the provider sends back here. Raises AccessDenied.

        A refused answer counts as a wrong secret: an address that sends many waits before a call of it.
        """
        async with self.guesses.lookup(request):
            try:
                return await provider.finish(attempt, request.query_params, redirect_uri)
            except AccessDenied as denied:
                if denied.status != 503:
                    await self._record_wrong(request, denied.detail)
                raise

    async def require_way_in(self) -> None:
        """Raise ConfigurationError if no admin could sign in."""
        if self._limits.are_keys_enabled or self._issuer is not None:
            return
        now = self._clock.now()
        tokens = await self.tokens.list_all()
        if not any(token.as_role is Role.ADMIN and token.is_valid_at(now) for token in tokens):
            raise ConfigurationError(
                "ACCESS_KEYS_ENABLED=false would keep all people out: create a token of role admin"
                " first, or set OIDC_ISSUER"
            )

    async def list_sessions(self, owner_id: str | None = None) -> list[Credential]:
        """Return the browser sessions that are open, newest first; of one principal or of all."""
        now = self._clock.now()
        found = [
            session
            for session in await self.sessions.list_all()
            if session.is_valid_at(now) and owner_id in (None, session.owner_id)
        ]
        return sorted(found, key=lambda session: (session.created_at, session.id), reverse=True)

    async def end_sessions(self, owner_id: str) -> None:
        """Sign a principal out of every browser, and let none of its links sign one in again."""
        for credentials in (self.links, self.sessions):
            await _revoke_oldest(credentials, owner_id, 0)

    async def revoke_token(self, token_id: str) -> Credential:
        """Revoke a token, and remove the sessions that were opened with it."""
        credential = await self.tokens.revoke(token_id)
        await _revoke_oldest(self.sessions, f"token:{token_id}", 0)
        return credential

    def require_room_for_stream(self, principal: Principal) -> None:
        """Raise TooManyRequests if this principal, or all together, have too many streams open."""
        own = sum(len(ends) for watched, ends in self._watched.items() if watched.id == principal.id)
        if own >= self._streams_per_principal:
            raise TooManyRequests(
                STREAM_RETRY_SECONDS,
                f"{own} event streams are open with this token; close one",
            )
        if sum(map(len, self._watched.values())) >= MAX_STREAMS:
            raise TooManyRequests(STREAM_RETRY_SECONDS, "too many event streams are open; try again later")

    async def close_session(self, principal: Principal) -> None:
        """Sign out the browser with which this person is signed in."""
        if principal.session_id is not None:
            await self.sessions.revoke(principal.session_id)

    async def is_still_valid(self, principal: Principal) -> bool:
        """Return whether the credential of this principal is still valid."""
        if principal.expires_at is not None and self._clock.now() >= principal.expires_at:
            return False
        if principal.session_id is not None and await self.sessions.get(principal.session_id) is None:
            return False
        return await self._is_known(principal.id)

    @contextmanager
    def watch(self, principal: Principal, on_end: Callable[[], None]) -> Iterator[None]:
        """Within the block `on_end` is called, at most once, soon after the credential has ended."""
        watchers = self._watched.setdefault(principal, [])
        watchers.append(on_end)
        try:
            yield
        finally:
            if on_end in watchers:
                watchers.remove(on_end)
            if not watchers:
                self._watched.pop(principal, None)

    async def notify_ended(self) -> None:
        """Call the watchers of ended credentials. While the store does not answer, none has ended."""
        for principal in list(self._watched):
            if not await self.is_still_valid(principal):
                for on_end in self._watched.pop(principal, []):
                    on_end()

    async def _principal_of_token(self, token: str) -> Principal | None:
        credential = await self.tokens.find(token)
        if credential is None:
            return None
        return Principal(f"token:{credential.id}", credential.name, credential.as_role, credential.expires_at)

    async def _principal_of_session(self, cookie: str) -> Principal | None:
        session = await self.sessions.find(cookie)
        if session is None or session.owner_id is None or not await self._is_known(session.owner_id):
            return None
        return Principal(session.owner_id, session.name, session.as_role, session.expires_at, session.id)

    async def _principal_of_link(self, code: str) -> Principal | None:
        link = await self.links.find(code)
        if link is None or link.owner_id is None or not await self._is_known(link.owner_id):
            return None
        token = await self.tokens.get(link.owner_id.removeprefix("token:"))
        return Principal(link.owner_id, link.name, link.as_role, token.expires_at if token else None)

    async def _is_known(self, principal_id: str) -> bool:
        kind, _, name = principal_id.partition(":")
        if kind == "key":
            is_known = any(self.keys.id_of(role) == principal_id for role in Role)
            return is_known and self._limits.are_keys_enabled
        if kind == "token":
            return await self.tokens.get(name) is not None
        return self._issuer is not None  # the issuer is not called: its tokens and their sessions expire

    async def _guarded(
        self,
        request: HTTPConnection,
        secret: str,
        credentials: Credentials,
        find: Callable[[str], Awaitable[Principal | None]],
    ) -> Principal:
        """Look the secret up before anything is refused: many wrong ones never keep a valid one out."""
        if credentials.is_cached(secret):
            principal = await find(secret)
        else:
            async with self.guesses.lookup(request):
                principal = await find(secret)
        if principal is None:
            await self._record_wrong(request, _NOT_VALID)
            raise AccessDenied(401, _NOT_VALID)
        return principal

    async def _record_wrong(self, request: HTTPConnection, reason: str) -> None:
        """Count and record a wrong secret. Raises TooManyRequests; those beyond the rate are only counted."""
        self.guesses.count(request)
        await self.log.record_refusal("authenticate", address_of(request), None, _asked(request), reason)

    async def record_denied(self, request: HTTPConnection, principal: Principal, reason: str) -> None:
        """Record that a role was too low, as far as the principal's rate allows."""
        if self._denials.take(principal.id) == 0:
            await self.log.record_refusal(
                "authorize", address_of(request), principal, _asked(request), reason
            )


class IdentityKeeper(HostedService):
    """Ends the streams of ended credentials, records last uses, removes expired credentials."""

    name = "identity-keeper"

    def __init__(self, identity: Identity, clock: Clock, health: Health) -> None:
        self._identity = identity
        self._clock = clock
        self._health = health

    async def run(self) -> None:
        seconds = 0
        while True:
            self._health.tick(self.name, PASS_SECONDS)
            try:
                await self._identity.notify_ended()
                for credentials in (self._identity.tokens, self._identity.sessions, self._identity.links):
                    if seconds % 30 == 29:
                        await credentials.record_use()
                    if seconds % 3600 == 0:
                        await credentials.remove_expired()
                if seconds % 600 == 599:
                    await self._identity.log.make_room()
            except StoreUnavailable as error:
                log.warning("credential maintenance failed; will retry", error=str(error))
            await self._clock.sleep(1.0)
            seconds += 1


async def _revoke_oldest(credentials: Credentials, owner_id: str, kept: int) -> None:
    """Revoke the oldest credentials of a principal beyond the newest ones that are kept."""
    own = [each for each in await credentials.list_all() if each.owner_id == owner_id]
    own.sort(key=lambda each: each.created_at)
    for each in own[: max(0, len(own) - kept)]:
        with suppress(NotFound):  # another request was faster
            await credentials.revoke(each.id)


def cookie_name(request: HTTPConnection) -> str:
    """Return the cookie's name; with `__Host-` browsers guarantee that only this host set it over TLS.

    Without TLS it names the port: browsers send a cookie to every port of its host, so two LCMs on one host
    would overwrite each other's.
    """
    if request.scope["scheme"] == "https":
        return _HOST_ONLY_COOKIE
    port = request.headers.get("host", "").rpartition(":")[2]
    return f"{COOKIE}_{port}" if port.isascii() and port.isdigit() else f"{COOKIE}_80"


def _has_client_certificate(request: HTTPConnection) -> bool:
    """Return whether the client showed a certificate; the handshake has verified it."""
    extensions = request.scope.get("extensions") or {}
    return "client_cert_name" in extensions.get("tls", {})


def _asked(request: HTTPConnection) -> str:
    return f"{request.scope['method']} {request.scope['path']}"
