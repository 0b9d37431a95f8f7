"""Placement found no capacity: add a worker, if the fleet may grow."""

import structlog

from lcm.control_plane.commands.create_worker import create_worker
from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Records
from lcm.control_plane.records.reservations import Reserved
from lcm.control_plane.store.port import Fence, StoreUnavailable
from lcm.domain.errors import Conflict
from lcm.domain.lifecycle import FAILED, PENDING, TERMINATED, TERMINATING
from lcm.domain.scaling import AuditEvent, scale_up_refusal
from lcm.domain.worker import Worker
from lcm.rest.schemas import ScaleUpRequest

log = structlog.get_logger(__name__)

_INACTIVE = (FAILED, TERMINATING, TERMINATED)


async def scale_up(
    records: Records, policies: Policies, request: ScaleUpRequest, *, by: str, fence: Fence | None = None
) -> Worker:
    """Accept or refuse the scale-up, and audit the reason."""
    region = request.aws_region or policies.default_region

    async def too_many(reserved: Reserved) -> str | None:
        try:
            return await _refusal(records, policies, region, reserved)
        except StoreUnavailable as error:
            log.warning("scale-up allowed without check", region=region, error=str(error))
            return None

    name = f"{request.template}-{records.ids.new_id()[:8]}"
    async with records.reservations.reserve(f"scale-up/{region}", name, too_many) as refusal:
        if refusal is not None:
            await records.audit.record(
                AuditEvent.SCALE_UP_REJECTED,
                by=by,
                reason=refusal,
                template_name=request.template,
                aws_region=region,
            )
            raise Conflict(refusal)
        worker = await create_worker(
            records,
            policies,
            name=name,
            template_name=request.template,
            aws_region=region,
            tags={},
            by=by,
            fence=fence,
        )
        await records.audit.record(
            AuditEvent.SCALE_UP_ACCEPTED,
            by=by,
            reason=request.reason,
            worker_id=worker.id,
            template_name=worker.template_name,
            aws_region=region,
        )
        return worker


async def _refusal(records: Records, policies: Policies, region: str, reserved: Reserved) -> str | None:
    """Return why the region may not grow. Workers that are being added count, and so does their time."""
    active = {
        worker.name: worker
        for worker in await records.workers.list_all()
        if worker.aws_region == region and worker.status not in _INACTIVE
    }
    waiting = sum(worker.status is PENDING for worker in active.values())
    if waiting:
        log.warning("scale-up with workers pending", pending=waiting, region=region)
    accepted = await records.audit.newest(event=AuditEvent.SCALE_UP_ACCEPTED)
    moments = [*reserved.values(), *(entry.at for entry in accepted if entry.aws_region == region)]
    return scale_up_refusal(
        policies.scaling,
        active_workers=len(active.keys() | reserved.keys()),
        last_scale_up_at=max(moments, default=None),
        now=records.clock.now(),
    )
