"""A person requests that the lab of a session in use is started again."""

from lcm.control_plane.records.groups import Records
from lcm.control_plane.records.preconditions import UNCONDITIONAL, Preconditions
from lcm.domain.lablet.audit import LabletEvent
from lcm.domain.lablet.restart import request_restart
from lcm.domain.lablet.session import LabletSession

NOUN = "lablet session"


async def restart_lab(
    records: Records, session_id: str, *, by: str, preconditions: Preconditions = UNCONDITIONAL
) -> LabletSession:
    """Record the request; the lablet controller starts the lab. A repeated request changes nothing."""
    now = records.clock.now()
    before = await records.sessions.get(session_id)
    session = await records.sessions.change(
        session_id, preconditions.guard(lambda current: request_restart(current, now=now), noun=NOUN)
    )
    if session.restarts_wanted != before.restarts_wanted:
        await records.lablet_audit.note(
            LabletEvent.LAB_ACTION_REQUESTED,
            by=by,
            reason="start the lab of the session again",
            session=session,
            worker_id=session.worker_id,
        )
    return session
