"""Why a worker has its status, and what the fleet costs."""

from fastapi import APIRouter
from starlette.responses import Response

from lcm.control_plane.api.dependencies import Plane, Viewer
from lcm.control_plane.api.references import WorkerRef
from lcm.control_plane.queries.cost import cost_report
from lcm.control_plane.queries.explain import explain_worker
from lcm.rest.schemas import CostReport, Explanation
from lcm.web.answers import answer, documented

router = APIRouter(prefix="/api", tags=["insight"])


@router.get(
    "/workers/{worker_id}/explain",
    summary="Explain a worker's status",
    **documented(Explanation, problems=[404]),
)
async def explain(worker_id: WorkerRef, _: Viewer, plane: Plane) -> Response:
    """Computed by the rules that decide: what keeps the status, what happens next and when."""
    return answer(
        explain_worker(
            plane.records, plane.caches, plane.policies, await plane.records.workers.get(worker_id)
        )
    )


@router.get("/cost", summary="Get the cost of the fleet", **documented(CostReport))
async def cost(_: Viewer, plane: Plane) -> Response:
    """Cost per hour now, cost of this month so far, and savings by pauses; by worker, template and region."""
    return answer(await cost_report(plane.records))
