"""The license token of the fleet: for every worker that is to be licensed and was given none (D-12)."""

from typing import Final

from lcm.control_plane.records.groups import Records

LICENSES: Final = "license"
"""What the secrets of licenses are kept for."""
FLEET: Final = "fleet"
"""The name of the token; ids of workers are longer."""


async def has_fleet_token(records: Records) -> bool:
    return await records.secrets.has(LICENSES, FLEET)
