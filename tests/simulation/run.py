"""One simulated run, from its seed to its verdict."""

import asyncio
import contextlib
import gc
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any

import structlog
import yaml

from lcm.defaults import BUILT_IN
from lcm.domain.launch import WORKER_ID_TAG
from simulation.browser import Browser
from simulation.invariants import ALL, Invariant
from simulation.scenarios import RANDOM_STORIES, SCENARIOS, Script, knobs_of, story_of
from simulation.story import RunEnded, Story, TooLate
from simulation.world.calls import Call, Violation
from simulation.world.faults import DEFAULT_RATES, Act, Fault, Faults
from simulation.world.knobs import Knobs
from simulation.world.world import Point, Site, World
from support.virtual_time import run_in_virtual_time

TEMPLATES = BUILT_IN / "worker_templates.yaml"
SETTLE_SECONDS = 3 * 3600.0
QUIET_SECONDS = 1800.0
NO_FAULT = "none"


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    scenario: str
    seed: int
    violation: Violation | None
    applied: tuple[Fault, ...]
    trace_hash: str
    points: Mapping[Point, int]
    """Where faults were possible, and at which call first."""
    stale_points: Mapping[Point, int]
    injected: frozenset[tuple[Point, Act]]
    recovery: Mapping[Point, int]
    """What a process of the crashed kind met first after the first crash, and at which call."""
    acts: Mapping[Site, tuple[Act, ...]]
    calls: int
    effects: Mapping[str, int]
    """How often instances were really launched, stopped, started and terminated, over all workers."""
    recent: tuple[Call, ...]
    """The last calls before the violation."""

    def explain(self) -> str:
        """Everything needed to reproduce the violation."""
        lines = [
            f"VIOLATION {self.violation}",
            f"scenario {self.scenario}, seed {self.seed}, {knobs_of(self.scenario, self.seed)}",
            *(str(call) for call in self.recent),
            f"applied: {self.plan}",
            self.replay,
        ]
        return "\n".join(lines)

    @property
    def plan(self) -> str:
        return ";".join(map(str, self.applied)) or NO_FAULT

    @property
    def replay(self) -> str:
        return f"replay: make sim SEED={self.seed} SCENARIO={self.scenario} PLAN='{self.plan}'"


def simulate(
    scenario: str,
    seed: int,
    *,
    plan: Iterable[Fault] = (),
    rates: Mapping[Act, float] | None = None,
    quiet_seconds: float = QUIET_SECONDS,
) -> Outcome:
    return simulate_under(Faults(seed, plan, dict(rates or {})), scenario, quiet_seconds)


def simulate_under(faults: Faults, scenario: str, quiet_seconds: float) -> Outcome:
    """Run a scenario under these faults, heal, settle, rest; the first violation ends the run."""
    with undisturbed():
        knobs = knobs_of(scenario, faults.seed)
        return run_in_virtual_time(_simulate(scenario, faults, knobs, quiet_seconds))


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Switch off logging and garbage collection for a run."""
    with _without_logs(), _without_collector():
        yield


@contextlib.contextmanager
def _without_logs() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Garbage collection depends on allocations of earlier runs too: a run must not depend on it."""
    gc.collect()
    _set_aside_what_was_imported()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@cache
def _set_aside_what_was_imported() -> None:
    """Imported modules stay; scanning them after every run takes longer than the run."""
    gc.freeze()


def simulate_random(seed: int, story: str | None = None, *, quiet_seconds: float = QUIET_SECONDS) -> Outcome:
    """Run with everything drawn from the seed, and the story too unless one is given."""
    return simulate(story or story_of(seed), seed, rates=DEFAULT_RATES, quiet_seconds=quiet_seconds)


@cache
def _templates() -> Mapping[str, Any]:
    """Reading them takes far longer than copying them."""
    templates: Mapping[str, Any] = yaml.safe_load(TEMPLATES.read_text())
    return templates


async def _simulate(scenario: str, faults: Faults, knobs: Knobs, quiet_seconds: float) -> Outcome:
    world = World(faults, knobs, deepcopy(_templates()))  # a scenario may change them
    invariants = [invariant(world) for invariant in ALL]
    with contextlib.suppress(asyncio.CancelledError):
        async with world.running():
            browser = Browser(world)
            world.start(browser.run(), "browser")
            script = RANDOM_STORIES[scenario] if scenario in RANDOM_STORIES else SCENARIOS[scenario].script
            await _play(world, script, invariants, browser, quiet_seconds)
    return Outcome(
        scenario,
        faults.seed,
        world.violation,
        tuple(faults.applied),
        world.trace_hash,
        dict(world.points),
        dict(world.stale_points),
        frozenset(world.injected),
        dict(world.recovery),
        dict(world.acts),
        sum(world.sites.values()),
        _effects(world),
        tuple(world.recent) if world.violation else (),
    )


async def _play(
    world: World, script: Script, invariants: Sequence[Invariant], browser: Browser, quiet_seconds: float
) -> None:
    """Play the script, then check liveness, quiescence and the invariants at rest."""
    story = Story(world)
    try:
        await script(story)
        world.heal()
        await story.settle(SETTLE_SECONDS)
        await story.pause(400)  # late effects land, proofs of absence come in
        await story.settle(SETTLE_SECONDS)
        before = world.mutations
        await story.pause(quiet_seconds)
        if world.mutations != before:
            changes = world.mutations - before
            world.fail(Violation("I10Quiescence", f"{changes} changes though nothing was to do"))
        for invariant in invariants:
            invariant.at_rest()
        await story.read_all()
        if wrong := browser.differences():
            world.fail(Violation("I14Monotonic", f"the browser shows {wrong}"))
    except RunEnded:
        return
    except TooLate as late:
        world.fail(Violation("I10Convergence", str(late)))
    except Violation as violation:
        world.fail(violation)


def _effects(world: World) -> dict[str, int]:
    ours = [
        m
        for m in world.cloud.instances.values()
        if not m.spec.tags.get(WORKER_ID_TAG, "").startswith("foreign")
    ]
    return dict(Counter(transition for instance in ours for transition in instance.transitions))
