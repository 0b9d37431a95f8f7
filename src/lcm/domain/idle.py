"""When a worker is idle, and what prevents an automatic pause all the same.

Pure rules, shared by the command that pauses and by the explanations. A worker counts as active until
the opposite is proven: a person who is thrown out of a lab costs more than an idle hour.
"""

import dataclasses
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec.structs import replace

from lcm.domain.lifecycle import RUNNING, DesiredStatus
from lcm.domain.readiness import CmlContact, ready_within
from lcm.domain.worker import Worker

SECOND_CHECK_AFTER: Final = timedelta(seconds=15)
"""A pause is decided, then confirmed by fresh evidence at least this much later."""

EVIDENCE_MAX_AGE: Final = timedelta(seconds=30)
"""How long an answer of CML is evidence. An older one, or one from the future, was delayed, or the clocks of
the control plane and the controller differ: it proves nothing."""

PAUSE_EXPIRES_AFTER: Final = timedelta(seconds=60)
"""A pause that was not carried out for so long is cancelled: people may have come back unobserved."""

DECISION_EXPIRES_AFTER: Final = timedelta(minutes=15)
"""A decision that was not confirmed for so long is made anew: its evidence is old."""


class PauseGuard(StrEnum):
    """What forbids an automatic pause, in the order of evaluation."""

    NOT_RUNNING = "not_running"
    STOP_REQUESTED = "stop_requested"
    DETECTION_DISABLED = "detection_disabled"
    AUTO_PAUSE_DISABLED = "auto_pause_disabled"
    HELD = "held"
    ACTIVE = "active"
    SNOOZED = "snoozed"
    ACTIVE_SESSIONS = "active_sessions"
    NOMINATED = "nominated"
    BUSY = "busy"
    MIN_WORKERS = "min_workers"
    UNCONFIRMED = "unconfirmed"
    SECOND_CHECK = "second_look"
    SUPPRESSED = "suppressed"


@dataclass(frozen=True)
class IdlePolicy:
    """Timeouts and limits of automatic pauses."""

    timeout: timedelta = timedelta(minutes=60)
    snooze: timedelta = timedelta(minutes=60)
    auto_pause_enabled: bool = True
    min_workers: int = 0
    check_interval: timedelta = timedelta(seconds=300)
    lead: timedelta = timedelta(minutes=35)
    """A lablet session that counts on a worker keeps it running from this long before it takes it."""
    busy_cpu_percent: float = 80.0
    """CPU load from which a worker counts as active, even without user activity; 0: load is ignored."""
    cml_ready_within: timedelta | None = None
    """How long CML may take to become ready; None: 40 minutes on bare metal, otherwise 15."""
    alarm_after: timedelta | None = timedelta(seconds=1800)
    """A running worker without an idle check for longer raises an alarm; None where there are no checks."""
    extract_within: timedelta | None = None
    """How long any stop waits for the configurations of nodes; None: they are not extracted."""


class ControllerTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the worker controller that the control plane enforces (D-22); None: not set there."""

    idle_detection_interval: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """In seconds."""
    min_workers: Annotated[int, msgspec.Meta(ge=0)] | None = None

    def conflicts(self, stated: "ControllerTerms") -> list[str]:
        """Where the control plane, whose own settings these are, was set otherwise than the controller."""
        return [
            f"{name.upper()} is {own:g} at the control plane and {other:g} at the worker controller"
            for name in self.__struct_fields__
            if (own := getattr(self, name)) is not None
            and (other := getattr(stated, name)) is not None
            and own != other
        ]

    def applied_to(self, policy: IdlePolicy) -> IdlePolicy:
        seconds, minimum = self.idle_detection_interval, self.min_workers
        return dataclasses.replace(
            policy,
            check_interval=policy.check_interval if seconds is None else timedelta(seconds=seconds),
            min_workers=policy.min_workers if minimum is None else minimum,
        )


@dataclass(frozen=True)
class Idleness:
    """A worker's activity according to the record alone."""

    idle_for: timedelta
    is_idle: bool
    in_snooze_period: bool
    guard: PauseGuard | None
    """The first guard that forbids a pause; None if the record forbids nothing."""

    @property
    def idle_minutes(self) -> float:
        return self.idle_for.total_seconds() / 60

    @property
    def eligible_for_pause(self) -> bool:
        return self.guard is None


@dataclass(frozen=True)
class Evidence:
    """What a pause depends on besides the record."""

    telemetry_fetched: bool
    """CML's telemetry was read for this check; an unreachable CML counts as active."""
    is_cml_not_ready: bool = False
    """CML was tried for this check and was not ready: one that never was is of no use to anyone."""
    running_workers: int = 1
    """Workers of the fleet that run now, this one included."""
    cpu_percent: float | None = None
    """The recent CPU load; None is unknown and proves nothing either way."""
    suppressed: bool = False
    """Scale-down owns the stop: idle workers are drained instead."""

    def outdated(self) -> "Evidence":
        """What is left of it when CML's answer is too old."""
        return dataclasses.replace(self, telemetry_fetched=False, is_cml_not_ready=False)


def idle_since(worker: Worker) -> datetime:
    """The last activity or, without any, the last resume or the creation."""
    return worker.activity.last_at or worker.pause.last_resumed_at or worker.created_at


def cml_overdue_at(worker: Worker, policy: IdlePolicy) -> datetime | None:
    """When CML exceeds the time in which it should become ready; None if LCM does not wait for it."""
    wait = worker.cml.wait
    return wait.since + ready_within(worker.instance.type, policy.cml_ready_within) if wait else None


def _unused_since(worker: Worker, policy: IdlePolicy) -> datetime:
    """A CML that never becomes ready has its time to do so, and then the same patience as an idle one."""
    overdue_at = cml_overdue_at(worker, policy) if _is_never_ready(worker) else None
    return max(idle_since(worker), overdue_at) if overdue_at else idle_since(worker)


def _is_never_ready(worker: Worker) -> bool:
    return worker.cml.wait is not None and worker.cml.wait.proves_unused


def snoozed_until(worker: Worker, policy: IdlePolicy) -> datetime | None:
    """The end of the snooze after a start, resume or adoption, when a person is about to use the worker."""
    adopted_at = worker.discovered.adopted_at if worker.discovered else None
    came_up = [at for at in (worker.pause.last_resumed_at, worker.came_up_at, adopted_at) if at]
    return max(came_up) + policy.snooze if came_up else None


def pause_due_at(worker: Worker, policy: IdlePolicy) -> datetime | None:
    """When the worker will be paused unless it is used before; None if it will not be."""
    if _standing_guard(worker, policy) is not None:
        return None
    bounds = [_unused_since(worker, policy) + policy.timeout]
    bounds += [until for until in (snoozed_until(worker, policy), held_until(worker)) if until]
    return max(bounds)


def with_countdown(worker: Worker, policy: IdlePolicy) -> Worker:
    """The worker with the time of its next automatic pause."""
    return replace(worker, pause=replace(worker.pause, due_at=pause_due_at(worker, policy)))


def held_until(worker: Worker) -> datetime | None:
    return worker.hold.until if worker.hold else None


def assess(worker: Worker, policy: IdlePolicy, now: datetime) -> Idleness:
    """Assess a worker's activity from its record."""
    idle_for = max(now - _unused_since(worker, policy), timedelta())
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
    """The first guard that forbids pausing this worker now; None only after a confirming second check."""
    if (guard := assess(worker, policy, now).guard) is not None:
        return guard
    if worker.claims:
        return PauseGuard.ACTIVE_SESSIONS
    if needed_at(worker, policy, now) is not None:
        return PauseGuard.NOMINATED
    if worker.license.operation_in_progress or _is_busy(evidence, policy):
        return PauseGuard.BUSY
    if evidence.running_workers <= policy.min_workers:
        return PauseGuard.MIN_WORKERS
    if not evidence.telemetry_fetched and not (evidence.is_cml_not_ready and _is_never_ready(worker)):
        return PauseGuard.UNCONFIRMED
    decided_at = worker.pause.decided_at
    if decided_at is None or not SECOND_CHECK_AFTER <= now - decided_at <= DECISION_EXPIRES_AFTER:
        return PauseGuard.SECOND_CHECK
    return PauseGuard.SUPPRESSED if evidence.suppressed else None


def pause_reason(worker: Worker, policy: IdlePolicy, now: datetime) -> str:
    """Why it is paused, for its timeline."""
    wait = worker.cml.wait
    if wait is not None and wait.proves_unused:
        return f"CML was not ready for {(now - wait.since).total_seconds() / 60:.0f} minutes"
    return f"unused for {assess(worker, policy, now).idle_minutes:.0f} minutes"


def needed_at(worker: Worker, policy: IdlePolicy, now: datetime) -> datetime | None:
    """When the next lablet session is expected to take the worker; None if that is not near."""
    near = [at for at in worker.nominations.values() if at - now <= policy.lead]
    return min(near, default=None)


def _is_busy(evidence: Evidence, policy: IdlePolicy) -> bool:
    load = evidence.cpu_percent
    return load is not None and 0 < policy.busy_cpu_percent <= load


def is_fresh(taken_at: datetime | None, now: datetime) -> bool:
    """Whether evidence is recent enough to pause a worker on it."""
    return taken_at is not None and abs(now - taken_at) <= EVIDENCE_MAX_AGE


def is_pause_overdue(worker: Worker, now: datetime) -> bool:
    """Whether an automatic pause was requested and not carried out in time."""
    requested_at = worker.pause.since if worker.pause.is_unfinished else None
    if not worker.is_being_paused or requested_at is None:
        return False
    if (extraction := worker.pause.extraction) is not None:
        requested_at = extraction.ended_at or min(extraction.until, now)  # the stop waits for it
    return not timedelta() <= now - requested_at <= PAUSE_EXPIRES_AFTER


def decision_time(worker: Worker, now: datetime) -> datetime:
    """When the pause under confirmation was decided; now, if that decision has expired."""
    decided_at = worker.pause.decided_at
    is_current = decided_at is not None and now - decided_at <= DECISION_EXPIRES_AFTER
    return decided_at if decided_at is not None and is_current else now


def idle_checks_expected_since(worker: Worker) -> datetime | None:
    """Since when idle checks of this worker are expected; None if it cannot be paused anyway."""
    stays = worker.status is RUNNING and worker.desired_status is DesiredStatus.RUNNING
    is_checked = worker.is_trusted and (worker.cml.is_ready or worker.cml.wait is not None)
    return worker.status_since if stays and is_checked and worker.is_idle_detection_enabled else None


def _standing_guard(worker: Worker, policy: IdlePolicy) -> PauseGuard | None:
    """The guard that stands until the record or the policy changes."""
    if worker.status is not RUNNING:
        return PauseGuard.NOT_RUNNING
    if worker.desired_status is not DesiredStatus.RUNNING:
        return PauseGuard.STOP_REQUESTED
    if not worker.is_idle_detection_enabled:
        return PauseGuard.DETECTION_DISABLED
    if not policy.auto_pause_enabled:
        return PauseGuard.AUTO_PAUSE_DISABLED
    has_other_certificate = worker.cml.wait is not None and (
        worker.cml.wait.last.contact is CmlContact.OTHER_CERTIFICATE
    )
    if has_other_certificate or not worker.is_trusted:
        return PauseGuard.UNCONFIRMED
    return None
