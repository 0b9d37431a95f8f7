"""What the worker controller's HTTP answers with, as documents."""

from datetime import datetime

import msgspec


class HealthView(msgspec.Struct, frozen=True, kw_only=True):
    """`healthy` unless a loop is silent; a standby is healthy too."""

    status: str
    is_leader: bool
    instance_id: str
    last_reconciliation: datetime | None
    workers_managed: int
    workers_with_drift: int
    epoch: int | None
    watching: bool
    frozen: list[str]
    """What is missing, so that nothing is started, stopped or terminated meanwhile."""
    silent_loops: list[str]
    coordination: str
    """`elected`, or `alone` when no coordination store is configured."""


class StatsView(msgspec.Struct, frozen=True, kw_only=True):
    """How often each thing happened since this process started; each event counts once."""

    provisioned_count: int
    started_count: int
    stopped_count: int
    terminated_count: int
    metrics_collected_count: int
    idle_detection_count: int
    auto_pause_count: int
    license_registered_count: int
    license_deregistered_count: int
    scale_down_drain_count: int
    running_worker_count: int
    """How many run now."""
    scale_down_enabled: bool


class FleetWorker(msgspec.Struct, frozen=True, kw_only=True):
    """One worker as this controller sees it."""

    worker_id: str
    status: str
    ec2_state: str | None
    """As last seen; None if its instance was not seen yet."""
    has_drift: bool
    is_stuck: bool
    reconcile_status: str | None
    reason: str
    """Why it is not converged; empty if it is."""
    retry_count: int
    next_retry_at: datetime | None
    last_reconciled_at: datetime | None


class FleetView(msgspec.Struct, frozen=True, kw_only=True):
    """All workers by the last list. A standby manages none."""

    is_leader: bool
    last_reconciliation: datetime | None
    by_status: dict[str, int]
    workers: list[FleetWorker]


class ReconcileView(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that is being worked on."""

    worker_id: str
    seconds: float
    is_parked: bool
    """It waits for others and has given its place away."""


class RetryView(msgspec.Struct, frozen=True, kw_only=True):
    """A worker whose last pass failed."""

    worker_id: str
    retry_count: int
    next_retry_at: datetime | None
    reason: str


class OperationsView(msgspec.Struct, frozen=True, kw_only=True):
    """What goes on now, what waits, and what is tried again."""

    in_progress: list[ReconcileView]
    max_concurrent: int
    waiting: int
    """Workers that are due and wait for a place."""
    scheduled: int
    """Workers to be looked at again later."""
    left_out: int
    """Times that the queue was too full for a worker."""
    retrying: list[RetryView]
    frozen: list[str]


class LeaderStatusView(msgspec.Struct, frozen=True, kw_only=True):
    """Who leads, and by which right."""

    is_leader: bool
    instance_id: str
    leader_id: str | None
    """Who leads as far as this instance last saw; None if nobody does."""
    election_key: str
    coordination: str
    lease_ttl_seconds: int
    epoch: int | None
    revision: int | None
    """The election key's create-revision, with which the epoch was claimed."""
    seconds_left: float | None
    """How long it may act without another renewal; None on a standby, or where nobody can contest it."""


class OrphanView(msgspec.Struct, frozen=True, kw_only=True):
    """A machine with our tags that no record owns."""

    instance_id: str
    region: str
    state: str
    kind: str
    worker_id: str
    detail: str


class OrphansView(msgspec.Struct, frozen=True, kw_only=True):
    """Every orphan the last complete lists showed, and why nothing is done where nothing is done."""

    orphans: list[OrphanView]
    only_looking: dict[str, str]
    may_terminate: bool
    records_ended: int
    machines_terminated: int
