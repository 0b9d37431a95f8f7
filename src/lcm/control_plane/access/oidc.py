"""Bearer tokens of an OpenID Connect issuer, checked against its published keys.

Only signatures by public keys are accepted, never shared secrets. Keys are read from the issuer, cached,
and read again when they are old or when a token names an unknown one; the latter at most every half minute,
so that forged tokens cannot cause a call to the issuer each time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import structlog
from joserfc import jwt
from joserfc.errors import ExpiredTokenError, InvalidKeyIdError, JoseError
from joserfc.jwk import JWKRegistry, Key, KeySet, OctKey
from joserfc.jws import JWSRegistry

from lcm.control_plane.access.roles import AccessDenied, Principal, Role
from lcm.core.clock import Clock
from lcm.core.configuration import ConfigurationError
from lcm.domain.errors import Unreachable

log = structlog.get_logger(__name__)

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")

MALFORMED: Final = (JoseError, ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""What the library raises for forged tokens; mostly before it checks the signature."""

LEEWAY_SECONDS: Final = 60
KEYS_FRESH_SECONDS: Final = 600.0
KEYS_USABLE_SECONDS: Final = 24 * 3600.0
REFETCH_SECONDS: Final = 30.0
MAX_KEYS: Final = 100
MAX_TOKEN_BYTES: Final = 16 * 1024
ACCESS_TOKEN_TYPES: Final = frozenset({"", "jwt", "at+jwt"})
"""Values of the header `typ`; issuers older than RFC 9068 give all their tokens the same."""
ID_TOKEN_CLAIMS: Final = frozenset({"at_hash", "c_hash"})
NAME_PREFIX: Final = "oidc:"
"""Before the names of the issuer's people: none of them acts under the name of a key, token or service."""

FetchDocument = Callable[[str], Awaitable[bytes]]
"""GETs a small document: bounded in size and time, no redirects. Raises Unreachable."""


@dataclass(frozen=True)
class OidcConfig:
    """The issuer, the required audience, and the mapping of claims to roles."""

    issuer: str
    audience: str
    role_claim: str
    """Dots separate nested claims: `realm_access.roles`."""
    roles: Mapping[str, Role]
    token_type: str = ""
    """Required of the header `typ`, if it is set."""

    def __post_init__(self) -> None:
        require_private_transport(self.issuer)
        if not self.audience:
            raise ConfigurationError(
                "OIDC_AUDIENCE is missing: set it, so that tokens for other services are refused"
            )


class OidcVerifier:
    """Verifies tokens with the issuer's keys and maps their claims to principals."""

    def __init__(self, config: OidcConfig, fetch: FetchDocument, clock: Clock) -> None:
        self._config = config
        self._fetch = fetch
        self._clock = clock
        self._keys = KeySet([])
        self._discovered: Mapping[str, Any] = {}
        self._keys_read_at: float | None = None
        self._last_attempt_at: float | None = None
        self._reading = asyncio.Lock()
        self._registry = JWSRegistry(algorithms=list(ALGORITHMS), strict_check_header=False)

    def recognises(self, token: str) -> bool:
        """Return whether the token has three parts separated by dots; LCM's own tokens have no dot."""
        return token.count(".") == 2

    @property
    def address(self) -> str:
        return self._config.issuer

    async def verify(self, token: str) -> Principal:
        """Return the person of an access token."""
        decoded = await self.decode(token)
        claims = decoded.claims
        self._require_access_token(decoded.header, claims)
        try:
            self._check(claims)
        except MALFORMED as error:
            raise refusal(error) from None
        return self.principal_of(claims)

    async def decode(self, token: str) -> jwt.Token:
        """Return a token that the issuer signed; its claims are still to be checked. Raises AccessDenied."""
        if len(token) > MAX_TOKEN_BYTES:
            raise AccessDenied(401, f"a token may have at most {MAX_TOKEN_BYTES} bytes")
        await self._read_keys(because_unknown=False)
        try:
            try:
                return jwt.decode(token, self._keys, registry=self._registry)
            except InvalidKeyIdError:
                await self._read_keys(because_unknown=True)
                return jwt.decode(token, self._keys, registry=self._registry)
        except MALFORMED as error:
            raise refusal(error) from None

    async def endpoint(self, name: str) -> str:
        """Return the address that the issuer publishes under this name. Raises AccessDenied."""
        await self._read_keys(because_unknown=False)
        address = str(self._discovered.get(name))
        try:
            require_private_transport(address)
        except ConfigurationError as error:
            log.warning(
                "issuer endpoint not usable", issuer=self._config.issuer, endpoint=name, error=str(error)
            )
            raise AccessDenied(503, f"the identity provider publishes no {name} that can be used") from None
        return address

    def _check(self, claims: dict[str, Any]) -> None:
        expected = jwt.JWTClaimsRegistry(
            now=lambda: int(self._clock.now().timestamp()),
            leeway=LEEWAY_SECONDS,
            iss={"essential": True, "value": self._config.issuer},
            aud={"essential": True, "value": self._config.audience},
            exp={"essential": True},
            sub={"essential": True},
        )
        expected.validate(claims)

    def _require_access_token(self, header: Mapping[str, Any], claims: Mapping[str, Any]) -> None:
        """An ID token says who signed in somewhere, and opens nothing. Raises AccessDenied."""
        found, wanted = str(header.get("typ", "")).lower(), self._config.token_type.lower()
        if wanted:
            is_access_token = found.removeprefix("application/") == wanted.removeprefix("application/")
        else:
            is_access_token = found.removeprefix("application/") in ACCESS_TOKEN_TYPES
        if not is_access_token or claims.get("typ") == "ID" or not ID_TOKEN_CLAIMS.isdisjoint(claims):
            raise AccessDenied(401, "this is no access token; send the one for LCM, not an ID token")

    def id_of(self, claims: Mapping[str, Any]) -> str:
        return f"oidc:{claims['sub']}"

    def end_of(self, claims: Mapping[str, Any]) -> datetime:
        return datetime.fromtimestamp(min(claims["exp"], _MAX_TIMESTAMP), UTC)

    def principal_of(self, claims: Mapping[str, Any]) -> Principal:
        """Return the person of checked claims. Raises AccessDenied if they name no role."""
        found: Any = claims
        for part in self._config.role_claim.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        names = found.split() if isinstance(found, str) else found if isinstance(found, list) else []
        roles = [role for name, role in self._config.roles.items() if name in names]
        if not roles:
            known = ", ".join(sorted(self._config.roles))
            raise AccessDenied(
                403, f"your account has no role here: {self._config.role_claim!r} must name one of {known}"
            )
        name = claims.get("preferred_username") or claims.get("email") or claims["sub"]
        return Principal(
            id=self.id_of(claims),
            name=f"{NAME_PREFIX}{name}"[:100],
            role=max(roles),
            expires_at=self.end_of(claims),
        )

    async def _read_keys(self, *, because_unknown: bool) -> None:
        """Read the keys if that is due; one caller reads, the others wait."""
        async with self._reading:
            now = self._clock.monotonic()
            age = None if self._keys_read_at is None else now - self._keys_read_at
            is_due = age is None or age > KEYS_FRESH_SECONDS or because_unknown
            since_attempt = None if self._last_attempt_at is None else now - self._last_attempt_at
            if is_due and (since_attempt is None or since_attempt >= REFETCH_SECONDS):
                self._last_attempt_at = now
                try:
                    self._keys = await self._fetch_keys()
                    self._keys_read_at = now
                    return
                except Unreachable as error:
                    log.warning("issuer keys not read", issuer=self._config.issuer, error=str(error))
            if age is None or age > KEYS_USABLE_SECONDS:
                raise AccessDenied(
                    503, "the identity provider does not answer; use an LCM token or try again later"
                )

    async def _fetch_keys(self) -> KeySet:
        issuer = self._config.issuer
        discovered = _decode(await self._fetch(issuer.rstrip("/") + "/.well-known/openid-configuration"))
        if discovered.get("issuer") != issuer:
            raise Unreachable(f"its configuration names issuer {discovered.get('issuer')!r}")
        address = str(discovered.get("jwks_uri"))
        try:
            require_private_transport(address)
        except ConfigurationError as error:
            raise Unreachable(f"jwks_uri: {error}") from None
        published = _decode(await self._fetch(address)).get("keys")
        keys = [key for entry in (published or [])[:MAX_KEYS] if (key := _public_key(entry)) is not None]
        if not keys:
            raise Unreachable("it publishes no key that LCM can use")
        self._discovered = discovered
        return KeySet(keys)


_MAX_TIMESTAMP: Final = 253402300799  # the last second of the year 9999


def refusal(error: Exception) -> AccessDenied:
    """Return the refusal of a token, in the words of the library where it has some."""
    if isinstance(error, ExpiredTokenError):
        return AccessDenied(401, "this token has expired; get a new one from your identity provider")
    reason = str(error) if isinstance(error, JoseError) else "it is malformed"
    return AccessDenied(401, f"this token is not valid here: {reason}")


def _public_key(entry: Any) -> Key | None:
    """Return a public signature key; None for any other or unknown entry."""
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    try:
        key = JWKRegistry.import_key(entry)
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    return None if isinstance(key, OctKey) else key


def _decode(document: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(document, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise Unreachable(f"not a JSON object: {error}") from None


def require_private_transport(address: str) -> None:
    """Require TLS: keys read over a connection without it can be replaced by an attacker."""
    split = urlsplit(address)
    is_local = split.hostname in ("localhost", "127.0.0.1", "::1")
    if split.scheme != "https" and not (split.scheme == "http" and is_local):
        raise ConfigurationError(f"{address!r} must begin with https://")
