"""What people want to understand: why a worker is as it is, and what it all costs."""

from fastapi import APIRouter
from starlette.responses import Response

from lcm.control_plane.api.dependencies import Plane, Viewer
from lcm.control_plane.queries.cost import cost_report
from lcm.control_plane.queries.explain import explain_worker
from lcm.rest.schemas import CostReport, Explanation
from lcm.web.answers import answer, documented

router = APIRouter(prefix="/api", tags=["insight"])


@router.get(
    "/workers/{worker_id}/explain",
    summary="Why a worker is as it is",
    **documented(Explanation, problems=[404]),
)
async def explain(worker_id: str, _: Viewer, plane: Plane) -> Response:
    """Computed by the rules that decide: what holds it in its state, what happens next and when."""
    return answer(
        explain_worker(
            plane.records, plane.caches, plane.policies, await plane.records.workers.get(worker_id)
        )
    )


@router.get("/cost", summary="What the fleet costs", **documented(CostReport))
async def cost(_: Viewer, plane: Plane) -> Response:
    """Per hour now, this month so far, and what pausing saved; by worker, template and region."""
    return answer(await cost_report(plane.records))
