"""Decisions in words that a teacher understands: names instead of ids, times in the zone of the booking."""

import re
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from lcm.domain.lablet.session import LabletSession


def clock_time(moment: datetime, session: LabletSession, now: datetime) -> str:
    """A time as `09:12 UTC`, in the zone of a booking as `10:12`, with the date if it is another day."""
    zone = session.timeslot.zone if session.timeslot is not None else "UTC"
    place = _place(zone)
    local = moment.astimezone(place)
    day = "" if local.date() == now.astimezone(place).date() else f"{local:%Y-%m-%d} "
    return f"{day}{local:%H:%M}" + (" UTC" if place is UTC else "")


def _place(zone: str) -> tzinfo:
    if zone == "UTC":
        return UTC
    try:
        return ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        return UTC


def with_ahead(text: str, ahead: int) -> str:
    """The sentence, and how many sessions are ahead."""
    if not ahead:
        return text
    return f"{text[:-1]}; {count_of(ahead, 'session')} {'is' if ahead == 1 else 'are'} ahead."


def without_ahead(text: str) -> str:
    """The sentence as it was before `with_ahead`."""
    return _AHEAD.sub(".", text)


_AHEAD = re.compile(r"; \d+ sessions? (is|are) ahead\.$")


def count_of(count: int, noun: str) -> str:
    """`1 seat`, `2 seats`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
