"""Resource pools: what the nodes that their users start may take together."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from lcm.simulator.cml.lab import Node
from lcm.simulator.cml.refusal import Refused


class Taken(NamedTuple):
    """What nodes take of a pool."""

    licenses: int = 0
    cpus: int = 0
    ram: int = 0
    """MiB."""

    @staticmethod
    def by(nodes: Iterable[Node]) -> "Taken":
        """A node without a virtual machine takes nothing."""
        hosted = [node for node in nodes if node.definition.has_vm]
        return Taken(
            len(hosted), sum(node.given_cpus for node in hosted), sum(node.given_ram for node in hosted)
        )


LIMITED: Final = Taken._fields


@dataclass
class ResourcePool:
    """Limits shared by some users; None is no limit."""

    id: str
    label: str
    description: str = ""
    licenses: int | None = None
    cpus: int | None = None
    ram: int | None = None
    users: list[str] = field(default_factory=list)

    def shown(self) -> dict[str, Any]:
        """As `GET /resource_pools` shows it."""
        return {
            "id": self.id,
            "label": self.label,
            "description": self.description,
            "template": None,
            "licenses": self.licenses,
            "ram": self.ram,
            "cpus": self.cpus,
            "disk_space": None,
            "external_connectors": None,
            "users": list(self.users),
            "user_pools": [],
        }


class ResourcePools:
    """The pools of one server."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._by_id: dict[str, ResourcePool] = {}

    def all(self) -> list[ResourcePool]:
        return list(self._by_id.values())

    def get(self, pool_id: str) -> ResourcePool:
        if pool_id not in self._by_id:
            raise Refused(404, f"Resource pool not found: {pool_id}")
        return self._by_id[pool_id]

    def add(self, label: str, **more: Any) -> ResourcePool:
        pool = ResourcePool(self._new_id(), label, **more)
        if any(self.of(user_id) for user_id in pool.users):
            raise Refused(400, "A user is in another resource pool.")
        self._by_id[pool.id] = pool
        return pool

    def remove(self, pool_id: str) -> None:
        del self._by_id[self.get(pool_id).id]

    def of(self, user_id: str) -> ResourcePool | None:
        return next((pool for pool in self._by_id.values() if user_id in pool.users), None)

    def taken(self, pool: ResourcePool, nodes: Iterable[Node]) -> Taken:
        """By those of these nodes that run on it."""
        return Taken.by(node for node in nodes if node.is_running and node.resource_pool == pool.id)

    def admit(self, user_id: str, wanted: Iterable[Node], nodes: Iterable[Node]) -> str | None:
        """The user's pool, if it has room for these nodes as well; None if the user has no pool."""
        pool = self.of(user_id)
        if pool is None:
            return None
        taken, more = self.taken(pool, nodes), Taken.by(wanted)
        for name in LIMITED:
            limit = getattr(pool, name)
            needed = getattr(taken, name) + getattr(more, name)
            if limit is not None and needed > limit:
                raise Refused(
                    400, f"Cannot start: resource pool {pool.label} has {limit} {name}, {needed} are needed."
                )
        return pool.id
