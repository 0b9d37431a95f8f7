"""A timeslot opens before its start, is missed only if nothing comes, and knows its zone."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcm.domain.errors import InvalidTimeslot
from lcm.domain.lablet.timeslot import Phase, Timeslot, book_in_zone, check_booking

NINE = datetime(2026, 1, 1, 9, tzinfo=UTC)
minutes = st.integers(1, 600).map(lambda count: timedelta(minutes=count))


def slot(length: timedelta = timedelta(hours=2)) -> Timeslot:
    return Timeslot(start=NINE, end=NINE + length)


def local(month: int, day: int, hour: int, minute: int = 0) -> datetime:
    """A time as people write it, without an offset."""
    return datetime(2026, month, day, hour, minute, tzinfo=UTC).replace(tzinfo=None)


def after(count: float) -> datetime:
    return NINE + timedelta(minutes=count)


@given(minutes, st.integers(0, 480))
def test_the_latest_start_is_never_after_five_minutes_before_the_end(length: timedelta, late: int) -> None:
    latest = slot(length).latest_start(late)
    assert NINE <= latest <= max(NINE, NINE + length - timedelta(minutes=5))


def test_a_class_is_missed_after_the_grace_if_nothing_comes() -> None:
    assert not slot().is_missed(after(4.9))
    assert slot().is_missed(after(5))


def test_a_worker_that_comes_six_minutes_late_saves_the_class() -> None:
    assert not slot().is_missed(after(6), coming_at=after(7))
    assert slot().is_missed(after(6), coming_at=after(31))
    assert slot().is_missed(after(30), coming_at=after(7))


@pytest.mark.parametrize(
    ("at", "phase"),
    [(-36, "before"), (-35, "approaching"), (0, "active"), (120, "teardown"), (130, "over")],
)
def test_a_timeslot_has_five_phases(at: int, phase: str) -> None:
    assert slot().phase(after(at)) is Phase(phase)


def test_a_timeslot_that_ends_before_it_starts_or_has_no_zone_is_refused() -> None:
    with pytest.raises(InvalidTimeslot, match="later end"):
        Timeslot(start=NINE, end=NINE)
    with pytest.raises(InvalidTimeslot, match="with a zone"):
        Timeslot(start=NINE.replace(tzinfo=None), end=NINE)


@pytest.mark.parametrize(
    ("now", "text"),
    [(after(1), "in the past"), (after(-91 * 24 * 60), "90 days"), (after(-60), "60 minutes")],
)
def test_a_booking_in_the_past_too_far_ahead_or_too_long_is_refused(now: datetime, text: str) -> None:
    with pytest.raises(InvalidTimeslot, match=text):
        check_booking(slot(), max_minutes=60, now=now)


def test_a_timeslot_is_only_extended_to_a_later_end() -> None:
    assert slot().extended(after(180)).duration == timedelta(hours=3)
    with pytest.raises(InvalidTimeslot, match="later end"):
        slot().extended(after(120))


def test_timeslots_that_touch_do_not_overlap() -> None:
    following = Timeslot(start=slot().end, end=after(300))
    assert not slot().overlaps(following)
    assert slot().overlaps(slot())


def test_a_class_keeps_its_local_time_over_a_change_of_clocks() -> None:
    winter = book_in_zone(local(3, 28, 9), local(3, 28, 11), "Europe/Berlin")
    summer = book_in_zone(local(3, 30, 9), local(3, 30, 11), "Europe/Berlin")
    assert (winter.start.hour, summer.start.hour, summer.zone) == (8, 7, "Europe/Berlin")


def test_a_local_time_that_does_not_exist_is_refused_and_one_that_exists_twice_is_the_first() -> None:
    with pytest.raises(InvalidTimeslot, match="does not exist"):
        book_in_zone(local(3, 29, 2, 30), local(3, 29, 4), "Europe/Berlin")
    twice = book_in_zone(local(10, 25, 2, 30), local(10, 25, 4), "Europe/Berlin")
    assert twice.start == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    with pytest.raises(InvalidTimeslot, match="unknown"):
        book_in_zone(local(3, 29, 9), local(3, 29, 11), "Nowhere/Land")
    with pytest.raises(InvalidTimeslot, match="offset"):
        book_in_zone(NINE, NINE + timedelta(hours=1), "UTC")


moments = st.integers(-60, 700).map(after)


@given(minutes, moments, moments)
def test_phases_follow_each_other_in_their_order(length: timedelta, one: datetime, other: datetime) -> None:
    order = list(Phase)
    earlier, later = sorted((one, other))
    booked = slot(length)
    assert order.index(booked.phase(earlier)) <= order.index(booked.phase(later))


@given(minutes, st.integers(0, 480), st.none() | moments, moments, moments)
def test_a_timeslot_that_is_missed_stays_missed(
    length: timedelta, late: int, coming_at: datetime | None, one: datetime, other: datetime
) -> None:
    earlier, later = sorted((one, other))
    booked = slot(length)
    was_missed = booked.is_missed(earlier, coming_at=coming_at, minutes=late)
    assert booked.is_missed(later, coming_at=coming_at, minutes=late) or not was_missed
    assert not booked.is_missed(NINE - timedelta(seconds=1), coming_at=coming_at, minutes=late)


@given(minutes, minutes, st.integers(-700, 700))
def test_timeslots_overlap_if_a_moment_lies_in_both(one: timedelta, other: timedelta, shift: int) -> None:
    first = slot(one)
    second = Timeslot(start=after(shift), end=after(shift) + other)
    shared = max(first.start, second.start) < min(first.end, second.end)
    assert first.overlaps(second) == second.overlaps(first) == shared


@given(minutes, minutes)
def test_an_extension_moves_the_end_and_nothing_else(length: timedelta, more: timedelta) -> None:
    booked = slot(length)
    longer = booked.extended(booked.end + more)
    assert (longer.start, longer.zone, longer.duration) == (booked.start, booked.zone, length + more)
