"""For the worker controller: a worker's own CML login."""

from fastapi import APIRouter
from starlette.responses import Response

from lcm.control_plane.api.dependencies import LeaderFence, Plane
from lcm.control_plane.commands.change_login import login_of
from lcm.rest.schemas import CmlCredentials
from lcm.web.answers import answer, documented

router = APIRouter(prefix="/api/internal/workers/{worker_id}/cml-login", tags=["internal"])


@router.get(
    "",
    summary="Get the CML login of a worker",
    **documented(CmlCredentials, problems=[404]),
)
async def own(worker_id: str, _: LeaderFence, plane: Plane) -> Response:
    return answer(await login_of(plane.records, worker_id))
