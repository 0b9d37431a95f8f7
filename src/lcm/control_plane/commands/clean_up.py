"""Purges the records of workers terminated long ago, and at once those that were deleted by force."""

from datetime import datetime, timedelta

from lcm.control_plane.commands import change_login
from lcm.control_plane.records.fleet_token import FLEET, LICENSES
from lcm.control_plane.records.groups import Records
from lcm.domain.errors import Conflict
from lcm.domain.lifecycle import TERMINATED
from lcm.domain.worker import Worker
from lcm.rest.fleet import Cleanup, CleanupResult

MAX_PURGED = 1_000
"""In one call; the next call continues."""


async def clean_up(records: Records, cleanup: Cleanup) -> CleanupResult:
    """Purge, or with `dry_run` only list what would be purged.

    No transition leaves TERMINATED, so any leader may request this. A record whose tag a running instance
    carries is kept, because it proves which worker that instance belongs to.
    """
    before = records.clock.now() - timedelta(days=cleanup.retention_days)
    kept = set(cleanup.keep)
    due = [w async for w in records.workers.each() if is_due(w, before) and w.id not in kept]
    purged = []
    for worker in due[:MAX_PURGED]:
        if not cleanup.dry_run:
            try:
                await forget_worker(records, worker)
            except Conflict:
                continue
        purged.append(worker.id)
    return CleanupResult(worker_ids=purged, dry_run=cleanup.dry_run, retention_days=cleanup.retention_days)


async def forget_worker(records: Records, worker: Worker) -> None:
    """Remove the secrets that a terminated worker's record names, then purge it: nothing else names them."""
    token_ref = worker.license.token_ref
    if token_ref is not None and token_ref != FLEET:
        await records.secrets.remove(LICENSES, token_ref)
    if worker.cml.login is not None:
        await records.secrets.remove(change_login.PURPOSE, worker.cml.login.secret_ref)
    await records.workers.purge(worker)


def is_due(worker: Worker, before: datetime) -> bool:
    """Return whether the record is old enough, or its purge at termination was interrupted."""
    return worker.status is TERMINATED and (worker.purge_when_terminated or worker.status_since < before)
