"""For the lablet controller: every lab on a worker, whose it is, and what is requested of it."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from lcm.control_plane.api.dependencies import Controller, LabletFence, Plane
from lcm.control_plane.commands.extract_configs import report_configs
from lcm.control_plane.commands.lablets.lab_requests import lab_as_it_stands, record_gone, record_outcome
from lcm.control_plane.commands.lablets.report_labs import report_labs
from lcm.control_plane.commands.report_details import report_definitions
from lcm.control_plane.queries.labs import lab_work
from lcm.domain.telemetry import LabRecord
from lcm.rest.lab_reports import (
    ConfigsExtracted,
    DefinitionsReport,
    LabGone,
    LabListingReceipt,
    LabListingReport,
    LabRequestOutcome,
    LabWork,
)
from lcm.web.answers import answer, body_of, documented, reads

router = APIRouter(prefix="/api/internal", tags=["lablets", "internal"])


@router.post(
    "/workers/{worker_id}/labs",
    summary="Report the labs of a worker",
    **documented(LabListingReceipt, problems=[404, 409, 413, 422]),
    **reads(LabListingReport),
)
async def report(
    worker_id: str,
    service: Controller,
    fence: LabletFence,
    body: Annotated[LabListingReport, Depends(body_of(LabListingReport))],
    plane: Plane,
) -> Response:
    """A full listing proves absence, the second time; any other adds what it shows."""
    return answer(await report_labs(plane.records, plane.policies, worker_id, body, by=service, fence=fence))


@router.post(
    "/workers/{worker_id}/definitions",
    summary="Report the node definitions and images of a worker",
    **documented(None, 204, "Recorded.", problems=[404, 409, 422]),
    **reads(DefinitionsReport),
)
async def definitions(
    worker_id: str,
    fence: LabletFence,
    body: Annotated[DefinitionsReport, Depends(body_of(DefinitionsReport))],
    plane: Plane,
) -> Response:
    """A session is placed only where all of those that its lab names exist."""
    await report_definitions(plane.records, worker_id, body, fence=fence)
    return Response(status_code=204)


@router.get("/labs/work", summary="List what is to be done with labs", **documented(LabWork))
async def work(_: Controller, plane: Plane) -> Response:
    """What a person, the leak sweep or a stop requests and is not done, and the workers with unknown labs."""
    return answer(await lab_work(plane.records, plane.policies, plane.caches.lab_owners))


@router.post(
    "/workers/{worker_id}/configs-extracted",
    summary="Report that configurations were extracted before a stop",
    **documented(None, 204, "Recorded.", problems=[404, 409, 422]),
    **reads(ConfigsExtracted),
)
async def configs_extracted(
    worker_id: str,
    service: Controller,
    fence: LabletFence,
    body: Annotated[ConfigsExtracted, Depends(body_of(ConfigsExtracted))],
    plane: Plane,
) -> Response:
    """The stop of the worker goes on. A report about an earlier request changes nothing."""
    await report_configs(plane.records, worker_id, body, by=service, fence=fence)
    return Response(status_code=204)


@router.get(
    "/workers/{worker_id}/labs/{lab_id}",
    summary="Get a lab as it stands now",
    **documented(LabRecord, problems=[404]),
)
async def get(worker_id: str, lab_id: str, _: Controller, plane: Plane) -> Response:
    """Judged on the sessions of this moment: asked right before each change of a lab that has no session."""
    worker = await plane.records.workers.get(worker_id)
    return answer(await lab_as_it_stands(plane.records, worker, lab_id))


@router.post(
    "/workers/{worker_id}/labs/{lab_id}/outcome",
    summary="Report what became of a request about a lab",
    **documented(None, 204, "Recorded.", problems=[409, 422]),
    **reads(LabRequestOutcome),
)
async def outcome(
    worker_id: str,
    lab_id: str,
    fence: LabletFence,
    body: Annotated[LabRequestOutcome, Depends(body_of(LabRequestOutcome))],
    plane: Plane,
) -> Response:
    await record_outcome(plane.records, worker_id, lab_id, body, fence=fence)
    return Response(status_code=204)


@router.post(
    "/workers/{worker_id}/labs/{lab_id}/gone",
    summary="Report that a lab was removed",
    **documented(None, 204, "Recorded.", problems=[404, 409, 422]),
    **reads(LabGone),
)
async def gone(
    worker_id: str,
    lab_id: str,
    service: Controller,
    fence: LabletFence,
    body: Annotated[LabGone, Depends(body_of(LabGone))],
    plane: Plane,
) -> Response:
    """Its record goes, and the claim that was retained for it is released."""
    await record_gone(plane.records, worker_id, lab_id, body, by=service, fence=fence)
    return Response(status_code=204)
