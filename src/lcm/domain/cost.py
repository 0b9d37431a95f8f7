"""What workers cost and what pausing them saved, counted from their transitions.

Seconds are booked to the day and the calendar month (UTC) in which they passed, at every change of status, so
the sum is right long after the state history has been cut. UTC has no summer time: a day has 86,400 seconds.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

import msgspec
from msgspec.structs import replace

from lcm.domain.lifecycle import (
    DRAINING,
    PENDING,
    RUNNING,
    STARTING,
    STOPPED,
    TERMINATED,
    WorkerStatus,
)

BILLED: Final = frozenset({STARTING, RUNNING, DRAINING})
"""EC2 charges while an instance runs, not while it is pending, stopping or stopped."""

WITHOUT_DISK: Final = frozenset({PENDING, TERMINATED})
"""EBS charges for the disk of an instance from its launch until it is terminated."""

MONTHS_KEPT: Final = 13
MONTHS_BY_DAY: Final = 2
"""The newest ones; of those before, only the sum is kept: a record is read and written with every change."""

DAY_SECONDS: Final = 86_400


class DailyUse(msgspec.Struct, frozen=True, array_like=True):
    """The seconds of a day, as those of a month."""

    day: int
    """Of the month, from 1."""
    running_seconds: float = 0.0
    paused_seconds: float = 0.0
    disk_seconds: float = 0.0


class MonthlyUse(msgspec.Struct, frozen=True, kw_only=True):
    """How long a worker ran, was paused instead of idling, and kept its disk."""

    month: str
    """As in 2026-11."""
    running_seconds: float = 0.0
    paused_seconds: float = 0.0
    disk_seconds: float = 0.0
    days: tuple[DailyUse, ...] = ()
    """Those with any use, in their order."""


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of time in one status."""

    status: WorkerStatus
    was_paused: bool
    """By LCM."""
    has_instance: bool
    since: datetime
    until: datetime


def book(use: Sequence[MonthlyUse], stretch: Stretch) -> tuple[MonthlyUse, ...]:
    """Add a stretch; only billed time, time paused by LCM and time with a disk count."""
    runs = stretch.status in BILLED
    saves = stretch.status is STOPPED and stretch.was_paused
    keeps_disk = stretch.has_instance and stretch.status not in WITHOUT_DISK
    if stretch.until <= stretch.since or not (runs or saves or keeps_disk):
        return tuple(use)
    months = {entry.month: entry for entry in use}
    for start, end in _by_month(stretch.since, stretch.until):
        month = month_of(start)
        entry = months.get(month, MonthlyUse(month=month))
        seconds = (end - start).total_seconds()
        days = {each.day: each for each in entry.days}
        for day, part in _by_day(start, end):
            added = DailyUse(day, part if runs else 0.0, part if saves else 0.0, part if keeps_disk else 0.0)
            before = days.get(day)
            days[day] = added if before is None else _sum(before, added)
        months[month] = MonthlyUse(
            month=month,
            running_seconds=entry.running_seconds + (seconds if runs else 0.0),
            paused_seconds=entry.paused_seconds + (seconds if saves else 0.0),
            disk_seconds=entry.disk_seconds + (seconds if keeps_disk else 0.0),
            days=tuple(days[day] for day in sorted(days)),
        )
    kept = [months[month] for month in sorted(months)][-MONTHS_KEPT:]
    older = [replace(entry, days=()) for entry in kept[:-MONTHS_BY_DAY]]
    return (*older, *kept[-MONTHS_BY_DAY:])


def _sum(before: DailyUse, added: DailyUse) -> DailyUse:
    return DailyUse(
        before.day,
        before.running_seconds + added.running_seconds,
        before.paused_seconds + added.paused_seconds,
        before.disk_seconds + added.disk_seconds,
    )


def use_in(month: str, use: Sequence[MonthlyUse], stretch: Stretch) -> MonthlyUse:
    """Return the use in a month, with the stretch that is not booked yet, for its status has not ended."""
    start, end = bounds_of(month)
    clipped = replace(stretch, since=max(stretch.since, start), until=min(stretch.until, end))
    booked = book([entry for entry in use if entry.month == month], clipped)
    return booked[0] if booked else MonthlyUse(month=month)


def usd_of_disk(
    seconds: float, *, gb: float | None, usd_per_gb_month: float | None, month: str
) -> float | None:
    """Return what a disk costs that was kept for so long in a month; None: its size or price is not known."""
    if not seconds:
        return 0.0
    if gb is None or usd_per_gb_month is None:
        return None
    start, end = bounds_of(month)
    return gb * usd_per_gb_month * seconds / (end - start).total_seconds()


def month_of(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m")


@lru_cache(maxsize=MONTHS_KEPT)
def bounds_of(month: str) -> tuple[datetime, datetime]:
    """Return the beginning of a month, and that of the next."""
    start = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
    return start, _next_month(start)


def _next_month(moment: datetime) -> datetime:
    return datetime(moment.year + moment.month // 12, moment.month % 12 + 1, 1, tzinfo=UTC)


def _by_month(since: datetime, until: datetime) -> Iterator[tuple[datetime, datetime]]:
    start, end = since.astimezone(UTC), until.astimezone(UTC)
    while start < end:
        stop = min(end, _next_month(start))
        yield start, stop
        start = stop


def _by_day(start: datetime, end: datetime) -> Iterator[tuple[int, float]]:
    """Yield the days of a stretch within one month, and the seconds of each."""
    midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
    begins, ends = (start - midnight).total_seconds(), (end - midnight).total_seconds()
    day, tomorrow = start.day, float(DAY_SECONDS)
    while tomorrow < ends:
        yield day, tomorrow - begins
        begins, day, tomorrow = tomorrow, day + 1, tomorrow + DAY_SECONDS
    yield day, ends - begins
