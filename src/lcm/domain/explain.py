"""Explain a worker's status: the reasons for it and what happens next.

Derived from the same rules that decide. The codes are stable, the texts are for people.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from lcm.domain.idle import (
    IdlePolicy,
    PauseGuard,
    assess,
    cml_overdue_at,
    idle_since,
    needed_at,
    pause_due_at,
    snoozed_until,
)
from lcm.domain.lifecycle import (
    DRAINING,
    FAILED,
    MEANING,
    PENDING,
    PROVISIONING,
    RUNNING,
    STARTING,
    STOPPED,
    STOPPING,
    TERMINATED,
    TERMINATING,
    UNKNOWN,
    DesiredStatus,
)
from lcm.domain.pause import PauseReason
from lcm.domain.readiness import CHECK, likely_causes
from lcm.domain.worker import Worker


@dataclass(frozen=True)
class Point:
    """One reason for a worker's status, or one thing that happens next."""

    code: str
    text: str
    at: datetime | None = None


@dataclass(frozen=True)
class WorkerExplanation:
    """A worker's status, its reasons and what happens next."""

    code: str
    summary: str
    holding: tuple[Point, ...]
    next: tuple[Point, ...]


@dataclass(frozen=True)
class IdleCheckHealth:
    """Whether the idle checks of a worker happen, and whether they can conclude."""

    unchecked_since: datetime | None = None
    """No idle check was received since then."""
    unconfirmed_since: datetime | None = None
    """Since then only a CML that does not answer prevents a pause."""


def explain(
    worker: Worker, policy: IdlePolicy, now: datetime, idle_checks: IdleCheckHealth | None = None
) -> WorkerExplanation:
    alarms = tuple(_alarms(idle_checks or IdleCheckHealth(), policy, now)) if _may_be_paused(worker) else ()
    return WorkerExplanation(
        code=str(worker.status),
        summary=MEANING[worker.status],
        holding=(*_holding(worker, policy, now), *alarms),
        next=tuple(_next(worker, policy, now)),
    )


def _holding(worker: Worker, policy: IdlePolicy, now: datetime) -> Iterator[Point]:
    if worker.status_reason:
        yield Point("status_reason", worker.status_reason)
    refused = worker.cml.refused_certificate_sha256
    if worker.is_live and refused is not None:
        pinned = worker.cml.certificate_sha256 or ""
        text = f"CML presents certificate {refused[:16]}… instead of {pinned[:16]}…; an admin can accept it"
        yield Point("certificate_changed", text)
    if not worker.is_trusted:
        text = (
            "LCM did not launch it: its CML gets no login, and it gets no sessions, until an admin adopts it"
        )
        yield Point("not_adopted", text)
    elif worker.status is RUNNING and not worker.cml.is_ready:
        yield from _waiting_for_cml(worker, policy, now)
    if worker.status is RUNNING and _lacks_kvm(worker):
        text = "CML reports no KVM: it runs containers only; bare metal or nested virtualization has KVM"
        yield Point("no_kvm", text)
    if worker.status is STOPPED and worker.desired_status is DesiredStatus.STOPPED:
        yield _STOPPED_BY[worker.pause.reason or PauseReason.MANUAL]
    if worker.is_live and worker.pause.is_extracting(now) and worker.pause.extraction is not None:
        text = "configurations of nodes are extracted first; it is stopped without them then"
        yield Point("extracting", text, worker.pause.extraction.until)
    if worker.sessions:
        yield Point("active_sessions", f"active sessions: {len(worker.sessions)}")
    if (expected := needed_at(worker, policy, now)) is not None:
        text = f"lablet sessions that count on it: {len(worker.nominations)}"
        yield Point("nominated", text, expected)
    if _may_be_paused(worker):
        yield from _against_a_pause(worker, policy, now)


def _next(worker: Worker, policy: IdlePolicy, now: datetime) -> Iterator[Point]:
    if worker.desired_status is DesiredStatus.TERMINATED and worker.status not in (TERMINATING, TERMINATED):
        yield Point("terminate", "the instance is terminated, if there is one")
    elif worker.status is RUNNING and worker.desired_status is DesiredStatus.STOPPED:
        yield Point("stop", "the instance is stopped")
    elif worker.status is STOPPED and worker.desired_status is DesiredStatus.RUNNING:
        yield Point("start", "the instance is started")
    elif worker.status is PENDING and worker.has_unresolved_launch:
        yield Point("resolve_launch", "the launch is repeated under its client token until EC2 answers")
    elif worker.status in _NEXT:
        yield _NEXT[worker.status]
    overdue_at = cml_overdue_at(worker, policy)
    if overdue_at is not None and now <= overdue_at:
        yield Point("cml_not_ready_alarm", "raises an alarm unless CML is ready before", overdue_at)
    due = pause_due_at(worker, policy)
    is_needed = bool(worker.claims) or needed_at(worker, policy, now) is not None
    if due is not None and _may_be_paused(worker) and not is_needed:
        yield Point("pause", _PAUSES[policy.extract_within is not None], max(due, now))


def _alarms(idle_checks: IdleCheckHealth, policy: IdlePolicy, now: datetime) -> Iterator[Point]:
    """Faults that keep a worker running although it may be idle."""
    since = idle_checks.unchecked_since
    if since is not None and policy.alarm_after is not None and now - since > policy.alarm_after:
        minutes = (now - since).total_seconds() / 60
        text = f"no idle check for {minutes:.0f} minutes: check that a worker controller is leader"
        yield Point("not_checked", text, since)
    if idle_checks.unconfirmed_since is not None:
        text = "CML telemetry cannot be read or is switched off, so the worker counts as active"
        yield Point("unconfirmed", text, idle_checks.unconfirmed_since)


def _waiting_for_cml(worker: Worker, policy: IdlePolicy, now: datetime) -> Iterator[Point]:
    """That CML boots; once that takes too long, what was tried last and what to check, in order."""
    wait, overdue_at = worker.cml.wait, cml_overdue_at(worker, policy)
    tried = f"; tried last: {wait.last.detail}" if wait else ""
    if wait is None or overdue_at is None or now <= overdue_at:
        yield Point("cml_booting", f"CML is not ready yet{tried}")
        return
    minutes = (now - wait.since).total_seconds() / 60
    yield Point("cml_not_ready", f"CML is not ready after {minutes:.0f} minutes{tried}", wait.since)
    for cause in likely_causes(wait.last.contact):
        yield Point(cause, f"check the {CHECK[cause]}")


def _lacks_kvm(worker: Worker) -> bool:
    health = worker.cml.health
    return health is not None and health.lacks_kvm


def _may_be_paused(worker: Worker) -> bool:
    is_meant_to_run = worker.status is RUNNING and worker.desired_status is DesiredStatus.RUNNING
    return is_meant_to_run and worker.is_trusted


def _against_a_pause(worker: Worker, policy: IdlePolicy, now: datetime) -> Iterator[Point]:
    idleness = assess(worker, policy, now)
    match idleness.guard:
        case PauseGuard.DETECTION_DISABLED:
            yield Point("detection_disabled", "never paused: idle detection is off for this worker")
        case PauseGuard.AUTO_PAUSE_DISABLED:
            yield Point("auto_pause_disabled", "never paused: auto-pause is off for all workers")
        case PauseGuard.HELD if worker.hold is not None:
            why = f" ({worker.hold.reason})" if worker.hold.reason else ""
            yield Point("held", f"{worker.hold.by} set a hold{why}", worker.hold.until)
        case PauseGuard.SNOOZED:
            yield Point(
                "snoozed", "snoozed: started, resumed or adopted recently", snoozed_until(worker, policy)
            )
        case PauseGuard.ACTIVE if worker.activity.last_at is None:
            text = "no activity yet; idle time counts from its creation or last start"
            yield Point("new", text, idle_since(worker))
        case PauseGuard.ACTIVE:
            used = f"last activity {idleness.idle_minutes:.0f} minutes ago"
            yield Point("active", used, worker.activity.last_at)
        case None if worker.pause.decided_at is not None:
            decided = "a pause was decided; a second idle check confirms or cancels it"
            yield Point("second_look", decided, worker.pause.decided_at)


_PAUSES: Final = {
    False: "stops unless used before; its running nodes are powered off",
    True: "stops unless used before; its running nodes are powered off once configurations are extracted",
}
"""By whether configurations are extracted before a stop."""

_STOPPED_BY: Final = {
    PauseReason.IDLE_TIMEOUT: Point("paused", "paused by LCM because it was idle; start it any time"),
    PauseReason.EXTERNAL: Point("stopped_outside", "stopped outside LCM; start it any time"),
    PauseReason.MANUAL: Point("stop_requested", "stop requested; start it any time"),
}

_NEXT: Final = {
    PENDING: Point("launch", "an instance is launched"),
    PROVISIONING: Point("await_running", "waits until EC2 reports the instance running"),
    STARTING: Point("await_running", "waits until EC2 reports an address"),
    DRAINING: Point("stop", "stops when its sessions have ended or the drain deadline has passed"),
    STOPPING: Point("await_stopped", "waits until EC2 reports the instance stopped"),
    TERMINATING: Point("await_terminated", "waits until EC2 reports the instance terminated"),
    FAILED: Point("person", "LCM does nothing more: retry or delete it"),
    UNKNOWN: Point("observe", "LCM observes the instance and changes nothing"),
    TERMINATED: Point("purge", "the record stays for the audit until it is purged"),
}
