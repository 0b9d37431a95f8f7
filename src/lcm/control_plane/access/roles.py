"""Authorization: default deny, and three roles for people; those of services are in `services.py`."""

import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import Self

import structlog
from starlette.requests import HTTPConnection

from lcm.core.configuration import ConfigurationError
from lcm.core.secret_strength import weakness_of_key

log = structlog.get_logger(__name__)

TOKEN_PREFIX = "lcm_"  # noqa: S105 - lets scanners recognise a leaked one
SAFE_METHODS = frozenset({"GET", "HEAD"})


class Role(IntEnum):
    """A higher role may do everything a lower one may."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class Principal:
    """An authenticated caller. `id` is the same for every way to sign in; `name` is for display."""

    id: str
    name: str
    role: Role
    expires_at: datetime | None = None
    session_id: str | None = None


class AccessDenied(Exception):
    """The credential is missing, invalid (401) or its role too low (403); 503 if that cannot be checked."""

    def __init__(self, status: int, detail: str) -> None:
        self.status = status
        self.detail = detail
        super().__init__(detail)


class TooManyRequests(Exception):
    """The caller exceeds its rate; `retry_after_seconds` until the next request is accepted."""

    def __init__(self, retry_after_seconds: float, detail: str) -> None:
        self.retry_after_seconds = retry_after_seconds
        self.detail = detail
        super().__init__(detail)


@dataclass(frozen=True)
class AccessKeys:
    """One secret per role, and one for controllers where no other is set. Never logged, never returned."""

    viewer: str
    operator: str
    admin: str
    controller: str

    @classmethod
    def load_or_create(cls, path: Path) -> Self:
        """Read the keys, or create them at the first start; only the owner may read the file.

        Raises ConfigurationError for keys that can be guessed.
        """
        if path.exists():
            _hide_from_others(path)
            stored: dict[str, str] = json.loads(path.read_text())
            for role, key in stored.items():
                if (weakness := weakness_of_key(key)) is not None:
                    raise ConfigurationError(f"{path}: the key of the {role} {weakness}")
        else:
            stored = {
                role: secrets.token_urlsafe(24) for role in ("viewer", "operator", "admin", "controller")
            }
            write_private(path, json.dumps(stored))
        return cls(**stored)

    def principal_of(self, token: str) -> Principal | None:
        """Return the principal of a key, compared in constant time."""
        found = None
        for key, principal in self._principals.values():
            if _is_same(token, key):
                found = principal
        return found

    def id_of(self, role: Role) -> str:
        """Return an id that does not reveal the key; a replaced key gets another id."""
        return self._principals[role][1].id

    @cached_property
    def _principals(self) -> Mapping[Role, tuple[str, Principal]]:
        keys = {Role.VIEWER: self.viewer, Role.OPERATOR: self.operator, Role.ADMIN: self.admin}
        return {
            role: (key, Principal(f"key:{Fingerprint.of(key).id}", role.label, role))
            for role, key in keys.items()
        }


@dataclass(frozen=True)
class Fingerprint:
    """What is stored of a secret: the id to find it by, and the verifier to compare.

    A fast hash suffices because 256 random bits cannot be guessed; passwords would need a slow one.
    """

    id: str
    verifier: str

    @classmethod
    def of(cls, secret: str) -> Self:
        digest = hashlib.sha512(b"lcm credential:" + secret.encode()).hexdigest()
        return cls(digest[:16], digest[64:])

    def matches(self, verifier: str) -> bool:
        return _is_same(self.verifier, verifier)


def new_secret(prefix: str = "") -> str:
    return prefix + secrets.token_urlsafe(32)


def write_private(path: Path, text: str) -> None:
    """Replace a file in one step; only its owner may read it, from the first byte on."""
    partial = path.with_suffix(".new")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def _hide_from_others(path: Path) -> None:
    """Take every other user's access to a file of secrets away, if there is any; a mounted one may refuse."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & stat.S_IRWXO:
        return
    log.warning("keys could be read by every user of this host", path=str(path))
    with suppress(OSError):
        path.chmod(mode & ~stat.S_IRWXO)


def _is_same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


def refuse_foreign_origin(request: HTTPConnection) -> None:
    """Refuse unsafe requests of other sites: browsers send the cookie with them too.

    Browsers name the origin of every unsafe request. One without an origin must be marked as same-origin. A
    proxy may have terminated TLS, so https is accepted in any case.
    """
    if request.scope["method"] in SAFE_METHODS:
        return
    host = request.headers.get("host", "")
    origin = request.headers.get("origin")
    if origin is None:
        is_ours = request.headers.get("sec-fetch-site") == "same-origin"
    else:
        is_ours = bool(host) and origin in (f"{request.scope['scheme']}://{host}", f"https://{host}")
    if not is_ours:
        raise AccessDenied(403, "requests from other sites are refused; use a bearer token instead")


def require(principal: Principal, role: Role) -> None:
    if principal.role < role:
        raise AccessDenied(403, f"this needs the role {role.label}; your token has {principal.role.label}")
