"""Scaling: drains, and the audit log of scaling decisions."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from lcm.control_plane.api.accepted import INTENT, accepted
from lcm.control_plane.api.dependencies import Given, Operator, Plane, Viewer
from lcm.control_plane.api.references import WorkerRef
from lcm.control_plane.commands.drain_worker import drain_worker
from lcm.control_plane.commands.request_action import request_action
from lcm.domain.scaling import AuditEvent
from lcm.domain.worker import Action
from lcm.rest.schemas import AuditPage
from lcm.web.answers import answer, documented

router = APIRouter(tags=["scaling"])


@router.post("/api/workers/{worker_id}/drain", summary="Drain a worker", **INTENT)
async def drain(worker_id: WorkerRef, person: Operator, plane: Plane, given: Given) -> Response:
    """No new sessions are placed on the worker; it stops when its sessions end or the drain times out."""
    worker = await drain_worker(
        plane.records,
        plane.policies,
        worker_id,
        by=person.name,
        reason="drain requested",
        preconditions=given,
    )
    return accepted(worker)


@router.post("/api/workers/{worker_id}/cancel-drain", summary="Cancel a drain", **INTENT)
async def cancel_drain(worker_id: WorkerRef, person: Operator, plane: Plane, given: Given) -> Response:
    worker = await request_action(
        plane.records, worker_id, Action.CANCEL_DRAIN, by=person.name, preconditions=given
    )
    return accepted(worker)


@router.get("/api/scaling/audit", summary="List scaling decisions", **documented(AuditPage, problems=[422]))
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
