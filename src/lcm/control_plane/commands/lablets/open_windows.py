"""Opens windows of booked sessions, warns of ends and ends what is over, by the control plane's clock."""

import heapq

from lcm.control_plane.commands.lablets.end_session import expire_session, finish_ending
from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Records
from lcm.domain.errors import Conflict, IllegalTransition, NotFound
from lcm.domain.lablet.audit import LabletEvent
from lcm.domain.lablet.ending import warn_of_end
from lcm.domain.lablet.session import LabletSession, SessionDesiredStatus
from lcm.domain.lablet.session_changes import TIMESLOT_MISSED, is_missed, is_over, next_boundary, open_window
from lcm.domain.lablet.states import PENDING
from lcm.rest.lablets import MAX_UPCOMING, WindowDue, WindowsMoved


async def move_windows(records: Records, policies: Policies, *, by: str) -> WindowsMoved:
    """Open and warn what is due, expire what is missed or over, finish what ends. Repeatable."""
    opened, missed, over = [], [], []
    due: list[WindowDue] = []
    for session in await records.sessions.list_all():
        if session.is_ended:
            continue
        try:
            moved = await _move(records, policies, session, by)
        except (Conflict, IllegalTransition, NotFound):
            continue  # changed meanwhile; the next pass reads it again
        if session.status is PENDING and moved.status is not PENDING:
            opened.append(moved.id)
        if moved.end_text == TIMESLOT_MISSED and session.end_text != moved.end_text:
            missed.append(moved.id)
        if moved.end_text == "timeslot_over" and session.end_text != moved.end_text:
            over.append(moved.id)
        boundary = next_boundary(moved, now=records.clock.now(), policy=policies.times)
        if boundary is not None:
            due.append(WindowDue(session_id=moved.id, status=moved.status, at=boundary))
    upcoming = heapq.nsmallest(MAX_UPCOMING, due, key=lambda each: (each.at, each.session_id))
    return WindowsMoved(
        opened=tuple(opened),
        missed=tuple(missed),
        over=tuple(over),
        next_at=upcoming[0].at if upcoming else None,
        upcoming=tuple(upcoming),
    )


async def _move(records: Records, policies: Policies, session: LabletSession, by: str) -> LabletSession:
    now = records.clock.now()
    if session.desired_status is SessionDesiredStatus.TERMINATED:
        return await finish_ending(records, session)
    if is_missed(session, now=now, policy=policies.times) or is_over(
        session, now=now, grace=policies.times.grace
    ):
        return await expire_session(records, policies, session, by=by)
    is_due = session.timeslot is not None and session.timeslot.opens_at(policies.times) <= now
    if session.status is PENDING and is_due:
        takes = records.lab_times.expected(session.lab_yaml_hash)
        opened = await records.sessions.change(
            session.id,
            lambda current: open_window(current, now=now, lab_takes=takes, policy=policies.times),
        )
        await records.lablet_audit.note(
            LabletEvent.TIMESLOT_OPENED, by=by, reason="the window is open", session=opened
        )
        return opened
    if warn_of_end(session, now=now, policy=policies.times) is not session:
        return await records.sessions.change(
            session.id, lambda current: warn_of_end(current, now=now, policy=policies.times)
        )
    return session
