"""A session whose worker does not hold its claim any more, as after a restored backup.

Without a lab the session is placed anew. A lab that is there goes on, and its claim is put back if there is
room, as for a placement; otherwise the session says so until there is, or until it ends.
"""

from contextlib import suppress

from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Records
from lcm.domain.errors import Conflict, IllegalTransition, NotFound, PlacementRefused
from lcm.domain.lablet.admission import find_claim, put_back
from lcm.domain.lablet.audit import LabletEvent
from lcm.domain.lablet.instantiation import note_claim
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.session_changes import unschedule
from lcm.domain.lablet.states import INSTANTIATING, OWNS_LAB, SCHEDULED, STOPPING
from lcm.domain.worker import Worker

BY = "control plane"


async def repair_claim(
    records: Records, policies: Policies, session: LabletSession, worker: Worker | None
) -> None:
    """Give a session its claim back, place it anew, or say that its claim is lost.

    Both as they were read in a sweep; the session first, so that a claim it had then may be gone by now.
    """
    is_held = worker is not None and find_claim(worker, session.id, session.attempt) is not None
    with suppress(Conflict, IllegalTransition, NotFound):  # it has moved on
        if session.lab is None:
            if not is_held and session.status in (SCHEDULED, INSTANTIATING):
                await _place_anew(records, policies, session)
        elif is_held:
            await _found(records, session)
        elif worker is not None and _has_lab_on(session, worker):
            await _put_back(records, policies, session, worker)


def _has_lab_on(session: LabletSession, worker: Worker) -> bool:
    """Whether the session may have a lab there; one whose removal is proven is about to end."""
    lab = session.lab
    if lab is None or session.status not in (*OWNS_LAB, STOPPING) or session.cleanup.proof is not None:
        return False
    return worker.is_live and worker.instance.id == lab.instance_id


async def _place_anew(records: Records, policies: Policies, session: LabletSession) -> None:
    now = records.clock.now()
    replaced = await records.sessions.change(
        session.id,
        lambda current: unschedule(
            current,
            reason="claim_lost",
            now=now,
            is_worker_lost=True,
            can_replace_lost=policies.can_replace_lost,
            max_retries=policies.max_retries,
        ),
        expected_version=session.version,
    )
    await records.lablet_audit.note(
        LabletEvent.SESSION_REPLACED,
        by=BY,
        reason="its worker does not hold its claim any more",
        session=replaced,
        worker_id=session.worker_id,
    )


async def _put_back(records: Records, policies: Policies, session: LabletSession, worker: Worker) -> None:
    # Read again: before a claim is released its session has the proof that its lab is gone.
    session = await records.sessions.get(session.id)
    if not _has_lab_on(session, worker):
        return
    labs = await records.labs.of(worker.id)
    now = records.clock.now()

    def decide(current: Worker) -> Worker:
        if not _has_lab_on(session, current):
            raise Conflict(f"worker {current.name} has another instance by now")
        return put_back(current, session, labs, ports=policies.ports, now=now)

    try:
        await records.workers.change(worker.id, decide)
    except PlacementRefused as refused:
        await _lost(records, session, str(refused))
        return
    await records.lablet_audit.note(
        LabletEvent.CLAIM_PUT_BACK,
        by=BY,
        reason="its worker did not hold it any more",
        session=session,
        worker_id=worker.id,
    )
    await _found(records, session)


async def _lost(records: Records, session: LabletSession, why: str) -> None:
    if session.lab is None or session.lab.claim_lost_at is not None:
        return
    now = records.clock.now()
    lost = await records.sessions.change(
        session.id,
        lambda current: note_claim(current, is_lost=True, now=now),
        expected_version=session.version,
    )
    await records.lablet_audit.note(
        LabletEvent.CLAIM_LOST, by=BY, reason=why, session=lost, worker_id=session.worker_id
    )


async def _found(records: Records, session: LabletSession) -> None:
    if session.lab is not None and session.lab.claim_lost_at is not None:
        now = records.clock.now()
        await records.sessions.change(session.id, lambda current: note_claim(current, is_lost=False, now=now))
