"""Whose the labs on a worker are, judged on the sessions as they are recorded now."""

from collections.abc import Iterable

from lcm.control_plane.commands.lablets.create_session import find_session
from lcm.control_plane.records.groups import Records
from lcm.control_plane.store.port import Fence
from lcm.domain.lablet.admission import count_labs
from lcm.domain.lablet.audit import LabletEvent
from lcm.domain.lablet.claim import Claim
from lcm.domain.lablet.lab_standing import Standing, stand
from lcm.domain.lablet.listed_lab import LabMark
from lcm.domain.lablet.session import LabletSession
from lcm.domain.telemetry import LabRecord
from lcm.domain.worker import Worker


class Standings:
    """Whose the labs of an instance are, by the sessions as they are recorded at this moment."""

    def __init__(
        self, records: Records, fleet_id: str, instance_id: str | None, sessions: Iterable[LabletSession]
    ) -> None:
        self._records = records
        self._fleet_id = fleet_id
        self._instance_id = instance_id
        self._by_id = {session.id: session for session in sessions}
        self._by_lab = {each.lab.lab_id: each for each in self._by_id.values() if each.lab is not None}

    @classmethod
    async def read(cls, records: Records, instance_id: str | None) -> "Standings":
        return cls(records, await records.fleet.get(), instance_id, await records.sessions.list_all())

    async def of(self, lab_id: str, mark: LabMark | None) -> Standing:
        """Return whose the lab is; a session that has been archived has ended."""
        return stand(
            lab_id,
            mark,
            self._instance_id,
            fleet_id=self._fleet_id,
            recorded_by=self._by_lab.get(lab_id),
            marked=await self._find(mark.session_id) if mark is not None else None,
        )

    async def _find(self, session_id: str) -> LabletSession | None:
        return self._by_id.get(session_id) or await find_session(self._records, session_id)

    def is_owned(self, lab_id: str) -> bool:
        """Return whether a session that has not ended has recorded this lab."""
        session = self._by_lab.get(lab_id)
        return session is not None and not session.is_ended

    async def lab_of(self, claim: Claim) -> str | None:
        """Return the lab that the session had recorded when it left the claim behind, if it still says so."""
        session = await self._find(claim.session_id)
        lab = session.lab if session is not None else None
        return lab.lab_id if lab is not None and lab.generation <= claim.lab_generation else None


async def count_again(records: Records, worker_id: str, *, fence: Fence | None = None) -> None:
    """Record what the labs of a worker take, without waiting for the next listing, which does so again."""
    await records.labs.of(worker_id)

    def decide(worker: Worker) -> Worker:
        labs = records.labs.now_of(worker_id)  # of two counts at once the later write has the newer labs
        return count_labs(worker, labs, worker.claims) if worker.is_live else worker

    await records.workers.change(worker_id, decide, fence=fence)


async def note_lab(records: Records, event: LabletEvent, lab: LabRecord, *, by: str, reason: str) -> None:
    """Audit what happened to a lab, under the session that its marker names."""
    session = await find_session(records, lab.session_id) if lab.session_id is not None else None
    await records.lablet_audit.note(
        event,
        by=by,
        reason=f"lab {lab.lab_id} '{lab.title or ''}': {reason}",
        session=session,
        worker_id=lab.worker_id,
    )


async def note_release(records: Records, worker_id: str, claim: Claim, *, by: str) -> None:
    """Audit that a retained claim was released because its labs are gone."""
    await records.lablet_audit.note(
        LabletEvent.PLACEMENT_RELEASED,
        by=by,
        reason=f"lab_absent: no lab of attempt {claim.attempt} of {claim.session_id} is left",
        session=await find_session(records, claim.session_id),
        worker_id=worker_id,
    )
