"""CML telemetry of one server: the newest events, in order."""

from collections import deque
from datetime import UTC, datetime
from typing import Any, Final

EVENTS_KEPT: Final = 10_000

HARDWARE_CATEGORIES: Final = ("blkinfo", "dmiinfo", "cpuinfo", "meminfo", "hypervisor", "license_info")
"""Recorded at every boot; no activity of people."""
ACTIVITY_SECONDS: Final = 60.0
"""The requests of one user within this time are one `user_activity`."""


class Telemetry:
    """The events of one server."""

    def __init__(self) -> None:
        self.is_off = False
        """People have declined it: nothing is recorded, and nothing is shown."""
        self._events: deque[dict[str, Any]] = deque(maxlen=EVENTS_KEPT)
        self._seen_at: dict[str, float] = {}

    def record(self, category: str, at: float, data: dict[str, Any]) -> None:
        if not self.is_off:
            self._events.append({"category": category, "timestamp": _time(at), "data": data})

    def see(self, user_id: str, at: float) -> None:
        """Record a request of a user as activity."""
        if at - self._seen_at.get(user_id, -ACTIVITY_SECONDS) >= ACTIVITY_SECONDS:
            self._seen_at[user_id] = at
            self.record("user_activity", at, {"user_id": user_id})

    def events(self) -> list[dict[str, Any]]:
        """As `GET /telemetry/events` shows them: times without a zone."""
        return [] if self.is_off else list(self._events)


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).replace(tzinfo=None).isoformat()
