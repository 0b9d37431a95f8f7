"""The lablet controller hands over what it collected of a lab that ends.

1. The file.
2. The session names it.

A crash between the two leaves a file that the repeated report replaces; the first that is named counts.
"""

from lcm.control_plane.records.groups import Records
from lcm.control_plane.store.port import Fence
from lcm.domain.errors import Conflict
from lcm.domain.lablet import instantiation
from lcm.domain.lablet.evidence import EvidenceUnusable, describe, unpack
from lcm.domain.lablet.session import LabletSession
from lcm.rest.lablet_reports import EvidenceCollected


async def keep_evidence(
    records: Records, session_id: str, report: EvidenceCollected, *, fence: Fence
) -> LabletSession:
    """Store the file. A repeated report changes nothing."""
    now = records.clock.now()
    try:
        text = unpack(report.packed)
    except EvidenceUnusable as error:
        raise Conflict(f"the evidence cannot be kept: {error}") from None

    def judge(session: LabletSession) -> LabletSession:
        found = describe(text, n=report.generation, kind=session.collect, at=now)
        return instantiation.record_evidence(
            session, found, attempt=report.attempt, detail=report.detail, now=now
        )

    session = await records.sessions.get(session_id)
    if judge(session) is session:
        return session
    await records.evidence.keep(session_id, report.generation, report.packed, fence=fence)
    return await records.sessions.change(session_id, judge, fence=fence)
