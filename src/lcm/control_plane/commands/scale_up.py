"""Placement found no capacity: add workers, if the fleet may grow."""

from collections.abc import Sequence

import msgspec
import structlog

from lcm.control_plane.commands.create_worker import create_worker, find_created
from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Records
from lcm.control_plane.records.growth import count_workers
from lcm.control_plane.records.preconditions import keyed_request
from lcm.control_plane.records.reservations import Reserved
from lcm.control_plane.store.port import Fence, StoreUnavailable
from lcm.domain.errors import Conflict
from lcm.domain.idempotency import KeyedRequest
from lcm.domain.scaling import AuditEvent, scale_up_refusal
from lcm.domain.worker import Worker
from lcm.rest.schemas import ScaleUpRequest

log = structlog.get_logger(__name__)


async def scale_up(
    records: Records, policies: Policies, request: ScaleUpRequest, *, by: str, fence: Fence | None = None
) -> list[Worker]:
    """Accept or refuse the workers together, and audit the reason.

    With a key the ids of the workers follow from it: a request whose answer was lost finds what it created,
    and one that a crash interrupted creates the rest.
    """
    region = request.aws_region or policies.default_region
    keyed = [_keyed(request, index) for index in range(request.count)]
    existing = await _created_before(records, keyed)
    if len(existing) == request.count:
        return existing

    async def too_many(reserved: Reserved) -> str | None:
        try:
            count = request.count - len(existing)
            return await _refusal(records, policies, region, reserved, count, is_resumed=bool(existing))
        except StoreUnavailable as error:
            log.warning("scale-up allowed without check", region=region, error=str(error))
            return None

    decision = f"{request.template}-{keyed[0].key[:8] if keyed[0] else records.ids.new_id()[:8]}"
    async with records.reservations.reserve(f"scale-up/{region}", decision, too_many) as refusal:
        if refusal is not None:
            await records.audit.record(
                AuditEvent.SCALE_UP_REJECTED,
                by=by,
                reason=refusal,
                template_name=request.template,
                aws_region=region,
            )
            raise Conflict(refusal)
        return [await _add(records, policies, request, region, each, by, fence) for each in keyed]


def _keyed(request: ScaleUpRequest, index: int) -> KeyedRequest | None:
    """Return what makes each worker of the request recognisable."""
    if request.key is None:
        return None
    content = msgspec.json.encode(request)
    return keyed_request("scale-up", f"{request.key}/{index}", content)


async def _created_before(records: Records, keyed: Sequence[KeyedRequest | None]) -> list[Worker]:
    found = [await find_created(records, request) for request in keyed if request is not None]
    return [worker for worker in found if worker is not None]


async def _add(
    records: Records,
    policies: Policies,
    request: ScaleUpRequest,
    region: str,
    keyed: KeyedRequest | None,
    by: str,
    fence: Fence | None,
) -> Worker:
    suffix = keyed.key[:8] if keyed is not None else records.ids.new_id()[:8]
    worker = await create_worker(
        records,
        policies,
        name=f"{request.template}-{suffix}",
        template_name=request.template,
        aws_region=region,
        tags={},
        licensed=request.licensed,
        by=by,
        request=keyed,
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


async def _refusal(
    records: Records,
    policies: Policies,
    region: str,
    reserved: Reserved,
    count: int,
    *,
    is_resumed: bool,
) -> str | None:
    """Return why the region may not gain so many. A decision that was interrupted waits for no cooldown."""
    active, last_at = await count_workers(records, policies.scaling, region, reserved)
    return scale_up_refusal(
        policies.scaling,
        active_workers=active,
        count=count,
        last_scale_up_at=None if is_resumed else last_at,
        now=records.clock.now(),
    )
