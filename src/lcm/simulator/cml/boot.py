"""The boot of a CML server, as its clients observe it."""

from enum import StrEnum

import msgspec

from lcm.simulator.pace import Delays, Pace


class BootPhase(StrEnum):
    """What the server does with a connection."""

    OFF = "off"
    """No listener: the connection is refused."""
    GATEWAY = "gateway"
    """nginx is up, the application is not: 502."""
    LOADING = "loading"
    """The application answers; no compute can start nodes yet."""
    READY = "ready"


class BootSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds since the instance runs at which each phase begins."""

    gateway_at: float
    loading_at: float
    ready_at: float

    @staticmethod
    def draw(pace: Pace, delays: Delays, *instance: object) -> "BootSchedule":
        """The schedule of one boot of one instance, drawn by the seed."""
        gateway_at = pace.seconds(delays.cml_boot_seconds, "boot", *instance)
        loading_at = gateway_at + pace.seconds(delays.cml_gateway_seconds, "gateway", *instance)
        ready_at = loading_at + pace.seconds(delays.cml_loading_seconds, "loading", *instance)
        return BootSchedule(gateway_at=gateway_at, loading_at=loading_at, ready_at=ready_at)

    def phase(self, seconds_up: float) -> BootPhase:
        """The phase that long after the instance began to run."""
        if seconds_up >= self.ready_at:
            return BootPhase.READY
        if seconds_up >= self.loading_at:
            return BootPhase.LOADING
        return BootPhase.GATEWAY if seconds_up >= self.gateway_at else BootPhase.OFF
