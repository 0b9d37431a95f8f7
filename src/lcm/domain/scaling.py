"""When a worker may be added, and what prevents the drain of an idle one.

Every answer has its label in the audit log.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec


class AuditEvent(StrEnum):
    """The events of the scaling audit log."""

    SCALE_UP_ACCEPTED = "scale_up_accepted"
    SCALE_UP_REJECTED = "scale_up_rejected"
    PROVISIONED = "provisioned"
    SCALE_DOWN_INITIATED = "scale_down_initiated"
    SCALE_DOWN_FAILED = "scale_down_failed"
    DRAINED = "drained"
    LICENSE_DEREGISTERED = "license_given_back"
    LICENSE_DEBT_RECORDED = "license_owed"
    SKIPPED_AUTO_PAUSE = "skipped_auto_pause"
    SKIPPED_NOT_IDLE = "skipped_not_idle"
    SKIPPED_NOT_ELIGIBLE = "skipped_not_eligible"
    SKIPPED_MIN_WORKERS = "skipped_min_workers"
    SKIPPED_COOLDOWN = "skipped_cooldown"


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the scaling audit log."""

    id: str
    at: datetime
    event: AuditEvent
    by: str
    reason: str
    worker_id: str | None = None
    template_name: str | None = None
    aws_region: str | None = None


@dataclass(frozen=True)
class ScalingPolicy:
    """How far the fleet may grow, and how fast."""

    max_workers_per_region: int = 10
    scale_up_cooldown: timedelta = timedelta(seconds=300)


def scale_up_refusal(
    policy: ScalingPolicy,
    *,
    active_workers: int,
    last_scale_up_at: datetime | None,
    now: datetime,
    count: int = 1,
) -> str | None:
    """Why so many workers may not be added to a region now; None if they may."""
    if active_workers + count > policy.max_workers_per_region:
        return (
            f"{active_workers} workers are active in this region, and {count} more would exceed the limit of"
            f" {policy.max_workers_per_region}; raise MAX_WORKERS_PER_REGION or delete one"
        )
    if last_scale_up_at is not None and now - last_scale_up_at < policy.scale_up_cooldown:
        left = (last_scale_up_at + policy.scale_up_cooldown - now).total_seconds()
        return f"a worker was added a moment ago; repeat in {left:.0f} s"
    return None


@dataclass(frozen=True)
class ScaleDownPolicy:
    """How far scale-down may shrink the fleet, and how fast."""

    enabled: bool = False
    min_workers: int = 0
    cooldown_seconds: float = 600.0


def scale_down_guard(
    policy: ScaleDownPolicy,
    *,
    is_being_paused: bool,
    is_idle: bool,
    is_eligible: bool,
    running_workers: int,
    seconds_since_last: float | None,
) -> AuditEvent | None:
    """The first guard that forbids the drain of an idle worker, in order; None if none does."""
    if is_being_paused:
        return AuditEvent.SKIPPED_AUTO_PAUSE
    if not is_idle:
        return AuditEvent.SKIPPED_NOT_IDLE
    if not is_eligible:
        return AuditEvent.SKIPPED_NOT_ELIGIBLE
    if running_workers <= policy.min_workers:
        return AuditEvent.SKIPPED_MIN_WORKERS
    if seconds_since_last is not None and seconds_since_last < policy.cooldown_seconds:
        return AuditEvent.SKIPPED_COOLDOWN
    return None
