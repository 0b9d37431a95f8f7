"""The proof, as part of every test run: exhaustive single faults, random runs, planted bugs, determinism."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from lcm.simulator.faults import Act, Fault
from simulation.exhaustive import PASS, crash_pairs, differs, run_job, single_faults, uncovered
from simulation.planted import PLANTED
from simulation.run import Outcome, simulate, simulate_random
from simulation.scenarios import SCENARIOS
from simulation.shrink import shrink

RANDOM_SEEDS = 300
HUNT_SEEDS = 1_000
HERE = Path(__file__).parent

pytestmark = pytest.mark.timeout(1_200)


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        yield workers


@pytest.fixture(scope="module")
def fault_free(pool: ProcessPoolExecutor) -> dict[str, Outcome]:
    return dict(zip(PASS, pool.map(simulate, PASS, [0] * len(PASS)), strict=True))


def explanations(outcomes: Sequence[Outcome]) -> str:
    return "\n\n".join(outcome.explain() for outcome in outcomes[:3])


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_holds_without_faults(name: str) -> None:
    outcome = simulate(name, 0)
    assert outcome.violation is None, outcome.explain()


def test_no_single_fault_at_any_call_site_in_any_state_breaks_anything(
    pool: ProcessPoolExecutor, fault_free: dict[str, Outcome]
) -> None:
    jobs = list(single_faults(fault_free))
    assert uncovered(fault_free.values(), jobs) == set(), "call sites nobody disturbed"
    failed = [
        (outcome.violation or differs(job, outcome, fault_free), outcome)
        for job, outcome in pool.map(run_job, jobs, chunksize=8)
        if outcome.violation or differs(job, outcome, fault_free)
    ]
    sites = {(job.point[0], job.point[1]) for job in jobs}
    print(f"{len(jobs)} single faults at {len(sites)} call sites, {len({j.point for j in jobs})} points")
    assert not failed, f"{failed[0][0]}\n{explanations([outcome for _, outcome in failed])}"


def test_no_second_crash_soon_after_the_first_breaks_anything(
    pool: ProcessPoolExecutor, fault_free: dict[str, Outcome]
) -> None:
    failed = [
        outcome
        for _, outcome in pool.map(run_job, crash_pairs(fault_free, every=2), chunksize=8)
        if outcome.violation is not None
    ]
    assert not failed, explanations(failed)


def test_no_random_run_breaks_anything(pool: ProcessPoolExecutor) -> None:
    outcomes = list(pool.map(simulate_random, range(RANDOM_SEEDS), chunksize=10))
    failed = [outcome for outcome in outcomes if outcome.violation is not None]
    print(f"{len(outcomes)} random runs, {sum(len(o.applied) for o in outcomes)} faults")
    assert not failed, explanations(failed)


@pytest.mark.parametrize("regression", json.loads((HERE / "regressions" / "seeds.json").read_text()), ids=str)
def test_a_seed_that_once_failed_never_fails_again(regression: dict[str, int]) -> None:
    outcome = simulate_random(regression["seed"])
    assert outcome.violation is None, outcome.explain()


def hunt(name: str) -> tuple[int | None, str]:
    """After how many runs a planted bug is caught, and by what."""
    with PLANTED[name]():
        for runs in range(1, HUNT_SEEDS + 1):
            outcome = simulate_random(runs - 1)
            if outcome.violation is not None:
                return runs, str(outcome.violation)
    return None, "not caught"


def test_every_planted_bug_is_caught(pool: ProcessPoolExecutor) -> None:
    caught = dict(zip(PLANTED, pool.map(hunt, PLANTED), strict=True))
    for name, (runs, by) in caught.items():
        print(f"{name}: after {runs} runs by {by}")
    assert len(caught) >= 12
    assert [name for name, (runs, _) in caught.items() if runs is None] == []


def test_the_same_seed_gives_the_same_run_in_another_process() -> None:
    code = (
        "from simulation.run import simulate_random;"
        "print(*(simulate_random(seed).trace_hash for seed in range(200)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            text=True,
            env={**environment, "PYTHONHASHSEED": str(number)},
        )
        for number in (1, 2)
    ]
    first, second = (run.communicate(timeout=900)[0].split() for run in runs)
    assert len(first) == 200
    assert first == second


def test_a_failing_plan_shrinks_to_the_faults_that_matter() -> None:
    needed = {Fault("controller", "ec2.launch_instance", 1, Act.LOST), Fault("plane", "kv.put", 3, Act.ERROR)}
    noise = [Fault("plane", "kv.get", n, Act.HANG) for n in range(20)]
    plan = [*noise[:7], *needed, *noise[7:]]
    assert set(shrink(plan, lambda part: needed <= set(part))) == needed
