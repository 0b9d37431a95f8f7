"""Templates define the instance of a worker; region configs define its network."""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta

MAX_NAME_LENGTH: Final = 63
NAME_PATTERN: Final = rf"^[a-z0-9]([a-z0-9-]{{0,{MAX_NAME_LENGTH - 2}}}[a-z0-9])?$"
"""A host name's label: what workers, templates and regions are named by."""

Name = Annotated[str, Meta(pattern=NAME_PATTERN)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Reserved = Annotated[float, Meta(ge=0, le=1_000_000)]


class WorkerTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of worker that people choose by name."""

    name: Name
    description: Annotated[str, Meta(max_length=500)]
    instance_type: Annotated[str, Meta(pattern=r"^[a-z0-9-]+\.[a-z0-9-]+$")]
    cpu: Count
    memory_gb: Count
    disk_gb: Count
    max_nodes: Count
    reserved_cpu: Reserved = 0.0
    """What CML itself needs of the worker: sessions may not take it."""
    reserved_memory_gb: Reserved = 0.0
    reserved_storage_gb: Reserved = 0.0
    cpu_overcommit: Annotated[float, Meta(ge=1, le=16)] = 1.0
    """How many times over sessions may take its CPUs; memory is never shared."""
    usd_per_hour: Annotated[float, Meta(ge=0, le=10_000)]
    ami_name_pattern: Annotated[str, Meta(min_length=1, max_length=128)] = "CML-*"
    enabled: bool = True
    drain_timeout_hours: Annotated[float, Meta(gt=0, le=168)] | None = None
    """How long a drain waits for sessions; None: as long as the fleet's setting says."""


class RegionConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The network into which a region's workers are launched."""

    region: Name
    security_group_ids: Annotated[tuple[str, ...], Meta(min_length=1)]
    subnet_id: Annotated[str, Meta(min_length=1)]
    subnet_ids: tuple[str, ...] = ()
    """Further subnets, in order: used when EC2 has no capacity in the one before."""
    key_name: str | None = None
    default_tags: Mapping[str, str] = {}

    @property
    def subnets(self) -> tuple[str, ...]:
        """The subnets to try, in order."""
        return tuple(dict.fromkeys((self.subnet_id, *self.subnet_ids)))
