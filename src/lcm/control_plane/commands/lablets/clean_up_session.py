"""The end of a session that had a lab, in three writes that a crash may separate anywhere.

1. The session records why nothing of its lab is left.
2. The worker releases the claim.
3. The session ends.

What a crash leaves, the repeated report finishes, or the sweep: the proof stands in the session. The claim
that an earlier attempt or an abandoned session left behind is released by the same report.
"""

from lcm.control_plane.commands.lablets.create_session import find_session
from lcm.control_plane.commands.lablets.end_session import audit_end
from lcm.control_plane.records.groups import Records
from lcm.control_plane.store.port import Fence
from lcm.domain.errors import Conflict, NotFound
from lcm.domain.lablet.admission import find_claim, release
from lcm.domain.lablet.audit import LabletEvent
from lcm.domain.lablet.claim import Claim
from lcm.domain.lablet.instantiation import prove_cleaned
from lcm.domain.lablet.lab import CleanupProof
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.session_changes import finish
from lcm.domain.lablet.states import STOPPING
from lcm.domain.lifecycle import PENDING, TERMINATED
from lcm.domain.worker import Worker
from lcm.rest.lablet_reports import LabCleaned


async def clean_up_session(
    records: Records, session_id: str, report: LabCleaned, *, by: str, fence: Fence
) -> LabletSession | None:
    """Release the claim of the attempt; end the session if it is its last. Repeating it changes nothing.

    Returns the session; None if there is none under this id any more.
    """
    session = await find_session(records, session_id)
    if session is None or session.attempt > report.attempt:
        await _release_retained(records, session_id, report, by=by, fence=fence)
        return session
    if session.is_ended:
        return session
    if (session.worker_id, session.attempt) != (report.worker_id, report.attempt):
        raise Conflict(
            f"the session is at attempt {session.attempt} on worker {session.worker_id}; report about that"
        )
    if report.proof is CleanupProof.WORKER_GONE:
        await _require_gone(records, session, report.worker_id)
    now = records.clock.now()
    proven = await records.sessions.change(
        session_id,
        lambda current: prove_cleaned(
            current,
            report.proof,
            generation=report.generation,
            instance_id=report.instance_id,
            now=now,
        ),
        fence=fence,
    )
    return await finish_cleanup(records, proven, by=by)


async def finish_cleanup(records: Records, session: LabletSession, *, by: str) -> LabletSession:
    """Release the claim and end the session, once the proof is recorded. Repeating it changes nothing."""
    if session.status is not STOPPING or session.cleanup.proof is None or session.worker_id is None:
        return session
    await _release(
        records, session.worker_id, session, session.attempt, by=by, reason=str(session.cleanup.proof)
    )
    now = records.clock.now()
    worker = await records.workers.find(session.worker_id)
    claim = find_claim(worker, session.id) if worker is not None else None
    await audit_end(records, session)
    return await records.sessions.change(
        session.id, lambda current: finish(current, is_lab_gone=True, claim=claim, now=now)
    )


async def _release(
    records: Records, worker_id: str, session: LabletSession, attempt: int, *, by: str, reason: str
) -> None:
    now = records.clock.now()
    held: list[Claim | None] = [None]

    def decide(worker: Worker) -> Worker:
        held[0] = find_claim(worker, session.id, attempt)
        return release(worker, session.id, attempt, now=now)

    try:
        await records.workers.change(worker_id, decide)
    except NotFound:
        return
    if held[0] is not None:
        await records.lablet_audit.note(
            LabletEvent.PLACEMENT_RELEASED, by=by, reason=reason, session=session, worker_id=worker_id
        )


async def _release_retained(
    records: Records, session_id: str, report: LabCleaned, *, by: str, fence: Fence
) -> None:
    """Release the claim of an attempt that its session has left behind."""
    now = records.clock.now()
    held: list[Claim | None] = [None]

    def decide(worker: Worker) -> Worker:
        held[0] = claim = find_claim(worker, session_id, report.attempt)
        if claim is not None and claim.lab_generation > report.generation:
            raise Conflict(f"import {claim.lab_generation} was intended; prove that its lab is absent")
        if claim is not None and report.proof is not CleanupProof.LAB_ABSENT:
            raise Conflict(f"worker {worker.name} holds the claim; prove that the lab is absent on it")
        if claim is not None and worker.instance.id != report.instance_id:
            raise Conflict(f"the worker runs on instance {worker.instance.id}; observe that one")
        return release(worker, session_id, report.attempt, now=now)

    try:
        await records.workers.change(report.worker_id, decide, fence=fence)
    except NotFound:
        return
    if held[0] is not None:
        await records.lablet_audit.note(
            LabletEvent.PLACEMENT_RELEASED,
            by=by,
            reason=f"{report.proof}: attempt {report.attempt} of {session_id}",
            session=await find_session(records, session_id),
            worker_id=report.worker_id,
        )


async def _require_gone(records: Records, session: LabletSession, worker_id: str) -> None:
    """Raise Conflict if the instance that has the lab is not gone for good."""
    worker = await records.workers.find(worker_id)
    if worker is None or worker.status in (PENDING, TERMINATED):
        return
    if session.lab is not None and worker.instance.id != session.lab.instance_id:
        return
    raise Conflict(f"worker {worker.name} is {worker.status}; prove that the lab is absent on it")
