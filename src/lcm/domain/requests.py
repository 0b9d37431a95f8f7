"""Requests of people, and automatic pauses: they change the desired status, the status follows."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from lcm.domain.errors import ActionRefused, TooSoon
from lcm.domain.license import deregister
from lcm.domain.lifecycle import (
    DRAINING,
    FAILED,
    PENDING,
    RUNNING,
    TERMINATED,
    TERMINATING,
    DesiredStatus,
)
from lcm.domain.transitions import mark_paused, move
from lcm.domain.worker import Action, CmlLogin, PauseReason, Worker, extend_history


def possible_actions(worker: Worker) -> frozenset[Action]:
    """The actions that this worker allows now. Requesting what is already desired is always allowed."""
    if worker.status is TERMINATED:
        return frozenset()
    if worker.desired_status is DesiredStatus.TERMINATED or worker.status is TERMINATING:
        return frozenset({Action.DELETE})
    if worker.status is FAILED:
        return frozenset({Action.RETRY, Action.DELETE})
    if worker.status is DRAINING:
        return frozenset({Action.START, Action.CANCEL_DRAIN, Action.STOP, Action.DELETE})
    if worker.status is RUNNING and worker.desired_status is DesiredStatus.RUNNING:
        return frozenset({Action.START, Action.STOP, Action.DRAIN, Action.DELETE})
    return frozenset({Action.START, Action.STOP, Action.DELETE})


_DESIRED_STATUS = {
    Action.START: DesiredStatus.RUNNING,
    Action.CANCEL_DRAIN: DesiredStatus.RUNNING,
    Action.STOP: DesiredStatus.STOPPED,
    Action.DELETE: DesiredStatus.TERMINATED,
}


def request(worker: Worker, action: Action, *, by: str, now: datetime) -> Worker:
    """Apply a person's request: change the desired status, never the status (except `retry`)."""
    if action is Action.DELETE and worker.status is TERMINATED:
        return worker
    if action not in possible_actions(worker):
        raise ActionRefused(action, worker.status, possible_actions(worker))
    if action is Action.RETRY:
        retried = replace(worker, desired_status=DesiredStatus.RUNNING, generation=worker.generation + 1)
        return replace(
            move(retried, PENDING, by=by, reason="retried", now=now), unattended_launches=0, pending_since=now
        )
    desired = _DESIRED_STATUS[action]
    cuts_short = action is Action.STOP and worker.status is DRAINING and not worker.is_drain_cut_short
    takes_over = action is Action.STOP and _is_being_paused(worker)
    if desired is worker.desired_status and not (cuts_short or takes_over):
        return worker
    changed = replace(
        worker,
        desired_status=desired,
        generation=worker.generation + 1,
        unattended_launches=0,
        status_reason=f"{action} requested" if worker.status is PENDING else worker.status_reason,
        updated_at=now,
        state_history=extend_history(worker, worker.status, by=by, reason=f"{action} requested", now=now),
    )
    if desired is DesiredStatus.STOPPED:
        # A stop cuts a drain short: it no longer waits for sessions.
        stopped = replace(changed, drain_deadline_at=now, auto_pause_count=_without_pause(worker))
        return mark_paused(stopped, PauseReason.MANUAL, by=by, now=now)
    if desired is DesiredStatus.TERMINATED and worker.license.changed_at is not None:
        return replace(changed, license=deregister(worker.license, now=now))
    if desired is DesiredStatus.RUNNING and worker.desired_status is DesiredStatus.STOPPED:
        return replace(
            changed,
            manual_resume_count=worker.manual_resume_count + 1,
            pause_decided_at=None,
            # The launch of a worker that was stopped before it begins only now.
            pending_since=now if worker.status is PENDING else worker.pending_since,
            # Resumed before it was stopped: it is snoozed like one that had been stopped.
            last_resumed_at=now if worker.is_live else worker.last_resumed_at,
        )
    return changed


def delete_for_good(worker: Worker, *, by: str, now: datetime) -> Worker:
    """Delete the worker and then its record: not before the instance, which would become an orphan."""
    if worker.status is TERMINATED:
        return worker
    return replace(request(worker, Action.DELETE, by=by, now=now), purge_when_terminated=True)


def drain(
    worker: Worker,
    *,
    deadline: datetime,
    by: str,
    reason: str,
    now: datetime,
    why: PauseReason = PauseReason.MANUAL,
) -> Worker:
    """Let sessions finish until the deadline, take no new ones, then stop. Draining twice changes nothing.

    The status changes here and not by a report: from this commit on no session may be placed on it.
    """
    if worker.status is DRAINING and worker.desired_status is DesiredStatus.STOPPED:
        if why is PauseReason.IDLE_TIMEOUT or not _is_being_paused(worker):
            return worker
        return replace(
            worker,
            generation=worker.generation + 1,
            drain_deadline_at=deadline,
            pause_reason=why,
            last_paused_by=by,
            updated_at=now,
            state_history=extend_history(worker, DRAINING, by=by, reason=reason, now=now),
        )
    if Action.DRAIN not in possible_actions(worker):
        raise ActionRefused(Action.DRAIN, worker.status, possible_actions(worker))
    drained = replace(worker, desired_status=DesiredStatus.STOPPED, generation=worker.generation + 1)
    drained = move(drained, DRAINING, by=by, reason=reason, now=now)
    return replace(
        drained, drain_started_at=now, drain_deadline_at=deadline, pause_reason=why, last_paused_by=by
    )


def pause(worker: Worker, *, by: str, reason: str, now: datetime) -> Worker:
    """Stop an idle worker. The caller must check `idle.pause_guard` first."""
    paused = replace(
        worker,
        desired_status=DesiredStatus.STOPPED,
        generation=worker.generation + 1,
        updated_at=now,
        state_history=extend_history(worker, worker.status, by=by, reason=reason, now=now),
    )
    return mark_paused(paused, PauseReason.IDLE_TIMEOUT, by=by, now=now)


def cancel_pause(worker: Worker, *, by: str, reason: str, now: datetime) -> Worker:
    """Cancel a pause because the worker was used before the stop was requested from EC2."""
    if worker.pause_decided_at is not None:
        worker = replace(worker, pause_decided_at=None)
    if not _is_being_paused(worker):
        return worker
    return replace(
        worker,
        desired_status=DesiredStatus.RUNNING,
        generation=worker.generation + 1,
        pause_reason=None,
        auto_pause_count=_without_pause(worker),
        updated_at=now,
        state_history=extend_history(worker, worker.status, by=by, reason=reason, now=now),
    )


def _is_being_paused(worker: Worker) -> bool:
    """Whether an automatic pause is in progress that activity would still cancel."""
    is_ours = worker.pause_reason is PauseReason.IDLE_TIMEOUT
    return is_ours and worker.desired_status is DesiredStatus.STOPPED and worker.is_live


def _without_pause(worker: Worker) -> int:
    """The count of automatic pauses without one that was cancelled; a drain was not counted yet."""
    is_counted = _is_being_paused(worker) and worker.status is RUNNING
    return worker.auto_pause_count - is_counted


REFRESH_INTERVAL: Final = timedelta(seconds=10)


MAX_RETIRED_TAGS: Final = 50


def retag(worker: Worker, tags: Mapping[str, str], *, by: str, now: datetime) -> Worker:
    """Replace all tags but LCM's own; the controller applies them at EC2."""
    if worker.desired_status is DesiredStatus.TERMINATED or worker.status is TERMINATED:
        raise ActionRefused("tag", worker.status, possible_actions(worker))
    if dict(tags) == worker.tags:
        return worker
    retired = [key for key in (*worker.retired_tags, *worker.tags) if key not in tags]
    return replace(
        worker,
        tags=dict(tags),
        retired_tags=tuple(dict.fromkeys(retired))[-MAX_RETIRED_TAGS:],
        generation=worker.generation + 1,
        updated_at=now,
        state_history=extend_history(worker, worker.status, by=by, reason="tags changed", now=now),
    )


def change_login(worker: Worker, login: CmlLogin | None, *, by: str, now: datetime) -> Worker:
    """Set the login that LCM uses for this worker's CML; None: the fleet's."""
    if worker.desired_status is DesiredStatus.TERMINATED or worker.status is TERMINATED:
        raise ActionRefused("change the login of", worker.status, possible_actions(worker))
    if login == worker.cml_login:
        return worker
    whose = f"its own, {login.username}" if login else "the fleet's"
    return replace(
        worker,
        cml_login=login,
        generation=worker.generation + 1,
        updated_at=now,
        state_history=extend_history(worker, worker.status, by=by, reason=f"CML login is {whose}", now=now),
    )


def refresh(worker: Worker, *, now: datetime) -> Worker:
    """Request a fresh observation of everything, now."""
    since = now - worker.refresh_requested_at if worker.refresh_requested_at else REFRESH_INTERVAL
    if since < REFRESH_INTERVAL:
        left = (REFRESH_INTERVAL - since).total_seconds()
        raise TooSoon(f"the worker was refreshed a moment ago; repeat in {left:.0f} s", left)
    return replace(worker, refresh_requested_at=now, generation=worker.generation + 1)
