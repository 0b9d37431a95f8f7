"""For the lablet controller: the labs of sessions, from the intent to import one until it is proven gone.

A refusal carries the present record of the session, so that the controller needs no second read.
"""

from collections.abc import Awaitable
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends
from starlette.responses import Response

from lcm.control_plane.api.dependencies import Controller, LabletFence, Plane
from lcm.control_plane.api.services import ControlPlane
from lcm.control_plane.commands.lablets.clean_up_session import clean_up_session
from lcm.control_plane.commands.lablets.create_session import find_session
from lcm.control_plane.commands.lablets.intend_import import intend_import
from lcm.control_plane.commands.lablets.keep_evidence import keep_evidence
from lcm.control_plane.commands.lablets.move_session import move_session
from lcm.control_plane.commands.lablets.record_lab import record_lab, record_progress
from lcm.control_plane.commands.lablets.unschedule_session import unschedule_session
from lcm.control_plane.queries.session_topology import session_topology
from lcm.domain.errors import Conflict, IllegalTransition
from lcm.domain.lablet.session import LabletSession
from lcm.rest.lablet_reports import (
    EvidenceCollected,
    FleetView,
    ImportIntent,
    LabCleaned,
    LabImported,
    ProgressReceipt,
    ProgressReport,
    SessionMove,
    SessionProblem,
)
from lcm.rest.lablets import Unscheduled
from lcm.rest.schemas import PROBLEM_TYPE_PREFIX
from lcm.web.answers import answer, body_of, documented, reads
from lcm.web.problems import MEDIA_TYPE

router = APIRouter(prefix="/api/internal", tags=["lablets", "internal"])

_SESSION = documented(LabletSession, problems=[404, 409, 422])
_YAML = documented(
    None, 200, "The topology with the ports and the marker of the session.", problems=[404, 409]
)
_YAML["responses"][200]["content"] = {"text/yaml": {"schema": {"type": "string"}}}


async def _or_current(
    plane: ControlPlane, session_id: str, command: Awaitable[LabletSession | None]
) -> Response:
    """Answer with the session; a refusal carries it as it is now."""
    try:
        session = await command
    except (Conflict, IllegalTransition) as error:
        return _refused(error, await find_session(plane.records, session_id))
    return Response(status_code=204) if session is None else answer(session)


def _refused(error: Conflict | IllegalTransition, current: LabletSession | None) -> Response:
    is_table = isinstance(error, IllegalTransition)
    body = SessionProblem(
        type=PROBLEM_TYPE_PREFIX + ("illegal-transition" if is_table else "conflict"),
        title="Not possible from this status" if is_table else "Conflict",
        status=409,
        detail=str(error),
        allowed=error.allowed if isinstance(error, IllegalTransition) else [],
        current=current,
    )
    return Response(msgspec.json.encode(body), 409, media_type=MEDIA_TYPE)


@router.post(
    "/lablet-sessions/{session_id}/status",
    summary="Move a lablet session to its next status",
    **_SESSION,
    **reads(SessionMove),
)
async def move(
    session_id: str,
    fence: LabletFence,
    body: Annotated[SessionMove, Depends(body_of(SessionMove))],
    plane: Plane,
) -> Response:
    """Refused unless the session is at `from` and at the generation that was read."""
    command = move_session(plane.records, plane.policies, session_id, body, fence=fence)
    return await _or_current(plane, session_id, command)


@router.post(
    "/lablet-sessions/{session_id}/lab-intent",
    summary="Record that a lab is about to be imported",
    **_SESSION,
    **reads(ImportIntent),
)
async def intend(
    session_id: str,
    fence: LabletFence,
    body: Annotated[ImportIntent, Depends(body_of(ImportIntent))],
    plane: Plane,
) -> Response:
    """No lab may be imported before this has been answered."""
    return await _or_current(plane, session_id, intend_import(plane.records, session_id, body, fence=fence))


@router.post(
    "/lablet-sessions/{session_id}/lab",
    summary="Record the lab of a lablet session",
    **_SESSION,
    **reads(LabImported),
)
async def record(
    session_id: str,
    service: Controller,
    fence: LabletFence,
    body: Annotated[LabImported, Depends(body_of(LabImported))],
    plane: Plane,
) -> Response:
    """The first id of an import counts."""
    command = record_lab(plane.records, session_id, body, by=service, fence=fence)
    return await _or_current(plane, session_id, command)


@router.post(
    "/lablet-sessions/progress",
    summary="Report the progress of lablet sessions",
    **documented(ProgressReceipt, problems=[409, 413, 422]),
    **reads(ProgressReport),
)
async def progress(
    service: Controller,
    fence: LabletFence,
    body: Annotated[ProgressReport, Depends(body_of(ProgressReport))],
    plane: Plane,
) -> Response:
    """Steps and nodes, of many sessions at once; the generation of a session stays as it is."""
    return answer(await record_progress(plane.records, body, by=service, fence=fence))


@router.post(
    "/lablet-sessions/{session_id}/evidence",
    summary="Hand over what was collected of a lab",
    **documented(LabletSession, problems=[404, 409, 413, 422]),
    **reads(EvidenceCollected),
)
async def evidence(
    session_id: str,
    fence: LabletFence,
    body: Annotated[EvidenceCollected, Depends(body_of(EvidenceCollected))],
    plane: Plane,
) -> Response:
    """The first file of a lab counts; repeating it changes nothing."""
    return await _or_current(plane, session_id, keep_evidence(plane.records, session_id, body, fence=fence))


@router.post(
    "/lablet-sessions/{session_id}/unschedule",
    summary="Take a lablet session off its worker",
    **_SESSION,
    **reads(Unscheduled),
)
async def unschedule(
    session_id: str,
    service: Controller,
    fence: LabletFence,
    body: Annotated[Unscheduled, Depends(body_of(Unscheduled))],
    plane: Plane,
) -> Response:
    """The claim is retained if the session may own a lab there, and released if it cannot."""
    command = unschedule_session(plane.records, plane.policies, session_id, body, by=service, fence=fence)
    return await _or_current(plane, session_id, command)


@router.post(
    "/lablet-sessions/{session_id}/cleaned",
    summary="Report that nothing of a lab is left",
    **_SESSION,
    **reads(LabCleaned),
)
async def cleaned(
    session_id: str,
    service: Controller,
    fence: LabletFence,
    body: Annotated[LabCleaned, Depends(body_of(LabCleaned))],
    plane: Plane,
) -> Response:
    """The claim of the attempt is released, once; the session ends if it was its last attempt."""
    command = clean_up_session(plane.records, session_id, body, by=service, fence=fence)
    return await _or_current(plane, session_id, command)


@router.get("/lablet-sessions/{session_id}/topology", summary="Get the topology to import", **_YAML)
async def topology(session_id: str, _: Controller, plane: Plane) -> Response:
    """Only once the import is intended: the text carries the marker of that import."""
    try:
        text = await session_topology(plane.records, session_id)
    except (Conflict, IllegalTransition) as error:
        return _refused(error, await find_session(plane.records, session_id))
    return Response(text, media_type="text/yaml")


@router.get("/fleet-identity", summary="Get the id of this fleet", **documented(FleetView))
async def fleet(_: Controller, plane: Plane) -> Response:
    return answer(FleetView(fleet_id=await plane.records.fleet.get()))
