"""Run one seed, or one scenario under a plan of faults: `make sim SEED=…` comes here.

Without a plan the faults of a random story are drawn from the seed. A failure is shrunk. The last line
has the hash of the trace.
"""

import argparse
import sys

from simulation.run import NO_FAULT, simulate, simulate_random
from simulation.scenarios import RANDOM_STORIES, SCENARIOS
from simulation.shrink import explain
from simulation.world.faults import Fault


def main() -> None:
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scenario", default="wander", choices=[*RANDOM_STORIES, *SCENARIOS])
    parser.add_argument(
        "--plan", default="", help=f"faults as role:site:nth:act, separated by semicolons, or '{NO_FAULT}'"
    )
    options = parser.parse_args()
    if options.scenario in RANDOM_STORIES and not options.plan:
        outcome = simulate_random(options.seed, options.scenario)
    else:
        plan = [Fault.parse(text) for text in options.plan.split(";") if text not in ("", NO_FAULT)]
        outcome = simulate(options.scenario, options.seed, plan=plan)
    if outcome.violation is not None:
        print(explain([outcome]))
    print(f"{outcome.calls} calls, {len(outcome.applied)} faults, trace {outcome.trace_hash}")
    sys.exit(outcome.violation is not None)


if __name__ == "__main__":
    main()
