"""The labs on all workers: LCM's own, those of people, and those that were left behind."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from lcm.control_plane.access.roles import Principal
from lcm.control_plane.api.accepted import INTENT, accepted
from lcm.control_plane.api.dependencies import Admin, Given, Operator, Plane, Viewer
from lcm.control_plane.api.references import WorkerRef
from lcm.control_plane.api.services import ControlPlane
from lcm.control_plane.commands.lablets.lab_requests import (
    adopt_lab,
    disown_lab,
    request_discovery,
    request_lab_action,
)
from lcm.control_plane.queries.labs import list_labs, view_lab
from lcm.domain.lablet.listed_lab import LabAction, LabKind
from lcm.domain.telemetry import LabRecord
from lcm.rest.labs import LabAdoptionRequest, LabPage, LabRemoval, LabView
from lcm.web.answers import answer, body_of, documented, reads

router = APIRouter(prefix="/api", tags=["labs"])

_CHANGED = documented(LabView, problems=[404, 409])
_ACCEPTED = documented(LabView, 202, "Accepted; effects follow.", problems=[404, 409, 422])


@router.get("/labs", summary="List labs", **documented(LabPage, problems=[404, 422]))
async def list_all(
    _: Viewer,
    plane: Plane,
    worker_id: Annotated[str | None, Query(max_length=100)] = None,
    kind: Annotated[LabKind | None, Query(description="Whose labs.")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    after: Annotated[str | None, Query(max_length=600, description="`next` of the page before.")] = None,
) -> Response:
    """Every lab on every worker with whose it is, as last listed, by worker and title."""
    return answer(await list_labs(plane.records, worker_id=worker_id, kind=kind, limit=limit, after=after))


@router.post("/workers/{worker_id}/labs/discover", summary="Discover a worker's labs", **INTENT)
async def discover(worker_id: WorkerRef, person: Operator, plane: Plane, given: Given) -> Response:
    """The lablet controller lists every lab of the worker now, not at its next turn."""
    return accepted(await request_discovery(plane.records, worker_id, by=person.name, preconditions=given))


@router.post("/workers/{worker_id}/labs/{lab_id}/start", summary="Start a lab", **_ACCEPTED)
async def start(worker_id: WorkerRef, lab_id: str, person: Operator, plane: Plane) -> Response:
    """Every node at rest. A lab of a session only while the session is ready or runs."""
    return await _requested(plane, worker_id, lab_id, LabAction.START, person)


@router.post("/workers/{worker_id}/labs/{lab_id}/stop", summary="Stop a lab", **_ACCEPTED)
async def stop(worker_id: WorkerRef, lab_id: str, person: Operator, plane: Plane) -> Response:
    """Every node; the disks stay. A lab of a session only while the session is ready or runs."""
    return await _requested(plane, worker_id, lab_id, LabAction.STOP, person)


@router.post(
    "/workers/{worker_id}/labs/{lab_id}/remove",
    summary="Remove a lab",
    **_ACCEPTED,
    **reads(LabRemoval),
)
async def remove(
    worker_id: WorkerRef,
    lab_id: str,
    person: Admin,
    body: Annotated[LabRemoval, Depends(body_of(LabRemoval))],
    plane: Plane,
) -> Response:
    """Stop, wipe and delete a lab for good.

    A foreign or adopted one only with its title in the body. The lab of a session is removed by ending the
    session.
    """
    return await _requested(plane, worker_id, lab_id, LabAction.REMOVE, person, body.title)


@router.post(
    "/workers/{worker_id}/labs/{lab_id}/adopt",
    summary="Adopt a lab",
    **documented(LabView, problems=[404, 409, 422]),
    **reads(LabAdoptionRequest, is_required=False),
)
async def adopt(
    worker_id: WorkerRef,
    lab_id: str,
    person: Operator,
    body: Annotated[LabAdoptionRequest, Depends(body_of(LabAdoptionRequest, is_required=False))],
    plane: Plane,
) -> Response:
    """Keep a foreign or leaked lab: LCM never removes it by itself, and people only by typing its title.

    With a definition it is shown as a lab of that one, and what it needs is kept free, started or not.
    """
    lab = await adopt_lab(
        plane.records,
        worker_id,
        lab_id,
        by=person.name,
        definition=body.definition,
        version=body.version,
    )
    return await _shown(plane, lab)


@router.post("/workers/{worker_id}/labs/{lab_id}/disown", summary="Disown a lab", **_CHANGED)
async def disown(worker_id: WorkerRef, lab_id: str, person: Admin, plane: Plane) -> Response:
    """End its adoption. One with LCM's marker is leaked again, so that the leak sweep removes it."""
    lab = await disown_lab(plane.records, worker_id, lab_id, by=person.name)
    return await _shown(plane, lab)


async def _requested(
    plane: ControlPlane,
    worker_id: str,
    lab_id: str,
    action: LabAction,
    person: Principal,
    title: str | None = None,
) -> Response:
    lab = await request_lab_action(plane.records, worker_id, lab_id, action, by=person.name, title=title)
    return await _shown(plane, lab, 202)


async def _shown(plane: ControlPlane, lab: LabRecord, status: int = 200) -> Response:
    records = plane.records
    session = await records.sessions.find(lab.session_id) if lab.session_id is not None else None
    return answer(view_lab(lab, await records.workers.get(lab.worker_id), session), status)
