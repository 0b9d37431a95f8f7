"""For controllers: they read records and report what they observed and did (`InternalController`).

Every write carries the leader's epoch and is refused with 409 `fenced` once a newer one exists.
"""

from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from lcm.control_plane.access.roles import AccessDenied
from lcm.control_plane.api.dependencies import Controller, LeaderFence, Plane, controller, services
from lcm.control_plane.commands.claim_leadership import claim_leadership
from lcm.control_plane.commands.drain_worker import cancel_scale_down
from lcm.control_plane.commands.launch_intent import record_launch_intent, withdraw_launch_intent
from lcm.control_plane.commands.report_details import report_cml, report_instance
from lcm.control_plane.commands.report_status import report_status
from lcm.control_plane.commands.request_action import request_action
from lcm.control_plane.queries.workers import list_workers
from lcm.domain.lifecycle import WorkerStatus
from lcm.domain.template import WorkerTemplate
from lcm.domain.worker import Action, Worker
from lcm.rest.schemas import (
    CmlReport,
    InstanceReport,
    LaunchIntentRecorded,
    LaunchIntentWithdrawn,
    LeadershipClaim,
    LeadershipGrant,
    RecordVersion,
    StatusReport,
    TemplateList,
    WorkerRecords,
)
from lcm.web.answers import PlainRoute, answer, body_of, documented, query_of, reads, takes

router = APIRouter(prefix="/api/internal", tags=["internal"])

_WRITE = documented(Worker, problems=[404, 409, 422])


class WorkerFilter(msgspec.Struct, frozen=True):
    """The filter of a list of records; without one all that are not terminated."""

    status: list[WorkerStatus] = []
    aws_region: Annotated[str, msgspec.Meta(max_length=63)] | None = None
    include_terminated: bool = False


# Controllers call these two far more often than the others.


async def list_all(request: Request) -> Response:
    await controller(request)
    wanted = query_of(request, WorkerFilter, several=("status",))
    workers = await list_workers(
        services(request).control_plane.records,
        statuses=wanted.status,
        aws_region=wanted.aws_region,
        include_terminated=wanted.include_terminated,
    )
    return answer(WorkerRecords(items=workers))


async def get(request: Request) -> Response:
    await controller(request)
    return answer(await services(request).control_plane.records.workers.get(request.path_params["worker_id"]))


router.add_api_route(
    "/workers",
    list_all,
    summary="List worker records",
    route_class_override=PlainRoute,
    **documented(WorkerRecords, problems=[422]),
    **takes(
        "query",
        status={"type": "array", "items": {"enum": [str(status) for status in WorkerStatus]}},
        aws_region={"type": "string", "maxLength": 63},
        include_terminated={"type": "boolean", "default": False},
    ),
)
router.add_api_route(
    "/workers/{worker_id}",
    get,
    summary="Get a worker record",
    route_class_override=PlainRoute,
    **documented(Worker, problems=[404]),
    **takes("path", worker_id={"type": "string"}),
)


@router.post("/workers/{worker_id}/status", summary="Report a status", **_WRITE, **reads(StatusReport))
async def status(
    worker_id: str,
    service: Controller,
    fence: LeaderFence,
    report: Annotated[StatusReport, Depends(body_of(StatusReport))],
    plane: Plane,
) -> Response:
    return answer(
        await report_status(plane.records, plane.policies, worker_id, report, by=service, fence=fence)
    )


@router.post(
    "/workers/{worker_id}/verify", summary="Verify version and epoch", **_WRITE, **reads(RecordVersion)
)
async def verify(
    worker_id: str,
    fence: LeaderFence,
    report: Annotated[RecordVersion, Depends(body_of(RecordVersion))],
    plane: Plane,
) -> Response:
    worker = await plane.records.workers.verify(
        worker_id, expected_version=report.expected_version, fence=fence
    )
    return answer(worker)


@router.post(
    "/workers/{worker_id}/launch-intent",
    summary="Record a launch intent",
    **_WRITE,
    **reads(LaunchIntentRecorded),
)
async def record_intent(
    worker_id: str,
    fence: LeaderFence,
    intent: Annotated[LaunchIntentRecorded, Depends(body_of(LaunchIntentRecorded))],
    plane: Plane,
) -> Response:
    return answer(await record_launch_intent(plane.records, worker_id, intent, fence=fence))


@router.post(
    "/workers/{worker_id}/launch-intent/withdraw",
    summary="Withdraw a launch intent",
    **_WRITE,
    **reads(LaunchIntentWithdrawn),
)
async def withdraw_intent(
    worker_id: str,
    fence: LeaderFence,
    withdrawal: Annotated[LaunchIntentWithdrawn, Depends(body_of(LaunchIntentWithdrawn))],
    plane: Plane,
) -> Response:
    return answer(await withdraw_launch_intent(plane.records, worker_id, withdrawal, fence=fence))


@router.post(
    "/workers/{worker_id}/ec2-details", summary="Report EC2 details", **_WRITE, **reads(InstanceReport)
)
async def ec2_details(
    worker_id: str,
    fence: LeaderFence,
    report: Annotated[InstanceReport, Depends(body_of(InstanceReport))],
    plane: Plane,
) -> Response:
    return answer(await report_instance(plane.records, plane.policies, worker_id, report, fence=fence))


@router.post("/workers/{worker_id}/cml-data", summary="Report CML data", **_WRITE, **reads(CmlReport))
async def cml_data(
    worker_id: str,
    fence: LeaderFence,
    report: Annotated[CmlReport, Depends(body_of(CmlReport))],
    plane: Plane,
) -> Response:
    return answer(await report_cml(plane.records, plane.policies, worker_id, report, fence=fence))


@router.post(
    "/workers/{worker_id}/terminate",
    summary="Request termination",
    **documented(Worker, 202, "Accepted; effects follow.", problems=[404, 409]),
)
async def terminate(worker_id: str, service: Controller, fence: LeaderFence, plane: Plane) -> Response:
    """Like a delete by an operator: the license is released, then the instance is terminated."""
    worker = await request_action(plane.records, worker_id, Action.DELETE, by=service, fence=fence)
    return answer(worker, 202)


@router.post(
    "/workers/{worker_id}/start",
    summary="Request a start",
    **documented(Worker, 202, "Accepted; effects follow.", problems=[404, 409]),
)
async def start(worker_id: str, service: Controller, fence: LeaderFence, plane: Plane) -> Response:
    """For sessions that wait for this worker."""
    worker = await request_action(plane.records, worker_id, Action.START, by=service, fence=fence)
    return answer(worker, 202)


@router.post(
    "/workers/{worker_id}/cancel-drain",
    summary="Cancel a drain by scale-down",
    **documented(Worker, 202, "Accepted; effects follow.", problems=[404, 409]),
)
async def cancel_drain(worker_id: str, service: Controller, fence: LeaderFence, plane: Plane) -> Response:
    """For sessions that wait for this worker. A drain that a person requested goes on."""
    worker = await cancel_scale_down(plane.records, worker_id, by=service, fence=fence)
    return answer(worker, 202)


@router.get("/worker-templates", summary="List templates", **documented(TemplateList, problems=[422]))
async def templates(_: Controller, plane: Plane, enabled_only: bool = False) -> Response:
    """Templates, cheapest first."""
    return answer(TemplateList(items=await plane.records.templates.list_all(enabled_only=enabled_only)))


@router.get(
    "/worker-templates/by-name/{name}",
    summary="Get a template",
    **documented(WorkerTemplate, problems=[404]),
)
async def template(name: str, _: Controller, plane: Plane) -> Response:
    return answer(await plane.records.templates.get(name))


@router.post(
    "/leadership",
    summary="Claim an epoch",
    **documented(LeadershipGrant, problems=[409, 422]),
    **reads(LeadershipClaim),
)
async def leadership(
    request: Request,
    service: Controller,
    claim: Annotated[LeadershipClaim, Depends(body_of(LeadershipClaim))],
    plane: Plane,
) -> Response:
    """A repeated claim gets the same epoch. An election older than the known one is refused, and so are terms
    that contradict the control plane's own settings. A key of one service claims for that service only."""
    if services(request).identity.services.is_bound(service) and claim.service != service:
        raise AccessDenied(403, f"the key of the {service} cannot claim the lead of the {claim.service}")
    return answer(await claim_leadership(plane.records, claim, plane.policies.own_terms))
