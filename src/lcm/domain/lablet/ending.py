"""The warnings that a session ends soon: each once for the end that it announces."""

from datetime import datetime, timedelta

from msgspec.structs import replace

from lcm.domain.lablet.session import EndWarning, LabletSession, SessionDesiredStatus
from lcm.domain.lablet.states import IN_USE
from lcm.domain.lablet.timeslot import DEFAULTS, TimeslotPolicy


def warn_of_end(session: LabletSession, *, now: datetime, policy: TimeslotPolicy = DEFAULTS) -> LabletSession:
    """Record the warning that is due. Repeating it changes nothing; a later end is announced anew.

    Of several that are due at once, as after an outage, only the nearest to the end is given.
    """
    if not _is_used(session, now) or session.ends_at is None or now >= session.ends_at:
        return session
    due = [minutes for minutes in policy.end_warnings if session.ends_at - timedelta(minutes=minutes) <= now]
    given = session.ending_soon_minutes
    if not due or (given is not None and given <= min(due)):
        return session
    return replace(session, end_warning=EndWarning(minutes=min(due), ends_at=session.ends_at), updated_at=now)


def next_warning_at(
    session: LabletSession, *, now: datetime, policy: TimeslotPolicy = DEFAULTS
) -> datetime | None:
    """When the next warning is due; whether the session is in use is judged then."""
    if session.ends_at is None:
        return None
    moments = (session.ends_at - timedelta(minutes=minutes) for minutes in policy.end_warnings)
    return min((moment for moment in moments if moment > now), default=None)


def _is_used(session: LabletSession, now: datetime) -> bool:
    has_begun = session.timeslot is None or session.timeslot.start <= now
    is_wanted = session.desired_status is SessionDesiredStatus.RUNNING
    return session.status in IN_USE and has_begun and is_wanted
