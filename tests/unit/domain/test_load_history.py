"""Histories of load are joined: in whichever order, and however often."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcm.domain.launch import WorkerId
from lcm.domain.load_history import (
    MAX_COUNT,
    RESOLUTIONS,
    ROW_BYTES,
    HistoryRange,
    Interval,
    Row,
    joined,
    unpacked,
)
from lcm.domain.telemetry import Sample, SampleSource

T0 = datetime(2026, 1, 1, tzinfo=UTC)
UNKNOWN = (None, None, None, None, None)


def sample(seconds: float = 0, **values: Any) -> Sample:
    return Sample(
        worker_id=WorkerId("ada"),
        collected_at=T0 + timedelta(seconds=seconds),
        source=SampleSource.WEBSOCKET,
        **values,
    )


def interval(number: int, *cpu: float, **others: float) -> bytes:
    sums = Interval()
    for value in cpu:
        sums.add(sample(cpu_utilization=value), with_load=True)
    if others:
        sums.add(sample(**others), with_load=True)
    return sums.packed(number)


def rows(*intervals: bytes) -> list[Row]:
    return list(unpacked(b"".join(intervals)))


histories = st.dictionaries(st.integers(0, 30), st.integers(1, 40)).map(
    # The same number of samples means the same samples: every control plane hears of them from one leader.
    lambda counts: [interval(number, *[float(number)] * count) for number, count in sorted(counts.items())]
)


@given(histories, histories)
def test_histories_are_joined_in_any_order_and_again_without_a_change(
    first: list[bytes], second: list[bytes]
) -> None:
    both = joined(b"".join(first), second, oldest=0)
    assert joined(b"".join(second), first, oldest=0) == both
    assert joined(both, first, oldest=0) == both
    assert joined(both, second, oldest=0) == both
    numbers = [row.number for row in unpacked(both)]
    assert numbers == sorted(set(numbers))


@given(histories, histories, histories)
def test_histories_are_joined_in_any_grouping(
    first: list[bytes], second: list[bytes], third: list[bytes]
) -> None:
    of_two = joined(b"".join(first), second, oldest=0)
    others = joined(b"".join(second), third, oldest=0)
    split = [others[start : start + ROW_BYTES] for start in range(0, len(others), ROW_BYTES)]
    assert joined(of_two, third, oldest=0) == joined(b"".join(first), split, oldest=0)


def test_of_two_means_of_an_interval_that_of_more_samples_counts_measure_by_measure() -> None:
    of_cml = interval(7, 10.0, 20.0)
    of_the_cloud = interval(7, 99.0, network_in_bytes=5_000.0)
    expected = [Row(7, (15.0, None, None, 5_000.0, None))]
    assert rows(joined(of_cml, [of_the_cloud], oldest=0)) == expected
    assert rows(joined(of_the_cloud, [of_cml], oldest=0)) == expected


def test_what_is_not_known_is_never_zero() -> None:
    assert rows(Interval().packed(3)) == [Row(3, UNKNOWN)]
    assert rows(interval(3, 0.0)) == [Row(3, (0.0, None, None, None, None))]


def test_a_load_that_another_source_measures_better_does_not_count() -> None:
    sums = Interval()
    sums.add(sample(cpu_utilization=90.0, network_out_bytes=8.0), with_load=False)
    assert rows(sums.packed(1)) == [Row(1, (None, None, None, None, 8.0))]


def test_more_samples_than_can_be_counted_keep_their_mean() -> None:
    values = [float(value) for value in range(MAX_COUNT * 2)]
    assert rows(interval(1, *values))[0].means[0] == pytest.approx(sum(values) / len(values))


def test_what_is_older_than_the_range_is_dropped() -> None:
    known = b"".join(interval(number, 1.0) for number in range(10))
    kept = [row.number for row in unpacked(joined(known, [interval(10, 1.0), interval(2, 1.0)], oldest=5))]
    assert kept == [5, 6, 7, 8, 9, 10]


@pytest.mark.parametrize("span", HistoryRange)
def test_a_history_keeps_its_range_and_no_more(span: HistoryRange) -> None:
    resolution = RESOLUTIONS[span]
    now = T0.timestamp()
    numbers = range(resolution.interval_of(now) - 2_000, resolution.interval_of(now) + 1)
    history = joined(b"", [interval(number, 1.0) for number in numbers], resolution.oldest(now))
    assert len(history) == resolution.intervals * ROW_BYTES
    seconds = {HistoryRange.HOUR: 3_600, HistoryRange.DAY: 86_400, HistoryRange.WEEK: 604_800}[span]
    assert resolution.intervals * resolution.step_seconds == seconds


def test_the_history_of_a_worker_takes_at_most_51_kb() -> None:
    assert sum(resolution.intervals * ROW_BYTES for resolution in RESOLUTIONS.values()) <= 51_000
