"""For the leading controllers: a worker's own CML login."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from lcm.control_plane.api.dependencies import Plane, secret_fence
from lcm.control_plane.commands.change_login import login_of
from lcm.control_plane.store.port import Fence
from lcm.rest.schemas import LABLET_CONTROLLER, WORKER_CONTROLLER, CmlCredentials
from lcm.web.answers import answer, documented

CmlLoginFence = Annotated[Fence, Depends(secret_fence(WORKER_CONTROLLER, LABLET_CONTROLLER))]

router = APIRouter(prefix="/api/internal/workers/{worker_id}/cml-login", tags=["internal"])


@router.get(
    "",
    summary="Get the CML login of a worker",
    **documented(CmlCredentials, problems=[404, 409]),
)
async def own(worker_id: str, _: CmlLoginFence, plane: Plane) -> Response:
    return answer(await login_of(plane.records, worker_id))
