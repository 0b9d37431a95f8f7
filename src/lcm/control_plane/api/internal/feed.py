"""For other control planes: the replication feed of this one."""

from fastapi import APIRouter
from starlette.responses import Response, StreamingResponse

from lcm.control_plane.api.dependencies import Controller, Plane
from lcm.web.answers import documented

router = APIRouter(prefix="/api/internal/peers", tags=["internal"])

_FEED = documented(None, 200, "JSON lines without end: what is committed and reported here.")
_FEED["responses"][200]["content"] = {"application/jsonl": {"schema": {"type": "string"}}}


@router.get("/feed", summary="Follow the replication feed", **_FEED)
async def follow(_: Controller, plane: Plane) -> Response:
    """A peer that reads too slowly is sent `lost` and has to resync."""
    return StreamingResponse(
        plane.feed.stream(), media_type="application/jsonl", headers={"Cache-Control": "no-store"}
    )
