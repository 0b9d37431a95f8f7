"""The five filters of placement. All are evaluated for a worker, so that an answer can name every reason."""

from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

import msgspec

from lcm.domain.capacity import Capacity
from lcm.domain.lablet.definition import CARRIES, NODE_LIMIT, Demand, LicenseTier, version_key
from lcm.domain.lablet.snapshot import PlacementWorker, Stage
from lcm.domain.lifecycle import WorkerStatus

Vector = tuple[float, float, float, float]
TOLERANCE: Final = 1e-9
DIMENSIONS: Final = ("cpu", "memory", "storage", "nodes")
UNITS: Final = (" CPUs", " GB", " GB", " nodes")
DEFINITIONS_UNKNOWN: Final = "definitions_unknown"
"""The warning of a worker whose node definitions and images have not been read yet."""


class Label(StrEnum):
    """The filters, in their order."""

    STATUS = "status_not_eligible"
    LICENSE = "license_affinity"
    CAPACITY = "insufficient_capacity"
    AMI = "ami"
    PORTS = "port_availability"


class Rejection(msgspec.Struct, frozen=True):
    """Why a worker does not take a session now."""

    worker_id: str
    label: Label
    sub: str
    need: str
    have: str


class Room(NamedTuple):
    """What a worker has left."""

    free: Vector
    open: Vector
    """The part of `free` that is not held for another session."""
    allocatable: Vector
    declared: Vector
    foreign: Vector
    """What running labs without a claim take of it."""
    holders: tuple[str, ...]
    """The sessions for which room is held, first come first."""
    nodes_used: float
    """Those that are held for other sessions, and those of labs of no session, included."""
    free_ports: int
    taken_ports: frozenset[int]


def vector(amount: Capacity) -> Vector:
    """The amounts in the order of DIMENSIONS."""
    return (amount.cpu, amount.memory_gb, amount.storage_gb, amount.nodes)


def fits(needs: Vector, room: Vector) -> bool:
    """Whether there is enough of everything."""
    return (
        needs[0] <= room[0] + TOLERANCE
        and needs[1] <= room[1] + TOLERANCE
        and needs[2] <= room[2] + TOLERANCE
        and needs[3] <= room[3] + TOLERANCE
    )


def judge(
    worker: PlacementWorker, demand: Demand, room: Room | None, *, quarantined_until: datetime | None = None
) -> tuple[Rejection, ...]:
    """Every reason why the worker does not take the demand now; `room` is None if its size is unknown."""
    found = [*_status(worker, demand, quarantined_until), *_license(worker, demand, room)]
    found += [*_capacity(demand, room), *ami_reasons(worker, demand), *_ports(worker, demand, room)]
    return tuple(Rejection(worker.id, *reason) for reason in found)


def is_suitable(worker: PlacementWorker, demand: Demand) -> bool:
    """Whether the worker would do if it were up and empty, apart from its size."""
    if demand.region not in (None, worker.region) or (worker.has_patty is False and demand.ports):
        return False
    return not any(ami_reasons(worker, demand)) and not any(_tier(worker, demand))


def warnings_of(worker: PlacementWorker, demand: Demand) -> tuple[str, ...]:
    """What is not known of a worker that takes the demand all the same."""
    is_unknown = (demand.node_definitions and worker.node_definitions is None) or (
        demand.images and worker.images is None
    )
    return (DEFINITIONS_UNKNOWN,) if is_unknown else ()


Reason = tuple[Label, str, str, str]

_STATUS_CODES: Final = {
    WorkerStatus.PENDING: "starting",
    WorkerStatus.PROVISIONING: "starting",
    WorkerStatus.STARTING: "starting",
    WorkerStatus.DRAINING: "draining",
    WorkerStatus.STOPPING: "worker_stopped",
    WorkerStatus.STOPPED: "worker_stopped",
    WorkerStatus.TERMINATING: "worker_stopped",
    WorkerStatus.TERMINATED: "worker_stopped",
}
"""Every other status is `not_ready`, a running worker that is to stop `worker_stopped`."""


def _status(worker: PlacementWorker, demand: Demand, quarantined_until: datetime | None) -> Iterator[Reason]:
    if demand.region not in (None, worker.region):
        yield Label.STATUS, "wrong_region", str(demand.region), worker.region
    if worker.stage is not Stage.READY:
        sub, have = _STATUS_CODES.get(worker.status, "not_ready"), str(worker.status)
        if worker.status is WorkerStatus.RUNNING:
            sub, have = (
                ("not_ready", "running, CML does not answer")
                if worker.stage is Stage.COMING
                else ("worker_stopped", f"running, to be {worker.desired_status}")
            )
        yield Label.STATUS, sub, "running and ready", have
    if quarantined_until is not None:
        have = f"refused this lab, not tried before {quarantined_until.isoformat()}"
        yield Label.STATUS, "quarantined", "a worker that accepts this lab", have


def carries(tier: LicenseTier | None, demand: Demand) -> bool:
    """Whether a license of this tier satisfies the demand; an unknown one may."""
    wanted = demand.license_affinity
    return not wanted or tier is None or not CARRIES[tier].isdisjoint(wanted)


def _tier(worker: PlacementWorker, demand: Demand) -> Iterator[Reason]:
    need = " or ".join(demand.license_affinity) or "any"
    is_up = worker.stage is Stage.READY
    if worker.is_licensed is False and is_up:
        yield Label.LICENSE, "unlicensed", need, "none"
    elif worker.license is None:
        if demand.license_affinity and is_up:
            yield Label.LICENSE, "unknown", need, "unknown"
    elif not carries(worker.license, demand):
        yield Label.LICENSE, "tier", need, worker.license


def _license(worker: PlacementWorker, demand: Demand, room: Room | None) -> Iterator[Reason]:
    yield from _tier(worker, demand)
    limit = NODE_LIMIT.get(worker.license) if worker.license else None
    if limit is not None and room is not None and demand.needs.nodes > limit - room.nodes_used + TOLERANCE:
        left = max(0.0, limit - room.nodes_used)
        yield Label.LICENSE, "nodes_over_20", f"{demand.needs.nodes:g} nodes", f"{left:g} of {limit}"


def _capacity(demand: Demand, room: Room | None) -> Iterator[Reason]:
    if room is None:
        yield Label.CAPACITY, "unknown", "a known size", "size unknown"
        return
    for kind, need in enumerate(vector(demand.needs)):
        free, is_open, unit = room.free[kind], room.open[kind], UNITS[kind]
        size = f"{room.allocatable[kind]:g} allocatable, {room.declared[kind]:g} declared"
        if room.foreign[kind]:
            size += f", {room.foreign[kind]:g} used by labs of no session"
        if need > free + TOLERANCE:
            yield Label.CAPACITY, DIMENSIONS[kind], f"{need:g}{unit}", f"{max(0.0, free):g} free of {size}"
        elif need > is_open + TOLERANCE:
            have = f"{max(0.0, is_open):g} not held of {free:g} free of {size}"
            yield Label.CAPACITY, f"held_for:{room.holders[0]}", f"{need:g}{unit}", have


class Software(Protocol):
    """What is known of the AMI of a worker; None is not known."""

    @property
    def cml_version(self) -> str | None: ...
    @property
    def node_definitions(self) -> frozenset[str] | None: ...
    @property
    def images(self) -> frozenset[str] | None: ...
    @property
    def has_nested_virtualization(self) -> bool | None: ...


def ami_reasons(software: Software, demand: Demand) -> Iterator[Reason]:
    """What the demand needs and the AMI is known not to have."""
    version = version_key(software.cml_version) if software.cml_version else None
    low = version_key(demand.cml_version_min) if demand.cml_version_min else None
    high = version_key(demand.cml_version_max) if demand.cml_version_max else None
    if version is not None and ((low and version < low) or (high and version > high)):
        need = f"{demand.cml_version_min or 'any'} to {demand.cml_version_max or 'any'}"
        yield Label.AMI, "cml_version", need, str(software.cml_version)
    for kind, needed, known in (
        ("node_definition", demand.node_definitions, software.node_definitions),
        ("image", demand.images, software.images),
    ):
        for name in needed:
            if known is not None and name not in known:
                yield Label.AMI, f"{kind}:{name}", name, f"{len(known)} others"
    if demand.needs_nested_virtualization and software.has_nested_virtualization is False:
        yield Label.AMI, "nested_virt", "nested virtualization", "none"


def _ports(worker: PlacementWorker, demand: Demand, room: Room | None) -> Iterator[Reason]:
    if not demand.ports:
        return
    if worker.has_patty is False:
        yield Label.PORTS, "patty_off", f"{len(demand.ports)} ports", "PATty is off"
    if room is None:
        return
    if len(demand.ports) > room.free_ports:
        yield Label.PORTS, "range_full", f"{len(demand.ports)} ports", f"{max(0, room.free_ports)} free"
    for spec in demand.ports:
        if spec.fixed in room.taken_ports:
            yield Label.PORTS, "fixed_port_taken", f"port {spec.fixed}", "taken"
