"""The collaborators of commands and queries, in groups: a signature names the groups that it uses."""

from dataclasses import dataclass
from typing import Self

from lcm.control_plane.access.secrets import SecretStore
from lcm.control_plane.records.audit import AuditLog
from lcm.control_plane.records.epochs import Epochs
from lcm.control_plane.records.idle_checks import IdleChecks
from lcm.control_plane.records.labs import Labs
from lcm.control_plane.records.metrics_cache import MetricsCache
from lcm.control_plane.records.reservations import Reservations
from lcm.control_plane.records.templates import Templates
from lcm.control_plane.records.worker_cache import WorkerCache
from lcm.control_plane.records.workers import Workers
from lcm.control_plane.store.port import Store
from lcm.core.clock import Clock
from lcm.core.ids import Ids


@dataclass(frozen=True)
class Records:
    """Everything that is stored, with the clock and the ids that new records take."""

    store: Store
    workers: Workers
    templates: Templates
    labs: Labs
    audit: AuditLog
    epochs: Epochs
    reservations: Reservations
    secrets: SecretStore
    clock: Clock
    ids: Ids

    @classmethod
    def over(cls, store: Store, secrets: SecretStore, clock: Clock, ids: Ids) -> Self:
        """Return the records of one store."""
        workers = Workers(store)
        return cls(
            store=store,
            workers=workers,
            templates=Templates(store),
            labs=Labs(store, workers),
            audit=AuditLog(store, clock, ids),
            epochs=Epochs(store),
            reservations=Reservations(store, clock),
            secrets=secrets,
            clock=clock,
            ids=ids,
        )


@dataclass(frozen=True)
class Caches:
    """What this process keeps in memory only; commits, reports and the replication feed keep it current."""

    worker_cache: WorkerCache
    metrics: MetricsCache
    idle_checks: IdleChecks

    @classmethod
    def over(cls, workers: Workers) -> Self:
        """Return empty caches; the worker cache loads the records when they are first needed."""
        worker_cache = WorkerCache(workers.list_all)
        return cls(worker_cache, MetricsCache(worker_cache), IdleChecks(worker_cache))
