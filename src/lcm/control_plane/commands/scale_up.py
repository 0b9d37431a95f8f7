"""Placement found no room: add a worker, if the fleet may grow."""

import structlog

from lcm.control_plane.commands.create_worker import create_worker
from lcm.control_plane.context import ControlPlane
from lcm.domain.errors import Conflict
from lcm.domain.lifecycle import FAILED, PENDING, TERMINATED, TERMINATING
from lcm.domain.scaling import AuditEvent, scale_up_refusal
from lcm.domain.worker import Worker
from lcm.rest.schemas import ScaleUpRequest

log = structlog.get_logger(__name__)

_INACTIVE = (FAILED, TERMINATING, TERMINATED)


async def scale_up(control_plane: ControlPlane, request: ScaleUpRequest, *, by: str) -> Worker:
    """Accept or refuse, and remember why."""
    region = request.aws_region or control_plane.default_region
    async with control_plane.scale_turn:
        active = [
            worker
            for worker in await control_plane.workers.list_all()
            if worker.aws_region == region and worker.status not in _INACTIVE
        ]
        accepted = await control_plane.audit.newest(event=AuditEvent.SCALE_UP_ACCEPTED)
        refusal = scale_up_refusal(
            control_plane.policies.scaling,
            active_workers=len(active),
            last_scale_up_at=next((e.at for e in accepted if e.aws_region == region), None),
            now=control_plane.clock.now(),
        )
        if refusal is not None:
            await control_plane.audit.record(
                AuditEvent.SCALE_UP_REJECTED,
                by=by,
                reason=refusal,
                template_name=request.template,
                aws_region=region,
            )
            raise Conflict(refusal)
        waiting = sum(worker.status is PENDING for worker in active)
        if waiting:
            log.warning("scaling up although workers are pending", pending=waiting, region=region)
        worker = await create_worker(
            control_plane,
            name=f"{request.template}-{control_plane.ids.new_id()[:8]}",
            template_name=request.template,
            aws_region=region,
            tags={},
            by=by,
        )
        await control_plane.audit.record(
            AuditEvent.SCALE_UP_ACCEPTED,
            by=by,
            reason=request.reason,
            worker_id=worker.id,
            template_name=worker.template_name,
            aws_region=region,
        )
        return worker
