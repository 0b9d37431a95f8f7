"""Requests of people, and automatic pauses: they change the desired status, the status follows."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from lcm.domain import pause
from lcm.domain.errors import ActionRefused, Conflict, TooSoon
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
from lcm.domain.pause import PauseReason
from lcm.domain.transitions import move
from lcm.domain.worker import Action, CmlLogin, Worker, extend_history


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
        return _retry(worker, by=by, now=now)
    desired = _DESIRED_STATUS[action]
    is_overriding = action is Action.STOP and (worker.is_being_paused or worker.pause.is_draining)
    if desired is worker.desired_status and not is_overriding:
        return worker
    changed = replace(
        worker,
        desired_status=desired,
        generation=worker.generation + 1,
        launch=replace(worker.launch, unattended=0),
        status_reason=f"{action} requested" if worker.status is PENDING else worker.status_reason,
        updated_at=now,
        state_history=extend_history(worker, worker.status, by=by, reason=f"{action} requested", now=now),
    )
    match desired:
        case DesiredStatus.STOPPED:
            return _with_stop(changed, PauseReason.MANUAL, by=by, now=now)
        case DesiredStatus.TERMINATED:
            return _deleted(changed, now)
        case DesiredStatus.RUNNING:
            return _resumed(worker, changed, now)


def _retry(worker: Worker, *, by: str, now: datetime) -> Worker:
    wanted = replace(
        worker,
        desired_status=DesiredStatus.RUNNING,
        generation=worker.generation + 1,
        pause=pause.abandon(worker.pause, now=now),
        launch=replace(worker.launch, unattended=0),
    )
    return replace(move(wanted, PENDING, by=by, reason="retried", now=now), pending_since=now)


def _with_stop(worker: Worker, why: PauseReason, *, by: str, now: datetime) -> Worker:
    requested = pause.request_stop(worker.pause, why, is_running=worker.is_live, by=by, now=now)
    return replace(worker, pause=requested)


def _deleted(worker: Worker, now: datetime) -> Worker:
    worker = replace(worker, pause=pause.abandon(worker.pause, now=now))
    # Its last report may be a minute old: a CML that answers is asked before its instance goes.
    must_ask = worker.may_hold_license or worker.cml.is_ready
    return replace(worker, license=deregister(worker.license, must_ask=must_ask, now=now))


def _resumed(before: Worker, worker: Worker, now: datetime) -> Worker:
    if before.desired_status is not DesiredStatus.STOPPED:
        return worker
    return replace(
        worker,
        pause=pause.request_resume(worker.pause, is_running=worker.is_live, now=now),
        # The launch of a worker that was stopped before it begins only now.
        pending_since=now if worker.status is PENDING else worker.pending_since,
    )


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
        if why is PauseReason.IDLE_TIMEOUT or not worker.is_being_paused:
            return worker
        return replace(
            worker,
            generation=worker.generation + 1,
            pause=pause.request_drain(worker.pause, why, until=deadline, by=by, now=now),
            updated_at=now,
            state_history=extend_history(worker, DRAINING, by=by, reason=reason, now=now),
        )
    if Action.DRAIN not in possible_actions(worker):
        raise ActionRefused(Action.DRAIN, worker.status, possible_actions(worker))
    drained = replace(worker, desired_status=DesiredStatus.STOPPED, generation=worker.generation + 1)
    drained = move(drained, DRAINING, by=by, reason=reason, now=now)
    return replace(drained, pause=pause.request_drain(drained.pause, why, until=deadline, by=by, now=now))


def pause_idle(worker: Worker, *, by: str, reason: str, now: datetime) -> Worker:
    """Stop an idle worker. The caller must check `idle.pause_guard` first."""
    paused = replace(
        worker,
        desired_status=DesiredStatus.STOPPED,
        generation=worker.generation + 1,
        updated_at=now,
        state_history=extend_history(worker, worker.status, by=by, reason=reason, now=now),
    )
    return _with_stop(paused, PauseReason.IDLE_TIMEOUT, by=by, now=now)


def cancel_pause(worker: Worker, *, by: str, reason: str, now: datetime) -> Worker:
    """Cancel a pause because the worker was used before the stop was requested from EC2."""
    if not worker.is_being_paused:
        return replace(worker, pause=pause.withdraw_decision(worker.pause, now=now))
    return replace(
        worker,
        desired_status=DesiredStatus.RUNNING,
        generation=worker.generation + 1,
        pause=pause.cancel(worker.pause, now=now),
        updated_at=now,
        state_history=extend_history(worker, worker.status, by=by, reason=reason, now=now),
    )


def stop_after_extraction(worker: Worker, within: timedelta, *, by: str, now: datetime) -> Worker | None:
    """The worker whose stop waits for the configurations of its nodes; None if it can be stopped now.

    A CML that is not ready has none to give.
    """
    if worker.pause.is_extracting(now):
        return worker
    can_extract = worker.is_live and worker.cml.is_ready and worker.pause.is_unfinished
    if not can_extract or worker.pause.extraction is not None:
        return None
    reason = f"configurations are extracted first, for {within.total_seconds():g} s at most"
    return replace(
        worker,
        pause=pause.request_extraction(worker.pause, within, now=now),
        updated_at=now,
        state_history=extend_history(worker, worker.status, by=by, reason=reason, now=now),
    )


def end_extraction(worker: Worker, *, extracted: int, missed: int, by: str, now: datetime) -> Worker:
    """Record how many configurations were extracted: the stop goes on."""
    reason = f"configurations extracted: {extracted}" + (f"; not extracted: {missed}" if missed else "")
    return replace(
        worker,
        pause=pause.end_extraction(worker.pause, extracted=extracted, missed=missed, now=now),
        updated_at=now,
        state_history=extend_history(worker, worker.status, by=by, reason=reason, now=now),
    )


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
    if login == worker.cml.login:
        return worker
    whose = f"its own, {login.username}" if login else "the fleet's"
    return replace(
        worker,
        cml=replace(worker.cml, login=login),
        generation=worker.generation + 1,
        updated_at=now,
        state_history=extend_history(worker, worker.status, by=by, reason=f"CML login is {whose}", now=now),
    )


def accept_certificate(worker: Worker, sha256: str, *, by: str, now: datetime) -> Worker:
    """Pin the certificate that the worker's CML presents now, in place of the pinned one."""
    cml = worker.cml
    if worker.desired_status is DesiredStatus.TERMINATED or worker.status is TERMINATED:
        raise ActionRefused("accept a certificate of", worker.status, possible_actions(worker))
    if sha256 == cml.certificate_sha256:
        return worker
    if sha256 != cml.refused_certificate_sha256:
        shown = cml.refused_certificate_sha256
        raise Conflict(f"CML presents {shown}; accept that one" if shown else "CML presents the pinned one")
    reason = f"certificate {sha256} accepted in place of {cml.certificate_sha256}"
    return replace(
        worker,
        cml=replace(cml, certificate_sha256=sha256, refused_certificate_sha256=None),
        generation=worker.generation + 1,
        updated_at=now,
        state_history=extend_history(worker, worker.status, by=by, reason=reason, now=now),
    )


def adopt(worker: Worker, sha256: str | None, *, by: str, now: datetime) -> Worker:
    """Trust a found instance whose CML presents this certificate: from now on LCM logs in to it.

    None: it has presented none yet; the first one is pinned, as that of an instance LCM launched.
    """
    if worker.desired_status is DesiredStatus.TERMINATED or worker.status is TERMINATED:
        raise ActionRefused("adopt", worker.status, possible_actions(worker))
    if worker.discovered is None or worker.is_trusted:
        return worker
    shown = worker.cml.certificate_sha256
    if sha256 != shown:
        raise Conflict(
            f"its CML presents certificate {shown}; compare it, then adopt that one"
            if shown
            else "its CML has presented no certificate yet; adopt it with null, or once it has"
        )
    reason = f"adopted with certificate {shown}" if shown else "adopted before it presented a certificate"
    return replace(
        worker,
        discovered=replace(worker.discovered, adopted_at=now, adopted_by=by),
        generation=worker.generation + 1,
        updated_at=now,
        state_history=extend_history(worker, worker.status, by=by, reason=reason, now=now),
    )


def refresh(worker: Worker, *, now: datetime) -> Worker:
    """Request a fresh observation of everything, now."""
    since = now - worker.refresh_requested_at if worker.refresh_requested_at else REFRESH_INTERVAL
    if since < REFRESH_INTERVAL:
        left = (REFRESH_INTERVAL - since).total_seconds()
        raise TooSoon(f"the worker was refreshed a moment ago; repeat in {left:.0f} s", left)
    return replace(worker, refresh_requested_at=now, generation=worker.generation + 1)
