"""Times that are learned from the newest cases: most of them took no longer."""

from collections.abc import Iterable
from datetime import timedelta
from math import ceil
from typing import Final

KEPT: Final = 20
"""So many cases count, the newest."""
LEAST: Final = 3
"""Of fewer cases nothing is concluded."""


def learned(seconds: Iterable[float], share: float) -> timedelta | None:
    """The time in which this share of the cases was over; None of too few."""
    ordered = sorted(seconds)
    if len(ordered) < LEAST:
        return None
    return timedelta(seconds=ordered[ceil(share * len(ordered)) - 1])
