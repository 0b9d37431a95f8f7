"""What the lablet controller reads of the control plane and reports to it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from lcm.domain.errors import Conflict
from lcm.domain.idle import ControllerTerms
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.states import SessionStatus
from lcm.domain.telemetry import LabRecord
from lcm.rest.client import ControlPlaneClient, Transport
from lcm.rest.lab_reports import (
    ConfigsExtracted,
    DefinitionsReport,
    LabGone,
    LabListingReceipt,
    LabListingReport,
    LabRequestOutcome,
    LabWork,
)
from lcm.rest.lablet_reports import (
    MAX_REPORTS,
    EvidenceCollected,
    FleetView,
    ImportIntent,
    LabCleaned,
    LabImported,
    ProgressReceipt,
    ProgressReport,
    SessionMove,
    SessionProblem,
    SessionProgress,
)
from lcm.rest.lablets import LabletSessionRecords, Unscheduled
from lcm.rest.plane_clock import PlaneClock

MAX_BYTES: Final = 512 * 1024

_session = msgspec.json.Decoder(LabletSession)
_problem = msgspec.json.Decoder(SessionProblem)


def _in_parts(items: Iterable[SessionProgress]) -> Iterator[tuple[SessionProgress, ...]]:
    """The reports in order, in parts that the control plane takes."""
    part: list[SessionProgress] = []
    size = 0
    for item in items:
        item_size = len(msgspec.json.encode(item))
        if part and (size + item_size > MAX_BYTES or len(part) == MAX_REPORTS):
            yield tuple(part)
            part, size = [], 0
        part.append(item)
        size += item_size
    if part:
        yield tuple(part)


class SessionChanged(Conflict):
    """The report does not fit the session as it is now; `current` is that record."""

    def __init__(self, detail: str, current: LabletSession) -> None:
        self.current = current
        super().__init__(detail)


class LabletClient(ControlPlaneClient):
    """The client of the lablet controller. Raises SessionChanged for what a change of the session refuses.

    The control plane's clock learns from its answers: the first one, before anything is done, grants the
    leadership; then every list of sessions.
    """

    def __init__(
        self,
        transport: Transport,
        api_key: str,
        service: str,
        epoch: Callable[[], int],
        plane_clock: PlaneClock,
    ) -> None:
        super().__init__(transport, api_key, service, epoch)
        self._plane_clock = plane_clock

    async def claim_leadership(
        self, cluster_id: str, revision: int, instance_id: str, terms: ControllerTerms | None = None
    ) -> int:
        asked = self._plane_clock.monotonic()
        grant = await self._claim_leadership(cluster_id, revision, instance_id, terms)
        self._plane_clock.learn(grant.answered_at, asked=asked)
        return grant.epoch

    async def list_sessions(self, *statuses: SessionStatus) -> list[LabletSession]:
        """Return the sessions that have not ended, or those in one of the given statuses."""
        query = "&".join(f"status={status}" for status in statuses)
        asked = self._plane_clock.monotonic()
        body = await self._call("GET", f"/lablet-sessions?{query}" if query else "/lablet-sessions")
        records = msgspec.json.decode(body, type=LabletSessionRecords)
        self._plane_clock.learn(records.answered_at, asked=asked)
        return records.items

    async def get_session(self, session_id: str) -> LabletSession:
        return _session.decode(await self._call("GET", f"/lablet-sessions/{session_id}"))

    async def get_topology(self, session_id: str) -> str:
        """Return the text to import: with the session's ports, and with the marker of its intended import."""
        return (await self._call("GET", f"/lablet-sessions/{session_id}/topology")).decode()

    async def get_fleet_id(self) -> str:
        return msgspec.json.decode(await self._call("GET", "/fleet-identity"), type=FleetView).fleet_id

    async def move(self, session_id: str, move: SessionMove) -> LabletSession:
        return await self._changed(session_id, "status", move)

    async def intend_import(self, session_id: str, intent: ImportIntent) -> LabletSession:
        """No lab may be imported before this has returned."""
        return await self._changed(session_id, "lab-intent", intent)

    async def record_lab(self, session_id: str, lab: LabImported) -> LabletSession:
        return await self._changed(session_id, "lab", lab)

    async def report_progress(self, items: Sequence[SessionProgress]) -> tuple[str, ...]:
        """Return the ids of the sessions that have moved on; large reports are sent in several requests."""
        ignored: list[str] = []
        for part in _in_parts(items):
            body = await self._call("POST", "/lablet-sessions/progress", ProgressReport(items=part))
            ignored += msgspec.json.decode(body, type=ProgressReceipt).ignored
        return tuple(ignored)

    async def report_evidence(self, session_id: str, evidence: EvidenceCollected) -> LabletSession:
        return await self._changed(session_id, "evidence", evidence)

    async def unschedule(
        self, session_id: str, reason: str, *, generation: int, is_worker_lost: bool = False
    ) -> LabletSession:
        request = Unscheduled(reason=reason, generation=generation, is_worker_lost=is_worker_lost)
        return await self._changed(session_id, "unschedule", request)

    async def report_cleaned(self, session_id: str, cleaned: LabCleaned) -> LabletSession | None:
        """Return the session; None if none has this id any more."""
        body = await self._call("POST", f"/lablet-sessions/{session_id}/cleaned", cleaned)
        return _session.decode(body) if body else None

    # Labs, whosesoever they are.

    async def report_labs(self, worker_id: str, report: LabListingReport) -> LabListingReceipt:
        body = await self._call("POST", f"/workers/{worker_id}/labs", report)
        return msgspec.json.decode(body, type=LabListingReceipt)

    async def report_definitions(self, worker_id: str, report: DefinitionsReport) -> None:
        await self._call("POST", f"/workers/{worker_id}/definitions", report)

    async def get_lab_work(self) -> LabWork:
        """Return what is requested of labs, and the workers with labs that no listing has shown."""
        return msgspec.json.decode(await self._call("GET", "/labs/work"), type=LabWork)

    async def report_configs(self, worker_id: str, report: ConfigsExtracted) -> None:
        await self._call("POST", f"/workers/{worker_id}/configs-extracted", report)

    async def get_lab_record(self, worker_id: str, lab_id: str) -> LabRecord:
        """Return a lab with whose it is at this moment."""
        body = await self._call("GET", f"/workers/{worker_id}/labs/{quote(lab_id, safe='')}")
        return msgspec.json.decode(body, type=LabRecord)

    async def report_lab_outcome(self, worker_id: str, lab_id: str, outcome: LabRequestOutcome) -> None:
        await self._call("POST", f"/workers/{worker_id}/labs/{quote(lab_id, safe='')}/outcome", outcome)

    async def report_lab_gone(self, worker_id: str, lab_id: str, gone: LabGone) -> None:
        await self._call("POST", f"/workers/{worker_id}/labs/{quote(lab_id, safe='')}/gone", gone)

    async def _changed(self, session_id: str, what: str, report: msgspec.Struct) -> LabletSession:
        return _session.decode(await self._call("POST", f"/lablet-sessions/{session_id}/{what}", report))

    def _refusal(self, status: int, answer: bytes) -> Exception:
        error = super()._refusal(status, answer)
        current = _problem.decode(answer).current if status == 409 else None
        return error if current is None else SessionChanged(str(error), current)
