"""What commands and queries work with; made once in main.py and passed in."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Self

from lcm.control_plane.access.secrets import Vault
from lcm.control_plane.records.audit import AuditLog
from lcm.control_plane.records.epochs import Epochs
from lcm.control_plane.records.idle_checks import IdleChecks
from lcm.control_plane.records.labs import Labs
from lcm.control_plane.records.metrics_cache import LiveTable
from lcm.control_plane.records.reservations import Reservations
from lcm.control_plane.records.templates import Templates
from lcm.control_plane.records.worker_cache import WorkerCache
from lcm.control_plane.records.workers import Workers
from lcm.control_plane.replication.feed import Feed, LabChanged
from lcm.control_plane.store.port import Store
from lcm.core.clock import Clock
from lcm.core.ids import Ids
from lcm.domain.idle import IdlePolicy
from lcm.domain.scaling import ScalingPolicy
from lcm.domain.telemetry import LabChange, LabRecord


@dataclass(frozen=True)
class Policies:
    """What is decided by configuration rather than by people at work."""

    idle: IdlePolicy = field(default_factory=IdlePolicy)
    scaling: ScalingPolicy = field(default_factory=ScalingPolicy)
    drain_timeout: timedelta = timedelta(hours=4)
    """For templates that name none."""
    activity_events_kept: int = 10
    """Signs of people kept with each worker."""


@dataclass(frozen=True)
class ControlPlane:
    """The records, what is live, the time, and what is configured."""

    store: Store
    workers: Workers
    templates: Templates
    labs: Labs
    worker_cache: WorkerCache
    live: LiveTable
    epochs: Epochs
    clock: Clock
    ids: Ids
    regions: tuple[str, ...]
    default_region: str
    vault: Vault
    audit: AuditLog
    idle_checks: IdleChecks
    policies: Policies
    news: Feed
    """What happens here, for other control planes."""
    turns: Reservations

    @classmethod
    def over(
        cls,
        store: Store,
        *,
        clock: Clock,
        ids: Ids,
        regions: tuple[str, ...],
        default_region: str,
        vault: Vault,
        policies: Policies | None = None,
    ) -> Self:
        """Everything that is kept in, or follows from, one store."""
        workers = Workers(store)
        worker_cache = WorkerCache(workers.list_all)
        workers.subscribe(worker_cache.on_worker_commit)
        workers.subscribe_to_purges(worker_cache.on_purge)
        live = LiveTable(worker_cache)
        plane = cls(
            store=store,
            workers=workers,
            templates=Templates(store),
            labs=Labs(store, workers),
            worker_cache=worker_cache,
            live=live,
            epochs=Epochs(store),
            clock=clock,
            ids=ids,
            regions=regions,
            default_region=default_region,
            vault=vault,
            idle_checks=IdleChecks(worker_cache),
            audit=AuditLog(store, clock, ids),
            policies=policies or Policies(),
            news=Feed(ids, live.newest),
            turns=Reservations(store, clock),
        )
        plane._tell_others()
        return plane

    def _tell_others(self) -> None:
        """Whatever is kept in memory here is kept in the memory of the others too."""
        news, labs = self.news, self.labs
        self.workers.subscribe(news.on_worker_commit)
        self.live.subscribe(news.on_sample, news.on_lab_stats)
        self.templates.subscribe(news.on_template)
        self.epochs.subscribe(news.on_epoch)
        self.idle_checks.subscribe(news.on_idle_check)

        def on_lab_change(
            changes: Sequence[LabChange], before: LabRecord | None, after: LabRecord | None
        ) -> None:
            lab = after or before or changes[0]
            version = labs.version_of(lab.worker_id, lab.lab_id)
            news.tell(LabChanged(changes, before, after, version))

        labs.subscribe(on_lab_change)
