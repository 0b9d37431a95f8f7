"""Whether a demand can ever be met: by a worker that exists, or by one that a template would give."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from lcm.domain.lablet.definition import NODE_LIMIT, Demand, LicenseTier
from lcm.domain.lablet.filters import (
    DIMENSIONS,
    TOLERANCE,
    UNITS,
    Vector,
    ami_reasons,
    carries,
    fits,
    vector,
)
from lcm.domain.lablet.packing import room_of
from lcm.domain.lablet.ports import PortRange
from lcm.domain.lablet.snapshot import PlacementTemplate, PlacementWorker, Snapshot
from lcm.domain.lifecycle import DesiredStatus, WorkerStatus


class Carrier(NamedTuple):
    """A worker as it could be: up, licensed and empty. None is not known."""

    region: str
    license: LicenseTier | None
    cml_version: str | None
    node_definitions: frozenset[str] | None
    images: frozenset[str] | None
    has_nested_virtualization: bool | None
    has_patty: bool | None
    room: Vector | None


GONE: Final = frozenset({WorkerStatus.TERMINATING, WorkerStatus.TERMINATED, WorkerStatus.FAILED})


def carrier_of_template(template: PlacementTemplate, region: str, headroom_percent: float) -> Carrier:
    """A worker that the template would give."""
    room = room_of(template, headroom_percent)
    nested = template.has_nested_virtualization
    return Carrier(region, template.license, template.cml_version, None, None, nested, None, room)


def carrier_of_worker(worker: PlacementWorker) -> Carrier:
    """The worker if it were up and empty."""
    room = vector(worker.room) if worker.room is not None else None
    limit = NODE_LIMIT.get(worker.license) if worker.license else None
    if room is not None and limit is not None:
        room = (*room[:3], min(room[3], limit))
    return Carrier(
        worker.region,
        worker.license,
        worker.cml_version,
        worker.node_definitions,
        worker.images,
        worker.has_nested_virtualization,
        worker.has_patty,
        room,
    )


def can_ever_take(carrier: Carrier, demand: Demand) -> bool:
    """Whether nothing that is known of it refuses the demand for good."""
    return all(test(carrier, demand) for test, _ in _TESTS)


def obstacles(carrier: Carrier, demand: Demand) -> Iterator[str]:
    """Why this carrier can never take the demand, with numbers; nothing if it can."""
    if demand.region not in (None, carrier.region):
        yield f"it is in region {carrier.region}"
    if not carries(carrier.license, demand):
        yield f"its license is {carrier.license}, the lab needs {' or '.join(demand.license_affinity)}"
    for _, sub, need, have in ami_reasons(carrier, demand):
        yield f"{sub}: needs {need}, has {have}"
    if demand.ports and carrier.has_patty is False:
        yield "it forwards no ports"
    if carrier.room is not None:
        amounts = zip(DIMENSIONS, UNITS, vector(demand.needs), carrier.room, strict=True)
        for name, unit, wanted, size in amounts:
            if wanted > size + TOLERANCE:
                yield f"{name}: needs {wanted:g}{unit}, has {size:g}"


def _has_room(carrier: Carrier, demand: Demand) -> bool:
    return carrier.room is None or fits(vector(demand.needs), carrier.room)


_TESTS: Final[tuple[tuple[Callable[[Carrier, Demand], bool], str], ...]] = (
    (lambda carrier, demand: demand.region in (None, carrier.region), "is in region {region}"),
    (lambda carrier, demand: carries(carrier.license, demand), "has a license for {tiers}"),
    (lambda carrier, demand: not any(ami_reasons(carrier, demand)), "has the software that the lab needs"),
    (lambda carrier, demand: not demand.ports or carrier.has_patty is not False, "forwards ports"),
    (_has_room, "is large enough for {needs}"),
)


class Possibilities:
    """All carriers of a snapshot, and what they were found to refuse."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._ports = snapshot.ports
        self._known: dict[Demand, str | None] = {}
        carriers = {
            carrier_of_template(template, region, snapshot.headroom_percent)
            for template in snapshot.templates
            if template.is_enabled
            for region in snapshot.growth
        }
        carriers.update(
            carrier_of_worker(worker)
            for worker in snapshot.workers
            if worker.status not in GONE and worker.desired_status is not DesiredStatus.TERMINATED
        )
        self._carriers = carriers

    def refusal(self, demand: Demand) -> str | None:
        """A sentence that says why the demand can never be met; None if it can."""
        if demand not in self._known:
            self._known[demand] = _port_refusal(demand, self._ports) or self._refusal(demand)
        return self._known[demand]

    def _refusal(self, demand: Demand) -> str | None:
        if any(can_ever_take(carrier, demand) for carrier in self._carriers):
            return None
        needs = demand.needs
        words = {
            "needs": f"{needs.cpu:g} CPUs, {needs.memory_gb:g} GB of memory, {needs.storage_gb:g} GB of disk"
            f" and {needs.nodes:g} nodes",
            "region": demand.region,
            "tiers": " or ".join(demand.license_affinity),
        }
        left, passed = self._carriers, ""
        for test, text in _TESTS:
            before, left = left, {carrier for carrier in left if test(carrier, demand)}
            if not left and before:
                return f"No worker and no enabled template{passed} {text.format(**words)}."
            if len(left) < len(before):
                passed += f"{' and' if passed else ' that'} {text.format(**words)}"
        return "There is no worker, and no enabled template for a region."


def _port_refusal(demand: Demand, within: PortRange) -> str | None:
    if len(demand.ports) > within.size:
        return f"The lab needs {len(demand.ports)} ports and a worker grants {within.size} at most."
    fixed = [spec.fixed for spec in demand.ports if spec.fixed is not None]
    outside = [port for port in fixed if port not in within]
    if outside:
        return f"The lab requires port {outside[0]}, and workers grant {within.first} to {within.last} only."
    if len(set(fixed)) < len(fixed):
        return "The lab requires the same port twice."
    return None
