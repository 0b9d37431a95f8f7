"""The lablet controller takes a session off its worker, so that another one is found.

1. The claim: retained if the session may own a lab, released if it cannot.
2. The session waits for a worker again.

A crash between the two leaves a session whose claim is retained or gone; the repeated request finishes it.
Without one the sweep holds the retained claim again, and places a session anew whose claim is gone.
"""

from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Records
from lcm.control_plane.store.port import Fence
from lcm.domain.errors import Conflict, NotFound
from lcm.domain.lablet.admission import find_claim, let_go
from lcm.domain.lablet.audit import LabletEvent
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.session_changes import unschedule
from lcm.domain.lablet.states import PENDING_SCHEDULING
from lcm.rest.lablets import Unscheduled


async def unschedule_session(
    records: Records, policies: Policies, session_id: str, request: Unscheduled, *, by: str, fence: Fence
) -> LabletSession:
    """Look for another worker. A session that waits already is not changed.

    A request that arrives late is about a worker that the session may have left long ago.
    """
    now = records.clock.now()
    before = await records.sessions.get(session_id)
    if before.status is PENDING_SCHEDULING:
        return before

    def move(current: LabletSession, is_claim_retained: bool) -> LabletSession:
        is_same = (current.generation, current.lab) == (request.generation, before.lab)
        if not is_same or current.attempt != before.attempt:
            raise Conflict(
                f"the session is {current.status} at generation {current.generation}; decide on that one"
            )
        return unschedule(
            current,
            reason=request.reason,
            now=now,
            is_worker_lost=request.is_worker_lost,
            is_claim_retained=is_claim_retained,
            can_replace_lost=policies.can_replace_lost,
        )

    move(before, is_claim_retained=True)  # what is refused must not cost the claim
    is_retained = await _let_go(records, before, fence)
    session = await records.sessions.change(
        session_id, lambda current: move(current, is_retained), fence=fence
    )
    await records.lablet_audit.note(
        LabletEvent.SESSION_REPLACED,
        by=by,
        reason=request.reason,
        session=session,
        worker_id=before.worker_id,
    )
    return session


async def _let_go(records: Records, session: LabletSession, fence: Fence) -> bool:
    """Return whether the attempt may have a lab: its claim is retained then, unless the worker is gone."""
    assert session.worker_id is not None
    now = records.clock.now()
    try:
        worker = await records.workers.change(
            session.worker_id,
            lambda current: let_go(
                current, session.id, session.attempt, generation=_import_of(session), now=now
            ),
            fence=fence,
        )
    except NotFound:
        return session.lab is not None
    return session.lab is not None or find_claim(worker, session.id, session.attempt) is not None


def _import_of(session: LabletSession) -> int:
    return session.lab.generation if session.lab is not None else 0
