"""Messages about the whole fleet: found instances, old records, discovery settings."""

from typing import Annotated

import msgspec

from lcm.domain.discovery import DiscoverySettings, FoundInstance
from lcm.domain.launch import InstanceId, WorkerId

IMPORT_BATCH = 25
"""How many found instances fit into one request, whatever their tags."""


class BulkImport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Instances to import as workers."""

    instances: Annotated[list[FoundInstance], msgspec.Meta(min_length=1, max_length=100)]


class ImportOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one instance: 201 with its worker, or 409 with the reason."""

    instance_id: InstanceId
    status: int
    worker_id: WorkerId | None = None
    detail: str = ""


class BulkImportResult(msgspec.Struct, frozen=True, kw_only=True):
    """One outcome for each instance, in the order of the request."""

    items: list[ImportOutcome]

    @property
    def imported(self) -> list[WorkerId]:
        return [item.worker_id for item in self.items if item.status == 201 and item.worker_id]


class Cleanup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Purge the records of workers that were terminated at least so many days ago."""

    retention_days: Annotated[int, msgspec.Meta(ge=1, le=365)] = 30
    dry_run: bool = False
    keep: list[WorkerId] = []
    """Workers whose tag an existing instance carries: their records are evidence."""


class CleanupResult(msgspec.Struct, frozen=True, kw_only=True):
    """The records that were purged, or would be."""

    worker_ids: list[WorkerId]
    dry_run: bool
    retention_days: int


class DiscoveryView(msgspec.Struct, frozen=True, kw_only=True):
    """The discovery settings changed at run time; null falls back to the controller's environment."""

    enabled: bool | None
    regions: tuple[str, ...] | None
    tag_filter: dict[str, str] | None
    ami_filter: str | None
    version: int
    """0 until a setting is changed."""

    @staticmethod
    def of(settings: DiscoverySettings, version: int) -> "DiscoveryView":
        return DiscoveryView(version=version, **msgspec.structs.asdict(settings))

    def settings(self) -> DiscoverySettings:
        fields = msgspec.structs.asdict(self)
        del fields["version"]
        return DiscoverySettings(**fields)
