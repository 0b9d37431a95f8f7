"""The discovery settings that operators change at run time: one document beside the records."""

from collections.abc import Callable

import msgspec

from lcm.control_plane.records.preconditions import etag
from lcm.control_plane.store.port import Document, Store, VersionConflict
from lcm.domain.discovery import DiscoverySettings
from lcm.domain.errors import Conflict, PreconditionFailed
from lcm.rest.fleet import DiscoveryView

KIND = "settings"
ID = "discovery"
MAX_ATTEMPTS = 8


async def read(store: Store) -> DiscoveryView:
    document = await store.get(KIND, ID)
    if document is None:
        return DiscoveryView.of(DiscoverySettings(), 0)
    return DiscoveryView.of(msgspec.json.decode(document.body, type=DiscoverySettings), document.version)


async def change(
    store: Store,
    decide: Callable[[DiscoverySettings], DiscoverySettings],
    seen: frozenset[str] | None = None,
) -> DiscoveryView:
    """Load, decide, compare-and-set; `decide` may run several times.

    With `seen`, only a version with one of these entity tags is changed.
    """
    for _ in range(MAX_ATTEMPTS):
        known = await read(store)
        if seen is not None and etag(known.version) not in seen:
            raise PreconditionFailed(
                f"the settings are at version {known.version} now; read them again before you change them"
            )
        wanted = decide(known.settings())
        if wanted == known.settings():
            return known
        document = Document(KIND, ID, known.version + 1, msgspec.json.encode(wanted))
        try:
            await (store.replace(document) if known.version else store.insert(document))
        except VersionConflict:
            continue
        return DiscoveryView.of(wanted, document.version)
    raise Conflict("several requests change the discovery settings at once; try again")
