"""Why sessions wait and when they get a worker, what a booking would lead to, and what was decided."""

from datetime import UTC, timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from lcm.control_plane.api.dependencies import Moment, Plane, Viewer
from lcm.control_plane.queries.calendar import scheduling_calendar
from lcm.control_plane.queries.explain_session import explain_session
from lcm.control_plane.queries.lablet_sessions import may_see, visible_ids, visible_session
from lcm.control_plane.queries.preview import preview_seats
from lcm.control_plane.queries.queue import scheduling_queue
from lcm.rest.scheduling import (
    PlacementPage,
    PreviewRequest,
    SchedulingCalendar,
    SchedulingPreview,
    SchedulingQueue,
    SessionExplanation,
)
from lcm.rest.schemas import FieldError
from lcm.web.answers import MalformedBody, answer, body_of, documented, reads

router = APIRouter(prefix="/api", tags=["scheduling"])


@router.get(
    "/lablet-sessions/{session_id}/explain",
    summary="Explain a lablet session",
    **documented(SessionExplanation, problems=[404]),
)
async def explain(session_id: str, person: Viewer, plane: Plane) -> Response:
    """What the next cycle of the scheduler does with it, why, when, and what each worker lacks for it."""
    session = await visible_session(plane.records, person, session_id)
    return answer(await explain_session(plane.records, plane.policies, session, caches=plane.caches))


@router.get("/scheduling/queue", summary="List sessions that wait", **documented(SchedulingQueue))
async def queue(person: Viewer, plane: Plane) -> Response:
    """In the order in which they are decided. Operators see all of them, others their own."""
    return answer(
        await scheduling_queue(
            plane.records,
            plane.policies,
            lambda session: may_see(person, session),
            caches=plane.caches,
        )
    )


@router.post(
    "/scheduling/preview",
    summary="Preview a booking",
    **documented(SchedulingPreview, problems=[404, 409, 422]),
    **reads(PreviewRequest),
)
async def preview(
    request: Annotated[PreviewRequest, Depends(body_of(PreviewRequest))], _: Viewer, plane: Plane
) -> Response:
    """What the scheduler would do with so many seats, at the time at which it would look for workers.

    Name a definition, or the needs of a lab. Nothing is recorded.
    """
    if (request.definition_id is None) == (request.needs is None):
        message = "name either a definition or the needs of a lab"
        raise MalformedBody([FieldError(field="definition_id", message=message)])
    return answer(await preview_seats(plane.records, plane.policies, request, caches=plane.caches))


@router.get(
    "/scheduling/calendar",
    summary="Get the calendar of bookings",
    **documented(SchedulingCalendar, problems=[422]),
)
async def calendar(
    person: Viewer,
    plane: Plane,
    begin: Annotated[Moment | None, Query(alias="from", description="Now without one.")] = None,
    end: Annotated[Moment | None, Query(alias="to", description="A day later without one.")] = None,
    step: Annotated[int, Query(ge=5, le=1440, description="Minutes between two steps.")] = 15,
) -> Response:
    """Classes and sessions, and the demand of everything against the capacity, from now on.

    Demand counts the time before a session in which its lab starts and that after it in which it is removed.
    Operators see all entries, others their own.
    """
    start = begin.astimezone(UTC) if begin is not None else plane.records.clock.now()
    return answer(
        await scheduling_calendar(
            plane.records,
            plane.policies,
            begin=start,
            end=end.astimezone(UTC) if end is not None else start + timedelta(days=1),
            step=timedelta(minutes=step),
            is_shown=lambda session: may_see(person, session),
        )
    )


@router.get("/placements", summary="List placement decisions", **documented(PlacementPage, problems=[422]))
async def placements(
    person: Viewer,
    plane: Plane,
    session_id: Annotated[str | None, Query(max_length=100)] = None,
    worker_id: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    before: Annotated[str | None, Query(max_length=100, description="`next` of the page before.")] = None,
) -> Response:
    """Newest first; one for every change of outcome, reason or worker. 10,000 are kept, for 30 days.

    Operators see those of all sessions, others of their own.
    """
    found = await plane.records.placements.newest(
        session_id=session_id,
        worker_id=worker_id,
        before=before,
        limit=limit,
        among=await visible_ids(plane.records, person),
    )
    return answer(PlacementPage(items=found.items, next=found.next))
