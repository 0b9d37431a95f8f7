"""Settings that make rare things common; a random run draws them from its seed."""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Knobs:
    """How patient, how slow and how small everything is. The defaults are those of a real installation."""

    lease_ttl: int = 15
    reconcile_interval: float = 30.0
    wait_seconds: float = 2.0
    debounce_seconds: float = 0.5
    kv_history: int = 10_000
    visibility_seconds: float = 0.0
    machine_seconds: float = 10.0
    latency_seconds: float = 0.02
    controllers: int = 2
    no_answer_seconds: float = 10.0
    """How long a caller waits for an answer that does not come."""

    @staticmethod
    def draw(seed: int) -> "Knobs":
        rng = Random(f"knobs/{seed}")
        lease_ttl = rng.choice([15, 15, 15, 15, 6, 3])
        # A lease that cannot be renewed in time is a wrong setting, not a fault.
        slowest = 0.5 if lease_ttl >= 15 else 0.05
        return Knobs(
            lease_ttl=lease_ttl,
            reconcile_interval=rng.choice([30.0, 30.0, 10.0]),
            wait_seconds=rng.choice([2.0, 2.0, 0.5]),
            debounce_seconds=rng.choice([0.5, 0.5, 0.05]),
            kv_history=rng.choice([10_000, 10_000, 5]),
            visibility_seconds=rng.choice([0.0, 0.0, 30.0, 200.0]),
            machine_seconds=rng.choice([10.0, 10.0, 60.0, 1.0]),
            latency_seconds=rng.choice([0.02, 0.02, slowest, 0.0]),
            controllers=rng.choice([2, 2, 3]),
        )
