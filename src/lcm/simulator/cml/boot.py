"""How a CML server comes up, as its clients see it."""

from enum import StrEnum

import msgspec

from lcm.simulator.pace import Delays, Pace


class BootPhase(StrEnum):
    """What the server does with a connection."""

    OFF = "off"
    """Nobody listens: the connection is refused."""
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
    def draw(pace: Pace, delays: Delays, *machine: object) -> "BootSchedule":
        """The schedule of one boot of one machine, as the seed has it."""
        gateway_at = pace.seconds(delays.cml_boot_seconds, "boot", *machine)
        loading_at = gateway_at + pace.seconds(delays.cml_gateway_seconds, "gateway", *machine)
        ready_at = loading_at + pace.seconds(delays.cml_loading_seconds, "loading", *machine)
        return BootSchedule(gateway_at=gateway_at, loading_at=loading_at, ready_at=ready_at)

    def phase(self, seconds_up: float) -> BootPhase:
        """The phase that long after the instance began to run."""
        if seconds_up >= self.ready_at:
            return BootPhase.READY
        if seconds_up >= self.loading_at:
            return BootPhase.LOADING
        return BootPhase.GATEWAY if seconds_up >= self.gateway_at else BootPhase.OFF
