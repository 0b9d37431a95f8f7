"""What people decide about labs that cannot be removed."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from lcm.control_plane.api.dependencies import Admin, Plane
from lcm.control_plane.commands.lablets.abandon_session import abandon_session
from lcm.rest.lablet_reports import AbandonRequest
from lcm.rest.lablets import LabletSessionView
from lcm.web.answers import answer, body_of, documented, reads

router = APIRouter(tags=["lablet sessions"])


@router.post(
    "/api/lablet-sessions/{session_id}/abandon",
    summary="Abandon the lab of a lablet session",
    **documented(LabletSessionView, problems=[404, 409, 422]),
    **reads(AbandonRequest),
)
async def abandon(
    session_id: str,
    person: Admin,
    body: Annotated[AbandonRequest, Depends(body_of(AbandonRequest))],
    plane: Plane,
) -> Response:
    """Only of a session that is being stopped: it ends now, although its lab may remain.

    Its worker keeps the room and the ports until the lab is found gone.
    """
    session = await abandon_session(plane.records, session_id, by=person.name, reason=body.reason)
    return answer(LabletSessionView.of(session))
