"""The fleet grows and shrinks: drains, scale-up, sessions, and the audit log that says why."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from lcm.control_plane.api.accepted import INTENT, accepted
from lcm.control_plane.api.dependencies import Controller, Given, LeaderFence, Operator, Plane, Viewer
from lcm.control_plane.commands.drain_worker import drain_worker, scale_down_worker
from lcm.control_plane.commands.place_session import place_session, recalculate_capacity, remove_session
from lcm.control_plane.commands.request_action import request_action
from lcm.control_plane.commands.scale_up import scale_up
from lcm.domain.scaling import AuditEvent
from lcm.domain.worker import Action, Worker
from lcm.rest.schemas import AuditPage, AuditRecord, ScaleUpRequest, SessionChange
from lcm.web.answers import answer, body_of, documented, reads

router = APIRouter(tags=["scaling"])

_WRITE = documented(Worker, problems=[404, 409, 422])


@router.post("/api/workers/{worker_id}/drain", summary="Drain a worker", **INTENT)
async def drain(worker_id: str, person: Operator, plane: Plane, given: Given) -> Response:
    """Nobody new is placed on it; it stops when its sessions are over or the drain takes too long."""
    worker = await drain_worker(
        plane.records, plane.policies, worker_id, by=person.name, reason="drain requested", conditions=given
    )
    return accepted(worker)


@router.post("/api/workers/{worker_id}/cancel-drain", summary="Cancel a drain", **INTENT)
async def cancel_drain(worker_id: str, person: Operator, plane: Plane, given: Given) -> Response:
    worker = await request_action(
        plane.records, worker_id, Action.CANCEL_DRAIN, by=person.name, conditions=given
    )
    return accepted(worker)


@router.get(
    "/api/scaling/audit", summary="Why the fleet grew or shrank", **documented(AuditPage, problems=[422])
)
async def audit(
    _: Viewer,
    plane: Plane,
    event: AuditEvent | None = None,
    worker_id: Annotated[str | None, Query(max_length=63)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    before: Annotated[str | None, Query(max_length=100, description="`next` of the page before.")] = None,
) -> Response:
    """Newest first."""
    entries = await plane.records.audit.newest(event=event, worker_id=worker_id, before=before)
    rest = entries[limit - 1].id if len(entries) > limit else None
    return answer(AuditPage(items=entries[:limit], next=rest))


@router.post(
    "/api/internal/workers/scale-up",
    tags=["internal"],
    summary="Ask for one more worker",
    **documented(Worker, 202, "Accepted.", problems=[409, 422]),
    **reads(ScaleUpRequest),
)
async def more(
    service: Controller,
    fence: LeaderFence,
    request: Annotated[ScaleUpRequest, Depends(body_of(ScaleUpRequest))],
    plane: Plane,
) -> Response:
    return answer(await scale_up(plane.records, plane.policies, request, by=service, fence=fence), 202)


@router.post("/api/internal/workers/{worker_id}/drain", tags=["internal"], summary="Drain a worker", **_WRITE)
async def scale_down(worker_id: str, service: Controller, fence: LeaderFence, plane: Plane) -> Response:
    """Only one that two looks found unused, and only while nothing speaks against it."""
    return answer(
        await scale_down_worker(
            plane.records, plane.caches, plane.policies, worker_id, by=service, fence=fence
        )
    )


@router.post(
    "/api/internal/workers/{worker_id}/sessions",
    tags=["internal"],
    summary="Place a session",
    **_WRITE,
    **reads(SessionChange),
)
async def add_session(
    worker_id: str,
    fence: LeaderFence,
    change: Annotated[SessionChange, Depends(body_of(SessionChange))],
    plane: Plane,
) -> Response:
    return answer(
        await place_session(plane.records, worker_id, change.session_id, needs=change.needs, fence=fence)
    )


@router.delete(
    "/api/internal/workers/{worker_id}/sessions/{session_id}",
    tags=["internal"],
    summary="End a session",
    **documented(Worker, problems=[404, 409]),
)
async def end_session(worker_id: str, session_id: str, fence: LeaderFence, plane: Plane) -> Response:
    return answer(await remove_session(plane.records, worker_id, session_id, fence=fence))


@router.post(
    "/api/internal/workers/{worker_id}/recalculate-capacity",
    tags=["internal"],
    summary="Count capacity again",
    **documented(Worker, problems=[404, 409]),
)
async def recalculate(worker_id: str, fence: LeaderFence, plane: Plane) -> Response:
    """What its template declares, and what the sessions on it need together."""
    return answer(await recalculate_capacity(plane.records, worker_id, fence=fence))


@router.post(
    "/api/internal/scaling/audit",
    tags=["internal"],
    summary="Record a scaling decision",
    **documented(None, 204, "Recorded.", problems=[409, 422]),
    **reads(AuditRecord),
)
async def record(
    service: Controller,
    _: LeaderFence,
    entry: Annotated[AuditRecord, Depends(body_of(AuditRecord))],
    plane: Plane,
) -> Response:
    await plane.records.audit.record(entry.event, by=service, reason=entry.reason, worker_id=entry.worker_id)
    return Response(status_code=204)
