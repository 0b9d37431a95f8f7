"""The security audit log, for admins."""

import sys
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from msgspec.structs import asdict
from starlette.responses import Response

from lcm.control_plane.api.dependencies import Admin, Moment, services
from lcm.domain.security import AuditOutcome, SecurityEntry
from lcm.rest.security import SecurityAuditPage
from lcm.web import csv_text
from lcm.web.answers import answer, documented

router = APIRouter(prefix="/api/audit", tags=["access"])

COLUMNS = SecurityEntry.__struct_fields__
_PAGE: dict[str, Any] = documented(SecurityAuditPage, problems=[422])
_PAGE["responses"][200]["content"][csv_text.MEDIA_TYPE] = {"schema": {"type": "string"}}

_Text = Annotated[str | None, Query(max_length=200)]


@router.get("", summary="List what people changed and who was refused", **_PAGE)
async def list_entries(
    _: Admin,
    request: Request,
    principal: Annotated[str | None, Query(max_length=200, description="Id or name of a principal.")] = None,
    action: Annotated[str | None, Query(max_length=200, description="Part of an action.")] = None,
    target: Annotated[str | None, Query(max_length=200, description="Part of a target.")] = None,
    address: _Text = None,
    outcome: AuditOutcome | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    before: Annotated[str | None, Query(max_length=100, description="`next` of the page before.")] = None,
    form: Annotated[
        Literal["json", "csv"], Query(alias="format", description="`csv` exports all entries that match.")
    ] = "json",
) -> Response:
    """Newest first. An entry is committed together with its change; refusals are kept apart from changes, so
    that neither pushes out the other. The oldest are removed: export them before."""

    def is_wanted(entry: SecurityEntry) -> bool:
        return (
            principal in (None, entry.principal_id, entry.principal_name)
            and (action is None or action in entry.action)
            and (target is None or target in entry.target)
            and address in (None, entry.address)
            and outcome in (None, entry.outcome)
            and (since is None or entry.at >= since)
            and (until is None or entry.at < until)
        )

    log, most = services(request).identity.log, limit + 1 if form == "json" else sys.maxsize
    found = await log.wanted(is_wanted, before, most)
    if form == "csv":
        name = {"Content-Disposition": 'attachment; filename="lcm-audit.csv"'}
        table = csv_text.csv_text(COLUMNS, map(_row, found))
        return Response(table, headers=name, media_type=csv_text.MEDIA_TYPE)
    rest = found[limit - 1].id if len(found) > limit else None
    return answer(SecurityAuditPage(items=found[:limit], next=rest))


def _row(entry: SecurityEntry) -> list[object]:
    return [_cell(value) for value in asdict(entry).values()]


def _cell(value: object) -> object:
    """Return a mapping as one line of text, anything else as it is."""
    return "; ".join(f"{name}={text}" for name, text in value.items()) if isinstance(value, dict) else value
