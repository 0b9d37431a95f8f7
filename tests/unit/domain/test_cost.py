"""What a worker cost, from its transitions alone."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcm.domain.cost import (
    BILLED,
    MONTHS_BY_DAY,
    MONTHS_KEPT,
    DailyUse,
    MonthlyUse,
    Stretch,
    book,
    bounds_of,
    usd_of_disk,
    use_in,
)
from lcm.domain.lifecycle import (
    DRAINING,
    FAILED,
    PENDING,
    PROVISIONING,
    RUNNING,
    STARTING,
    STOPPED,
    STOPPING,
    TERMINATED,
    TERMINATING,
    WorkerStatus,
)
from lcm.domain.transitions import move
from support.core import NOON, a_worker

HOUR = timedelta(hours=1)
DAY_SECONDS = 86_400


def stretch(
    status: WorkerStatus,
    *,
    since: datetime = NOON,
    until: datetime = NOON + HOUR,
    was_paused: bool = False,
    has_instance: bool = False,
) -> Stretch:
    return Stretch(status=status, was_paused=was_paused, has_instance=has_instance, since=since, until=until)


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
    booked = book((), stretch(status))
    assert sum(entry.running_seconds for entry in booked) == (3600 if is_billed else 0)


def test_time_stopped_by_a_pause_is_time_saved() -> None:
    (entry,) = book((), stretch(STOPPED, was_paused=True))
    assert (entry.running_seconds, entry.paused_seconds) == (0, 3600)


def test_time_stopped_by_a_person_is_not_claimed_as_saved() -> None:
    assert book((), stretch(STOPPED)) == ()


def test_a_stretch_over_new_year_is_split_between_the_months() -> None:
    since = datetime(2026, 12, 31, 23, tzinfo=UTC)
    booked = book((), stretch(RUNNING, since=since, until=since + 3 * HOUR))
    assert booked == (
        MonthlyUse(month="2026-12", running_seconds=3600, days=(DailyUse(31, 3600),)),
        MonthlyUse(month="2027-01", running_seconds=7200, days=(DailyUse(1, 7200),)),
    )


def test_a_clock_that_went_back_books_nothing() -> None:
    assert book((), stretch(RUNNING, until=NOON - HOUR)) == ()


def test_old_months_are_forgotten_and_of_those_before_the_last_only_the_sum_is_kept() -> None:
    booked = book((), stretch(RUNNING, since=NOON - timedelta(days=800), until=NOON))
    assert len(booked) == MONTHS_KEPT
    assert [bool(month.days) for month in booked][-MONTHS_BY_DAY - 1 :] == [False, True, True]


def test_every_transition_books_the_status_it_ends() -> None:
    worker = a_worker(status=STARTING, created_at=NOON)
    worker = move(worker, RUNNING, by="c", reason="", now=NOON + HOUR)
    worker = move(worker, STOPPING, by="c", reason="", now=NOON + 4 * HOUR)
    worker = move(worker, STOPPED, by="c", reason="", now=NOON + 5 * HOUR)
    assert sum(entry.running_seconds for entry in worker.use) == 4 * 3600


@pytest.mark.parametrize(
    ("status", "has_instance", "is_kept"),
    [
        (PENDING, True, False),
        (PROVISIONING, True, True),
        (RUNNING, True, True),
        (STOPPED, True, True),
        (STOPPED, False, False),
        (FAILED, True, True),
        (FAILED, False, False),
        (TERMINATING, True, True),
        (TERMINATED, True, False),
    ],
)
def test_a_disk_is_kept_from_the_launch_until_the_termination_whether_or_not_the_instance_runs(
    status: WorkerStatus, has_instance: bool, is_kept: bool
) -> None:
    booked = book((), stretch(status, has_instance=has_instance))
    assert sum(entry.disk_seconds for entry in booked) == (3600 if is_kept else 0)


def test_a_disk_that_is_kept_for_a_month_costs_the_price_of_a_month_however_long_that_is() -> None:
    for month, days in (("2026-02", 28), ("2028-02", 29), ("2026-11", 30), ("2026-12", 31)):
        whole = usd_of_disk(days * DAY_SECONDS, gb=100, usd_per_gb_month=0.08, month=month)
        assert whole == pytest.approx(8.0)


def test_the_cost_of_a_disk_of_unknown_size_or_price_is_unknown_and_not_zero() -> None:
    assert usd_of_disk(60, gb=None, usd_per_gb_month=0.08, month="2026-11") is None
    assert usd_of_disk(60, gb=100, usd_per_gb_month=None, month="2026-11") is None
    assert usd_of_disk(0, gb=None, usd_per_gb_month=None, month="2026-11") == 0.0


def test_a_day_on_which_clocks_change_somewhere_has_as_many_hours_as_any_other() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    since, until = datetime(2026, 3, 28, 12, tzinfo=berlin), datetime(2026, 3, 30, 12, tzinfo=berlin)
    (march,) = book((), stretch(RUNNING, since=since, until=until))
    assert [(day.day, day.running_seconds / 3600) for day in march.days] == [(28, 13), (29, 24), (30, 10)]


def test_a_status_that_has_not_ended_counts_in_each_month_that_it_reaches() -> None:
    since = datetime(2026, 10, 31, 12, tzinfo=UTC)
    now = since + timedelta(days=2)
    running = stretch(RUNNING, since=since, until=now, has_instance=True)
    for month, days in (("2026-09", ()), ("2026-10", (31,)), ("2026-11", (1, 2)), ("2026-12", ())):
        found = use_in(month, (), running)
        assert (found.month, tuple(day.day for day in found.days)) == (month, days)


@given(
    stretches=st.lists(
        st.tuples(
            st.sampled_from(list(WorkerStatus)),
            st.booleans(),
            st.booleans(),
            st.timedeltas(timedelta(), timedelta(days=40)),
        ),
        max_size=12,
    ),
    age=st.timedeltas(timedelta(), timedelta(days=3 * 365)),
)
def test_the_days_of_a_month_add_up_to_it(
    stretches: list[tuple[WorkerStatus, bool, bool, timedelta]], age: timedelta
) -> None:
    use: tuple[MonthlyUse, ...] = ()
    now, ran = NOON + age, timedelta()
    for status, was_paused, has_instance, length in stretches:
        ended = now + length
        use = book(
            use, stretch(status, was_paused=was_paused, has_instance=has_instance, since=now, until=ended)
        )
        now, ran = ended, ran + length * (status in BILLED)
    for month in use[-MONTHS_BY_DAY:]:
        for kind in ("running_seconds", "paused_seconds", "disk_seconds"):
            days = [getattr(day, kind) for day in month.days]
            assert sum(days) == pytest.approx(getattr(month, kind))
            assert all(0 <= seconds <= DAY_SECONDS + 1e-3 for seconds in days)
        numbers = [day.day for day in month.days]
        assert numbers == sorted(set(numbers))
        longest = (bounds_of(month.month)[1] - timedelta(days=1)).day
        assert all(1 <= number <= longest for number in numbers)
    if len(use) < MONTHS_KEPT:
        assert sum(month.running_seconds for month in use) == pytest.approx(ran.total_seconds())
