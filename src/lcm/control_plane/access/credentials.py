"""Tokens and browser sessions: people hold the secret, the store keeps its fingerprint.

They are in the store, so several control planes on one store agree on them. Each caches what it read for two
seconds: so late may one of them notice that another revoked a credential.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec
import structlog
from msgspec.structs import replace

from lcm.control_plane.access.roles import Fingerprint, Role, new_secret
from lcm.control_plane.store.forward_compat import encode_over
from lcm.control_plane.store.port import (
    Document,
    Store,
    StoreUnavailable,
    UniqueKeyTaken,
    VersionConflict,
)
from lcm.core.clock import Clock
from lcm.domain.errors import Conflict, NameTaken, NotFound

log = structlog.get_logger(__name__)

TOKEN: Final = "access-token"  # noqa: S105 - a kind of document
SESSION: Final = "browser-session"
LINK: Final = "sign-in-link"

CACHED_SECONDS: Final = 2.0
MAX_CACHED: Final = 10_000


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """The record of an issued secret, without the secret."""

    id: str
    verifier: str
    name: str
    role: str
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    owner_id: str | None = None
    """The principal that opened a session; the session ends with its credential."""

    @property
    def as_role(self) -> Role:
        return Role[self.role.upper()]

    def is_valid_at(self, now: datetime) -> bool:
        return self.expires_at is None or now < self.expires_at


class Credentials:
    """All credentials of one kind."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        kind: str,
        *,
        secret_prefix: str = "",
        max_life: timedelta | None = None,
    ) -> None:
        """None lives longer than `max_life` after its creation, whatever its record says."""
        self._max_life = max_life
        self._store = store
        self._clock = clock
        self._kind = kind
        self._secret_prefix = secret_prefix
        self._cached: dict[str, tuple[Credential, float]] = {}
        self._used: dict[str, datetime] = {}

    async def issue(
        self,
        *,
        name: str,
        role: Role,
        by: str,
        expires_at: datetime | None,
        owner_id: str | None = None,
    ) -> tuple[str, Credential]:
        """Return a new secret, which is not stored, and its record."""
        secret = new_secret(self._secret_prefix)
        fingerprint = Fingerprint.of(secret)
        credential = Credential(
            id=fingerprint.id,
            verifier=fingerprint.verifier,
            name=name,
            role=role.label,
            created_at=self._clock.now(),
            created_by=by,
            expires_at=expires_at,
            owner_id=owner_id,
        )
        credential = self._bounded(credential)
        try:
            await self._store.insert(self._document(credential, 1, msgspec.json.encode(credential)))
        except UniqueKeyTaken:
            raise NameTaken(
                f"a token named {name!r} exists; choose another name or revoke that one"
            ) from None
        return secret, credential

    def is_cached(self, secret: str) -> bool:
        """Return whether this secret needs no read of the store."""
        return self._fresh(Fingerprint.of(secret).id) is not None

    async def find(self, secret: str) -> Credential | None:
        """Return the credential of this secret, if it is valid now. May raise StoreUnavailable."""
        fingerprint = Fingerprint.of(secret)
        credential = await self.get(fingerprint.id)
        if credential is None or not fingerprint.matches(credential.verifier):
            return None
        self._used[credential.id] = self._clock.now()
        return credential

    async def get(self, credential_id: str) -> Credential | None:
        """Return the credential of this id, if it is valid now, read no longer than two seconds ago."""
        credential = self._fresh(credential_id)
        if credential is None:
            document = await self._store.get(self._kind, credential_id)
            self._cached.pop(credential_id, None)
            if document is None:
                return None
            credential = self._read(document)
            self._cached[credential_id] = (credential, self._clock.monotonic())
            if len(self._cached) > MAX_CACHED:
                del self._cached[next(iter(self._cached))]
        return credential if credential.is_valid_at(self._clock.now()) else None

    async def list_all(self) -> list[Credential]:
        """Return the credentials by name, with their last use."""
        found = [self._read(document) for document in await self._store.list_all(self._kind)]
        return sorted((self._with_last_use(c) for c in found), key=lambda c: (c.name, c.id))

    async def revoke(self, credential_id: str) -> Credential:
        for _ in range(8):
            document = await self._store.get(self._kind, credential_id)
            if document is None:
                raise NotFound(f"there is no token {credential_id!r}; list them with GET /api/tokens")
            try:
                await self._store.delete(self._kind, credential_id, document.version)
            except VersionConflict:
                continue
            self._cached.pop(credential_id, None)
            self._used.pop(credential_id, None)
            return _decoder.decode(document.body)
        raise Conflict(f"several requests change token {credential_id} at once; try again")

    async def record_use(self) -> None:
        """Store when credentials were last used; after a conflict with another control plane, next time."""
        for credential_id in list(self._used):
            used = self._used.pop(credential_id)
            document = await self._store.get(self._kind, credential_id)
            if document is None:
                continue
            credential = _decoder.decode(document.body)
            if credential.last_used_at is not None and credential.last_used_at >= used:
                continue
            used_credential = replace(credential, last_used_at=used)
            try:
                body = encode_over(document.body, credential, used_credential)
                await self._store.replace(self._document(used_credential, document.version + 1, body))
            except VersionConflict:
                self._used.setdefault(credential_id, used)
            except StoreUnavailable:
                self._used.setdefault(credential_id, used)
                raise

    async def remove_expired(self) -> int:
        """Remove expired credentials; return how many."""
        now, removed = self._clock.now(), 0
        for document in await self._store.list_all(self._kind):
            if not self._read(document).is_valid_at(now):
                try:
                    await self._store.delete(self._kind, document.id, document.version)
                except VersionConflict:
                    continue
                removed += 1
        return removed

    def _document(self, credential: Credential, version: int, body: bytes) -> Document:
        """Names of tokens are unique; a principal may have several sessions."""
        names = (f"name:{credential.name}",) if credential.owner_id is None else ()
        return Document(self._kind, credential.id, version, body, names)

    def _read(self, document: Document) -> Credential:
        return self._bounded(_decoder.decode(document.body))

    def _bounded(self, credential: Credential) -> Credential:
        """The credential, with the expiry that the longest life allows."""
        if self._max_life is None:
            return credential
        latest = credential.created_at + self._max_life
        return replace(credential, expires_at=min(credential.expires_at or latest, latest))

    def _fresh(self, credential_id: str) -> Credential | None:
        credential, read_at = self._cached.get(credential_id, (None, 0.0))
        is_fresh = self._clock.monotonic() - read_at < CACHED_SECONDS
        return credential if is_fresh else None

    def _with_last_use(self, credential: Credential) -> Credential:
        used = self._used.get(credential.id)
        return replace(credential, last_used_at=used) if used is not None else credential


_decoder = msgspec.json.Decoder(Credential)
