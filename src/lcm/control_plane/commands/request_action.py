"""A person asks something of a worker: start, stop, delete, retry, other tags."""

from collections.abc import Mapping

from lcm.control_plane.context import ControlPlane
from lcm.control_plane.records.preconditions import UNCONDITIONAL, Conditions
from lcm.control_plane.store.port import Fence
from lcm.domain.requests import refresh, request, retag
from lcm.domain.worker import Action, Worker


async def request_action(
    control_plane: ControlPlane,
    worker_id: str,
    action: Action,
    *,
    by: str,
    conditions: Conditions = UNCONDITIONAL,
    fence: Fence | None = None,
) -> Worker:
    """Record the wish and answer at once; effects follow. Asking twice changes nothing."""
    now = control_plane.clock.now()
    return await control_plane.workers.change(
        worker_id, conditions.guard(lambda worker: request(worker, action, by=by, now=now)), fence=fence
    )


async def request_refresh(
    control_plane: ControlPlane, worker_id: str, *, conditions: Conditions = UNCONDITIONAL
) -> Worker:
    """Have the controller look at everything about a worker again."""
    now = control_plane.clock.now()
    return await control_plane.workers.change(
        worker_id, conditions.guard(lambda worker: refresh(worker, now=now))
    )


async def request_tags(
    control_plane: ControlPlane,
    worker_id: str,
    tags: Mapping[str, str],
    *,
    by: str,
    conditions: Conditions = UNCONDITIONAL,
) -> Worker:
    """Have the worker's instance carry these tags."""
    now = control_plane.clock.now()
    return await control_plane.workers.change(
        worker_id, conditions.guard(lambda worker: retag(worker, tags, by=by, now=now))
    )
