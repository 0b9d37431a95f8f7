"""What is observed of a running worker: its certificate, its WebSocket connection and its activity."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from lcm.domain.lifecycle import RUNNING
from lcm.domain.readiness import CmlAttempt, CmlContact, CmlWait, ready_within
from lcm.domain.telemetry import ActivityEvent, ActivityMark, MonitorState
from lcm.domain.worker import Connection, Worker, WorkerActivity, extend_history


def has_only_observed_changes(before: Worker, after: Worker) -> bool:
    """Whether only what is observed of a running worker changed: no controller has to act on that."""
    observed = after.cml
    cml = replace(
        before.cml,
        wait=observed.wait,
        system_info=observed.system_info,
        health=observed.health,
        license=observed.license,
        labs_count=observed.labs_count,
        labs=observed.labs,
        definitions=observed.definitions,
    )
    same = replace(
        before, version=after.version, cml=cml, connection=after.connection, activity=after.activity
    )
    return same == after


def record_certificate(worker: Worker, presented: str, *, by: str, now: datetime) -> Worker:
    """Record which certificate the worker's CML presents: the first one is pinned, another one is refused.

    A person may accept it; the timeline says once that it is refused.
    """
    pinned = worker.cml.certificate_sha256 or presented
    refused = presented if presented != pinned else None
    is_known = refused == worker.cml.refused_certificate_sha256
    cml = replace(worker.cml, certificate_sha256=pinned, refused_certificate_sha256=refused)
    changed = replace(worker, cml=cml)
    if refused is None or is_known:
        return changed
    reason = (
        f"CML presents certificate {refused} instead of {pinned}: it is refused until a person accepts it"
    )
    history = extend_history(worker, worker.status, by=by, reason=reason, now=now)
    return replace(changed, updated_at=now, state_history=history)


def wait_for_cml(
    worker: Worker, attempt: CmlAttempt | None, *, is_ready: bool, setting: timedelta | None, now: datetime
) -> CmlWait | None:
    """The wait for CML after a report; None if it is ready, or not waited for.

    The wait begins when the worker starts to run, or when CML is ready no more. Once it exceeds its limit
    that is noted, once.
    """
    if is_ready or worker.status is not RUNNING:
        return None
    wait = worker.cml.wait
    if worker.cml.is_ready:
        attempt = attempt or CmlAttempt(
            contact=CmlContact.NOT_READY, detail="CML reports that it is not ready"
        )
        wait = CmlWait(since=now, last=attempt, was_ready=True)
    elif attempt is not None:
        wait = wait or CmlWait(since=worker.status_since, last=attempt)
        wait = replace(wait, last=attempt)
    if wait is None or wait.alarmed_at is not None:
        return wait
    is_overdue = now - wait.since > ready_within(worker.instance.type, setting)
    return replace(wait, alarmed_at=now) if is_overdue else wait


def record_connection(
    worker: Worker, status: MonitorState, *, reason: str, at: datetime, mark: ActivityMark | None = None
) -> Worker:
    """Record the state of the WebSocket connection, unless a report with a later mark came before.

    Only the first connection and the end of one are published: `published` changes with them and stays as it
    is through reconnections.
    """
    connection = worker.connection
    if mark is not None:
        if _is_overtaken(mark, connection.mark):
            return worker
        connection = replace(connection, mark=mark)
    if not worker.is_live:
        status = MonitorState.DISCONNECTED if status is not MonitorState.DISABLED else status
    return replace(worker, connection=_with_status(connection, status, reason, at))


def _with_status(connection: Connection, status: MonitorState, reason: str, at: datetime) -> Connection:
    noted = replace(connection, status=status, reason=reason)
    if noted.is_connected:
        return noted if connection.published else replace(noted, published=True, connected_at=at)
    never_worked = connection.published is None and status is MonitorState.FAILED
    if status in _CONNECTION_OVER and (connection.published or never_worked):
        return replace(noted, published=False, disconnected_at=at)
    return noted


def _is_overtaken(mark: ActivityMark, by: ActivityMark | None) -> bool:
    return by is not None and by.stream == mark.stream and mark.last_sequence <= by.last_sequence


_CONNECTION_OVER = frozenset({MonitorState.FAILED, MonitorState.DISCONNECTED, MonitorState.DISABLED})


def record_activity(
    worker: Worker,
    events: Sequence[ActivityEvent],
    *,
    mark: ActivityMark | None,
    now: datetime,
    keep: int,
    own: Collection[ActivityEvent] = (),
) -> Worker:
    """Record an activity check and the events it found, in the order of observation.

    Those in `own` are LCM's own actions: they are seen, and are no activity of people.
    Events that the stored mark covers were reported before and count once. `last_activity_at` never moves
    back, and never beyond now: a worker's clock may be wrong.
    """
    fresh = list(events)
    known, listed = worker.activity.mark, worker.activity.recent_events
    if mark is not None and known is not None and mark.stream == known.stream:
        unseen = mark.last_sequence - known.last_sequence
        fresh = fresh[-unseen:] if unseen > 0 else []
        mark = max(mark, known, key=lambda seen: seen.last_sequence)
    fresh = [event for event in fresh if event not in listed and event not in own]
    newest_first = sorted((*fresh, *listed), key=lambda event: event.at, reverse=True)
    moments = [min(event.at, now) for event in fresh]
    if worker.activity.last_at is not None:
        moments.append(worker.activity.last_at)
    activity = WorkerActivity(
        last_at=max(moments, default=None),
        checked_at=now,
        recent_events=tuple(newest_first[:keep]),
        listed_since=newest_first[keep].at if len(newest_first) > keep else worker.activity.listed_since,
        mark=mark or known,
    )
    return replace(worker, activity=activity)
