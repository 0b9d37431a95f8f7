"""Templates and regions for new workers."""

import structlog
from fastapi import APIRouter
from starlette.responses import Response

from lcm.control_plane.api.dependencies import Admin, Keyed, Plane, Viewer
from lcm.control_plane.queries.workers import list_workers
from lcm.control_plane.records.preconditions import Preconditions
from lcm.domain.errors import Conflict
from lcm.domain.template import WorkerTemplate
from lcm.rest.schemas import RegionList, RegionView, TemplateList
from lcm.web.answers import answer, documented

log = structlog.get_logger(__name__)

router = APIRouter(prefix="/api", tags=["catalogue"])

_TEMPLATE = documented(WorkerTemplate, problems=[404])
_SWITCH = documented(WorkerTemplate, problems=[404, 422])


@router.get("/worker-templates", summary="List templates", **documented(TemplateList, problems=[422]))
async def list_templates(_: Viewer, plane: Plane, enabled_only: bool = False) -> Response:
    """Templates, cheapest first."""
    return answer(TemplateList(items=await plane.records.templates.list_all(enabled_only=enabled_only)))


@router.get("/worker-templates/{name}", summary="Get a template", **_TEMPLATE)
async def get_template(name: str, _: Viewer, plane: Plane) -> Response:
    return answer(await plane.records.templates.get(name))


@router.post("/worker-templates/{name}/enable", summary="Enable a template", **_SWITCH)
async def enable_template(name: str, person: Admin, plane: Plane, keyed: Keyed) -> Response:
    """New workers may use it again, also after a restart."""
    return await _switch(plane, name, enabled=True, by=person.name, keyed=keyed)


@router.post("/worker-templates/{name}/disable", summary="Disable a template", **_SWITCH)
async def disable_template(name: str, person: Admin, plane: Plane, keyed: Keyed) -> Response:
    """New workers may not use it, also after a restart; existing workers keep it."""
    return await _switch(plane, name, enabled=False, by=person.name, keyed=keyed)


@router.delete(
    "/worker-templates/{name}",
    summary="Delete a template",
    **documented(None, 204, "Deleted.", problems=[404, 409]),
)
async def delete_template(name: str, person: Admin, plane: Plane) -> Response:
    """Refused while a worker uses it. If the templates file still has it, the next start seeds it again."""
    users = [worker.name for worker in await list_workers(plane.records) if worker.template_name == name]
    if users:
        raise Conflict(
            f"{len(users)} workers use template {name!r}, for example {users[0]!r}; disable it instead"
        )
    await plane.records.templates.delete(name)
    log.info("template deleted", template=name, by=person.name)
    return Response(status_code=204)


@router.get("/regions", summary="List regions", **documented(RegionList))
async def list_regions(_: Viewer, plane: Plane) -> Response:
    views = [
        RegionView(name=name, is_default=name == plane.policies.default_region)
        for name in plane.policies.regions
    ]
    return answer(RegionList(items=views))


async def _switch(plane: Plane, name: str, *, enabled: bool, by: str, keyed: Keyed) -> Response:
    template = await plane.records.templates.switch(name, enabled=enabled, preconditions=Preconditions(keyed))
    log.info("template switched", template=name, enabled=enabled, by=by)
    return answer(template)
