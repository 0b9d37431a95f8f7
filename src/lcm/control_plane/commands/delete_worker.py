"""An operator deletes a worker: its record stays for the audit, or with `force` is purged too."""

from lcm.control_plane.commands.clean_up import forget_worker
from lcm.control_plane.commands.request_action import request_action
from lcm.control_plane.records.groups import Records
from lcm.control_plane.records.preconditions import UNCONDITIONAL, Preconditions
from lcm.domain.lifecycle import TERMINATED
from lcm.domain.requests import delete_for_good
from lcm.domain.worker import Action, Worker


async def delete_worker(
    records: Records,
    worker_id: str,
    *,
    force: bool,
    by: str,
    preconditions: Preconditions = UNCONDITIONAL,
) -> Worker:
    """Request the deletion; with `force` the record is purged once the worker is terminated, maybe now."""
    if not force:
        return await request_action(records, worker_id, Action.DELETE, by=by, preconditions=preconditions)
    now = records.clock.now()
    worker = await records.workers.change(
        worker_id, preconditions.guard(lambda current: delete_for_good(current, by=by, now=now))
    )
    if worker.status is TERMINATED:
        await forget_worker(records, worker)
    return worker
