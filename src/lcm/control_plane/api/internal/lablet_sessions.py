"""For the resource scheduler and the lablet controller: sessions, their placement and their windows."""

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query
from starlette.responses import Response

from lcm.control_plane.api.dependencies import Controller, LeaderFence, Moment, Plane
from lcm.control_plane.commands.lablets.end_session import reject_session
from lcm.control_plane.commands.lablets.open_windows import move_windows
from lcm.control_plane.commands.lablets.report_waiting import report_waiting
from lcm.control_plane.commands.lablets.schedule_sessions import schedule_sessions
from lcm.control_plane.queries.scheduling import scheduling_snapshot
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.snapshot import Snapshot
from lcm.domain.lablet.states import SessionStatus
from lcm.rest.lablets import (
    LabletSessionRecords,
    PlacementOrders,
    PlacementResults,
    SessionRejected,
    WaitingReport,
    WindowsMoved,
)
from lcm.web.answers import answer, body_of, documented, reads

router = APIRouter(prefix="/api/internal", tags=["lablets", "internal"])


@router.get(
    "/lablet-sessions",
    summary="List lablet session records",
    **documented(LabletSessionRecords, problems=[422]),
)
async def list_all(
    _: Controller,
    plane: Plane,
    status: Annotated[list[SessionStatus] | None, Query(description="Only these statuses.")] = None,
    changed_since: Annotated[
        Moment | None, Query(description="Only those that were written at this moment or later.")
    ] = None,
) -> Response:
    """Those that have not ended, unless `status` says otherwise."""
    wanted = frozenset(status or ())
    sessions = [
        session
        for session in await plane.records.sessions.list_all()
        if (session.status in wanted if wanted else not session.is_ended)
        and (changed_since is None or session.updated_at >= changed_since)
    ]
    return answer(LabletSessionRecords(items=sessions, answered_at=plane.records.clock.now()))


@router.get(
    "/lablet-sessions/{session_id}",
    summary="Get a lablet session record",
    **documented(LabletSession, problems=[404]),
)
async def get(session_id: str, _: Controller, plane: Plane) -> Response:
    return answer(await plane.records.sessions.get(session_id))


@router.get(
    "/scheduling/snapshot", summary="Get what placement decides on", **documented(Snapshot, problems=[])
)
async def snapshot(
    _: Controller,
    plane: Plane,
    if_none_match: Annotated[str | None, Header(description="304 if this is still its `ETag`.")] = None,
) -> Response:
    """Workers, waiting sessions, templates and how far the fleet may grow, read together."""
    found = await scheduling_snapshot(plane.records, plane.policies, caches=plane.caches)
    etag = f'"{found.revision}"'
    if if_none_match == etag:
        return Response(status_code=304, headers={"ETag": etag})
    return answer(found, etag=etag)


@router.post(
    "/lablet-sessions/schedule",
    summary="Place lablet sessions",
    **documented(PlacementResults, problems=[409, 422]),
    **reads(PlacementOrders),
)
async def schedule(
    service: Controller,
    fence: LeaderFence,
    orders: Annotated[PlacementOrders, Depends(body_of(PlacementOrders))],
    plane: Plane,
) -> Response:
    """Each order is judged on its own; its result says whether the worker took it, and if not, why."""
    results = await schedule_sessions(plane.records, plane.policies, orders.orders, by=service, fence=fence)
    return answer(PlacementResults(results=tuple(results)))


@router.post(
    "/lablet-sessions/waiting",
    summary="Report why lablet sessions wait",
    **documented(None, 204, "Recorded.", problems=[409, 422]),
    **reads(WaitingReport),
)
async def waiting(
    service: Controller,
    fence: LeaderFence,
    report: Annotated[WaitingReport, Depends(body_of(WaitingReport))],
    plane: Plane,
) -> Response:
    await report_waiting(plane.records, report.items, by=service, fence=fence)
    return Response(status_code=204)


@router.post(
    "/lablet-sessions/{session_id}/reject",
    summary="Fail a lablet session that can never be placed",
    **documented(LabletSession, problems=[404, 409, 422]),
    **reads(SessionRejected),
)
async def reject(
    session_id: str,
    service: Controller,
    fence: LeaderFence,
    rejection: Annotated[SessionRejected, Depends(body_of(SessionRejected))],
    plane: Plane,
) -> Response:
    return answer(
        await reject_session(plane.records, session_id, reason=rejection.reason, by=service, fence=fence)
    )


@router.post(
    "/lablet-sessions/move-windows",
    summary="Open and close the windows that are due",
    **documented(WindowsMoved, problems=[409]),
)
async def windows(service: Controller, fence: LeaderFence, plane: Plane) -> Response:
    """The control plane's clock decides what is due; repeating it changes nothing."""
    await plane.records.epochs.require_newest(fence)
    return answer(await move_windows(plane.records, plane.policies, by=service))
