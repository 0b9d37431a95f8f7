"""The time for which a session is booked, and what follows from it. All times are UTC."""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from lcm.domain.errors import InvalidTimeslot


class TimeslotPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The times of the settings."""

    lead: timedelta = timedelta(minutes=35)
    worker_boot: timedelta = timedelta(minutes=25)
    worker_resume: timedelta = timedelta(minutes=5)
    lab_lead: timedelta = timedelta(minutes=5)
    grace: timedelta = timedelta(minutes=5)
    teardown: timedelta = timedelta(minutes=10)
    handover_late: timedelta = timedelta(0)
    """How much later than booked a session may start to take over room instead of a new worker."""
    max_booking: timedelta = timedelta(days=90)
    end_warnings: tuple[int, ...] = (10, 5)
    """Minutes before its end at which the people of a session are warned."""


DEFAULTS: Final = TimeslotPolicy()
LEAST_USE: Final = timedelta(minutes=5)
"""A session that cannot start this long before its end is not started."""


class Phase(StrEnum):
    """Where a moment lies in relation to a timeslot."""

    BEFORE = "before"
    APPROACHING = "approaching"
    ACTIVE = "active"
    TEARDOWN = "teardown"
    OVER = "over"


class Timeslot(msgspec.Struct, frozen=True, kw_only=True):
    """From `start` until just before `end`."""

    start: datetime
    end: datetime
    zone: str = "UTC"
    """The zone in which people booked it; only for display."""

    def __post_init__(self) -> None:
        if self.start.tzinfo is None or self.end.tzinfo is None:
            raise InvalidTimeslot("a timeslot needs times with a zone, as in 2026-01-31T09:00:00Z")
        if self.end <= self.start:
            raise InvalidTimeslot("a timeslot must end after it starts; choose a later end")

    @property
    def duration(self) -> timedelta:
        return self.end - self.start

    def opens_at(self, policy: TimeslotPolicy = DEFAULTS) -> datetime:
        """When the search for a worker begins."""
        return self.start - policy.lead

    def latest_start(self, minutes: float = 30, policy: TimeslotPolicy = DEFAULTS) -> datetime:
        """Until when a session may still be placed; at least the grace, and never up to the end."""
        late = max(policy.grace, timedelta(minutes=minutes))
        return max(self.start, min(self.start + late, self.end - LEAST_USE))

    def is_missed(
        self,
        now: datetime,
        *,
        coming_at: datetime | None = None,
        minutes: float = 30,
        policy: TimeslotPolicy = DEFAULTS,
    ) -> bool:
        """Whether a session without a worker has lost its timeslot.

        The grace counts from the start. A worker that comes (`coming_at`) before the latest start extends it
        until then, so that a class survives a worker that is a few minutes late.
        """
        latest = self.latest_start(minutes, policy)
        is_coming = coming_at is not None and coming_at < latest
        return now >= (latest if is_coming else min(latest, self.start + policy.grace))

    def phase(self, now: datetime, policy: TimeslotPolicy = DEFAULTS) -> Phase:
        """Where this moment lies."""
        if now < self.opens_at(policy):
            return Phase.BEFORE
        if now < self.start:
            return Phase.APPROACHING
        if now < self.end:
            return Phase.ACTIVE
        return Phase.TEARDOWN if now < self.end + policy.teardown else Phase.OVER

    def overlaps(self, other: "Timeslot") -> bool:
        """Whether there is a moment in both."""
        return self.start < other.end and other.start < self.end

    def extended(self, end: datetime) -> "Timeslot":
        """The timeslot with a later end. Raises InvalidTimeslot."""
        if end <= self.end:
            raise InvalidTimeslot(f"the timeslot ends at {self.end.isoformat()} already; choose a later end")
        return msgspec.structs.replace(self, end=end)


def check_booking(
    timeslot: Timeslot, *, max_minutes: int, now: datetime, policy: TimeslotPolicy = DEFAULTS
) -> None:
    """Refuse a timeslot in the past, too far ahead or too long. Raises InvalidTimeslot."""
    if timeslot.start < now:
        raise InvalidTimeslot("the timeslot starts in the past; choose a later start or none")
    if timeslot.start > now + policy.max_booking:
        raise InvalidTimeslot(
            f"the timeslot is more than {policy.max_booking.days} days ahead; choose an earlier start"
        )
    if timeslot.duration > timedelta(minutes=max_minutes):
        raise InvalidTimeslot(f"the definition allows {max_minutes} minutes; choose an earlier end")


def book_in_zone(start: datetime, end: datetime, zone: str) -> Timeslot:
    """The timeslot of two local times of a named zone. Raises InvalidTimeslot.

    A time that the zone has twice, in the night in which clocks are set back, is the first of the two.
    """
    try:
        place = ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        raise InvalidTimeslot(f"the zone '{zone[:64]}' is unknown; write it as in Europe/Berlin") from None
    return Timeslot(start=_to_utc(start, place), end=_to_utc(end, place), zone=zone)


def _to_utc(local: datetime, place: ZoneInfo) -> datetime:
    if local.tzinfo is not None:
        raise InvalidTimeslot("a time in a named zone has no offset of its own; write 2026-01-31T09:00:00")
    moment = local.replace(tzinfo=place).astimezone(UTC)
    if moment.astimezone(place).replace(tzinfo=None, fold=0) != local.replace(fold=0):
        raise InvalidTimeslot(
            f"{local.isoformat()} does not exist in {place.key}: clocks are set forward; choose another time"
        )
    return moment
