"""The steps of worker templates: the templates file has them, documents change their fields."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lcm.control_plane.queries.plans.steps import changes_of, planned_request, refused
from lcm.control_plane.records.groups import Records
from lcm.control_plane.records.preconditions import etag
from lcm.control_plane.records.templates import checked_template
from lcm.domain.errors import NotFound
from lcm.domain.template import WorkerTemplate
from lcm.rest.plans import PlannedStep, StepAction, WantedTemplate
from lcm.rest.schemas import FieldError

KIND: Final = "template"


class TemplatePlans:
    """Compares documents with the templates, and keeps what they become for the workers."""

    def __init__(self, records: Records) -> None:
        self._templates = records.templates
        self.after: dict[str, WorkerTemplate] = {}
        """The templates that a document changes, as they will be."""

    async def step(self, wanted: WantedTemplate) -> PlannedStep:
        """Return what makes the template as its document says; what that leaves out stays."""
        try:
            stored, version = await self._templates.get_stored(wanted.name)
        except NotFound:
            message = f"there is no template {wanted.name!r}; add it to the templates file first"
            return refused(KIND, wanted.name, FieldError(field="name", message=message))
        before = stored.effective
        found = checked_template(_over(before, wanted.fields), within={}, at="template")
        if isinstance(found, list):
            errors = [
                FieldError(field=each.field.removeprefix("template."), message=each.message) for each in found
            ]
            return refused(KIND, wanted.name, *errors)
        changes = [
            change
            for field in wanted.fields
            for change in changes_of(field, getattr(before, field), getattr(found, field))
        ]
        if not changes:
            return PlannedStep(kind=KIND, name=wanted.name, action=StepAction.KEEP)
        self.after[wanted.name] = found
        path = f"/api/worker-templates/{wanted.name}"
        return PlannedStep(
            kind=KIND,
            name=wanted.name,
            action=StepAction.CHANGE,
            changes=tuple(changes),
            requests=(planned_request("PUT", path, found, version, if_match=etag(version)),),
        )

    async def delete(self, name: str) -> PlannedStep | None:
        """Return what makes the template as its file says again; None if nothing was changed."""
        try:
            stored, version = await self._templates.get_stored(name)
        except NotFound:
            return None
        if not stored.edits and stored.switched is None:
            return None
        path = f"/api/worker-templates/{name}/changes"
        return PlannedStep(
            kind=KIND,
            name=name,
            action=StepAction.DELETE,
            reason="it will be as in the templates file",
            requests=(planned_request("DELETE", path, None, version, if_match=etag(version)),),
        )


def _over(template: WorkerTemplate, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {**msgspec.to_builtins(template), **fields}
