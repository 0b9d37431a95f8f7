"""The license token of the fleet: for every worker that is to be licensed and was given none (D-12)."""

from typing import Final

import msgspec

from lcm.control_plane.records.groups import Records
from lcm.control_plane.store.port import Document, Store, VersionConflict
from lcm.domain.errors import Conflict
from lcm.domain.license import LicenseTerms

LICENSES: Final = "license"
"""What the secrets of licenses are kept for."""
SETTINGS: Final = "settings"
MAX_ATTEMPTS: Final = 8
FLEET: Final = "fleet"
"""The name of the token; ids of workers are longer."""


async def has_fleet_token(records: Records) -> bool:
    return await records.secrets.has(LICENSES, FLEET)


async def read_terms(store: Store) -> LicenseTerms:
    """The terms under which workers are licensed whose request names none."""
    document = await store.get(SETTINGS, LICENSES)
    return msgspec.json.decode(document.body, type=LicenseTerms) if document else LicenseTerms()


async def write_terms(store: Store, terms: LicenseTerms) -> None:
    """Store the terms; the last of several requests wins."""
    for _ in range(MAX_ATTEMPTS):
        known = await store.get(SETTINGS, LICENSES)
        document = Document(SETTINGS, LICENSES, known.version + 1 if known else 1, msgspec.json.encode(terms))
        try:
            await (store.replace(document) if known else store.insert(document))
        except VersionConflict:
            continue
        return
    raise Conflict("several requests change the license settings at once; try again")
