"""Lists of lablet definitions."""

from collections.abc import Collection

from lcm.control_plane.records.definitions import SHOWN, sort_key
from lcm.control_plane.records.groups import Records
from lcm.domain.lablet.definition import DefinitionStatus, LabletDefinition, version_key
from lcm.rest.scheduling import LabletDefinitionPage, LabletDefinitionView


async def list_definitions(
    records: Records, *, statuses: Collection[DefinitionStatus] = (), name: str | None = None
) -> list[LabletDefinition]:
    """Return definitions by name and version; archived ones only on request."""
    found = [
        stored.definition
        for stored in await records.definitions.list_all()
        if stored.definition.status in (statuses or SHOWN) and name in (None, stored.definition.name)
    ]
    return sorted(found, key=sort_key)


def page_of_definitions(
    definitions: list[LabletDefinition], *, limit: int, after: str | None
) -> LabletDefinitionPage:
    """Return the page of definitions after the cursor of the previous page."""
    if after is not None:
        name, _, version = after.rpartition("/")
        last = (name, version_key(version) or ())
        definitions = [each for each in definitions if sort_key(each) > last]
    page = definitions[:limit]
    rest = f"{page[-1].name}/{page[-1].version}" if len(definitions) > limit else None
    return LabletDefinitionPage(items=[LabletDefinitionView.of(each) for each in page], next=rest)
