"""A person wants a worker gone: softly, so that its record stays for the audit, or record and all."""

from lcm.control_plane.commands.clean_up import forget_worker
from lcm.control_plane.commands.request_action import request_action
from lcm.control_plane.records.groups import Records
from lcm.control_plane.records.preconditions import UNCONDITIONAL, Conditions
from lcm.domain.lifecycle import TERMINATED
from lcm.domain.requests import delete_for_good
from lcm.domain.worker import Action, Worker


async def delete_worker(
    records: Records,
    worker_id: str,
    *,
    force: bool,
    by: str,
    conditions: Conditions = UNCONDITIONAL,
) -> Worker:
    """With `force` the record is purged as soon as nothing of the worker is left, which may be now."""
    if not force:
        return await request_action(records, worker_id, Action.DELETE, by=by, conditions=conditions)
    now = records.clock.now()
    worker = await records.workers.change(
        worker_id, conditions.guard(lambda current: delete_for_good(current, by=by, now=now))
    )
    if worker.status is TERMINATED:
        await forget_worker(records, worker)
    return worker
