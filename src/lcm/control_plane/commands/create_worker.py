"""A person asks for a new worker."""

from collections.abc import Mapping

from lcm.control_plane.context import ControlPlane
from lcm.domain.errors import UnknownReference
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
) -> Worker:
    """Record the wish; the controller launches the instance."""
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
    return await control_plane.workers.add(
        new_worker(
            worker_id=WorkerId(control_plane.ids.new_id()),
            name=name,
            template_name=template_name,
            aws_region=region,
            tags=tags,
            by=by,
            now=control_plane.clock.now(),
        )
    )
