"""One line of the security audit log: who changed what from where, and who was refused."""

from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

SERVICE_ACTORS: Final = frozenset(
    {
        "control plane",
        "worker controller",
        "resource scheduler",
        "lablet controller",
        "lcm",
        "system",
        "discovery",
        "idle detection",
        "leak sweep",
    }
)
"""The names under which LCM itself acts in timelines, words separated by one space."""


class AuditOutcome(StrEnum):
    """How an audited request ended."""

    DONE = "done"
    """The change is committed; the entry was committed with it."""
    REFUSED = "refused"
    """The credential was wrong, or its role too low."""


class SecurityEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the security audit log. It holds no secret."""

    id: str
    at: datetime
    action: str
    """The route that was called, as in `POST /api/tokens`."""
    outcome: AuditOutcome
    address: str
    """The client, as a trusted proxy named it or else the peer of the connection."""
    principal_id: str | None = None
    """None if it is unknown who asked."""
    principal_name: str | None = None
    kind: str | None = None
    """How the principal is known: `key`, `token`, `oidc` or `service`."""
    target: str
    """What was changed, by kind and id; the path if nothing was."""
    reason: str | None = None
    """Why it was refused."""
    before: dict[str, str] = {}
    """The fields that changed, in JSON, as they were; long ones are cut."""
    after: dict[str, str] = {}
