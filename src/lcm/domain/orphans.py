"""Machines that nobody seems to own, and how sure one must be before anything is done about them.

Pure decisions. Ownership is tag, record and launch token together: tags are copied and edited, records
are lost and restored, but a token is a function of the worker and its launch that nobody guesses.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from lcm.domain.launch import (
    ENVIRONMENT_TAG,
    MANAGED_BY,
    MANAGED_BY_TAG,
    WORKER_ID_TAG,
    InstanceId,
    WorkerId,
    client_token,
)
from lcm.domain.lifecycle import PENDING, PROVISIONING, RUNNING, TERMINATED
from lcm.domain.worker import Instance, Worker

GRACE_SECONDS: Final = 600.0
"""Time between two sightings, after a start, and in which a budget is spent."""

GENERATIONS_PROBED: Final = 50
"""How many launches of a worker without a record are tried to explain a token."""


class OrphanKind(StrEnum):
    """Why a machine with our tags has no owner."""

    PROMISED = "promised"
    """A record promised this very launch and does not know the machine yet: it will be adopted."""
    SUPERSEDED = "superseded"
    """An earlier launch of a worker that has another machine now."""
    RECORD_TERMINATED = "record_terminated"
    """Its worker is terminated as far as the record says."""
    NO_RECORD = "no_record"
    """LCM launched it for a worker nobody remembers."""
    CONFLICT = "conflict"
    """Tag, record and token contradict each other: only a person can tell whose it is."""


DESTROYABLE: Final = frozenset({OrphanKind.SUPERSEDED, OrphanKind.RECORD_TERMINATED, OrphanKind.NO_RECORD})


@dataclass(frozen=True)
class Orphan:
    """A machine with our tags that no record owns."""

    instance: Instance
    kind: OrphanKind
    worker_id: WorkerId
    detail: str


def find_orphans(
    listed: Iterable[Instance], workers: Iterable[Worker], environment: str
) -> dict[InstanceId, Orphan]:
    """Those of a complete list that no record owns; the records must have been read after the list."""
    every = {worker.id: worker for worker in workers}
    owned = {w.ec2_instance_id for w in every.values() if w.status is not TERMINATED}
    imported = {w.ec2_instance_id for w in every.values() if w.imported}
    orphans = (
        _judge(instance, every, environment, was_imported=instance.id in imported)
        for instance in listed
        if instance.tags.get(MANAGED_BY_TAG) == MANAGED_BY
        and not instance.is_gone
        and instance.id not in owned
    )
    return {orphan.instance.id: orphan for orphan in orphans}


def _judge(
    instance: Instance, workers: Mapping[WorkerId, Worker], environment: str, *, was_imported: bool
) -> Orphan:
    worker_id = WorkerId(instance.tags.get(WORKER_ID_TAG, ""))
    worker = workers.get(worker_id)

    def orphan(kind: OrphanKind, detail: str) -> Orphan:
        return Orphan(instance, kind, worker_id, detail)

    fleet = instance.tags.get(ENVIRONMENT_TAG)
    if was_imported:
        return orphan(OrphanKind.CONFLICT, "it was imported once; LCM did not launch it")
    if fleet != environment:
        return orphan(OrphanKind.CONFLICT, f"its tags name the fleet {fleet!r}, this one is {environment!r}")
    promised = worker.launch if worker is not None and worker.has_unresolved_launch else None
    if promised is not None and promised.client_token == instance.client_token:
        return orphan(OrphanKind.PROMISED, f"launch {promised.generation} of its worker")
    launches = worker.launch_generation if worker else GENERATIONS_PROBED
    tokens = {client_token(worker_id, generation): generation for generation in range(1, launches + 1)}
    generation = tokens.get(instance.client_token or "")
    if generation is None:
        return orphan(OrphanKind.CONFLICT, "its tags name a worker, but no launch of it made this machine")
    if worker is None:
        return orphan(OrphanKind.NO_RECORD, f"launch {generation} of a worker without a record")
    if worker.status is TERMINATED:
        return orphan(OrphanKind.RECORD_TERMINATED, f"launch {generation} of a worker that is terminated")
    return orphan(OrphanKind.SUPERSEDED, f"launch {generation} of a worker that has another machine")


def may_have_lost_instance(worker: Worker) -> bool:
    """Whether nobody else notices that this worker's machine is gone.

    A running one that LCM launched is launched anew by its own step, and so is one that EC2 gave up while it
    was on its way.
    """
    is_cared_for = worker.status in (PENDING, PROVISIONING, TERMINATED) or (
        worker.status is RUNNING and not worker.imported
    )
    return worker.ec2_instance_id is not None and not is_cared_for


@dataclass
class AbsenceTracker:
    """Since when each orphan was one, in complete lists one after the other."""

    _first: dict[InstanceId, tuple[OrphanKind, float]] = field(default_factory=dict)

    def note(self, orphans: Mapping[InstanceId, Orphan], at: float) -> None:
        """A complete list showed exactly these; one that is not among them starts anew if it comes back."""
        first = {}
        for instance_id, orphan in orphans.items():
            kind, since = self._first.get(instance_id, (orphan.kind, at))
            first[instance_id] = (orphan.kind, since if kind is orphan.kind else at)
        self._first = first

    def are_enough(self, instance_id: InstanceId, now: float) -> bool:
        """Seen now and at least ten minutes ago, and in every list in between."""
        seen = self._first.get(instance_id)
        return seen is not None and now - seen[1] >= GRACE_SECONDS


@dataclass
class Budget:
    """At most a tenth of the fleet in ten minutes, and at least one."""

    _spent: deque[float] = field(default_factory=deque)

    def allows(self, fleet_size: int, now: float) -> bool:
        while self._spent and now - self._spent[0] >= GRACE_SECONDS:
            self._spent.popleft()
        return len(self._spent) < max(1, fleet_size // 10)

    def spend(self, now: float) -> None:
        self._spent.append(now)


def reason_to_only_look(
    *, freeze_reasons: list[str], seconds_since_start: float, expected: int, listed: int
) -> str | None:
    """Why nothing may be concluded from a list; None if it may.

    A list without any of the machines that records name more likely comes from the wrong account, or
    from a cloud that forgot, than from a fleet that vanished.
    """
    if freeze_reasons:
        return f"frozen: {'; '.join(freeze_reasons)}"
    if seconds_since_start < GRACE_SECONDS:
        return f"leading for less than {GRACE_SECONDS / 60:g} minutes"
    if expected and not listed:
        return f"EC2 lists no machine of ours, the records name {expected}"
    return None
