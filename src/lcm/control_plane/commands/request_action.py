"""An operator requests an action on a worker: start, stop, delete, retry, new tags."""

from collections.abc import Mapping

from lcm.control_plane.records.groups import Records
from lcm.control_plane.records.preconditions import UNCONDITIONAL, Preconditions
from lcm.control_plane.store.port import Fence
from lcm.domain.requests import refresh, request, retag
from lcm.domain.worker import Action, Worker


async def request_action(
    records: Records,
    worker_id: str,
    action: Action,
    *,
    by: str,
    preconditions: Preconditions = UNCONDITIONAL,
    fence: Fence | None = None,
) -> Worker:
    """Record the request and answer at once; effects follow. A repeated request changes nothing."""
    now = records.clock.now()
    return await records.workers.change(
        worker_id, preconditions.guard(lambda worker: request(worker, action, by=by, now=now)), fence=fence
    )


async def request_refresh(
    records: Records, worker_id: str, *, preconditions: Preconditions = UNCONDITIONAL
) -> Worker:
    """Have the controller observe everything about a worker again."""
    now = records.clock.now()
    return await records.workers.change(
        worker_id, preconditions.guard(lambda worker: refresh(worker, now=now))
    )


async def request_tags(
    records: Records,
    worker_id: str,
    tags: Mapping[str, str],
    *,
    by: str,
    preconditions: Preconditions = UNCONDITIONAL,
) -> Worker:
    """Have the worker's instance carry these tags."""
    now = records.clock.now()
    return await records.workers.change(
        worker_id, preconditions.guard(lambda worker: retag(worker, tags, by=by, now=now))
    )
