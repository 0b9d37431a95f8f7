"""What is known about something outside LCM: a value, a proof of its absence, or nothing.

An exception, an empty list or a missing answer is `Unknown`. Only `Known` may lead to a destructive
effect, and only `Absent` may lead to the conclusion that something is gone.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar

T_co = TypeVar("T_co", covariant=True)

ABSENCE_READS = 3
ABSENCE_SPAN = timedelta(minutes=5)
"""EC2 may not list a new instance for minutes: one miss proves nothing (ADR 0004)."""


@dataclass(frozen=True)
class Known(Generic[T_co]):
    """It was observed, at that time."""

    value: T_co
    taken_at: datetime


@dataclass(frozen=True)
class Absent:
    """It does not exist, with the proof."""

    proof: str


@dataclass(frozen=True)
class Unknown:
    """It could not be observed, or not often enough."""

    reason: str
    is_failure: bool = False
    """The call failed: it is repeated with backoff, and nothing is done meanwhile."""


Observation = Known[T_co] | Absent | Unknown


@dataclass(frozen=True)
class Misses:
    """Complete reads in a row, at different times, that did not show the thing.

    Times are monotonic seconds: a wall clock that is set forward must not prove anything.
    """

    reads: int
    since: float
    until: float

    @staticmethod
    def first(at: float) -> "Misses":
        return Misses(1, at, at)

    def again(self, at: float) -> "Misses":
        """Count one more read; reads at the same instant are one read."""
        return self if at <= self.until else Misses(self.reads + 1, self.since, at)

    def verdict(self) -> Absent | Unknown:
        """Absent only with enough reads over enough time."""
        span = timedelta(seconds=self.until - self.since)
        if self.reads >= ABSENCE_READS and span >= ABSENCE_SPAN:
            return Absent(f"missing in {self.reads} complete reads over {span}")
        return Unknown(f"missing in {self.reads} reads over {span}, not a proof of absence yet")
