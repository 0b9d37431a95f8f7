"""The controller records the intent to launch before it calls RunInstances, or withdraws it."""

from lcm.control_plane.commands.license_worker import change_that_may_lose_an_instance
from lcm.control_plane.records.groups import Records
from lcm.control_plane.store.port import Fence
from lcm.domain.transitions import with_launch_intent, without_launch_intent
from lcm.domain.worker import Worker
from lcm.rest.schemas import LaunchIntentRecorded, LaunchIntentWithdrawn


async def record_launch_intent(
    records: Records, worker_id: str, intent: LaunchIntentRecorded, *, fence: Fence
) -> Worker:
    """Store generation, client token and parameters, so that any later leader can repeat the launch."""
    now = records.clock.now()
    return await records.workers.change(
        worker_id,
        lambda worker: with_launch_intent(worker, intent.spec, now=now),
        expected_version=intent.expected_version,
        fence=fence,
    )


async def withdraw_launch_intent(
    records: Records, worker_id: str, withdrawal: LaunchIntentWithdrawn, *, fence: Fence
) -> Worker:
    """Remove an intent whose instance is proven gone; a new generation may follow."""
    now = records.clock.now()
    return await change_that_may_lose_an_instance(
        records,
        worker_id,
        lambda worker: without_launch_intent(
            worker, reason=withdrawal.reason, now=now, refused=withdrawal.refused
        ),
        expected_version=withdrawal.expected_version,
        fence=fence,
    )
