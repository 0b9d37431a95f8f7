"""The controller promises a launch before it asks EC2 for it, or takes a promise back."""

from lcm.control_plane.commands.license_worker import change_that_may_lose_a_machine
from lcm.control_plane.context import ControlPlane
from lcm.control_plane.store.port import Fence
from lcm.domain.transitions import plan_launch, void_launch
from lcm.domain.worker import Worker
from lcm.rest.schemas import LaunchPlan, LaunchVoided


async def promise_launch(
    control_plane: ControlPlane, worker_id: str, plan: LaunchPlan, *, fence: Fence
) -> Worker:
    """Store generation, token and parameters: from now on the launch can be repeated by anyone."""
    now = control_plane.clock.now()
    return await control_plane.workers.change(
        worker_id,
        lambda worker: plan_launch(worker, plan.spec, now=now),
        expected_version=plan.expected_version,
        fence=fence,
    )


async def forget_launch(
    control_plane: ControlPlane, worker_id: str, voided: LaunchVoided, *, fence: Fence
) -> Worker:
    """The promised instance is proven gone; a new generation may follow."""
    now = control_plane.clock.now()
    return await change_that_may_lose_a_machine(
        control_plane,
        worker_id,
        lambda worker: void_launch(worker, reason=voided.reason, now=now, refused=voided.refused),
        expected_version=voided.expected_version,
        fence=fence,
    )
