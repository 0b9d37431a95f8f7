"""When a worker is idle, and what keeps it from being paused all the same.

Pure rules, asked by the command that pauses and by everything that explains. A worker is busy until
the opposite is proven: a person who is thrown out of a lab costs more than an idle hour.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from lcm.domain.lifecycle import RUNNING, DesiredStatus
from lcm.domain.worker import Worker

SECOND_LOOK: Final = timedelta(seconds=15)
"""A pause is decided, then confirmed by fresh evidence at least this much later."""

DECISION_EXPIRES: Final = timedelta(minutes=15)
"""A decision nobody confirmed for so long is made anew: its evidence is old."""


class PauseGuard(StrEnum):
    """What forbids an automatic pause, in the order it is asked."""

    NOT_RUNNING = "not_running"
    STOP_REQUESTED = "stop_requested"
    DETECTION_DISABLED = "detection_disabled"
    AUTO_PAUSE_DISABLED = "auto_pause_disabled"
    HELD = "held"
    ACTIVE = "active"
    SNOOZED = "snoozed"
    SUPPRESSED = "suppressed"
    ACTIVE_SESSIONS = "active_sessions"
    MIN_WORKERS = "min_workers"
    UNCONFIRMED = "unconfirmed"
    SECOND_LOOK = "second_look"


@dataclass(frozen=True)
class IdlePolicy:
    """How patient LCM is."""

    timeout: timedelta = timedelta(minutes=60)
    snooze: timedelta = timedelta(minutes=60)
    auto_pause_enabled: bool = True
    min_workers: int = 0
    check_interval: timedelta = timedelta(seconds=300)


@dataclass(frozen=True)
class Idleness:
    """What the record alone says about a worker's use."""

    idle_for: timedelta
    is_idle: bool
    in_snooze_period: bool
    guard: PauseGuard | None
    """The first thing that forbids a pause; None if the record forbids nothing."""

    @property
    def idle_minutes(self) -> float:
        return self.idle_for.total_seconds() / 60

    @property
    def eligible_for_pause(self) -> bool:
        return self.guard is None


@dataclass(frozen=True)
class Evidence:
    """What must be known besides the record before a worker is paused."""

    telemetry_fetched: bool
    """CML answered when asked about activity just now; not reached counts as active."""
    running_workers: int = 1
    """Workers of the fleet that run now, this one included."""
    suppressed: bool = False
    """Scale-down owns the stop: idle workers are drained instead."""


def last_sign_of_life(worker: Worker) -> datetime:
    """Since when a worker may be called unused."""
    return worker.last_activity_at or worker.last_resumed_at or worker.created_at


def snoozed_until(worker: Worker, policy: IdlePolicy) -> datetime | None:
    """A resumed worker is left alone for a while: whoever resumed it is about to use it."""
    return worker.last_resumed_at + policy.snooze if worker.last_resumed_at else None


def pause_due_at(worker: Worker, policy: IdlePolicy) -> datetime | None:
    """When the worker will be paused unless somebody uses it; None if it will not be."""
    if _standing_guard(worker, policy) is not None:
        return None
    bounds = [last_sign_of_life(worker) + policy.timeout]
    bounds += [until for until in (snoozed_until(worker, policy), held_until(worker)) if until]
    return max(bounds)


def held_until(worker: Worker) -> datetime | None:
    return worker.hold.until if worker.hold else None


def assess(worker: Worker, policy: IdlePolicy, now: datetime) -> Idleness:
    """What the record says."""
    idle_for = max(now - last_sign_of_life(worker), timedelta())
    is_idle = idle_for > policy.timeout
    snooze_end, hold_end = snoozed_until(worker, policy), held_until(worker)
    in_snooze = snooze_end is not None and now < snooze_end
    guard = _standing_guard(worker, policy)
    if guard is None and hold_end is not None and now < hold_end:
        guard = PauseGuard.HELD
    if guard is None and not is_idle:
        guard = PauseGuard.ACTIVE
    if guard is None and in_snooze:
        guard = PauseGuard.SNOOZED
    return Idleness(idle_for, is_idle, in_snooze, guard)


def pause_guard(worker: Worker, policy: IdlePolicy, evidence: Evidence, now: datetime) -> PauseGuard | None:
    """The first thing that forbids pausing this worker now; None only after a confirmed second look."""
    if (guard := assess(worker, policy, now).guard) is not None:
        return guard
    if evidence.suppressed:
        return PauseGuard.SUPPRESSED
    if worker.sessions:
        return PauseGuard.ACTIVE_SESSIONS
    if evidence.running_workers <= policy.min_workers:
        return PauseGuard.MIN_WORKERS
    if not evidence.telemetry_fetched:
        return PauseGuard.UNCONFIRMED
    decided_at = worker.pause_decided_at
    if decided_at is None or not SECOND_LOOK <= now - decided_at <= DECISION_EXPIRES:
        return PauseGuard.SECOND_LOOK
    return None


def decision_time(worker: Worker, now: datetime) -> datetime:
    """When the pause that is being confirmed was decided: earlier, or just now if that was too long ago."""
    decided_at = worker.pause_decided_at
    is_current = decided_at is not None and now - decided_at <= DECISION_EXPIRES
    return decided_at if decided_at is not None and is_current else now


def _standing_guard(worker: Worker, policy: IdlePolicy) -> PauseGuard | None:
    """What forbids a pause for as long as nobody changes it."""
    if worker.status is not RUNNING:
        return PauseGuard.NOT_RUNNING
    if worker.desired_status is not DesiredStatus.RUNNING:
        return PauseGuard.STOP_REQUESTED
    if not worker.is_idle_detection_enabled:
        return PauseGuard.DETECTION_DISABLED
    if not policy.auto_pause_enabled:
        return PauseGuard.AUTO_PAUSE_DISABLED
    return None
