"""A person asks something of a worker: start, stop, delete, retry, other tags."""

from collections.abc import Mapping

from lcm.control_plane.records.groups import Records
from lcm.control_plane.records.preconditions import UNCONDITIONAL, Conditions
from lcm.control_plane.store.port import Fence
from lcm.domain.requests import refresh, request, retag
from lcm.domain.worker import Action, Worker


async def request_action(
    records: Records,
    worker_id: str,
    action: Action,
    *,
    by: str,
    conditions: Conditions = UNCONDITIONAL,
    fence: Fence | None = None,
) -> Worker:
    """Record the wish and answer at once; effects follow. Asking twice changes nothing."""
    now = records.clock.now()
    return await records.workers.change(
        worker_id, conditions.guard(lambda worker: request(worker, action, by=by, now=now)), fence=fence
    )


async def request_refresh(
    records: Records, worker_id: str, *, conditions: Conditions = UNCONDITIONAL
) -> Worker:
    """Have the controller look at everything about a worker again."""
    now = records.clock.now()
    return await records.workers.change(worker_id, conditions.guard(lambda worker: refresh(worker, now=now)))


async def request_tags(
    records: Records,
    worker_id: str,
    tags: Mapping[str, str],
    *,
    by: str,
    conditions: Conditions = UNCONDITIONAL,
) -> Worker:
    """Have the worker's instance carry these tags."""
    now = records.clock.now()
    return await records.workers.change(
        worker_id, conditions.guard(lambda worker: retag(worker, tags, by=by, now=now))
    )
