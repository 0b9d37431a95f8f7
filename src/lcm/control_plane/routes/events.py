"""The live stream."""

from typing import Annotated

from fastapi import APIRouter, Header, Request
from starlette.responses import Response, StreamingResponse

from lcm.control_plane.routes.dependencies import Viewer, services
from lcm.web.answers import documented

router = APIRouter(prefix="/api/events", tags=["events"])

_STREAM = documented(None, 200, "`text/event-stream`: connected, one worker.snapshot each, then changes.")
_STREAM["responses"][200]["content"] = {"text/event-stream": {"schema": {"type": "string"}}}


@router.get("/stream", summary="Live changes", **_STREAM)
async def stream(
    _: Viewer, request: Request, last_event_id: Annotated[str | None, Header(max_length=100)] = None
) -> Response:
    """Server-sent events; `Last-Event-ID` brings what was missed, or `reset` and fresh snapshots."""
    return StreamingResponse(
        services(request).hub.stream(last_event_id),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )
