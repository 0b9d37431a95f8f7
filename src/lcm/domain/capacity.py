"""The capacity of a worker: declared by its template, allocated to sessions."""

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from lcm.domain.template import WorkerTemplate

Amount = Annotated[float, Meta(ge=0, le=1_000_000)]


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """An amount of everything that placement counts."""

    cpu: Amount = 0.0
    memory_gb: Amount = 0.0
    storage_gb: Amount = 0.0
    nodes: Amount = 0.0


def declared_by(template: WorkerTemplate) -> Capacity:
    """The capacity of a worker of this template."""
    return Capacity(
        cpu=template.cpu,
        memory_gb=template.memory_gb,
        storage_gb=template.disk_gb,
        nodes=template.max_nodes,
    )


def largest(one: Capacity, other: Capacity) -> Capacity:
    """Of each kind the larger amount."""
    names = Capacity.__struct_fields__
    return Capacity(**{name: max(getattr(one, name), getattr(other, name)) for name in names})


def total(needs: Iterable[Capacity]) -> Capacity:
    """The sum of the needs."""
    amounts = list(needs)
    names = Capacity.__struct_fields__
    return Capacity(**{name: sum(getattr(amount, name) for amount in amounts) for name in names})
