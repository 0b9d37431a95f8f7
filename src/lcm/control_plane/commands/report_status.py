"""The controller reports what is true of a worker. When its machine is gone, so are its labs."""

from lcm.control_plane.context import ControlPlane
from lcm.control_plane.store.port import Fence
from lcm.domain.lifecycle import PENDING, TERMINATED
from lcm.domain.worker import Worker, attach_instance, move
from lcm.rest.schemas import StatusReport


async def report_status(
    control_plane: ControlPlane, worker_id: str, report: StatusReport, *, by: str, fence: Fence
) -> Worker:
    """Accept the status if the table has the row, together with the instance if it is news."""
    now = control_plane.clock.now()

    def decide(worker: Worker) -> Worker:
        if report.instance is not None:
            worker = attach_instance(worker, report.instance, now=now)
        return move(worker, report.status, by=by, reason=report.reason, now=now, observed=report.observed)

    worker = await control_plane.workers.change(
        worker_id, decide, expected_version=report.expected_version, fence=fence
    )
    if worker.status in (TERMINATED, PENDING):
        await control_plane.labs.forget_worker(worker_id)
    return worker
