"""For the resource scheduler: what it decided."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from lcm.control_plane.api.dependencies import LeaderFence, Plane
from lcm.rest.scheduling import PlacementReport
from lcm.web.answers import body_of, documented, reads

router = APIRouter(prefix="/api/internal", tags=["lablets", "internal"])


@router.post(
    "/placements",
    summary="Record placement decisions",
    **documented(None, 204, "Recorded.", problems=[409, 422]),
    **reads(PlacementReport),
)
async def record(
    fence: LeaderFence, report: Annotated[PlacementReport, Depends(body_of(PlacementReport))], plane: Plane
) -> Response:
    """Those whose outcome, reason or worker has changed. What is recorded already is left out."""
    await plane.records.placements.append(report.items, fence=fence)
    return Response(status_code=204)
