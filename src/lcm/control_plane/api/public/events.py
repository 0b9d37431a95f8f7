"""The event stream to browsers."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response, StreamingResponse

from lcm.control_plane.access.roles import Role
from lcm.control_plane.api.dependencies import Viewer, services
from lcm.control_plane.streaming.encoding import EventFilter
from lcm.web.answers import documented

router = APIRouter(prefix="/api/events", tags=["events"])

_STREAM = documented(None, 200, "`text/event-stream`: connected, a worker.snapshot per worker, then events.")
_STREAM["responses"][200]["content"] = {"text/event-stream": {"schema": {"type": "string"}}}


MAX_NAMES = 500


@router.get("/stream", summary="Subscribe to events", **_STREAM)
async def stream(
    person: Viewer,
    request: Request,
    worker_ids: Annotated[
        list[str] | None,
        Query(max_length=MAX_NAMES, description="Only events of these workers; repeated or with commas."),
    ] = None,
    event_types: Annotated[
        list[str] | None,
        Query(
            max_length=MAX_NAMES, description="Only types that start with one of these, like `worker.lab`."
        ),
    ] = None,
    include_system: Annotated[
        bool, Query(description="Whether to send `heartbeat` and `system.` events.")
    ] = True,
    batch: Annotated[
        bool,
        Query(description="Whether load comes in batches: `<type>.batch`, every second or by fifty."),
    ] = False,
    last_event_id: Annotated[str | None, Header(max_length=100)] = None,
) -> Response:
    """Server-sent events; with `Last-Event-ID` missed events are replayed, or `reset` and snapshots are sent.

    `worker.metrics.updated` and `worker.lab.stats_updated` come at most once a second per worker and lab.
    """
    wanted = EventFilter(
        frozenset(_names(worker_ids)),
        tuple(sorted(_names(event_types))),
        include_system,
        is_batched=batch,
        owner_id=person.id if person.role < Role.OPERATOR else None,
    )
    found = services(request)
    found.identity.require_room_for_stream(person)
    while_signed_in = partial(found.identity.watch, person)
    return StreamingResponse(
        found.hub.stream(last_event_id, wanted, while_signed_in),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


def _names(given: list[str] | None) -> set[str]:
    return {name for part in given or () for name in part.split(",") if name}
