"""The long mode: many random seeds, with a progress bar. `make soak SEEDS=10000`."""

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor

from rich.progress import Progress

from simulation.run import Outcome, simulate_random
from simulation.shrink import explain


def main() -> None:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    failed: list[Outcome] = []
    faults = 0
    with ProcessPoolExecutor(os.cpu_count()) as pool, Progress() as progress:
        task = progress.add_task("random runs", total=options.seeds)
        seeds = range(options.first, options.first + options.seeds)
        for done, outcome in enumerate(pool.map(simulate_random, seeds, chunksize=10), start=1):
            progress.advance(task)
            if done % 500 == 0 and not progress.console.is_terminal:
                print(f"{done} of {options.seeds}", flush=True)
            faults += len(outcome.applied)
            if outcome.violation is not None:
                failed.append(outcome)
                progress.console.print(f"seed {outcome.seed}: {outcome.violation}")
    if failed:
        print(explain(failed))
    print(f"{options.seeds} runs, {faults} faults, {len(failed)} violations")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
