"""A thousand launches, each interrupted at a random step by a crash of the process that works on it."""

from concurrent.futures import ProcessPoolExecutor

import pytest

from simulation.launches import WORKERS, launch_and_cut

RUNS = 52
LAUNCHES = 1_000


@pytest.mark.timeout(600)
def test_a_thousand_launches_cut_at_a_random_step_leave_no_duplicate_and_no_orphan() -> None:
    with ProcessPoolExecutor(2) as pool:
        runs = list(pool.map(launch_and_cut, range(RUNS)))
    assert [run.violation for run in runs if run.violation is not None] == []
    assert [run.duplicates + run.orphans for run in runs if run.duplicates or run.orphans] == []
    assert sum(run.launched for run in runs) == RUNS * WORKERS >= LAUNCHES
    assert sum(run.cut for run in runs) >= LAUNCHES
