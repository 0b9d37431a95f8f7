"""An operator requests a new worker."""

import uuid
from collections.abc import Mapping

from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Records
from lcm.control_plane.store.port import Fence
from lcm.domain.capacity import declared_by
from lcm.domain.errors import Conflict, NotFound, UnknownReference
from lcm.domain.idempotency import KeyedRequest, refuse_other_content
from lcm.domain.lablet.claim import reserved_by
from lcm.domain.launch import WorkerId
from lcm.domain.worker import Worker, new_worker


async def create_worker(
    records: Records,
    policies: Policies,
    *,
    name: str,
    template_name: str,
    aws_region: str | None,
    tags: Mapping[str, str],
    by: str,
    licensed: bool = False,
    file_set: str | None = None,
    request: KeyedRequest | None = None,
    fence: Fence | None = None,
) -> Worker:
    """Record the worker; the controller launches the instance.

    With an idempotency key the worker's id is a function of the principal and the key, so a request that is
    sent again, however late, finds the worker it created the first time.
    """
    if request is not None:
        created = await find_created(records, request)
        if created is not None:
            return created
    template = await records.templates.enabled(template_name)
    region = aws_region or policies.default_region
    if region not in policies.regions:
        known = ", ".join(policies.regions)
        raise UnknownReference(f"region {region!r} is not configured; choose one of: {known or 'none'}")
    worker = new_worker(
        worker_id=_keyed_id(request) if request else WorkerId(records.ids.new_id()),
        name=name,
        template_name=template_name,
        aws_region=region,
        tags=tags,
        by=by,
        now=records.clock.now(),
        request_digest=request.content if request else None,
        declared_capacity=declared_by(template),
        reserve=reserved_by(template),
        licensed=licensed,
        provisioning_timeout_minutes=template.provisioning_timeout_minutes,
        file_set=file_set,
    )
    try:
        return await records.workers.add(worker, fence)
    except Conflict:
        created = await find_created(records, request) if request else None
        if created is None:
            raise
        return created


async def find_created(records: Records, request: KeyedRequest) -> Worker | None:
    """Return the worker that this request created when it was sent the first time."""
    try:
        created = await records.workers.get(_keyed_id(request))
    except NotFound:
        return None
    refuse_other_content(created.request_digest, request)
    return created


def _keyed_id(request: KeyedRequest) -> WorkerId:
    return WorkerId(str(uuid.UUID(hex=request.key, version=4)))
