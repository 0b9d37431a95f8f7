"""What a worker cost, from its transitions alone."""

from datetime import UTC, datetime, timedelta

import pytest

from lcm.domain.cost import MONTHS_KEPT, MonthlyUse, book
from lcm.domain.lifecycle import (
    DRAINING,
    PENDING,
    PROVISIONING,
    RUNNING,
    STARTING,
    STOPPED,
    STOPPING,
    WorkerStatus,
)
from lcm.domain.transitions import move
from support.core import NOON, a_worker

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("status", "is_billed"),
    [
        (PENDING, False),
        (PROVISIONING, False),
        (STARTING, True),
        (RUNNING, True),
        (DRAINING, True),
        (STOPPING, False),
        (STOPPED, False),
    ],
)
def test_only_time_in_which_the_instance_runs_is_billed(status: WorkerStatus, is_billed: bool) -> None:
    booked = book((), status, was_paused=False, since=NOON, until=NOON + HOUR)
    assert sum(entry.running_seconds for entry in booked) == (3600 if is_billed else 0)


def test_time_stopped_by_a_pause_is_time_saved() -> None:
    (entry,) = book((), STOPPED, was_paused=True, since=NOON, until=NOON + HOUR)
    assert (entry.running_seconds, entry.paused_seconds) == (0, 3600)


def test_time_stopped_by_a_person_is_not_claimed_as_saved() -> None:
    assert book((), STOPPED, was_paused=False, since=NOON, until=NOON + HOUR) == ()


def test_a_stretch_over_new_year_is_split_between_the_months() -> None:
    since = datetime(2026, 12, 31, 23, tzinfo=UTC)
    booked = book((), RUNNING, was_paused=False, since=since, until=since + 3 * HOUR)
    assert booked == (
        MonthlyUse(month="2026-12", running_seconds=3600),
        MonthlyUse(month="2027-01", running_seconds=7200),
    )


def test_a_clock_that_went_back_books_nothing() -> None:
    assert book((), RUNNING, was_paused=False, since=NOON, until=NOON - HOUR) == ()


def test_old_months_are_forgotten() -> None:
    booked = book((), RUNNING, was_paused=False, since=NOON - timedelta(days=800), until=NOON)
    assert len(booked) == MONTHS_KEPT


def test_every_transition_books_the_status_it_ends() -> None:
    worker = a_worker(status=STARTING, created_at=NOON)
    worker = move(worker, RUNNING, by="c", reason="", now=NOON + HOUR)
    worker = move(worker, STOPPING, by="c", reason="", now=NOON + 4 * HOUR)
    worker = move(worker, STOPPED, by="c", reason="", now=NOON + 5 * HOUR)
    assert sum(entry.running_seconds for entry in worker.use) == 4 * 3600
