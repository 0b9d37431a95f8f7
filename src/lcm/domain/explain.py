"""Why a worker is in its state, what holds it there and what happens next, in plain sentences.

Made from the same rules that decide; the codes are stable, the sentences are for people.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from lcm.domain.idle import IdlePolicy, PauseGuard, assess, pause_due_at, snoozed_until
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
from lcm.domain.worker import PauseReason, Worker


@dataclass(frozen=True)
class Point:
    """One thing that holds a worker where it is, or that will happen to it."""

    code: str
    text: str
    at: datetime | None = None


@dataclass(frozen=True)
class Account:
    """The whole story."""

    code: str
    summary: str
    holding: tuple[Point, ...]
    next: tuple[Point, ...]


@dataclass(frozen=True)
class Looks:
    """How the questions went whether the worker is used."""

    unasked_since: datetime | None = None
    """Nobody asked since then."""
    unconfirmed_since: datetime | None = None
    """Since then only the silence of its CML keeps it from being paused."""


def explain(worker: Worker, policy: IdlePolicy, now: datetime, looks: Looks | None = None) -> Account:
    alarms = tuple(_alarms(looks or Looks(), policy, now)) if _may_be_paused(worker) else ()
    return Account(
        code=str(worker.status),
        summary=MEANING[worker.status],
        holding=(*_holding(worker, policy, now), *alarms),
        next=tuple(_next(worker, policy, now)),
    )


def _holding(worker: Worker, policy: IdlePolicy, now: datetime) -> Iterator[Point]:
    if worker.status_reason:
        yield Point("status_reason", worker.status_reason)
    if worker.status is RUNNING and not worker.cml_ready:
        yield Point("cml_booting", "CML does not answer as ready yet")
    if worker.status is STOPPED and worker.desired_status is DesiredStatus.STOPPED:
        yield _STOPPED_BY[worker.pause_reason or PauseReason.MANUAL]
    if worker.sessions:
        yield Point("active_sessions", f"sessions placed on it: {len(worker.sessions)}")
    if _may_be_paused(worker):
        yield from _against_a_pause(worker, policy, now)


def _next(worker: Worker, policy: IdlePolicy, now: datetime) -> Iterator[Point]:
    if worker.desired_status is DesiredStatus.TERMINATED and worker.status not in (TERMINATING, TERMINATED):
        yield Point("terminate", "its instance is terminated, if it has one")
    elif worker.status is RUNNING and worker.desired_status is DesiredStatus.STOPPED:
        yield Point("stop", "its instance is stopped")
    elif worker.status is STOPPED and worker.desired_status is DesiredStatus.RUNNING:
        yield Point("start", "its instance is started")
    elif worker.status is PENDING and worker.has_unresolved_launch:
        yield Point("resolve_launch", "the promised launch is repeated until EC2 answers")
    elif worker.status in _NEXT:
        yield _NEXT[worker.status]
    due = pause_due_at(worker, policy)
    if due is not None and _may_be_paused(worker) and not worker.sessions:
        yield Point("pause", "it is paused then unless somebody uses it", max(due, now))


def _alarms(looks: Looks, policy: IdlePolicy, now: datetime) -> Iterator[Point]:
    """What keeps a worker running although nobody may need it."""
    since = looks.unasked_since
    if since is not None and policy.alarm_after is not None and now - since > policy.alarm_after:
        minutes = (now - since).total_seconds() / 60
        text = f"nobody asked for {minutes:.0f} minutes whether it is used: does a worker controller lead?"
        yield Point("not_checked", text, since)
    if looks.unconfirmed_since is not None:
        text = "its CML cannot be asked who uses it, so it counts as used"
        yield Point("unconfirmed", text, looks.unconfirmed_since)


def _may_be_paused(worker: Worker) -> bool:
    return worker.status is RUNNING and worker.desired_status is DesiredStatus.RUNNING


def _against_a_pause(worker: Worker, policy: IdlePolicy, now: datetime) -> Iterator[Point]:
    idleness = assess(worker, policy, now)
    match idleness.guard:
        case PauseGuard.DETECTION_DISABLED:
            yield Point("detection_disabled", "it is never paused: idle detection is off for it")
        case PauseGuard.AUTO_PAUSE_DISABLED:
            yield Point("auto_pause_disabled", "it is never paused: auto-pause is off for all workers")
        case PauseGuard.HELD if worker.hold is not None:
            why = f" ({worker.hold.reason})" if worker.hold.reason else ""
            yield Point("held", f"{worker.hold.by} keeps it running{why}", worker.hold.until)
        case PauseGuard.SNOOZED:
            yield Point("snoozed", "it was resumed not long ago", snoozed_until(worker, policy))
        case PauseGuard.ACTIVE:
            used = f"it was last used {idleness.idle_minutes:.0f} minutes ago"
            yield Point("active", used, worker.last_activity_at)
        case None if worker.pause_decided_at is not None:
            decided = "a pause was decided; a second look will confirm it or take it back"
            yield Point("second_look", decided, worker.pause_decided_at)


_STOPPED_BY: Final = {
    PauseReason.IDLE_TIMEOUT: Point("paused", "LCM paused it because nobody used it; start it any time"),
    PauseReason.EXTERNAL: Point("stopped_outside", "somebody stopped it outside LCM; start it any time"),
    PauseReason.MANUAL: Point("stop_requested", "a person asked for it; start it any time"),
}

_NEXT: Final = {
    PENDING: Point("launch", "an instance is launched"),
    PROVISIONING: Point("await_running", "it goes on once EC2 reports it running"),
    STARTING: Point("await_running", "it becomes RUNNING once EC2 reports an address"),
    DRAINING: Point("stop", "it is stopped when its sessions are over, or the drain takes too long"),
    STOPPING: Point("await_stopped", "it becomes STOPPED once EC2 reports that"),
    TERMINATING: Point("await_terminated", "it becomes TERMINATED once EC2 reports that"),
    FAILED: Point("person", "nothing happens by itself: retry or delete it"),
    UNKNOWN: Point("observe", "LCM keeps looking and touches nothing"),
    TERMINATED: Point("purge", "the record stays for the audit until it is purged"),
}
