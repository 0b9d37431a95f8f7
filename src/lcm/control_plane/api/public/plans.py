"""The plan of a fleet that documents describe."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import ValidationError
from starlette.responses import Response

from lcm.control_plane.api.dependencies import Operator, Plane
from lcm.control_plane.api.public.workers import NewWorker
from lcm.control_plane.queries.plans.plan import Read, plan_fleet
from lcm.control_plane.queries.plans.steps import refused
from lcm.core.configuration import check
from lcm.rest.plans import (
    KINDS,
    FleetPlan,
    PlannedStep,
    PlanRequest,
    StepAction,
    WantedTemplate,
    WantedWorker,
)
from lcm.rest.schemas import FieldError
from lcm.web.answers import answer, body_of, documented, reads

router = APIRouter(tags=["plans"])


@router.post(
    "/api/plan",
    summary="Plan a fleet",
    **documented(FleetPlan, problems=[413, 422]),
    **reads(PlanRequest),
)
async def plan(
    _: Operator, body: Annotated[PlanRequest, Depends(body_of(PlanRequest))], plane: Plane
) -> Response:
    """The requests that make the fleet as the documents say, what differs now, and what it costs. Nothing is
    changed: send the requests of the steps in order, with their idempotency keys. A document that is wrong
    or cannot be carried out has a step `refuse` that names the fields."""
    documents = [_read(resource, is_named_only=body.goal == "delete") for resource in body.resources]
    return answer(await plan_fleet(plane.records, plane.policies, body, documents))


def _read(resource: Mapping[str, Any], *, is_named_only: bool) -> Read:
    """Return the document, or the step that names its mistakes; of what only goes, the name is enough."""
    kind, name = str(resource.get("kind", "")), str(resource.get("name", ""))
    if kind not in KINDS:
        message = f"{kind!r} is no kind; choose one of: {', '.join(KINDS)}" if kind else "it is missing"
        return refused(kind, name, FieldError(field="kind", message=message))
    if is_named_only and name:
        return PlannedStep(kind=kind, name=name, action=StepAction.DELETE)
    fields = {field: value for field, value in resource.items() if field != "kind"}
    if kind == "template" and name:
        return WantedTemplate(name=name, fields=fields)
    found = check(fields, KINDS[kind], within=fields, at="")
    if isinstance(found, list):
        errors = [FieldError(field=each.field.lstrip("."), message=each.message) for each in found]
    else:
        errors = _mistakes(found) if isinstance(found, WantedWorker) else []
    return refused(kind, name, *errors) if errors or isinstance(found, list) else found


def _mistakes(wanted: WantedWorker) -> list[FieldError]:
    """Return what a request for such a worker would be refused for."""
    tags = wanted.tags or {}
    try:
        NewWorker(
            name=wanted.name, template_name=wanted.template_name, aws_region=wanted.aws_region, tags=tags
        )
    except ValidationError as error:
        return [
            FieldError(
                field=".".join(str(part) for part in each["loc"] if part != "[key]"),
                message=each["msg"].removeprefix("Value error, "),
            )
            for each in error.errors()
        ]
    return []
