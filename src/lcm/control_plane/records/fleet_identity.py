"""The id of this fleet, by which LCM knows its labs from those of another LCM on the same CML.

It is created once and kept in the store: a control plane that starts anew has the same one.
"""

from typing import Final

import msgspec

from lcm.control_plane.store.port import Document, Store, VersionConflict
from lcm.core.ids import Ids

KIND: Final = "fleet"
ID: Final = "identity"


class _Identity(msgspec.Struct, frozen=True):
    fleet_id: str


_decoder = msgspec.json.Decoder(_Identity)


class FleetIdentity:
    """The fleet id; the first request creates it."""

    def __init__(self, store: Store, ids: Ids) -> None:
        self._store = store
        self._ids = ids
        self._known: str | None = None

    async def get(self) -> str:
        """Return the fleet id. Of several control planes that create one at once, the first counts."""
        if self._known is None:
            self._known = await self._stored() or await self._create()
        return self._known

    async def _create(self) -> str:
        created = self._ids.new_id()
        try:
            await self._store.insert(Document(KIND, ID, 1, msgspec.json.encode(_Identity(created))))
        except VersionConflict:
            return await self._stored() or created
        return created

    async def _stored(self) -> str | None:
        document = await self._store.get(KIND, ID)
        return None if document is None else _decoder.decode(document.body).fleet_id
