"""What can be chosen from: templates and regions."""

from fastapi import APIRouter
from starlette.responses import Response

from lcm.control_plane.routes.dependencies import Plane, Viewer
from lcm.rest.schemas import RegionList, RegionView, TemplateList
from lcm.web.answers import answer, documented

router = APIRouter(prefix="/api", tags=["catalogue"])


@router.get("/worker-templates", summary="List templates", **documented(TemplateList))
async def list_templates(_: Viewer, plane: Plane) -> Response:
    """Cheapest first."""
    return answer(TemplateList(items=await plane.templates.list_all()))


@router.get("/regions", summary="List regions", **documented(RegionList))
async def list_regions(_: Viewer, plane: Plane) -> Response:
    views = [RegionView(name=name, is_default=name == plane.default_region) for name in plane.regions]
    return answer(RegionList(items=views))
