"""The lablet controller reports CML's id of a session's lab, and what it sees of steps and nodes."""

from lcm.control_plane.records.groups import Records
from lcm.control_plane.store.port import Fence
from lcm.domain.errors import Conflict, NotFound
from lcm.domain.lablet import instantiation
from lcm.domain.lablet.audit import LabletEvent
from lcm.domain.lablet.session import LabletSession
from lcm.rest.lablet_reports import LabImported, ProgressReceipt, ProgressReport, SessionProgress


async def record_lab(
    records: Records, session_id: str, lab: LabImported, *, by: str, fence: Fence
) -> LabletSession:
    """Record the id of the lab. A repeated report changes nothing."""
    now = records.clock.now()
    before = await records.sessions.get(session_id)
    session = await records.sessions.change(
        session_id,
        lambda current: instantiation.record_lab(
            current, lab.generation, lab.lab_id, is_adopted=lab.is_adopted, now=now
        ),
        fence=fence,
    )
    if before.lab is not None and before.lab.lab_id is None:
        await records.lablet_audit.note(
            LabletEvent.LAB_ADOPTED if lab.is_adopted else LabletEvent.LAB_IMPORTED,
            by=by,
            reason=f"lab {lab.lab_id}, import {lab.generation}",
            session=session,
            worker_id=session.worker_id,
        )
    return session


async def record_progress(
    records: Records, report: ProgressReport, *, by: str, fence: Fence
) -> ProgressReceipt:
    """Record the progress of many sessions. Those that have moved on are left out and named."""
    ignored = []
    for item in report.items:
        try:
            await _record(records, item, by, fence)
        except (Conflict, NotFound):
            ignored.append(item.session_id)
    return ProgressReceipt(ignored=tuple(ignored))


async def _record(records: Records, item: SessionProgress, by: str, fence: Fence) -> None:
    now = records.clock.now()
    before = await records.sessions.get(item.session_id)
    session = await records.sessions.change(
        item.session_id,
        lambda current: instantiation.record_progress(
            current,
            attempt=item.attempt,
            generation=item.generation,
            steps=item.steps,
            nodes=item.nodes,
            probed=item.probed,
            cleanup=item.cleanup,
            now=now,
        ),
        fence=fence,
    )
    if not instantiation.is_about(session, attempt=item.attempt, generation=item.generation):
        raise Conflict("the session has moved on; what is reported is about an earlier lab")
    if session.cleanup.is_stuck and not before.cleanup.is_stuck:
        await records.lablet_audit.note(
            LabletEvent.CLEANUP_STUCK,
            by=by,
            reason="CML refuses to remove the lab; the removal is tried again",
            session=session,
            worker_id=session.worker_id,
        )
