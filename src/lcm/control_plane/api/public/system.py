"""How LCM itself is doing."""

from fastapi import APIRouter
from starlette.responses import Response

from lcm.control_plane.api.dependencies import Plane, Viewer
from lcm.control_plane.queries.system import system_view
from lcm.rest.system import SystemView
from lcm.web.answers import answer, documented

router = APIRouter(prefix="/api/system", tags=["insight"])


@router.get("", summary="Get the state of LCM itself", **documented(SystemView))
async def system(_: Viewer, plane: Plane) -> Response:
    """Leaders and their epochs, all processes with versions and queues, WebSockets, what was found in EC2.

    Processes report themselves every ten seconds; one that stops is silent after half a minute."""
    return answer(await system_view(plane.records, plane.caches))
