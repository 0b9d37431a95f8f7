"""For controllers, leaders and standbys alike: they report how they are."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from lcm.control_plane.access.roles import AccessDenied
from lcm.control_plane.api.dependencies import Plane, Service, services
from lcm.rest.system import ProcessReport
from lcm.web.answers import body_of, documented, reads

router = APIRouter(prefix="/api/internal", tags=["internal"])


@router.post(
    "/processes",
    summary="Report a process",
    **documented(None, 204, "Noted.", problems=[422]),
    **reads(ProcessReport),
)
async def report(
    request: Request,
    service: Service,
    found: Annotated[ProcessReport, Depends(body_of(ProcessReport))],
    plane: Plane,
) -> Response:
    """Proves that the process runs, not that it is at work: a standby reports too. A key of one service
    reports that service only."""
    if services(request).identity.services.is_bound(service) and found.service != service:
        raise AccessDenied(403, f"the key of the {service} cannot report a {found.service}")
    plane.caches.processes.note(found)
    return Response(status_code=204)
