"""Templates and regions for new workers."""

import msgspec
import structlog
from fastapi import APIRouter, Request
from starlette.responses import Response

from lcm.control_plane.api.dependencies import Admin, Keyed, Plane, SeenVersion, Viewer
from lcm.control_plane.queries.workers import list_workers
from lcm.control_plane.records.preconditions import Preconditions, etag
from lcm.control_plane.records.templates import TemplateMistakes, checked_template
from lcm.core.configuration import Mistake
from lcm.domain.errors import Conflict
from lcm.domain.template import WorkerTemplate
from lcm.rest.schemas import FieldError, RegionList, RegionView, TemplateList, TemplateSource
from lcm.web.answers import MalformedBody, answer, documented, reads

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
    """The `ETag` names this version; a change must send it as `If-Match`."""
    stored, version = await plane.records.templates.get_stored(name)
    return answer(stored.effective, etag=etag(version))


@router.get(
    "/worker-templates/{name}/source",
    summary="Get what was changed of a template",
    **documented(TemplateSource, problems=[404]),
)
async def get_template_source(name: str, _: Viewer, plane: Plane) -> Response:
    """The template, the template of the file, and the fields that were changed since; the `ETag` as above."""
    stored, version = await plane.records.templates.get_stored(name)
    source = TemplateSource(
        template=stored.effective,
        file=stored.seeded,
        changed=[*stored.edits, *(() if stored.switched is None else ("enabled",))],
    )
    return answer(source, etag=etag(version))


@router.put(
    "/worker-templates/{name}",
    summary="Change a template",
    **documented(WorkerTemplate, problems=[404, 409, 412, 422, 428]),
    **reads(WorkerTemplate),
)
async def change_template(
    name: str, person: Admin, plane: Plane, seen: SeenVersion, request: Request
) -> Response:
    """New workers get it; existing workers keep what they were launched with. Fields that differ from the
    templates file are stored over it, and outlast a restart; the others go on following the file."""
    wanted = _template_in(await request.body())
    try:
        template = await plane.records.templates.edit(name, wanted, seen)
    except TemplateMistakes as error:
        raise _malformed(error.mistakes) from None
    log.info("template changed", template=name, by=person.name)
    return await _with_tag(plane, template)


@router.delete(
    "/worker-templates/{name}/changes",
    summary="Revert a template",
    **documented(WorkerTemplate, problems=[404, 409, 412, 428]),
)
async def revert_template(name: str, person: Admin, plane: Plane, seen: SeenVersion) -> Response:
    """The template is as in the templates file again."""
    template = await plane.records.templates.revert(name, seen)
    log.info("template reverted", template=name, by=person.name)
    return await _with_tag(plane, template)


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


def _template_in(body: bytes) -> WorkerTemplate:
    try:
        written = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedBody([FieldError(field="body", message=str(error))]) from None
    found = checked_template(written, within={}, at="template")
    if isinstance(found, list):
        raise _malformed(found)
    return found


def _malformed(mistakes: list[Mistake]) -> MalformedBody:
    return MalformedBody(
        [
            FieldError(field=mistake.field.removeprefix("template.") or "body", message=mistake.message)
            for mistake in mistakes
        ]
    )


async def _with_tag(plane: Plane, template: WorkerTemplate) -> Response:
    _, version = await plane.records.templates.get_stored(template.name)
    return answer(template, etag=etag(version))


async def _switch(plane: Plane, name: str, *, enabled: bool, by: str, keyed: Keyed) -> Response:
    template = await plane.records.templates.switch(name, enabled=enabled, preconditions=Preconditions(keyed))
    log.info("template switched", template=name, enabled=enabled, by=by)
    return answer(template)
