"""The collaborators of commands and queries, in groups: a signature names the groups that it uses."""

from dataclasses import dataclass
from typing import Self

from lcm.control_plane.access.secrets import SecretStore
from lcm.control_plane.records.audit import AuditLog, LabletAuditLog
from lcm.control_plane.records.batches import LabletBatches
from lcm.control_plane.records.boot_times import BootTimes
from lcm.control_plane.records.definitions import Definitions
from lcm.control_plane.records.epochs import Epochs
from lcm.control_plane.records.evidence import EvidenceFiles
from lcm.control_plane.records.fleet_identity import FleetIdentity
from lcm.control_plane.records.forecast_cache import ForecastCache
from lcm.control_plane.records.idle_checks import IdleChecks
from lcm.control_plane.records.lab_owners import LabOwners
from lcm.control_plane.records.lab_times import LabTimes
from lcm.control_plane.records.labs import Labs
from lcm.control_plane.records.load_history import LoadHistories
from lcm.control_plane.records.metrics_cache import MetricsCache
from lcm.control_plane.records.placements import PlacementLog
from lcm.control_plane.records.presence import LoneLeaders, SchedulerPresence
from lcm.control_plane.records.processes import Processes
from lcm.control_plane.records.reservations import Reservations
from lcm.control_plane.records.session_cache import SessionCache
from lcm.control_plane.records.session_stats import SessionStats
from lcm.control_plane.records.sessions import ArchivedSessions, LabletSessions, SessionReservations
from lcm.control_plane.records.templates import Templates
from lcm.control_plane.records.timelines import Timelines
from lcm.control_plane.records.worker_cache import WorkerCache
from lcm.control_plane.records.worker_views import WorkerViews
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
    load_histories: LoadHistories
    definitions: Definitions
    batches: LabletBatches
    sessions: LabletSessions
    archived_sessions: ArchivedSessions
    session_reservations: SessionReservations
    lab_times: LabTimes
    evidence: EvidenceFiles
    audit: AuditLog
    lablet_audit: LabletAuditLog
    fleet: FleetIdentity
    placements: PlacementLog
    epochs: Epochs
    scheduler: SchedulerPresence
    lone_leaders: LoneLeaders
    reservations: Reservations
    secrets: SecretStore
    clock: Clock
    ids: Ids

    @classmethod
    def over(cls, store: Store, secrets: SecretStore, clock: Clock, ids: Ids) -> Self:
        """Return the records of one store."""
        workers, epochs = Workers(store), Epochs(store)
        return cls(
            store=store,
            workers=workers,
            templates=Templates(store),
            labs=Labs(store, workers),
            load_histories=LoadHistories(store, clock),
            definitions=Definitions(store),
            batches=LabletBatches(store),
            sessions=LabletSessions(store),
            archived_sessions=ArchivedSessions(store),
            session_reservations=SessionReservations(store),
            lab_times=LabTimes(),
            evidence=EvidenceFiles(store),
            audit=AuditLog(store, clock, ids),
            lablet_audit=LabletAuditLog(store, clock, ids),
            fleet=FleetIdentity(store, ids),
            placements=PlacementLog(store, clock, ids),
            epochs=epochs,
            scheduler=SchedulerPresence(epochs, clock),
            lone_leaders=LoneLeaders(clock),
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
    sessions: SessionCache
    session_stats: SessionStats
    lab_owners: LabOwners
    forecasts: ForecastCache
    boot_times: BootTimes
    processes: Processes
    timelines: Timelines
    worker_views: WorkerViews

    @classmethod
    def over(cls, records: Records) -> Self:
        """Return empty caches; those of records load them when they are first needed."""
        worker_cache = WorkerCache(records.workers.list_live)
        sessions = SessionCache(records.sessions.list_all, records.clock)
        return cls(
            worker_cache,
            MetricsCache(worker_cache),
            IdleChecks(worker_cache),
            sessions,
            SessionStats(),
            LabOwners(records.sessions.list_all),
            ForecastCache(records.clock),
            BootTimes(records.clock),
            Processes(records.clock),
            Timelines(records.workers.list_all),
            WorkerViews(),
        )
