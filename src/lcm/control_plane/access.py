"""Who may do what: default deny, three roles for people, one key for controllers."""

import hmac
import json
import os
import secrets
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Self

from starlette.requests import HTTPConnection

SESSION_COOKIE = "lcm_session"


class Role(IntEnum):
    """A higher role may do everything a lower one may."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


@dataclass(frozen=True)
class Principal:
    """Somebody who showed a valid token."""

    name: str
    role: Role


class AccessDenied(Exception):
    """Answered with 401 or 403."""

    def __init__(self, status: int, detail: str) -> None:
        self.status = status
        self.detail = detail
        super().__init__(detail)


@dataclass(frozen=True)
class AccessKeys:
    """One secret per role, and one for controllers. Never logged, never returned."""

    viewer: str
    operator: str
    admin: str
    controller: str

    @classmethod
    def load_or_create(cls, path: Path, controller: str | None = None) -> Self:
        """Read the keys, or make them on the first start; the file is for its owner only."""
        if path.exists():
            stored: dict[str, str] = json.loads(path.read_text())
        else:
            stored = {
                role: secrets.token_urlsafe(24) for role in ("viewer", "operator", "admin", "controller")
            }
            partial = path.with_suffix(".new")
            with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                json.dump(stored, file)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        keys = cls(**stored)
        return keys if controller is None else cls(keys.viewer, keys.operator, keys.admin, controller)

    def principal_of(self, token: str) -> Principal | None:
        """Whose token this is; compared in constant time."""
        found = None
        for role in Role:
            if _is_same(token, getattr(self, role.name.lower())):
                found = Principal(role.name.lower(), role)
        return found

    def is_controller(self, key: str) -> bool:
        return _is_same(key, self.controller)


def _is_same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


def authenticate(request: HTTPConnection, keys: AccessKeys) -> Principal:
    """The person behind a request, by bearer token or session cookie."""
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    token = bearer if scheme.lower() == "bearer" else request.cookies.get(SESSION_COOKIE, "")
    if not token:
        raise AccessDenied(
            401, "sign in first: send 'Authorization: Bearer <token>' or open the link printed at start"
        )
    principal = keys.principal_of(token)
    if principal is None:
        raise AccessDenied(401, "this token is not valid; use the one printed at start")
    if not bearer:
        _refuse_foreign_origin(request)
    return principal


def _refuse_foreign_origin(request: HTTPConnection) -> None:
    """A cookie travels with requests other sites make; those must not change anything."""
    if request.scope.get("method", "GET") in {"GET", "HEAD"}:
        return
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        raise AccessDenied(403, "requests from other sites are refused; use a bearer token instead")


def require(principal: Principal, role: Role) -> None:
    if principal.role < role:
        raise AccessDenied(
            403, f"this needs the role {role.name.lower()}; your token has {principal.role.name.lower()}"
        )
