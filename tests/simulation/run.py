"""One simulated run, from its seed to its verdict; `make sim SEED=…` comes here."""

import argparse
import asyncio
import contextlib
import logging
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
import yaml

from lcm.domain.launch import WORKER_ID_TAG
from lcm.simulator.calls import Call, Violation
from lcm.simulator.faults import DEFAULT_RATES, Act, Fault, Faults
from lcm.simulator.knobs import Knobs
from lcm.simulator.virtual_time import run_in_virtual_time
from lcm.simulator.world import World
from simulation.browser import Browser
from simulation.invariants import ALL, Invariant
from simulation.scenarios import SCENARIOS, Scenario, wander
from simulation.story import RunEnded, Story, TooLate

TEMPLATES = Path(__file__).parents[2] / "config" / "worker_templates.yaml"
SETTLE_SECONDS = 3 * 3600.0
QUIET_SECONDS = 1800.0


@dataclass(frozen=True)
class Outcome:
    """What came of a run."""

    scenario: str
    seed: int
    violation: Violation | None
    applied: tuple[Fault, ...]
    trace_hash: str
    points: Mapping[tuple[str, str, str], int]
    sites: Mapping[tuple[str, str], int]
    effects: Mapping[str, int]
    """How often machines were really launched, stopped, started and terminated, over all workers."""
    recent: tuple[Call, ...]

    def explain(self) -> str:
        """All that is needed to see it again."""
        plan = ";".join(map(str, self.applied))
        lines = [
            f"VIOLATION {self.violation}",
            f"scenario {self.scenario}, seed {self.seed}",
            *(str(call) for call in self.recent),
            f"applied: {plan or 'no fault'}",
            f"replay: make sim SEED={self.seed} SCENARIO={self.scenario} PLAN='{plan}'",
        ]
        return "\n".join(lines)


def simulate(
    scenario: str,
    seed: int,
    *,
    plan: Iterable[Fault] = (),
    rates: Mapping[Act, float] | None = None,
    knobs: Knobs | None = None,
) -> Outcome:
    """Run a scenario under these faults, heal, let it settle, let it rest; the first violation ends it."""
    faults = Faults(seed, tuple(plan), dict(rates or {}))
    with _without_logs():
        return run_in_virtual_time(_simulate(scenario, faults, knobs or Knobs()))


@contextlib.contextmanager
def _without_logs() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)


def simulate_random(seed: int) -> Outcome:
    """A run in which everything is drawn from the seed."""
    return simulate("wander", seed, rates=DEFAULT_RATES, knobs=Knobs.draw(seed))


async def _simulate(scenario: str, faults: Faults, knobs: Knobs) -> Outcome:
    world = World(faults, knobs, yaml.safe_load(TEMPLATES.read_text()))
    invariants = [invariant(world) for invariant in ALL]
    with contextlib.suppress(asyncio.CancelledError):
        async with world.running():
            browser = Browser(world)
            world.start(browser.run(), "browser")
            await _tell(world, SCENARIOS.get(scenario, wander), invariants, browser)
    return Outcome(
        scenario,
        faults.seed,
        world.violation,
        tuple(faults.applied),
        world.trace_hash,
        dict(world.points),
        dict(world.sites),
        _effects(world),
        tuple(world.recent),
    )


async def _tell(world: World, scenario: Scenario, invariants: Sequence[Invariant], browser: Browser) -> None:
    """Safety, liveness, quiescence."""
    story = Story(world)
    try:
        await scenario(story)
        world.heal()
        await story.settle(SETTLE_SECONDS)
        await story.pause(400)  # late effects land, proofs of absence come in
        await story.settle(SETTLE_SECONDS)
        before = world.mutations
        await story.pause(QUIET_SECONDS)
        if world.mutations != before:
            changes = world.mutations - before
            world.fail(Violation("I10Quiescence", f"{changes} changes while all was as wanted"))
        for invariant in invariants:
            invariant.at_rest()
        if wrong := browser.differences():
            world.fail(Violation("I14Monotonic", f"the browser shows {wrong}"))
    except RunEnded:
        return
    except TooLate as late:
        world.fail(Violation("I10Convergence", str(late)))
    except Violation as violation:
        world.fail(violation)


def _effects(world: World) -> dict[str, int]:
    ours = [m for m in world.cloud.machines.values() if not m.spec.tags[WORKER_ID_TAG].startswith("foreign")]
    return dict(Counter(move for machine in ours for move in machine.moves))


def main() -> None:
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scenario", default="wander", choices=["wander", *SCENARIOS])
    parser.add_argument("--plan", default="", help="faults as role:site:nth:act, separated by semicolons")
    options = parser.parse_args()
    plan = [Fault.parse(text) for text in options.plan.split(";") if text]
    if options.scenario == "wander" and not plan:
        outcome = simulate_random(options.seed)
    else:
        knobs = Knobs.draw(options.seed) if options.scenario == "wander" else None
        outcome = simulate(options.scenario, options.seed, plan=plan, knobs=knobs)
    if outcome.violation is not None:
        print(outcome.explain())
    print(f"{sum(outcome.sites.values())} calls, {len(outcome.applied)} faults, trace {outcome.trace_hash}")
    sys.exit(outcome.violation is not None)


if __name__ == "__main__":
    main()
