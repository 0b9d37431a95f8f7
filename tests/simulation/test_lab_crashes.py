"""Sessions that are each interrupted at a random call by a crash of the process that works on them."""

from concurrent.futures import ProcessPoolExecutor

import pytest

from simulation.lab_crashes import SESSIONS, report, run_and_cut

RUNS = 10
"""`make soak-labs` makes fifty."""


@pytest.mark.timeout(600)
def test_sessions_cut_at_a_random_call_leave_no_lab_no_second_one_and_no_claim() -> None:
    with ProcessPoolExecutor(2) as pool:
        runs = list(pool.map(run_and_cut, range(1_000, 1_000 + RUNS)))
    print(report(runs))
    assert [run for run in runs if not run.is_clean] == []
    assert sum(run.ended for run in runs) == RUNS * SESSIONS
    assert sum(run.cut for run in runs) >= 0.95 * RUNS * SESSIONS
