"""A person asks something of a worker: start, stop, delete, retry."""

from lcm.control_plane.conditions import UNCONDITIONAL, Conditions
from lcm.control_plane.context import ControlPlane
from lcm.domain.worker import Action, Worker, refresh, request


async def request_action(
    control_plane: ControlPlane,
    worker_id: str,
    action: Action,
    *,
    by: str,
    conditions: Conditions = UNCONDITIONAL,
) -> Worker:
    """Record the wish and answer at once; effects follow. Asking twice changes nothing."""
    now = control_plane.clock.now()
    return await control_plane.workers.change(
        worker_id, conditions.guard(lambda worker: request(worker, action, by=by, now=now))
    )


async def request_refresh(
    control_plane: ControlPlane, worker_id: str, *, conditions: Conditions = UNCONDITIONAL
) -> Worker:
    """Have the controller look at everything about a worker again."""
    now = control_plane.clock.now()
    return await control_plane.workers.change(
        worker_id, conditions.guard(lambda worker: refresh(worker, now=now))
    )
