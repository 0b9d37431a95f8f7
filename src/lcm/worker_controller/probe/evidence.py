"""What a CML server answered and sent, as far as the assumptions need it."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from lcm.cml.session import TokenClaims
from lcm.worker_controller.monitoring.protocol import FrameCounts

INFORMATION = "system_information"
STRANGER = "authenticate, a user that does not exist"
FORGED = "authok, an invalid token"
OWN = "authok"
STATS = "system_stats"
HEALTH = "system_health"
LICENSING = "licensing"
OPT_IN = "telemetry"
TELEMETRY = "telemetry/events"
OWN_AFTERWARDS = "authok, at the end"


class Answer(NamedTuple):
    """The answer to one request."""

    status: int
    body: bytes
    asked_at: datetime
    answered_at: datetime
    server_time: datetime | None

    @property
    def seconds(self) -> float:
        return (self.answered_at - self.asked_at).total_seconds()

    def json(self) -> Any:
        """The decoded body; None if it is no JSON."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None


class Closed(NamedTuple):
    """The end of a WebSocket that the server closed."""

    code: int
    after_seconds: float


@dataclass
class Feed:
    """What came by one WebSocket that had shown a valid token."""

    counts: FrameCounts = field(default_factory=FrameCounts)
    types: Counter[str] = field(default_factory=Counter)
    """By the `event_type` of each frame, also of those that LCM does not know."""
    fast_frames: int = 0
    """Frames of load that the quick recognition by their first bytes finds."""
    first_event_after: float | None = None
    longest_gap: float = 0.0
    """Between two frames, in seconds."""
    stats_gaps: list[float] = field(default_factory=list)
    """Between two frames of the load."""
    largest_frame: int = 0
    pings: int = 0
    slowest_pong: float = 0.0
    unanswered_pings: int = 0
    held_seconds: float = 0.0
    closed: Closed | None = None


@dataclass
class Evidence:
    """Everything that was collected; what is missing could not be."""

    answers: dict[str, Answer] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    """By request, the kind of the error: its text could name the server."""
    claims: TokenClaims | None = None
    token_issued_at: datetime | None = None
    """By the server's own clock."""
    has_logged_in: bool = False
    feed: Feed | None = None
    after_forged_token: Closed | None = None
    after_silence: Closed | None = None
    minutes: float = 0.0
