"""What a cycle has taken of each worker so far, and which workers may take a session, the best first."""

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from lcm.domain.lablet.claim import Claim
from lcm.domain.lablet.decision import Candidate, Score
from lcm.domain.lablet.definition import NODE_LIMIT, Demand
from lcm.domain.lablet.filters import Room, Vector, fits, is_suitable, vector
from lcm.domain.lablet.packing import add, subtract
from lcm.domain.lablet.ports import PortRange
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.snapshot import PlacementWorker, Stage
from lcm.domain.lablet.timeslot import TimeslotPolicy

EMPTY: Final = (0.0, 0.0, 0.0, 0.0)
CANDIDATES: Final = 5


class WorkerRoom:
    """A worker with what this cycle has taken of it so far."""

    __slots__ = (
        "_allocatable",
        "_declared",
        "_fixed",
        "_foreign",
        "_holders",
        "_over",
        "_ports",
        "_ports_left",
        "_uncapped_nodes",
        "_used",
        "free",
        "held",
        "kind",
        "name_key",
        "open",
        "rank",
        "ready_at",
        "sessions",
        "stage",
        "version",
        "view",
    )

    def __init__(self, view: PlacementWorker, room: Vector, within: PortRange, ready_at: datetime) -> None:
        self.view = view
        self.stage = view.stage
        self.ready_at = ready_at
        self.kind = _kind(view)
        self.name_key = f"{view.name}\0{view.id}"
        self._allocatable = room
        self._declared = vector(view.declared) if view.declared is not None else EMPTY
        self._used = _sum(vector(claim.needs) for claim in view.claims)
        self._foreign = vector(view.foreign_load)
        self.free = subtract(subtract(room, self._used), self._foreign)
        limit = NODE_LIMIT.get(view.license) if view.license else None
        self._uncapped_nodes = 0.0
        if limit is not None:
            capped = min(self.free[3], limit - self._used[3] - self._foreign[3])
            self._uncapped_nodes = self.free[3] - capped
            self.free = (*self.free[:3], capped)
        self.open = self.free
        """What is free and not held."""
        self.held = EMPTY
        self._holders: list[str] = []
        self.sessions = len(view.claims)
        self._fixed: set[int] = set()
        self._ports = set(view.foreign_ports).union(*(claim.ports.values() for claim in view.claims))
        self._ports_left = within.free(self._ports)
        self._over: dict[datetime, Vector] = {}
        """What the claims take that are over at a moment."""
        self.version = 0
        self.rank = self._rank()

    def has_ports(self, demand: Demand, freed: Collection[int] = ()) -> bool:
        """Whether enough ports are free, and those that the author requires, once `freed` are."""
        if not demand.ports:
            return True
        if len(demand.ports) > self._ports_left + len(freed):
            return False
        return not any(
            spec.fixed in self._fixed or (spec.fixed in self._ports and spec.fixed not in freed)
            for spec in demand.ports
            if spec.fixed is not None
        )

    def take(self, session: LabletSession, *, is_held: bool) -> None:
        """Take room now, or hold it for later."""
        demand = session.demand
        needs = vector(demand.needs)
        self.version += 1
        self.open = subtract(self.open, needs)
        self._fixed.update(spec.fixed for spec in demand.ports if spec.fixed is not None)
        self._ports_left -= len(demand.ports)
        if is_held:
            self.held = add(self.held, needs)
            self._holders.append(session.id)
        else:
            self.sessions += 1
            self._used = add(self._used, needs)
            self.free = subtract(self.free, needs)
        self.rank = self._rank()

    def hold_from(self, moment: datetime, session: LabletSession, times: TimeslotPolicy) -> None:
        """Hold room that frees at a moment: others may take now only what is then left."""
        open_before = self.open
        self.take(session, is_held=True)
        cpu, memory, storage, nodes = map(min, open_before, self._free_at(moment, times))
        self.open = (cpu, memory, storage, nodes)

    def can_take_at(self, moment: datetime, demand: Demand, times: TimeslotPolicy) -> bool:
        """Whether there is room when the claims that end before have been torn down."""
        if not fits(vector(demand.needs), self._free_at(moment, times)):
            return False
        freed = {port for claim in self._over_at(moment, times) for port in claim.ports.values()}
        return self.has_ports(demand, freed)

    def _over_at(self, moment: datetime, times: TimeslotPolicy) -> list[Claim]:
        return [claim for claim in self.view.claims if is_over_at(claim, moment, times)]

    def _free_at(self, moment: datetime, times: TimeslotPolicy) -> Vector:
        over = self._over.get(moment)
        if over is None:
            over = self._over[moment] = _sum(vector(claim.needs) for claim in self._over_at(moment, times))
        return subtract(add(self.free, over), self.held)

    def score(self) -> Score:
        """How full the worker is. Room that is held counts only while the worker is not up."""
        used = self._used if self.stage is Stage.READY else add(self._used, self.held)
        cpu, memory = (
            amount / size if size else 1.0 for amount, size in zip(used[:2], self._declared[:2], strict=True)
        )
        sessions = min(0.05, 0.01 * self.sessions)
        return Score(cpu=cpu, memory=memory, sessions=sessions, total=(cpu + memory) / 2 + sessions)

    def _rank(self) -> float:
        return -self.score().total

    def room(self) -> Room:
        """What is left, for the filters to name."""
        uncapped = (0.0, 0.0, 0.0, self._uncapped_nodes)
        return Room(
            free=add(self.free, uncapped),
            open=add(self.open, uncapped),
            allocatable=self._allocatable,
            declared=self._declared,
            foreign=self._foreign,
            holders=tuple(self._holders),
            nodes_used=self._used[3] + self._foreign[3] + self.free[3] - self.open[3],
            free_ports=self._ports_left,
            taken_ports=frozenset(self._ports | self._fixed),
        )


def is_over_at(claim: Claim, moment: datetime, times: TimeslotPolicy) -> bool:
    """Whether what the claim takes is free again at a moment."""
    return claim.ends_at is not None and not claim.is_retained and claim.ends_at + times.teardown <= moment


def _kind(view: PlacementWorker) -> tuple[object, ...]:
    """What `is_suitable` reads of a worker: workers of one kind suit the same demands."""
    return (
        view.region,
        view.stage is Stage.READY,
        view.license,
        view.is_licensed,
        view.cml_version,
        view.node_definitions,
        view.images,
        view.has_nested_virtualization,
        view.has_patty,
    )


def _sum(vectors: Iterable[Vector]) -> Vector:
    result = EMPTY
    for each in vectors:
        result = add(result, each)
    return result


class GroupKey(NamedTuple):
    """What sessions have in common that the same workers may take in the same order."""

    demand: Demand
    avoided: frozenset[str]
    """Workers that failed the session: its last choice."""
    quarantined: frozenset[str]
    """Workers whose CML refused the lab: no choice for now."""
    latest: datetime | None
    """A worker that comes up must be ready before; None if every one is."""


Entry = tuple[bool, float, str, int, WorkerRoom]


class Group:
    """The workers that may take the sessions of one key, by stage."""

    def __init__(
        self, key: GroupKey, workers: Mapping[tuple[object, ...], Sequence[WorkerRoom]], seen: int
    ) -> None:
        self.key = key
        self.needs = vector(key.demand.needs)
        self._seen = seen
        self.releases_tried = 0
        """How many of the cycle's releases cannot serve this group: room only shrinks within a cycle."""
        self._heaps: dict[Stage, list[Entry]] = {stage: [] for stage in Stage}
        self._kinds = {kind for kind, alike in workers.items() if is_suitable(alike[0].view, key.demand)}
        is_any = not key.quarantined and key.latest is None
        for kind in self._kinds:
            for worker in workers[kind]:
                if self._fits(worker) and (is_any or self._is_allowed(worker)):
                    self._heaps[worker.stage].append(self._entry(worker))
        for heap in self._heaps.values():
            heapq.heapify(heap)

    def _fits(self, worker: WorkerRoom) -> bool:
        return fits(self.needs, worker.open) and worker.has_ports(self.key.demand)

    def _is_allowed(self, worker: WorkerRoom) -> bool:
        latest = self.key.latest
        is_late = latest is not None and worker.stage is not Stage.READY and worker.ready_at >= latest
        return not is_late and worker.view.id not in self.key.quarantined

    def suits(self, worker: WorkerRoom) -> bool:
        """Whether the worker may take the sessions when it has room."""
        return worker.kind in self._kinds and self._is_allowed(worker)

    def can_take(self, worker: WorkerRoom) -> bool:
        """Whether the worker may take the sessions and has room."""
        return self.suits(worker) and self._fits(worker)

    def is_last_choice(self, worker: WorkerRoom) -> bool:
        """Whether every other worker is better."""
        return worker.view.is_overloaded or worker.view.id in self.key.avoided

    def _entry(self, worker: WorkerRoom) -> Entry:
        return (self.is_last_choice(worker), worker.rank, worker.name_key, worker.version, worker)

    def best(self, stage: Stage, changed: Sequence[WorkerRoom]) -> WorkerRoom | None:
        """The fullest worker that fits; `changed` is the log of all that changed in this cycle."""
        for worker in dict.fromkeys(changed[self._seen :]):
            if self.can_take(worker):
                heapq.heappush(self._heaps[worker.stage], self._entry(worker))
        self._seen = len(changed)
        heap = self._heaps[stage]
        while heap and not _is_current(heap[0], stage):
            heapq.heappop(heap)
        return heap[0][4] if heap else None

    def candidates(self) -> tuple[Candidate, ...]:
        """The best workers that could take a session now; `best` must have been asked before."""
        current = (entry for entry in self._heaps[Stage.READY] if _is_current(entry, Stage.READY))
        return tuple(
            Candidate(worker_id=worker.view.id, score=worker.score(), is_last_choice=is_last)
            for is_last, _, _, _, worker in heapq.nsmallest(CANDIDATES, current)
        )


def _is_current(entry: Entry, stage: Stage) -> bool:
    return entry[3] == entry[4].version and entry[4].stage is stage
