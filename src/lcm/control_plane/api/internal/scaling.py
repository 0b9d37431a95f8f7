"""For controllers: scale-up and scale-down, the capacity of workers, and the audit log."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from lcm.control_plane.api.dependencies import Controller, LeaderFence, Plane
from lcm.control_plane.commands.drain_worker import scale_down_worker
from lcm.control_plane.commands.recalculate_capacity import recalculate_capacity
from lcm.control_plane.commands.scale_up import scale_up
from lcm.domain.worker import Worker
from lcm.rest.schemas import AuditRecord, ScaleUpRequest, WorkerRecords
from lcm.web.answers import answer, body_of, documented, reads

router = APIRouter(prefix="/api/internal", tags=["scaling", "internal"])

_WRITE = documented(Worker, problems=[404, 409, 422])


@router.post(
    "/workers/scale-up",
    summary="Request a scale-up",
    **documented(WorkerRecords, 202, "Accepted.", problems=[409, 422]),
    **reads(ScaleUpRequest),
)
async def more(
    service: Controller,
    fence: LeaderFence,
    request: Annotated[ScaleUpRequest, Depends(body_of(ScaleUpRequest))],
    plane: Plane,
) -> Response:
    added = await scale_up(plane.records, plane.policies, request, by=service, fence=fence)
    return answer(WorkerRecords(items=added), 202)


@router.post("/workers/{worker_id}/drain", summary="Drain a worker", **_WRITE)
async def scale_down(worker_id: str, service: Controller, fence: LeaderFence, plane: Plane) -> Response:
    """Accepted only for a worker that two idle checks found idle, while no guard forbids it."""
    return answer(
        await scale_down_worker(
            plane.records, plane.caches, plane.policies, worker_id, by=service, fence=fence
        )
    )


@router.post(
    "/workers/{worker_id}/recalculate-capacity",
    summary="Recalculate capacity",
    **documented(Worker, problems=[404, 409]),
)
async def recalculate(worker_id: str, fence: LeaderFence, plane: Plane) -> Response:
    """Sets what the template declares, and what the sessions on the worker need in total."""
    return answer(await recalculate_capacity(plane.records, worker_id, fence=fence))


@router.post(
    "/scaling/audit",
    summary="Record a scaling decision",
    **documented(None, 204, "Recorded.", problems=[409, 422]),
    **reads(AuditRecord),
)
async def record(
    service: Controller,
    _: LeaderFence,
    entry: Annotated[AuditRecord, Depends(body_of(AuditRecord))],
    plane: Plane,
) -> Response:
    await plane.records.audit.record(entry.event, by=service, reason=entry.reason, worker_id=entry.worker_id)
    return Response(status_code=204)
