"""A person asks for a new worker."""

import hashlib
import uuid
from collections.abc import Mapping

from lcm.control_plane.context import ControlPlane
from lcm.domain.errors import Conflict, KeyReused, UnknownReference
from lcm.domain.launch import WorkerId
from lcm.domain.worker import Worker, new_worker


async def create_worker(
    control_plane: ControlPlane,
    *,
    name: str,
    template_name: str,
    aws_region: str | None,
    tags: Mapping[str, str],
    by: str,
    idempotency_key: str | None = None,
) -> Worker:
    """Record the wish; the controller launches the instance.

    With a key the worker's id is a function of who asks and the key, so a request that is sent again,
    however late, finds the worker it made the first time.
    """
    template = await control_plane.templates.find(template_name)
    if template is None or not template.enabled:
        known = ", ".join(t.name for t in await control_plane.templates.list_all() if t.enabled)
        raise UnknownReference(
            f"there is no template {template_name!r}; choose one of: {known or 'none is seeded'}"
        )
    region = aws_region or control_plane.default_region
    if region not in control_plane.regions:
        known = ", ".join(control_plane.regions)
        raise UnknownReference(f"region {region!r} is not configured; choose one of: {known or 'none'}")
    digest = _digest(name, template_name, region, sorted(tags.items()))
    worker_id = control_plane.ids.new_id() if idempotency_key is None else _keyed_id(by, idempotency_key)
    worker = new_worker(
        worker_id=WorkerId(worker_id),
        name=name,
        template_name=template_name,
        aws_region=region,
        tags=tags,
        by=by,
        now=control_plane.clock.now(),
        request_digest=digest if idempotency_key is not None else None,
    )
    if idempotency_key is None:
        return await control_plane.workers.add(worker)
    try:
        return await control_plane.workers.add(worker)
    except Conflict:
        made = await control_plane.workers.get(worker_id)
        if made.request_digest != digest:
            raise KeyReused("this Idempotency-Key was used for another request; choose a new key") from None
        return made


def _keyed_id(by: str, key: str) -> str:
    return str(uuid.UUID(hex=_digest("worker", by, key)[:32], version=4))


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()
