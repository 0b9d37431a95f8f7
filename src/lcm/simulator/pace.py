"""Durations in the simulation: configurable means, and a seeded draw around them."""

import random
import time

import msgspec


class Delays(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Mean seconds, before `speed` divides them."""

    launch_seconds: float = 3.0
    """RunInstances until `running`."""
    stop_seconds: float = 2.0
    start_seconds: float = 2.0
    terminate_seconds: float = 2.0
    forget_seconds: float = 3600.0
    """How long a terminated instance is still described."""
    cml_boot_seconds: float = 4.0
    """`running` until CML's port is open."""
    cml_gateway_seconds: float = 1.0
    """How long the open port answers 502."""
    cml_loading_seconds: float = 1.0
    """How long CML reports `ready: false`."""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Turns a mean into the seconds one named operation takes; the same name always takes the same."""

    seed: int
    speed: float
    spread: float = 0.2
    """How far a duration may be from its mean, as a fraction of it."""

    def seconds(self, mean: float, *operation: object) -> float:
        """The mean, give or take the spread, divided by speed; drawn by seed and operation name."""
        name = "/".join(map(str, (self.seed, *operation)))
        return mean * random.Random(name).uniform(1 - self.spread, 1 + self.spread) / self.speed


def steady_unix_time(offset: float = time.time() - time.monotonic()) -> float:
    """Unix seconds that never jump, whatever is done to the host's clock."""
    return time.monotonic() + offset
