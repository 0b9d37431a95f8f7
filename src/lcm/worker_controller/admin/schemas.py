"""The worker controller's own answers under `/admin`."""

from datetime import datetime

import msgspec

from lcm.rest.system import OrphanView


class StatsView(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since this process started; each event counts once."""

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
    """One worker as this controller observes it."""

    worker_id: str
    status: str
    ec2_state: str | None
    """As last observed; None if its instance was not observed yet."""
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


class OrphansView(msgspec.Struct, frozen=True, kw_only=True):
    """Every orphan of the last complete listings, and why nothing is done in a region."""

    orphans: list[OrphanView]
    dry_run_reasons: dict[str, str]
    may_terminate: bool
    records_ended: int
    instances_terminated: int
