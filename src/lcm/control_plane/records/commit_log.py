"""Logs every change of the status and desired status of workers and lablet sessions."""

from enum import StrEnum

import structlog

from lcm.domain.lablet.session import LabletSession
from lcm.domain.worker import Worker

log = structlog.get_logger(__name__)


def log_commit(before: Worker | None, after: Worker) -> None:
    """Log a commit, unless it changes neither status nor desired status."""
    if before is not None and (before.status, before.desired_status) == (after.status, after.desired_status):
        return
    was = before.status if before is not None else None
    log.info(
        _event("worker", was, after.status),
        worker_id=after.id,
        name=after.name,
        previous_status=str(was) if was is not None else None,
        status=str(after.status),
        desired_status=str(after.desired_status),
        reason=after.status_reason,
        version=after.version,
    )


def log_session_commit(before: LabletSession | None, after: LabletSession) -> None:
    """Log a commit, unless it changes neither status nor desired status."""
    if before is not None and (before.status, before.desired_status) == (after.status, after.desired_status):
        return
    was = before.status if before is not None else None
    log.info(
        _event("lablet session", was, after.status),
        session_id=after.id,
        previous_status=str(was) if was is not None else None,
        status=str(after.status),
        desired_status=str(after.desired_status),
        reason=after.status_reason,
        worker_id=after.worker_id,
        attempt=after.attempt,
        version=after.version,
    )


def _event(noun: str, was: StrEnum | None, status: StrEnum) -> str:
    """Name what changed; a request changes the desired status alone."""
    if was is None:
        return f"{noun} created"
    return f"{noun} desired status changed" if was is status else f"{noun} status changed"
