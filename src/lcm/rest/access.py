"""Access tokens, as admins see them."""

from datetime import datetime

import msgspec


class TokenView(msgspec.Struct, frozen=True, kw_only=True):
    """The details of a token, without the token."""

    id: str
    name: str
    role: str
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None
    """Exact to half a minute; None if never."""


class TokenCreated(msgspec.Struct, frozen=True, kw_only=True):
    """A new token. Store it now: it cannot be shown again."""

    token: str
    details: TokenView


class BrowserSession(msgspec.Struct, frozen=True, kw_only=True):
    """A browser that is signed in, without its cookie."""

    id: str
    principal_id: str | None
    actor: str
    role: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    """Exact to half a minute."""
    is_current: bool
    """Whether it is the one that asks."""


class BrowserSessions(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first."""

    items: list[BrowserSession]


class TokenList(msgspec.Struct, frozen=True, kw_only=True):
    items: list[TokenView]
