"""Take a worker out of service without throwing anybody out."""

from datetime import timedelta

from lcm.control_plane.conditions import UNCONDITIONAL, Conditions
from lcm.control_plane.context import ControlPlane
from lcm.control_plane.store.port import Fence
from lcm.domain.worker import Worker, drain


async def drain_worker(
    control_plane: ControlPlane,
    worker_id: str,
    *,
    by: str,
    reason: str,
    conditions: Conditions = UNCONDITIONAL,
    fence: Fence | None = None,
) -> Worker:
    """The template says how long people are waited for."""
    worker = await control_plane.workers.get(worker_id)
    template = await control_plane.templates.find(worker.template_name)
    patience = (
        timedelta(hours=template.drain_timeout_hours) if template else control_plane.policies.drain_timeout
    )
    now = control_plane.clock.now()
    return await control_plane.workers.change(
        worker_id,
        conditions.guard(
            lambda current: drain(current, deadline=now + patience, by=by, reason=reason, now=now)
        ),
        fence=fence,
    )
