"""Why a worker has its status, and what the fleet costs."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from lcm.control_plane.api.dependencies import Plane, Viewer
from lcm.control_plane.api.references import WorkerRef
from lcm.control_plane.queries.cost import CSV_COLUMNS, cost_report, cost_table
from lcm.control_plane.queries.explain import explain_worker
from lcm.rest.schemas import CostReport, Explanation
from lcm.web import csv_text
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


_COST: dict[str, Any] = documented(CostReport, problems=[422])
_COST["responses"][200]["content"][csv_text.MEDIA_TYPE] = {"schema": {"type": "string"}}


@router.get("/cost", summary="Get the cost of the fleet", **_COST)
async def cost(
    _: Viewer,
    plane: Plane,
    month: Annotated[
        str | None,
        Query(pattern=r"^\d{4}-(0[1-9]|1[0-2])$", description="As in 2026-11; the present one without."),
    ] = None,
    form: Annotated[
        Literal["json", "csv"], Query(alias="format", description="`csv` is a table of the workers.")
    ] = "json",
) -> Response:
    """Cost per hour now, cost of a month, and savings by pauses; by worker, template and region. Thirteen
    months are known, of workers whose records were not purged."""
    if form == "csv":
        name = {"Content-Disposition": f'attachment; filename="lcm-cost-{month or "now"}.csv"'}
        table = csv_text.csv_text(CSV_COLUMNS, await cost_table(plane.records, month))
        return Response(table, headers=name, media_type=csv_text.MEDIA_TYPE)
    return answer(await cost_report(plane.records, month))
