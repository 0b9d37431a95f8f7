"""What was kept of the labs of sessions, for their owners and for operators."""

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from lcm.control_plane.api.dependencies import Plane, Viewer
from lcm.control_plane.queries.lablet_sessions import visible_session
from lcm.domain.errors import NotFound
from lcm.rest.lablets import EvidenceList
from lcm.web.answers import answer, documented

router = APIRouter(prefix="/api/lablet-sessions/{session_id}/evidence", tags=["lablet sessions"])

_FILE = documented(None, 200, "The topology, with the configurations of its nodes.", problems=[404, 422])
_FILE["responses"][200]["content"] = {"text/yaml": {"schema": {"type": "string"}}}


@router.get(
    "",
    summary="List what was kept of a lablet session",
    **documented(EvidenceList, problems=[404]),
)
async def list_all(session_id: str, person: Viewer, plane: Plane) -> Response:
    """Collected at its end, if its definition says so in `collect`; kept as long as the session is."""
    session = await visible_session(plane.records, person, session_id)
    return answer(EvidenceList(items=session.evidence))


@router.get("/{n}", summary="Download what was kept of a lablet session", **_FILE)
async def download(
    session_id: str, n: Annotated[int, Path(ge=1, le=999_999_999)], person: Viewer, plane: Plane
) -> Response:
    """A file that CML can import again. It may hold passwords that people gave their nodes."""
    session = await visible_session(plane.records, person, session_id)
    is_named = any(each.n == n for each in session.evidence)
    text = await plane.records.evidence.find(session.id, n) if is_named else None
    if text is None:
        raise NotFound(
            f"there is no evidence {n} of this session;"
            f" list it with GET /api/lablet-sessions/{session.id}/evidence"
        )
    headers = {
        "Cache-Control": "no-store",
        "Content-Disposition": f'attachment; filename="lablet-{session.id}-{n}.yaml"',
    }
    return Response(text, headers=headers, media_type="text/yaml")
