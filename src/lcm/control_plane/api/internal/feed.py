"""For other control planes: everything that happens at this one."""

from fastapi import APIRouter
from starlette.responses import Response, StreamingResponse

from lcm.control_plane.api.dependencies import Controller, Plane
from lcm.web.answers import documented

router = APIRouter(prefix="/api/internal/peers", tags=["internal"])

_FEED = documented(None, 200, "JSON lines, for ever: what is committed and reported here.")
_FEED["responses"][200]["content"] = {"application/jsonl": {"schema": {"type": "string"}}}


@router.get("/feed", summary="Follow this control plane", **_FEED)
async def news(_: Controller, plane: Plane) -> Response:
    """A follower that does not read is told `lost` and has to look at everything again."""
    return StreamingResponse(
        plane.feed.stream(), media_type="application/jsonl", headers={"Cache-Control": "no-store"}
    )
