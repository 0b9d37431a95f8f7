"""What is observed of a running worker: its WebSocket connection and its activity."""

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from lcm.domain.telemetry import ActivityEvent, ActivityMark, MonitorState
from lcm.domain.worker import Worker

_OBSERVED_FIELDS = (
    "cml_system_info",
    "cml_health",
    "cml_license",
    "labs_count",
    "ws_connected",
    "ws_status",
    "ws_reason",
    "ws_connected_at",
    "ws_disconnected_at",
    "ws_told_connected",
    "ws_mark",
    "last_activity_at",
    "last_activity_check_at",
    "recent_activity_events",
    "activity_listed_since",
    "activity_mark",
)


def has_only_observed_changes(before: Worker, after: Worker) -> bool:
    """Whether only observed fields changed: no controller has to act on that."""
    observed = {name: getattr(after, name) for name in _OBSERVED_FIELDS}
    return replace(before, version=after.version, **observed) == after


def record_connection(
    worker: Worker, status: MonitorState, *, reason: str, at: datetime, mark: ActivityMark | None = None
) -> Worker:
    """Record the state of the WebSocket connection, unless a report with a later mark came before.

    Only the first connection and the end of one are published: `ws_told_connected` changes with them and
    stays as it is through reconnections.
    """
    if mark is not None:
        if _is_overtaken(mark, worker.ws_mark):
            return worker
        worker = replace(worker, ws_mark=mark)
    if not worker.is_live:
        status = MonitorState.DISCONNECTED if status is not MonitorState.DISABLED else status
    is_connected = status is MonitorState.CONNECTED
    noted = replace(worker, ws_connected=is_connected, ws_status=status, ws_reason=reason)
    if is_connected:
        if worker.ws_told_connected:
            return noted
        return replace(noted, ws_told_connected=True, ws_connected_at=at)
    never_worked = worker.ws_told_connected is None and status is MonitorState.FAILED
    if status in _CONNECTION_OVER and (worker.ws_told_connected or never_worked):
        return replace(noted, ws_told_connected=False, ws_disconnected_at=at)
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
) -> Worker:
    """Record an activity check and the events it found, in the order of observation.

    Events that the stored mark covers were reported before and count once. `last_activity_at` never moves
    back, and never beyond now: a worker's clock may be wrong.
    """
    fresh = list(events)
    known = worker.activity_mark
    if mark is not None and known is not None and mark.stream == known.stream:
        unseen = mark.last_sequence - known.last_sequence
        fresh = fresh[-unseen:] if unseen > 0 else []
        mark = max(mark, known, key=lambda seen: seen.last_sequence)
    fresh = [event for event in fresh if event not in worker.recent_activity_events]
    newest_first = sorted((*fresh, *worker.recent_activity_events), key=lambda event: event.at, reverse=True)
    moments = [min(event.at, now) for event in fresh]
    if worker.last_activity_at is not None:
        moments.append(worker.last_activity_at)
    return replace(
        worker,
        last_activity_at=max(moments, default=None),
        last_activity_check_at=now,
        recent_activity_events=tuple(newest_first[:keep]),
        activity_listed_since=newest_first[keep].at
        if len(newest_first) > keep
        else worker.activity_listed_since,
        activity_mark=mark or known,
    )
