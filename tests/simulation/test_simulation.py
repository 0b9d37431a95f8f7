"""The proof, as part of every test run: exhaustive single faults, random runs, planted bugs, determinism.

All of it shares one pool of processes.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from simulation.coverage import Coverage
from simulation.exhaustive import (
    LONG,
    PASS,
    QUIET_SECONDS,
    Job,
    crash_pairs,
    differs,
    faults_behind_faults,
    long_faults,
    run_all,
    run_alone,
    single_faults,
)
from simulation.hunt import caught_before, hunt_again, report
from simulation.run import Outcome, simulate, simulate_random
from simulation.scenarios import SCENARIOS
from simulation.shrink import explain, shrink
from simulation.world.faults import Act, Fault

RANDOM_SEEDS = range(1_000, 1_400)
"""Not those of the planted bugs, nor of most regressions: nothing is run twice."""
REPEATED_SEEDS = 100
TOGETHER = 5
HERE = Path(__file__).parent
REGRESSIONS: list[dict[str, Any]] = json.loads((HERE / "regressions" / "seeds.json").read_text())

pytestmark = pytest.mark.timeout(3_600)


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    workers = ProcessPoolExecutor(os.cpu_count())
    yield workers
    workers.shutdown(cancel_futures=True)  # of what only some of the tests would have asked for


@pytest.fixture(scope="module")
def running(pool: ProcessPoolExecutor) -> dict[str, Future[Outcome]]:
    """Every scenario without a fault, the longest first; they run beside the other tests."""
    return {name: pool.submit(simulate, name, 0) for name in (*LONG, *PASS)}


@pytest.fixture(scope="module")
def failed_once(pool: ProcessPoolExecutor, running: dict[str, Future[Outcome]]) -> list[Future[Outcome]]:
    """The regression seeds, submitted while the scenarios still run: the pool is never idle."""
    return [pool.submit(simulate_again, known) for known in REGRESSIONS]


@pytest.fixture(scope="module")
def random_runs(pool: ProcessPoolExecutor, failed_once: list[Future[Outcome]]) -> list[Future[list[Outcome]]]:
    """The random runs in small groups, submitted right after them."""
    return [
        pool.submit(simulate_some, RANDOM_SEEDS[first : first + TOGETHER])
        for first in range(0, len(RANDOM_SEEDS), TOGETHER)
    ]


def simulate_again(known: dict[str, Any]) -> Outcome:
    """Run a regression: drawn from its seed, or a scenario under its plan."""
    if "plan" not in known:
        return simulate_random(known["seed"], known["story"])
    return simulate(known["story"], known["seed"], plan=[Fault.parse(known["plan"])])


def simulate_some(seeds: range) -> list[Outcome]:
    return [simulate_random(seed, quiet_seconds=QUIET_SECONDS) for seed in seeds]


@pytest.fixture(scope="module")
def fault_free(
    running: dict[str, Future[Outcome]], random_runs: list[Future[list[Outcome]]]
) -> dict[str, Outcome]:
    return {name: running[name].result() for name in PASS}


@pytest.fixture(scope="module")
def disturbed_once(pool: ProcessPoolExecutor, fault_free: dict[str, Outcome]) -> list[tuple[Job, Outcome]]:
    """The exhaustive pass."""
    return list(run_all(pool, single_faults(fault_free)))


@pytest.fixture(scope="module")
def disturbed_behind_a_fault(
    pool: ProcessPoolExecutor, fault_free: dict[str, Outcome], disturbed_once: list[tuple[Job, Outcome]]
) -> list[tuple[Job, Outcome]]:
    """The call sites that only a fault leads to."""
    return list(run_all(pool, faults_behind_faults(fault_free, disturbed_once)))


@pytest.fixture(scope="module")
def disturbed_twice(
    pool: ProcessPoolExecutor, disturbed_once: list[tuple[Job, Outcome]]
) -> list[tuple[Job, Outcome]]:
    return list(run_all(pool, crash_pairs(disturbed_once)))


def test_no_single_fault_at_any_call_site_in_any_state_breaks_anything(
    disturbed_once: list[tuple[Job, Outcome]],
    disturbed_behind_a_fault: list[tuple[Job, Outcome]],
    fault_free: dict[str, Outcome],
    random_runs: list[Future[list[Outcome]]],
) -> None:
    """Every call site that a run of this file reaches: if one is listed as missing, a scenario is missing."""
    done = [*disturbed_once, *disturbed_behind_a_fault]
    outcomes = [outcome for _, outcome in done]
    coverage = Coverage.of(fault_free, outcomes)
    print(coverage.table())
    failed = [outcome for outcome in outcomes if outcome.violation is not None]
    assert not failed, explain(failed)
    assert_not_different(done, fault_free)
    missing = coverage.missing(outcomes, *(group.result() for group in random_runs))
    assert missing == [], "\n".join(("possible at a call site and never injected there:", *missing))


def test_no_second_crash_while_the_first_is_recovered_from_breaks_anything(
    disturbed_twice: list[tuple[Job, Outcome]], fault_free: dict[str, Outcome]
) -> None:
    done = disturbed_twice
    assert len({job.point for job, _ in done}) >= 200
    assert all(outcome.applied == job.plan for job, outcome in done)
    failed = [outcome for _, outcome in done if outcome.violation is not None]
    assert not failed, explain(failed)
    assert_not_different(done, fault_free)


def assert_not_different(done: list[tuple[Job, Outcome]], fault_free: dict[str, Outcome]) -> None:
    different = [(differs(job, outcome, fault_free), outcome.replay) for job, outcome in done]
    assert [difference for difference in different if difference[0] is not None] == []


def test_a_run_that_shares_its_beginning_with_others_is_what_it_is_alone(
    pool: ProcessPoolExecutor,
    disturbed_once: list[tuple[Job, Outcome]],
    disturbed_twice: list[tuple[Job, Outcome]],
) -> None:
    some = [*disturbed_once[::50], *disturbed_twice[::50]]
    assert list(pool.map(run_alone, [job for job, _ in some])) == [outcome for _, outcome in some]


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_holds_without_faults(running: dict[str, Future[Outcome]], name: str) -> None:
    outcome = running[name].result()
    assert outcome.violation is None, outcome.explain()


def test_no_fault_before_a_long_idle_time_shows_after_it(
    pool: ProcessPoolExecutor, running: dict[str, Future[Outcome]]
) -> None:
    jobs = long_faults("thirty_idle_days", running["thirty_idle_days"].result())
    done = run_all(pool, jobs, together=4)
    failed = [outcome for _, outcome in done if outcome.violation is not None]
    assert not failed, explain(failed)


def test_no_random_run_breaks_anything(random_runs: list[Future[list[Outcome]]]) -> None:
    done = [outcome for group in random_runs for outcome in group.result()]
    assert len(done) == len(RANDOM_SEEDS)
    print(f"{len(done)} random runs, {sum(len(run.applied) for run in done)} faults")
    failed = [outcome for outcome in done if outcome.violation is not None]
    assert not failed, explain(failed)


@pytest.mark.parametrize("number", range(len(REGRESSIONS)), ids=lambda number: str(REGRESSIONS[number]))
def test_a_seed_that_once_failed_never_fails_again(failed_once: list[Future[Outcome]], number: int) -> None:
    outcome = failed_once[number].result()
    assert outcome.violation is None, explain([outcome])


def test_the_same_seed_gives_the_same_run_in_another_process(
    random_runs: list[Future[list[Outcome]]],
) -> None:
    """Also if sets and dictionaries are laid out differently there."""
    code = (
        "import sys; from simulation.test_simulation import simulate_some;"
        "print(*(run.trace_hash for run in simulate_some(range(*map(int, sys.argv[1:])))))"
    )
    first_seed, half = RANDOM_SEEDS.start, REPEATED_SEEDS // 2
    others = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(first), str(first + half)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(HERE.parent), "PYTHONHASHSEED": str(first + 1)},
        )
        for first in (first_seed, first_seed + half)
    ]
    hashes = [line for other in others for line in other.communicate(timeout=900)[0].split()]
    assert len(hashes) == REPEATED_SEEDS
    done = [outcome for group in random_runs for outcome in group.result()]
    assert hashes == [outcome.trace_hash for outcome in done[:REPEATED_SEEDS]]


def test_every_planted_bug_is_caught(pool: ProcessPoolExecutor) -> None:
    caught = hunt_again(pool, caught_before())
    print(report(caught))
    assert len(caught) >= 20
    assert [name for name, catch in caught.items() if catch is None] == []


def test_a_failing_plan_shrinks_to_the_faults_that_matter() -> None:
    needed = {Fault("controller", "ec2.launch_instance", 1, Act.LOST), Fault("plane", "kv.put", 3, Act.ERROR)}
    noise = [Fault("plane", "kv.get", n, Act.HANG) for n in range(20)]
    plan = [*noise[:7], *needed, *noise[7:]]
    assert set(shrink(plan, lambda part: needed <= set(part))) == needed


def test_a_failure_that_needs_no_fault_shrinks_to_none() -> None:
    assert shrink([Fault("plane", "kv.get", 1, Act.HANG)], lambda part: True) == []
