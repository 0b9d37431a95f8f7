"""The lablet definitions, and beside them their topologies, so that a list reads none of those texts.

A topology is stored under its digest, before the definition that names it. A crash between the two leaves a
text that the next try uses; nothing refers to a text that is not there.
"""

from typing import Final

import msgspec

from lcm.control_plane.records.collection import Collection
from lcm.control_plane.store.port import Document, VersionConflict
from lcm.domain.errors import Conflict, NameTaken, NotFound, RequestError
from lcm.domain.idempotency import KeyedRequest
from lcm.domain.lablet.definition import DefinitionStatus, LabletDefinition, topology_hash, version_key
from lcm.rest.scheduling import LabletDefinitionView

KIND: Final = "lablet-definition"
TOPOLOGY: Final = "lablet-topology"
ACTIVE: Final = DefinitionStatus.ACTIVE
SHOWN: Final = (ACTIVE, DefinitionStatus.DEPRECATED)
"""Archived ones are shown only on request."""


class StoredDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a definition as a record; `version` is that of the record."""

    id: str
    version: int = 1
    definition: LabletDefinition
    replaces: str | None = None
    """The id of the version before; that one is deprecated after this one is stored."""
    access_ref: str | None = None
    """The name of the login of its nodes in the secret store."""
    file_set: str | None = None
    """The set of fleet files that the first version was created from."""
    request_digest: str | None = None
    """Digest of the request under the idempotency key from which the id was derived."""
    recent_requests: tuple[KeyedRequest, ...] = ()

    def view(self) -> LabletDefinitionView:
        return LabletDefinitionView.of(
            self.definition, has_access_login=self.access_ref is not None, file_set=self.file_set
        )


class _Topology(msgspec.Struct, frozen=True):
    text: str


_decoder = msgspec.json.Decoder(StoredDefinition)
_topology_decoder = msgspec.json.Decoder(_Topology)


class Definitions(Collection[StoredDefinition]):
    """All versions of all definitions; none is ever removed, since sessions name them."""

    kind = KIND
    noun = "lablet definition"
    listed_at = "/api/lablet-definitions"
    parts = ("definition",)

    def read(self, document: Document) -> tuple[bytes, StoredDefinition]:
        return document.body, _decoder.decode(document.body)

    def unique_keys(self, record: StoredDefinition) -> tuple[str, ...]:
        """A name has each version once, and a version is replaced once."""
        name = f"version:{record.definition.version}/{record.definition.name}"
        return (name,) if record.replaces is None else (name, f"replaces:{record.replaces}")

    def taken(self, key: str, record: StoredDefinition) -> RequestError:
        if key.startswith("replaces:"):
            return Conflict("this version has been replaced meanwhile; read the newest one and change that")
        made = record.definition
        return NameTaken(
            f"{made.name} {made.version} exists; change that one with PUT, or choose another name or version"
        )

    async def newest(self, name: str) -> StoredDefinition | None:
        """Return the highest version of a name that is not archived."""
        found = [stored for stored in await self._named(name) if stored.definition.status in SHOWN]
        return max(found, key=lambda stored: sort_key(stored.definition), default=None)

    async def named(self, name: str, version: str | None) -> StoredDefinition:
        """Return this version of a name; without a version the newest active one."""
        found = [
            stored
            for stored in await self._named(name)
            if (stored.definition.version == version if version else stored.definition.status is ACTIVE)
        ]
        if not found:
            what = f"{name!r} {version}" if version else f"{name!r} that is active"
            raise NotFound(f"there is no {self.noun} {what}; list them with GET {self.listed_at}")
        return max(found, key=lambda stored: sort_key(stored.definition))

    async def _named(self, name: str) -> list[StoredDefinition]:
        return [stored for stored in await self.list_all() if stored.definition.name == name]

    async def keep_topology(self, text: str) -> None:
        """Store a topology under its digest. Repeating it changes nothing."""
        body = msgspec.json.encode(_Topology(text))
        try:
            await self._store.insert(Document(TOPOLOGY, topology_hash(text), 1, body))
        except VersionConflict:
            return

    async def topology(self, lab_yaml_hash: str) -> str:
        """Return the text of a topology; also of a definition that is archived."""
        document = await self._store.get(TOPOLOGY, lab_yaml_hash)
        if document is None:
            raise NotFound(f"there is no topology {lab_yaml_hash}; create the definition again")
        return _topology_decoder.decode(document.body).text


def sort_key(definition: LabletDefinition) -> tuple[str, tuple[int, ...]]:
    """Return the order of definitions: by name, then by version as numbers."""
    return definition.name, version_key(definition.version) or ()
