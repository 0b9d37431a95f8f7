"""Intervals and limits of monitoring. The first group can be set, the second is part of the design."""

from dataclasses import dataclass, replace
from typing import Self

from lcm.cml.connection import CmlLimits


@dataclass(frozen=True, kw_only=True)
class MonitoringConfig:
    """In seconds, unless stated otherwise."""

    websocket_enabled: bool = True
    report_interval: float = 10.0
    """Between two reports of a worker's load, or of a lab's."""
    reconnect_max_interval: float = 30.0
    max_reconnect_attempts: int = 3
    health_timeout: float = 60.0
    """Without a frame a connection counts as broken."""
    poll_interval: float = 60.0
    """Between two REST polls while there is no connection."""

    telemetry_timeout: float = CmlLimits.telemetry

    stable_after: float = 60.0
    """A connection that lasted this long resets the count of failures."""
    first_event_within: float = 20.0
    """CML closes after 10 s without a valid token, and sends its first event after 3 s."""
    ping_after: float = 20.0
    pong_within: float = 20.0
    auth_retry_after: float = 120.0
    first_poll_after: float = 5.0
    """A connection that comes back sooner needs no REST poll."""
    catch_up_after: float = 2.0
    """From a new connection to the poll of what happened before it."""
    handshakes_at_once: int = 50
    handshakes_per_second: float = 20.0
    polls_at_once: int = 50
    report_window: float = 0.025
    """Changes within it are reported together."""
    bulk_interval: float = 1.0
    """Load is reported this often, for all workers together."""
    sweep_seconds: float = 1.0
    """How often each monitor is checked."""
    sweep_slices: int = 10
    """A sweep has so many steps: a long one would block the event loop."""

    def following_health_timeout(self) -> Self:
        """With the limits that belong to the timeout: who raises it wants no earlier end by another one."""
        third = self.health_timeout / 3
        return replace(self, first_event_within=third, ping_after=third, pong_within=third)
