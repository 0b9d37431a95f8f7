"""Templates say what kind of machine a worker is; regions say where it is put."""

from collections.abc import Mapping

import msgspec


class WorkerTemplate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A size of worker that people choose by name."""

    name: str
    description: str
    instance_type: str
    cpu: int
    memory_gb: int
    disk_gb: int
    max_nodes: int
    usd_per_hour: float
    ami_name_pattern: str = "CML-*"
    enabled: bool = True
    drain_timeout_hours: float = 4.0


class RegionConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The network a region's workers are launched into."""

    region: str
    security_group_ids: tuple[str, ...]
    subnet_id: str
    subnet_ids: tuple[str, ...] = ()
    """Further subnets, in order: used when EC2 has no machine free in the one before."""
    key_name: str | None = None
    default_tags: Mapping[str, str] = {}

    @property
    def subnets(self) -> tuple[str, ...]:
        """Where to try, in order."""
        return tuple(dict.fromkeys((self.subnet_id, *self.subnet_ids)))
