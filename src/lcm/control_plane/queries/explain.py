"""Why a worker is in its state."""

from lcm.control_plane.context import ControlPlane
from lcm.domain import explain
from lcm.domain.worker import Worker
from lcm.rest.schemas import Explanation, Reason


def explain_worker(control_plane: ControlPlane, worker: Worker) -> Explanation:
    account = explain.explain(worker, control_plane.policies.idle, control_plane.clock.now())
    return Explanation(
        worker_id=worker.id,
        status=worker.status,
        desired_status=worker.desired_status,
        code=account.code,
        summary=account.summary,
        holding=[_reason(point) for point in account.holding],
        next=[_reason(point) for point in account.next],
    )


def _reason(point: explain.Point) -> Reason:
    return Reason(code=point.code, text=point.text, at=point.at)
