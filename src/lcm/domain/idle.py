"""When a worker is idle, and what keeps it from being paused all the same.

Pure rules, asked by the command that pauses and by everything that explains. A worker is busy until
the opposite is proven: a person who is thrown out of a lab costs more than an idle hour.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from lcm.domain.lifecycle import RUNNING, STOPPED, DesiredStatus
from lcm.domain.worker import PauseReason, Worker

SECOND_LOOK: Final = timedelta(seconds=15)
"""A pause is decided, then confirmed by fresh evidence at least this much later."""

EVIDENCE_LASTS: Final = timedelta(seconds=30)
"""What CML said proves something for so long. A look that seems older, or comes from the future, was
delayed, or the clocks of the control plane and the controller differ: it proves nothing."""

PAUSE_LASTS: Final = timedelta(seconds=60)
"""A pause that was not carried out for so long is off: people may have come back unseen."""

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
    ACTIVE_SESSIONS = "active_sessions"
    BUSY = "busy"
    MIN_WORKERS = "min_workers"
    UNCONFIRMED = "unconfirmed"
    SECOND_LOOK = "second_look"
    SUPPRESSED = "suppressed"


@dataclass(frozen=True)
class IdlePolicy:
    """How patient LCM is."""

    timeout: timedelta = timedelta(minutes=60)
    snooze: timedelta = timedelta(minutes=60)
    auto_pause_enabled: bool = True
    min_workers: int = 0
    check_interval: timedelta = timedelta(seconds=300)
    busy_cpu_percent: float = 80.0
    """A machine that works this hard is used, whoever clicks or does not; 0: the load says nothing."""
    alarm_after: timedelta | None = timedelta(seconds=1800)
    """A running worker that nobody asked about for longer raises an alarm; None where nobody asks at all."""


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
    cpu_percent: float | None = None
    """How hard the machine works, measured lately; None is unknown and proves nothing either way."""
    suppressed: bool = False
    """Scale-down owns the stop: idle workers are drained instead."""


def last_sign_of_life(worker: Worker) -> datetime:
    """Since when a worker may be called unused."""
    return worker.last_activity_at or worker.last_resumed_at or worker.created_at


def snoozed_until(worker: Worker, policy: IdlePolicy) -> datetime | None:
    """A worker that has come up is left alone for a while: whoever asked for it is about to use it."""
    came_up = [at for at in (worker.last_resumed_at, worker.came_up_at) if at]
    return max(came_up) + policy.snooze if came_up else None


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
    if worker.sessions:
        return PauseGuard.ACTIVE_SESSIONS
    if worker.license.operation_in_progress or _works_hard(evidence, policy):
        return PauseGuard.BUSY
    if evidence.running_workers <= policy.min_workers:
        return PauseGuard.MIN_WORKERS
    if not evidence.telemetry_fetched:
        return PauseGuard.UNCONFIRMED
    decided_at = worker.pause_decided_at
    if decided_at is None or not SECOND_LOOK <= now - decided_at <= DECISION_EXPIRES:
        return PauseGuard.SECOND_LOOK
    return PauseGuard.SUPPRESSED if evidence.suppressed else None


def _works_hard(evidence: Evidence, policy: IdlePolicy) -> bool:
    load = evidence.cpu_percent
    return load is not None and 0 < policy.busy_cpu_percent <= load


def is_fresh(taken_at: datetime | None, now: datetime) -> bool:
    """Whether evidence is recent enough to pause a worker on it."""
    return taken_at is not None and abs(now - taken_at) <= EVIDENCE_LASTS


def is_overdue(worker: Worker, now: datetime) -> bool:
    """Whether LCM wanted the worker stopped because nobody used it, and waited too long to do so."""
    is_wanted = (
        worker.pause_reason is PauseReason.IDLE_TIMEOUT and worker.desired_status is DesiredStatus.STOPPED
    )
    wanted_at = worker.drain_started_at or worker.last_paused_at
    if not (is_wanted and worker.is_live) or wanted_at is None:
        return False
    was_resumed = worker.last_resumed_at is not None and worker.last_resumed_at >= wanted_at
    arrival = worker.arrival
    was_started_outside = arrival is not None and arrival.source is STOPPED and arrival.at > wanted_at
    was_carried_out = was_resumed or was_started_outside
    return not was_carried_out and not timedelta() <= now - wanted_at <= PAUSE_LASTS


def decision_time(worker: Worker, now: datetime) -> datetime:
    """When the pause that is being confirmed was decided: earlier, or just now if that was too long ago."""
    decided_at = worker.pause_decided_at
    is_current = decided_at is not None and now - decided_at <= DECISION_EXPIRES
    return decided_at if decided_at is not None and is_current else now


def judged_since(worker: Worker) -> datetime | None:
    """Since when somebody should ask whether it is used; None if it is not to be paused anyway."""
    stays = worker.status is RUNNING and worker.desired_status is DesiredStatus.RUNNING
    return worker.status_since if stays and worker.cml_ready and worker.is_idle_detection_enabled else None


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
