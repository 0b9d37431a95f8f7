"""Not seeing something proves its absence only after enough reads over enough time."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcm.domain.observation import ABSENCE_READS, ABSENCE_SPAN, Absent, Misses, Unknown


def missed_at(*minutes: float) -> Misses:
    """Complete reads, at so many minutes, that did not show the thing."""
    first, *others = (m * 60.0 for m in minutes)
    misses = Misses.first(first)
    for at in others:
        misses = misses.again(at)
    return misses


@pytest.mark.parametrize(
    ("reads", "is_absent"),
    [
        ((0,), False),
        ((0, 10), False),
        ((0, 2, 4.99), False),
        ((0, 2.5, 5), True),
        ((0, 1, 2, 3, 4), False),
        ((0, 1, 2, 3, 4, 5), True),
        ((0, 0, 0), False),
        ((0, 5, 5), False),
        ((0, 5, 5, 5, 5), False),
        ((0, 5, 5, 6), True),
        ((0, 5, 4), False),
    ],
)
def test_absence_takes_three_reads_over_five_minutes(reads: tuple[float, ...], is_absent: bool) -> None:
    assert isinstance(missed_at(*reads).verdict(), Absent) is is_absent


def test_reads_at_the_same_instant_are_one_read() -> None:
    assert missed_at(0, 0, 0).reads == 1


def test_a_proof_says_how_often_and_how_long() -> None:
    verdict = missed_at(0, 3, 6).verdict()
    assert isinstance(verdict, Absent)
    assert "3 complete reads over 0:06:00" in verdict.proof


def test_a_doubt_says_how_often_and_how_long() -> None:
    verdict = missed_at(0, 3).verdict()
    assert isinstance(verdict, Unknown)
    assert "2 reads over 0:03:00" in verdict.reason


@given(st.lists(st.floats(0, 20), min_size=1, max_size=12))
def test_no_order_of_reads_proves_absence_too_early(minutes: list[float]) -> None:
    if isinstance(missed_at(*minutes).verdict(), Absent):
        assert len(set(minutes)) >= ABSENCE_READS
        assert timedelta(minutes=max(minutes) - minutes[0]) >= ABSENCE_SPAN
