"""For controllers: the telemetry of running workers, hundreds of reports each second.

The controller uses the batch; the routes of one worker do the same for scripts and for troubleshooting. Every
report carries the leader's epoch, like the other internal writes.
"""

from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from lcm.control_plane.api.dependencies import (
    LeaderFence,
    Plane,
    controller,
    leader_fence,
    services,
)
from lcm.control_plane.commands.report_live import (
    report_connection,
    report_live,
    request_lab_discovery,
)
from lcm.domain.telemetry import LabChange, LabStats, Sample
from lcm.domain.worker import Worker
from lcm.rest.schemas import (
    ActivityEvents,
    ActivityReport,
    LabStateChange,
    LabStatsReport,
    LiveReceipt,
    LiveReports,
    MetricsReport,
    WebSocketReport,
)
from lcm.web.answers import PlainRoute, answer, body_of, documented, reads

router = APIRouter(prefix="/api/internal/workers", tags=["internal"])

_RECEIPT = documented(LiveReceipt, problems=[404, 409, 422])
_reports_of = body_of(LiveReports)


async def report_batch(request: Request) -> Response:
    """All telemetry since the last report. Reports about workers that are unknown or do not run are dropped
    and counted."""
    fence = await leader_fence(request, await controller(request))
    reports = await _reports_of(request)
    return answer(
        await report_live(
            services(request).control_plane.records,
            services(request).control_plane.caches,
            services(request).control_plane.policies,
            reports,
            fence=fence,
        )
    )


router.add_api_route(
    "/metrics",
    report_batch,
    methods=["POST"],
    summary="Report telemetry of many workers",
    route_class_override=PlainRoute,
    **documented(LiveReceipt, problems=[409, 422]),
    **reads(LiveReports),
)


@router.post("/{worker_id}/metrics", summary="Report a worker's load", **_RECEIPT, **reads(MetricsReport))
async def metrics(
    worker_id: str,
    fence: LeaderFence,
    report: Annotated[MetricsReport, Depends(body_of(MetricsReport))],
    plane: Plane,
) -> Response:
    worker = await plane.records.workers.get(worker_id)
    sample = Sample(worker_id=worker.id, **msgspec.structs.asdict(report))
    return answer(
        await report_live(
            plane.records, plane.caches, plane.policies, LiveReports(samples=[sample]), fence=fence
        )
    )


@router.post("/{worker_id}/activity-events", summary="Report activity", **_RECEIPT, **reads(ActivityEvents))
async def activity_events(
    worker_id: str,
    fence: LeaderFence,
    report: Annotated[ActivityEvents, Depends(body_of(ActivityEvents))],
    plane: Plane,
) -> Response:
    worker = await plane.records.workers.get(worker_id)
    activity = ActivityReport(
        worker_id=worker.id,
        activity_events=report.activity_events,
        source=report.source,
        stream=report.stream or "",
        last_sequence=report.last_sequence,
    )
    return answer(
        await report_live(
            plane.records, plane.caches, plane.policies, LiveReports(activity=[activity]), fence=fence
        )
    )


@router.post(
    "/{worker_id}/labs/{lab_id}/stats", summary="Report a lab's load", **_RECEIPT, **reads(LabStatsReport)
)
async def lab_stats(
    worker_id: str,
    lab_id: str,
    fence: LeaderFence,
    report: Annotated[LabStatsReport, Depends(body_of(LabStatsReport))],
    plane: Plane,
) -> Response:
    worker = await plane.records.workers.get(worker_id)
    stats = LabStats(
        worker_id=worker.id,
        lab_id=lab_id,
        nodes=report.nodes,
        links=report.links,
        collected_at=report.collected_at,
    )
    return answer(
        await report_live(
            plane.records, plane.caches, plane.policies, LiveReports(lab_stats=[stats]), fence=fence
        )
    )


@router.post(
    "/{worker_id}/lab-state-change", summary="Report a lab's change", **_RECEIPT, **reads(LabStateChange)
)
async def lab_state_change(
    worker_id: str,
    fence: LeaderFence,
    report: Annotated[LabStateChange, Depends(body_of(LabStateChange))],
    plane: Plane,
) -> Response:
    worker = await plane.records.workers.get(worker_id)
    change = LabChange(
        worker_id=worker.id,
        lab_id=report.lab_id,
        element_type=report.element_type,
        element_id=report.element_id,
        event=report.event,
        at=report.at or plane.records.clock.now(),
        data=report.data,
    )
    return answer(
        await report_live(
            plane.records, plane.caches, plane.policies, LiveReports(lab_changes=[change]), fence=fence
        )
    )


@router.post(
    "/{worker_id}/ws-status",
    summary="Report the websocket status",
    **documented(Worker, problems=[404, 409, 422]),
    **reads(WebSocketReport),
)
async def ws_status(
    worker_id: str,
    fence: LeaderFence,
    report: Annotated[WebSocketReport, Depends(body_of(WebSocketReport))],
    plane: Plane,
) -> Response:
    return answer(await report_connection(plane.records, worker_id, report, fence=fence))


@router.post(
    "/{worker_id}/trigger-lab-discovery",
    summary="Request a lab discovery",
    **documented(Worker, 202, "Accepted; effects follow.", problems=[404, 409]),
)
async def trigger_lab_discovery(worker_id: str, fence: LeaderFence, plane: Plane) -> Response:
    return answer(await request_lab_discovery(plane.records, worker_id, fence=fence), 202)
