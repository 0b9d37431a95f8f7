"""Everything that happened in the fleet, back in time."""

from typing import Annotated, Any, Final, Literal

import msgspec
from fastapi import APIRouter, Query, Request
from msgspec.structs import asdict
from starlette.responses import Response

from lcm.control_plane.api.dependencies import Moment, Plane, Viewer, services
from lcm.control_plane.queries.activity import ActivityFilter, activity_page
from lcm.rest.activity import ActivityEntry, ActivityKind, ActivityPage
from lcm.web import csv_text
from lcm.web.answers import answer, documented

router = APIRouter(prefix="/api/activity", tags=["insight"])

COLUMNS: Final = ActivityEntry.__struct_fields__
NDJSON: Final = "application/x-ndjson"
MAX_EXPORTED: Final = 10_000
_PAGE: dict[str, Any] = documented(ActivityPage, problems=[422])
for _media_type in (csv_text.MEDIA_TYPE, NDJSON):
    _PAGE["responses"][200]["content"][_media_type] = {"schema": {"type": "string"}}


@router.get("", summary="List what happened", **_PAGE)
async def list_entries(
    person: Viewer,
    plane: Plane,
    request: Request,
    kind: Annotated[list[ActivityKind] | None, Query(description="One or several; all without.")] = None,
    by: Annotated[
        str | None, Query(max_length=200, description="Part of a person's or service's name.")
    ] = None,
    about: Annotated[
        str | None, Query(max_length=200, description="Part of a worker's name, or of the id of anything.")
    ] = None,
    since: Moment | None = None,
    until: Moment | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    before: Annotated[str | None, Query(max_length=100, description="`next` of the page before.")] = None,
    form: Annotated[
        Literal["json", "csv", "ndjson"],
        Query(alias="format", description="`csv` and `ndjson` export the newest 10,000 that match."),
    ] = "json",
) -> Response:
    """Newest first: the timelines of workers and scaling decisions; for operators lablets too, for admins
    what people changed and who was refused. A page of a narrow filter may be short: go on while there is
    `next`."""
    is_export = form != "json"
    page = await activity_page(
        plane.records,
        plane.caches,
        services(request).identity.log,
        person,
        ActivityFilter(kinds=kind or (), by=by, about=about, since=since, until=until),
        before=before,
        limit=MAX_EXPORTED if is_export else limit,
        **({"max_read": 10 * MAX_EXPORTED} if is_export else {}),
    )
    if form == "json":
        return answer(page)
    name = {"Content-Disposition": f'attachment; filename="lcm-activity.{form}"'}
    if form == "csv":
        table = csv_text.csv_text(COLUMNS, (list(asdict(entry).values()) for entry in page.items))
        return Response(table, headers=name, media_type=csv_text.MEDIA_TYPE)
    lines = b"".join(msgspec.json.encode(entry) + b"\n" for entry in page.items)
    return Response(lines, headers=name, media_type=NDJSON)
