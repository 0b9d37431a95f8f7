"""A worker's load over days: means of equal intervals at three resolutions, packed into few bytes.

Several control planes may keep the same history: of two means of one interval that of more samples counts,
measure by measure. So joining two histories loses nothing and joining them again changes nothing, in
whichever order; a write that is repeated, or was not confirmed, does no harm.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from math import nan
from struct import Struct
from typing import Final, NamedTuple

from lcm.domain.telemetry import Sample


class HistoryRange(StrEnum):
    """How far back a history goes."""

    HOUR = "1h"
    DAY = "24h"
    WEEK = "7d"


class Resolution(NamedTuple):
    """The length of an interval, and how many intervals are kept."""

    step_seconds: int
    intervals: int

    def interval_of(self, at: float) -> int:
        """Return the number of the interval that contains the time in seconds since 1970."""
        return int(at // self.step_seconds)

    def oldest(self, now: float) -> int:
        """Return the number of the oldest interval that is kept now."""
        return self.interval_of(now) - self.intervals + 1


RESOLUTIONS: Final[Mapping[HistoryRange, Resolution]] = {
    HistoryRange.HOUR: Resolution(10, 360),
    HistoryRange.DAY: Resolution(120, 720),
    HistoryRange.WEEK: Resolution(900, 672),
}

LOAD: Final = ("cpu_utilization", "memory_utilization", "disk_utilization")
"""What CML measures, and CloudWatch only while CML is silent."""
MEASURES: Final = (*LOAD, "network_in_bytes", "network_out_bytes")

MAX_COUNT: Final = 255
"""More samples of an interval count as this many."""

_PACKED: Final = Struct("<I5B5f")
"""The number of the interval; how many samples each measure has; their means."""
ROW_BYTES: Final = _PACKED.size


class Interval:
    """The samples of one interval, added up."""

    __slots__ = ("_totals",)

    def __init__(self) -> None:
        self._totals = array("d", bytes(8 * 2 * len(MEASURES)))
        """How many samples each measure has, and then their sums."""

    def add(self, sample: Sample, *, with_load: bool) -> None:
        """Add what the sample knows; without its load if another source measures that better."""
        for index, measure in enumerate(MEASURES):
            value = getattr(sample, measure)
            if value is not None and (with_load or measure not in LOAD):
                self._totals[index] += 1
                self._totals[len(MEASURES) + index] += value

    def packed(self, number: int) -> bytes:
        counts, sums = self._totals[: len(MEASURES)], self._totals[len(MEASURES) :]
        means = (total / count if count else nan for count, total in zip(counts, sums, strict=True))
        return _PACKED.pack(number, *(min(int(count), MAX_COUNT) for count in counts), *means)


class Row(NamedTuple):
    """One interval of a history; None is unknown."""

    number: int
    means: tuple[float | None, ...]
    """Of MEASURES."""


def unpacked(rows: bytes) -> Iterator[Row]:
    """Yield the intervals of a history, oldest first."""
    for number, *fields in _PACKED.iter_unpack(rows):
        counts, means = fields[: len(MEASURES)], fields[len(MEASURES) :]
        known = tuple(mean if count else None for count, mean in zip(counts, means, strict=True))
        yield Row(number, known)


def joined(known: bytes, added: Iterable[bytes], oldest: int) -> bytes:
    """Return both as one history, oldest first, without what is older than the oldest interval to be kept.

    What is added is mostly newer than what is known: only intervals from the first added one on are compared.
    """
    rows = {_number(row): row for row in added}
    split = len(known)
    while rows and split and _number(known, split - ROW_BYTES) >= min(rows):
        split -= ROW_BYTES
        row = known[split : split + ROW_BYTES]
        number = _number(row)
        rows[number] = _better(row, rows[number]) if number in rows else row
    start = 0
    while start < split and _number(known, start) < oldest:
        start += ROW_BYTES
    return known[start:split] + b"".join(rows[number] for number in sorted(rows) if number >= oldest)


def _number(rows: bytes, start: int = 0) -> int:
    return int.from_bytes(rows[start : start + 4], "little")


def _better(known: bytes, added: bytes) -> bytes:
    """Return for each measure the mean of more samples; of equally many the known one."""
    if known == added:
        return known
    size = len(MEASURES)
    number, *fields = _PACKED.unpack(known)
    _, *others = _PACKED.unpack(added)
    for index in range(size):
        if others[index] > fields[index]:
            fields[index], fields[size + index] = others[index], others[size + index]
    return _PACKED.pack(number, *fields)
