"""Instances without an owner, and the proof that is required before anything is done about them.

Pure decisions. Ownership is tag, record and client token together: tags are copied and edited, records
are lost and restored, but a token is a function of the worker and its launch that cannot be guessed.
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
"""Time between two observations of an orphan, after a start, and in which a budget is spent."""

GENERATIONS_PROBED: Final = 50
"""How many launch generations of a worker without a record are compared with a token."""


class OrphanKind(StrEnum):
    """Why an instance with our tags has no owner."""

    INTENDED = "intended"
    """A record holds the intent of this launch and has no instance yet: it will be adopted."""
    SUPERSEDED = "superseded"
    """An earlier launch of a worker that has another instance now."""
    RECORD_TERMINATED = "record_terminated"
    """The record says that its worker is terminated."""
    NO_RECORD = "no_record"
    """LCM launched it for a worker that has no record."""
    CONFLICT = "conflict"
    """Tag, record and token contradict each other: a person must decide who owns it."""


DESTROYABLE: Final = frozenset({OrphanKind.SUPERSEDED, OrphanKind.RECORD_TERMINATED, OrphanKind.NO_RECORD})


@dataclass(frozen=True)
class Orphan:
    """An instance with our tags that no record owns."""

    instance: Instance
    kind: OrphanKind
    worker_id: WorkerId
    detail: str


def find_orphans(
    listed: Iterable[Instance], workers: Iterable[Worker], environment: str
) -> dict[InstanceId, Orphan]:
    """The instances of a complete list that no record owns; read the records after the list."""
    every = {worker.id: worker for worker in workers}
    owned = {w.instance.id for w in every.values() if w.status is not TERMINATED}
    imported = {w.instance.id for w in every.values() if w.imported}
    orphans = (
        _classify(instance, every, environment, was_imported=instance.id in imported)
        for instance in listed
        if instance.tags.get(MANAGED_BY_TAG) == MANAGED_BY
        and not instance.is_gone
        and instance.id not in owned
    )
    return {orphan.instance.id: orphan for orphan in orphans}


def _classify(
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
    intent = worker.launch.intent if worker is not None and worker.has_unresolved_launch else None
    if intent is not None and intent.client_token == instance.client_token:
        return orphan(OrphanKind.INTENDED, f"launch {intent.generation} of its worker")
    launches = worker.launch.generation if worker else GENERATIONS_PROBED
    tokens = {client_token(worker_id, generation): generation for generation in range(1, launches + 1)}
    generation = tokens.get(instance.client_token or "")
    if generation is None:
        return orphan(OrphanKind.CONFLICT, "its tags name a worker, but no launch of that worker created it")
    if worker is None:
        return orphan(OrphanKind.NO_RECORD, f"launch {generation} of a worker without a record")
    if worker.status is TERMINATED:
        return orphan(OrphanKind.RECORD_TERMINATED, f"launch {generation} of a worker that is terminated")
    return orphan(OrphanKind.SUPERSEDED, f"launch {generation} of a worker that has another instance")


def may_have_lost_instance(worker: Worker) -> bool:
    """Whether only the orphan sweep notices that this worker's instance is gone.

    For a running worker that LCM launched its own step launches a new instance, and so it does where EC2
    terminated the instance while it was provisioned.
    """
    is_handled_elsewhere = worker.status in (PENDING, PROVISIONING, TERMINATED) or (
        worker.status is RUNNING and not worker.imported
    )
    return worker.instance.id is not None and not is_handled_elsewhere


@dataclass
class AbsenceTracker:
    """Since when each orphan is in every complete list."""

    _first: dict[InstanceId, tuple[OrphanKind, float]] = field(default_factory=dict)

    def record(self, orphans: Mapping[InstanceId, Orphan], at: float) -> None:
        """Record the orphans of a complete list; one that is missing starts anew if it comes back."""
        first = {}
        for instance_id, orphan in orphans.items():
            kind, since = self._first.get(instance_id, (orphan.kind, at))
            first[instance_id] = (orphan.kind, since if kind is orphan.kind else at)
        self._first = first

    def is_confirmed(self, instance_id: InstanceId, now: float) -> bool:
        """Whether it was in every list of the last ten minutes or more."""
        first = self._first.get(instance_id)
        return first is not None and now - first[1] >= GRACE_SECONDS


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


def reason_for_dry_run(
    *, freeze_reasons: list[str], seconds_since_start: float, expected: int, listed: int
) -> str | None:
    """Why nothing may be concluded from a list; None if it may.

    A list without any of the instances that records name more likely comes from the wrong account, or
    from an inconsistent EC2, than from a fleet that vanished.
    """
    if freeze_reasons:
        return f"frozen: {'; '.join(freeze_reasons)}"
    if seconds_since_start < GRACE_SECONDS:
        return f"leader for less than {GRACE_SECONDS / 60:g} minutes"
    if expected and not listed:
        return f"EC2 lists no instance of LCM, the records name {expected}"
    return None
