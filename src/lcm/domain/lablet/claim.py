"""What sessions take of a worker, from their placement until their labs are proven gone."""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from lcm.domain.capacity import Amount, Capacity, total
from lcm.domain.template import WorkerTemplate


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a session on a worker. Its numbers never follow an edited definition."""

    session_id: str
    attempt: int
    needs: Capacity
    ports: dict[str, int] = {}
    """The granted ports by name."""
    at: datetime
    ends_at: datetime | None = None
    """When its session is booked to end; None if that is not known."""
    lab_generation: int = 0
    is_retained: bool = False
    """Its session has moved on while its lab could not be proven gone; it counts until the lab is."""
    lab_missing_since: datetime | None = None
    """Of a retained claim: the first full listing of the worker's labs that showed none of its session."""


class Reserve(msgspec.Struct, frozen=True, kw_only=True):
    """What CML itself needs of a worker, and how far its CPUs may be shared."""

    cpu: Amount = 0.0
    memory_gb: Amount = 0.0
    storage_gb: Amount = 0.0
    cpu_overcommit: Annotated[float, Meta(ge=1, le=16)] = 1.0


def reserved_by(template: WorkerTemplate) -> Reserve:
    """What a worker of this template keeps from sessions."""
    return Reserve(
        cpu=template.reserved_cpu,
        memory_gb=template.reserved_memory_gb,
        storage_gb=template.reserved_storage_gb,
        cpu_overcommit=template.cpu_overcommit,
    )


def allocatable(declared: Capacity, reserve: Reserve) -> Capacity:
    """What claims may take in all. Only CPU is shared: memory that is not there ends nodes."""
    return Capacity(
        cpu=max(0.0, declared.cpu * reserve.cpu_overcommit - reserve.cpu),
        memory_gb=max(0.0, declared.memory_gb - reserve.memory_gb),
        storage_gb=max(0.0, declared.storage_gb - reserve.storage_gb),
        nodes=declared.nodes,
    )


def allocated(claims: Iterable[Claim]) -> Capacity:
    """What claims take, retained ones too."""
    return total(claim.needs for claim in claims)


def ports_of(claims: Iterable[Claim]) -> frozenset[int]:
    """Every port that claims hold."""
    return frozenset(port for claim in claims for port in claim.ports.values())
