"""For the worker controller: operations on the whole fleet."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from lcm.control_plane.api.dependencies import Controller, LeaderFence, Plane
from lcm.control_plane.commands.clean_up import clean_up
from lcm.control_plane.commands.import_workers import import_workers
from lcm.control_plane.records import discovery_settings
from lcm.rest.fleet import BulkImport, BulkImportResult, Cleanup, CleanupResult, DiscoveryView
from lcm.web.answers import answer, body_of, documented, reads

router = APIRouter(prefix="/api/internal", tags=["internal"])


@router.post(
    "/workers/bulk-import",
    summary="Import found instances",
    **documented(BulkImportResult, problems=[409, 422]),
    **reads(BulkImport),
)
async def bulk_import(
    service: Controller,
    fence: LeaderFence,
    bulk: Annotated[BulkImport, Depends(body_of(BulkImport))],
    plane: Plane,
) -> Response:
    """Each instance has its own outcome: 201 with its worker, or 409 if a record has it already."""
    return answer(await import_workers(plane.records, plane.policies, bulk, by=service, fence=fence))


@router.post(
    "/workers/cleanup",
    summary="Purge old records",
    **documented(CleanupResult, problems=[409, 422]),
    **reads(Cleanup),
)
async def cleanup(
    _: LeaderFence, wanted: Annotated[Cleanup, Depends(body_of(Cleanup))], plane: Plane
) -> Response:
    """Records of workers that were terminated longer ago than `retention_days`."""
    return answer(await clean_up(plane.records, wanted))


@router.get("/settings/discovery", summary="Get discovery settings", **documented(DiscoveryView))
async def discovery(_: Controller, plane: Plane) -> Response:
    return answer(await discovery_settings.read(plane.records.store))
