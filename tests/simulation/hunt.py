"""After how many random runs a bug that was made on purpose is caught.

`make sim-hunt` hunts each from seed 0 on and writes down where it was caught; a test run begins there.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from simulation.planted import PLANTED
from simulation.run import simulate_random

MAX_RUNS = 1_000
BATCH = 10
CAUGHT_BEFORE = Path(__file__).parent / "regressions" / "planted.json"


@dataclass(frozen=True)
class Catch:
    """The seed with which a planted bug showed, and the invariant it broke."""

    seed: int
    by: str

    @property
    def runs(self) -> int:
        """Seeds are run in order, from 0."""
        return self.seed + 1


Caught = dict[str, Catch | None]


def hunt_in(name: str, seeds: Sequence[int]) -> Catch | None:
    """Run these seeds with a bug planted, until it is caught."""
    bug = PLANTED[name]
    with bug.switched_on():
        for seed in seeds:
            outcome = simulate_random(seed, bug.story)
            if outcome.violation is not None:
                return Catch(seed, str(outcome.violation))
    return None


def hunt_again(pool: Executor, before: Mapping[str, int]) -> Caught:
    """Run first the seed that caught each bug before, then all seeds for bugs it no longer catches."""
    known = [name for name in PLANTED if name in before]
    found = pool.map(hunt_in, known, [[before[name]] for name in known])
    caught: Caught = {**dict.fromkeys(PLANTED), **dict(zip(known, found, strict=True))}
    return caught | hunt(pool, [name for name, catch in caught.items() if catch is None])


def hunt(pool: Executor, names: Iterable[str], max_runs: int = MAX_RUNS) -> Caught:
    """Run batches of seeds for each bug until it is caught."""
    caught: Caught = dict.fromkeys(names)
    for first in range(0, max_runs, BATCH):
        at_large = [name for name, catch in caught.items() if catch is None]
        seeds = range(first, min(first + BATCH, max_runs))
        caught.update(zip(at_large, pool.map(hunt_in, at_large, [seeds] * len(at_large)), strict=True))
    return caught


def caught_before() -> dict[str, int]:
    seeds: dict[str, int] = json.loads(CAUGHT_BEFORE.read_text())
    return seeds


def report(caught: Caught) -> str:
    return "\n".join(
        f"{name}: after at most {catch.runs} runs by {catch.by}" if catch else f"{name}: not caught"
        for name, catch in caught.items()
    )


def main() -> None:
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        caught = hunt(pool, PLANTED)
    print(report(caught))
    seeds = {name: catch.seed for name, catch in caught.items() if catch is not None}
    CAUGHT_BEFORE.write_text(json.dumps(seeds, indent=2) + "\n")


if __name__ == "__main__":
    main()
