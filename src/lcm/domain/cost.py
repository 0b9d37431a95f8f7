"""What workers cost and what pausing them saved, counted from their transitions.

Seconds are booked to the calendar month (UTC) in which they passed, at every change of status, so the
sum is right long after the state history has been cut.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from lcm.domain.lifecycle import DRAINING, RUNNING, STARTING, STOPPED, WorkerStatus

BILLED: Final = frozenset({STARTING, RUNNING, DRAINING})
"""EC2 charges while an instance runs, not while it is pending, stopping or stopped."""

MONTHS_KEPT: Final = 13


class MonthlyUse(msgspec.Struct, frozen=True, kw_only=True):
    """How long a worker ran, and how long it was paused instead of idling."""

    month: str
    """As in 2026-11."""
    running_seconds: float = 0.0
    paused_seconds: float = 0.0


def book(
    use: Sequence[MonthlyUse], status: WorkerStatus, *, was_paused: bool, since: datetime, until: datetime
) -> tuple[MonthlyUse, ...]:
    """Add a stretch of time in one status; only billed time and time paused by LCM count."""
    is_billed = status in BILLED
    saves = status is STOPPED and was_paused
    if until <= since or not (is_billed or saves):
        return tuple(use)
    months = {entry.month: entry for entry in use}
    for month, seconds in _by_month(since, until):
        entry = months.get(month, MonthlyUse(month=month))
        months[month] = MonthlyUse(
            month=month,
            running_seconds=entry.running_seconds + (seconds if is_billed else 0.0),
            paused_seconds=entry.paused_seconds + (seconds if saves else 0.0),
        )
    return tuple(months[month] for month in sorted(months))[-MONTHS_KEPT:]


def month_of(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m")


def _by_month(since: datetime, until: datetime) -> Iterator[tuple[str, float]]:
    start, end = since.astimezone(UTC), until.astimezone(UTC)
    while start < end:
        next_month = datetime(start.year + start.month // 12, start.month % 12 + 1, 1, tzinfo=UTC)
        stop = min(end, next_month)
        yield month_of(start), (stop - start).total_seconds()
        start = stop
