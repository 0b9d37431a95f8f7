"""Lists of lablet definitions."""

from collections.abc import Collection

from lcm.control_plane.records.definitions import SHOWN, StoredDefinition, sort_key
from lcm.control_plane.records.groups import Records
from lcm.domain.lablet.definition import DefinitionStatus, version_key
from lcm.rest.scheduling import LabletDefinitionPage


async def list_definitions(
    records: Records, *, statuses: Collection[DefinitionStatus] = (), name: str | None = None
) -> list[StoredDefinition]:
    """Return definitions by name and version; archived ones only on request."""
    found = [
        stored
        for stored in await records.definitions.list_all()
        if stored.definition.status in (statuses or SHOWN) and name in (None, stored.definition.name)
    ]
    return sorted(found, key=_key)


def page_of_definitions(
    definitions: list[StoredDefinition], *, limit: int, after: str | None
) -> LabletDefinitionPage:
    """Return the page of definitions after the cursor of the previous page."""
    if after is not None:
        name, _, version = after.rpartition("/")
        last = (name, version_key(version) or ())
        definitions = [each for each in definitions if _key(each) > last]
    page = definitions[:limit]
    last_one = page[-1].definition if len(definitions) > limit else None
    rest = f"{last_one.name}/{last_one.version}" if last_one is not None else None
    return LabletDefinitionPage(items=[each.view() for each in page], next=rest)


def _key(stored: StoredDefinition) -> tuple[str, tuple[int, ...]]:
    return sort_key(stored.definition)
