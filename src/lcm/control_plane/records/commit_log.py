"""What people want of a worker, and what is true of it, in the log as it changes."""

import structlog

from lcm.domain.worker import Worker

log = structlog.get_logger(__name__)


def log_commit(before: Worker | None, after: Worker) -> None:
    """Told of every commit; news that change neither are not worth a line."""
    if before is not None and (before.status, before.desired_status) == (after.status, after.desired_status):
        return
    log.info(
        "worker created" if before is None else "worker changed",
        worker_id=after.id,
        name=after.name,
        was=str(before.status) if before is not None else None,
        status=str(after.status),
        desired_status=str(after.desired_status),
        reason=after.status_reason,
        version=after.version,
    )
