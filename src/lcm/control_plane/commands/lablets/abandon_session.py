"""An admin gives up a lab that cannot be removed: its session ends, its claim stays on the worker.

1. The worker retains the claim.
2. The session ends.

A crash between the two leaves a session that is still being stopped; the sweep holds its claim again.
"""

from lcm.control_plane.commands.lablets.clean_up_session import finish_cleanup
from lcm.control_plane.commands.lablets.create_session import find_session
from lcm.control_plane.commands.lablets.end_session import audit_end, finish_ending
from lcm.control_plane.records.groups import Records
from lcm.domain.errors import Conflict, NotFound
from lcm.domain.lablet.admission import retain
from lcm.domain.lablet.audit import LabletEvent
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.session_changes import abandon
from lcm.domain.lablet.states import STOPPING


async def abandon_session(records: Records, session_id: str, *, by: str, reason: str) -> LabletSession:
    """End the session now. A repeated request changes nothing."""
    session = await find_session(records, session_id)
    if session is not None and session.cleanup.is_abandoned:
        return session
    session = await finish_ending(records, await records.sessions.get(session_id))
    session = await finish_cleanup(records, session, by=by)
    if session.is_ended:
        return session
    if session.status is not STOPPING:
        raise Conflict(f"the session is {session.status}; end it first, and abandon it if its lab remains")
    await _retain(records, session)
    await records.lablet_audit.note(
        LabletEvent.CLEANUP_ABANDONED, by=by, reason=reason, session=session, worker_id=session.worker_id
    )
    await audit_end(records, session)
    now = records.clock.now()
    return await records.sessions.change(
        session_id, lambda current: abandon(current, by=by, reason=reason, now=now)
    )


async def _retain(records: Records, session: LabletSession) -> None:
    if session.worker_id is None:
        return
    now = records.clock.now()
    try:
        await records.workers.change(
            session.worker_id,
            lambda worker: retain(
                worker, session.id, session.attempt, lab_generation=session.lab_generation, now=now
            ),
        )
    except NotFound:
        return
