"""For the worker controller: idle checks."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from lcm.control_plane.api.dependencies import Controller, LeaderFence, Plane
from lcm.control_plane.commands.detect_idle import detect_idle
from lcm.control_plane.queries.idle import idle_status
from lcm.rest.schemas import IdleCheck, IdleCheckRequest, IdleStatus
from lcm.web.answers import answer, body_of, documented, reads

router = APIRouter(prefix="/api/internal/workers/{worker_id}", tags=["idle detection", "internal"])


@router.get(
    "/idle-status",
    summary="Get the idle status",
    **documented(IdleStatus, problems=[404]),
)
async def internal_status(worker_id: str, _: Controller, plane: Plane) -> Response:
    return answer(
        idle_status(plane.records, plane.caches, plane.policies, await plane.records.workers.get(worker_id))
    )


@router.post(
    "/detect-idle",
    summary="Run an idle check",
    **documented(IdleCheck, problems=[404, 409, 422]),
    **reads(IdleCheckRequest),
)
async def detect(
    worker_id: str,
    fence: LeaderFence,
    request: Annotated[IdleCheckRequest, Depends(body_of(IdleCheckRequest))],
    plane: Plane,
) -> Response:
    return answer(
        await detect_idle(plane.records, plane.caches, plane.policies, worker_id, request, fence=fence)
    )
