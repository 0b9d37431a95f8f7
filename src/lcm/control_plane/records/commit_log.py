"""Logs every change of the status and desired status of workers and lablet sessions."""

import structlog

from lcm.domain.lablet.session import LabletSession
from lcm.domain.worker import Worker

log = structlog.get_logger(__name__)


def log_commit(before: Worker | None, after: Worker) -> None:
    """Log a commit, unless it changes neither status nor desired status."""
    if before is not None and (before.status, before.desired_status) == (after.status, after.desired_status):
        return
    log.info(
        "worker created" if before is None else "worker status changed",
        worker_id=after.id,
        name=after.name,
        previous_status=str(before.status) if before is not None else None,
        status=str(after.status),
        desired_status=str(after.desired_status),
        reason=after.status_reason,
        version=after.version,
    )


def log_session_commit(before: LabletSession | None, after: LabletSession) -> None:
    """Log a commit, unless it changes neither status nor desired status."""
    if before is not None and (before.status, before.desired_status) == (after.status, after.desired_status):
        return
    log.info(
        "lablet session created" if before is None else "lablet session status changed",
        session_id=after.id,
        previous_status=str(before.status) if before is not None else None,
        status=str(after.status),
        desired_status=str(after.desired_status),
        reason=after.status_reason,
        worker_id=after.worker_id,
        attempt=after.attempt,
        version=after.version,
    )
