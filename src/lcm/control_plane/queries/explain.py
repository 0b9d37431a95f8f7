"""Why a worker is in its state."""

from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Caches, Records
from lcm.domain import explain
from lcm.domain.worker import Worker
from lcm.rest.schemas import Explanation, Reason


def explain_worker(records: Records, caches: Caches, policies: Policies, worker: Worker) -> Explanation:
    checks = caches.idle_checks
    now = records.clock.now()
    health = explain.IdleCheckHealth(
        checks.unasked_since(worker.id, now), checks.unconfirmed_since(worker.id)
    )
    account = explain.explain(worker, policies.idle, now, health)
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
