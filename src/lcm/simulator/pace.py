"""How long things take in the simulated world: means to set, and a seeded draw around them."""

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
    """How long CML says `ready: false`."""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Turns a mean into the seconds one particular thing takes; the same thing always takes the same."""

    seed: int
    speed: float

    def seconds(self, mean: float, *thing: object) -> float:
        """Within a fifth of the mean, divided by the speed; chosen by the seed and the thing's name."""
        name = "/".join(map(str, (self.seed, *thing)))
        return mean * random.Random(name).uniform(0.8, 1.2) / self.speed


def steady_unix_time(offset: float = time.time() - time.monotonic()) -> float:
    """Unix seconds that never jump, whatever is done to the machine's clock."""
    return time.monotonic() + offset
