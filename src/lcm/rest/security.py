"""The security audit log on the wire."""

import msgspec

from lcm.domain.security import SecurityEntry


class SecurityAuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """Entries, newest first, and where to go on."""

    items: list[SecurityEntry]
    next: str | None
    """`before` of the next page; None if this is the last."""
