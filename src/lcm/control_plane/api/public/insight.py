"""Why a worker has its status, and what the fleet costs."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from lcm.control_plane.api.dependencies import Plane, Viewer
from lcm.control_plane.api.references import WorkerRef
from lcm.control_plane.queries.cost import (
    CSV_COLUMNS,
    DAY_CSV_COLUMNS,
    cost_days_table,
    cost_report,
    cost_table,
)
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
        Query(pattern=r"^2[0-9]{3}-(0[1-9]|1[0-2])$", description="As in 2026-11; the present one without."),
    ] = None,
    form: Annotated[
        Literal["json", "csv"], Query(alias="format", description="`csv` is a table, of the workers or days.")
    ] = "json",
    by: Annotated[
        Literal["worker", "day"], Query(description="What a row of the table is about.")
    ] = "worker",
) -> Response:
    """Cost per hour now, cost of a month and of each of its days, and savings by pauses; by worker, template
    and region. Thirteen months are known, of workers whose records were not purged; days of the last two in
    which a worker was used. Disks are counted from launch to termination, those of stopped workers too; one
    whose size or price is not known is counted in `unknown_disks` and not in the cost."""
    if form == "json":
        return answer(await cost_report(plane.records, plane.policies, month))
    columns, rows_of = (DAY_CSV_COLUMNS, cost_days_table) if by == "day" else (CSV_COLUMNS, cost_table)
    table = csv_text.csv_text(columns, await rows_of(plane.records, plane.policies, month))
    name = f"lcm-cost-{month or 'now'}{'-by-day' if by == 'day' else ''}.csv"
    disposition = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(table, headers=disposition, media_type=csv_text.MEDIA_TYPE)
