"""Of which template and in which region a new worker is launched."""

from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Records
from lcm.domain.errors import UnknownReference
from lcm.domain.template import WorkerTemplate


async def enabled_template(records: Records, name: str) -> WorkerTemplate:
    """Return the template of this name. Raises UnknownReference if new workers cannot have it."""
    template = await records.templates.find(name)
    if template is None or not template.enabled:
        known = ", ".join(t.name for t in await records.templates.list_all() if t.enabled)
        raise UnknownReference(f"there is no template {name!r}; choose one of: {known or 'none is seeded'}")
    return template


def configured_region(policies: Policies, name: str | None) -> str:
    """Return the region; without a name the default one. Raises UnknownReference."""
    region = name or policies.default_region
    if region not in policies.regions:
        known = ", ".join(policies.regions)
        raise UnknownReference(f"region {region!r} is not configured; choose one of: {known or 'none'}")
    return region
