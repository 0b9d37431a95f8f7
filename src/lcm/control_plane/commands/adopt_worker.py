"""An admin adopts a worker whose instance LCM did not launch: its CML may get LCM's login."""

from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Records
from lcm.control_plane.records.preconditions import UNCONDITIONAL, Preconditions
from lcm.domain.idle import with_countdown
from lcm.domain.requests import adopt
from lcm.domain.worker import Worker


async def adopt_worker(
    records: Records,
    policies: Policies,
    worker_id: str,
    certificate_sha256: str | None,
    *,
    by: str,
    preconditions: Preconditions = UNCONDITIONAL,
) -> Worker:
    """Trust the server that presents this certificate; one that another server presents is refused."""
    now = records.clock.now()

    def decide(worker: Worker) -> Worker:
        adopted = adopt(worker, certificate_sha256, by=by, now=now)
        return worker if adopted is worker else with_countdown(adopted, policies.idle)

    return await records.workers.change(worker_id, preconditions.guard(decide))
