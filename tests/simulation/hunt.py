"""How long it takes until a bug that was made on purpose is caught: `make sim-hunt` tells for each."""

import os
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass

from simulation.planted import PLANTED
from simulation.run import simulate_random

MAX_RUNS = 1_000
BATCH = 10


@dataclass(frozen=True)
class Catch:
    """The first run in which a planted bug showed, and the invariant it broke."""

    runs: int
    by: str


def hunt_in(name: str, seeds: Sequence[int]) -> Catch | None:
    """Run these seeds with a bug planted, until it is caught."""
    with PLANTED[name]():
        for seed in seeds:
            outcome = simulate_random(seed)
            if outcome.violation is not None:
                return Catch(seed + 1, str(outcome.violation))
    return None


def hunt_all(pool: Executor, max_runs: int = MAX_RUNS) -> dict[str, Catch | None]:
    """Every planted bug, a batch of seeds after the other, as long as it is at large."""
    caught: dict[str, Catch | None] = dict.fromkeys(PLANTED)
    for first in range(0, max_runs, BATCH):
        at_large = [name for name, catch in caught.items() if catch is None]
        seeds = range(first, min(first + BATCH, max_runs))
        caught.update(zip(at_large, pool.map(hunt_in, at_large, [seeds] * len(at_large)), strict=True))
    return caught


def report(caught: dict[str, Catch | None]) -> str:
    return "\n".join(
        f"{name}: after {catch.runs} runs by {catch.by}" if catch else f"{name}: not caught"
        for name, catch in caught.items()
    )


def main() -> None:
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        print(report(hunt_all(pool)))


if __name__ == "__main__":
    main()
