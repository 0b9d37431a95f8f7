"""Idle detection: holds, the switch and the idle status of a worker."""

from fastapi import APIRouter
from pydantic import ConfigDict, Field
from starlette.responses import Response

from lcm.control_plane.api.accepted import INTENT, accepted
from lcm.control_plane.api.bodies import RequestBody
from lcm.control_plane.api.dependencies import Given, Moment, Operator, Plane, Viewer
from lcm.control_plane.api.references import WorkerRef
from lcm.control_plane.commands.hold_worker import hold_worker, release_hold, toggle_idle_detection
from lcm.control_plane.queries.idle import idle_status
from lcm.rest.schemas import IdleStatus
from lcm.web.answers import answer, documented

router = APIRouter(prefix="/api/workers/{worker_id}", tags=["idle detection"])


class NewHold(RequestBody):
    """Keep a worker running until then, idle or not."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"until": "2026-11-16T18:00:00Z", "reason": "exam"}]},
    )

    until: Moment = Field(description="With a time zone. A past time is refused.")
    reason: str = Field("", max_length=200)


@router.put(
    "/hold",
    summary="Hold a worker",
    **INTENT,
)
async def hold(worker_id: WorkerRef, body: NewHold, person: Operator, plane: Plane, given: Given) -> Response:
    """The worker is not paused before that time; a pause that is decided and not carried out is cancelled."""
    worker = await hold_worker(
        plane.records,
        plane.policies,
        worker_id,
        until=body.until,
        reason=body.reason,
        by=person.name,
        preconditions=given,
    )
    return accepted(worker)


@router.delete("/hold", summary="Release a hold", **INTENT)
async def release(worker_id: WorkerRef, _: Operator, plane: Plane, given: Given) -> Response:
    return accepted(await release_hold(plane.records, plane.policies, worker_id, preconditions=given))


@router.post("/idle-detection/enable", summary="Enable idle detection", **INTENT)
async def enable(worker_id: WorkerRef, person: Operator, plane: Plane, given: Given) -> Response:
    worker = await toggle_idle_detection(
        plane.records, plane.policies, worker_id, enabled=True, by=person.name, preconditions=given
    )
    return accepted(worker)


@router.post("/idle-detection/disable", summary="Disable idle detection", **INTENT)
async def disable(worker_id: WorkerRef, person: Operator, plane: Plane, given: Given) -> Response:
    worker = await toggle_idle_detection(
        plane.records, plane.policies, worker_id, enabled=False, by=person.name, preconditions=given
    )
    return accepted(worker)


@router.get(
    "/idle-status",
    summary="Get the idle status",
    **documented(IdleStatus, problems=[404]),
)
async def status(worker_id: WorkerRef, _: Viewer, plane: Plane) -> Response:
    return answer(
        idle_status(plane.records, plane.caches, plane.policies, await plane.records.workers.get(worker_id))
    )
