"""What is booked when, and the demand against the capacity."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final

from lcm.control_plane.policies import Policies
from lcm.control_plane.queries.forecast import booking_snapshot
from lcm.control_plane.records.groups import Records
from lcm.domain.capacity import Capacity
from lcm.domain.errors import InvalidTimeslot
from lcm.domain.lablet.filters import Vector
from lcm.domain.lablet.forecast import Outlook
from lcm.domain.lablet.session import LabletSession
from lcm.rest.scheduling import CalendarEntry, CalendarStep, SchedulingCalendar

MOST_STEPS: Final = 400


async def scheduling_calendar(
    records: Records,
    policies: Policies,
    *,
    begin: datetime,
    end: datetime,
    step: timedelta,
    is_shown: Callable[[LabletSession], bool],
) -> SchedulingCalendar:
    """Return the entries that overlap, and a step for every moment that is not over.

    Demand counts all sessions; entries are those that may be shown. Raises InvalidTimeslot.
    """
    if end <= begin or (end - begin) / step > MOST_STEPS:
        raise InvalidTimeslot(f"choose an end after the start, and a step so that at most {MOST_STEPS} fit")
    now = records.clock.now()
    outlook = Outlook(await booking_snapshot(records, policies), now)
    steps = []
    for moment in _moments(begin, end, step):
        if moment + step > now:
            steps.append(_step(outlook, max(moment, now)))
            await records.clock.sleep(0)  # a long calendar must not hold up other requests
    sessions = [*await records.archived_sessions.list_all(), *await records.sessions.list_all()]
    shown = {each.id: each for each in sessions if is_shown(each) and _overlaps(each, begin, end, now)}
    return SchedulingCalendar(steps=steps, entries=_entries(shown.values()))


def _moments(begin: datetime, end: datetime, step: timedelta) -> Iterator[datetime]:
    while begin < end:
        yield begin
        begin += step


def _step(outlook: Outlook, moment: datetime) -> CalendarStep:
    usage = outlook.usage_at(moment)
    return CalendarStep(
        at=moment,
        sessions=usage.sessions + outlook.claims_at(moment),
        demand=_capacity(outlook.load_at(moment)),
        capacity=_capacity(outlook.capacity),
        workers_needed=outlook.workers_needed_at(moment),
        workers_possible=usage.workers_possible,
    )


def _capacity(amounts: Vector) -> Capacity:
    cpu, memory, storage, nodes = (max(0.0, round(amount, 6)) for amount in amounts)
    return Capacity(cpu=cpu, memory_gb=memory, storage_gb=storage, nodes=nodes)


def _start_of(session: LabletSession) -> datetime:
    return session.timeslot.start if session.timeslot else session.started_at or session.created_at


def _end_of(session: LabletSession) -> datetime | None:
    if session.is_ended and session.ended_at is not None:
        return min(session.ended_at, session.ends_at or session.ended_at)
    return session.ends_at


def _overlaps(session: LabletSession, begin: datetime, end: datetime, now: datetime) -> bool:
    start, over = _start_of(session), _end_of(session)
    if session.is_ended and over is not None and over <= start:
        return False  # it never ran
    return start < end and (over or max(start, now)) >= begin


def _entries(sessions: Iterable[LabletSession]) -> list[CalendarEntry]:
    groups: dict[str, list[LabletSession]] = {}
    for session in sessions:
        groups.setdefault(session.batch.id if session.batch else session.id, []).append(session)
    entries = [_entry(group_id, members) for group_id, members in groups.items()]
    return sorted(entries, key=lambda entry: (entry.start, entry.name, entry.id))


def _entry(group_id: str, members: list[LabletSession]) -> CalendarEntry:
    first = members[0]
    ends = [_end_of(member) for member in members]
    known = [end for end in ends if end is not None]
    return CalendarEntry(
        id=group_id,
        name=first.batch.name or first.definition_name if first.batch else first.definition_name,
        is_batch=first.batch is not None,
        seats=len(members),
        definition_name=first.definition_name,
        start=min(map(_start_of, members)),
        end=max(known) if len(known) == len(ends) else None,
        counts=dict(Counter(member.status for member in members)),
    )
