"""Lablet definitions, for people: the versioned templates of labs."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from lcm.control_plane.api.dependencies import Admin, Given, Keyed, Plane, Viewer
from lcm.control_plane.api.references import DefinitionRef
from lcm.control_plane.commands.lablets.change_definition import (
    create_definition,
    delete_definition,
    deprecate_definition,
    replace_definition,
)
from lcm.control_plane.commands.lablets.definition_access import remove_login, set_login
from lcm.control_plane.queries.definitions import list_definitions, page_of_definitions
from lcm.control_plane.queries.topology import analyse_definition, analyse_topology
from lcm.control_plane.records.definitions import StoredDefinition
from lcm.control_plane.records.preconditions import etag
from lcm.domain.lablet.definition import DefinitionStatus
from lcm.rest.lablet_access import AccessLogin
from lcm.rest.lablet_requests import NewDefinition, NextDefinition, TopologyText
from lcm.rest.scheduling import LabletDefinitionPage, LabletDefinitionView, TopologyAnalysis
from lcm.web.answers import answer, body_of, documented, reads

router = APIRouter(prefix="/api/lablet-definitions", tags=["lablet definitions"])

_YAML = documented(None, 200, "The topology, as it was sent.", problems=[404])
_YAML["responses"][200]["content"] = {"text/yaml": {"schema": {"type": "string"}}}


def _view(stored: StoredDefinition, status: int = 200) -> Response:
    return answer(stored.view(), status, etag=etag(stored.version))


@router.get("", summary="List lablet definitions", **documented(LabletDefinitionPage, problems=[422]))
async def list_all(
    _: Viewer,
    plane: Plane,
    status: Annotated[list[DefinitionStatus] | None, Query(description="Only these statuses.")] = None,
    name: Annotated[str | None, Query(max_length=100, description="Only versions of this name.")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    after: Annotated[str | None, Query(max_length=200, description="`next` of the page before.")] = None,
) -> Response:
    """Definitions by name and version, without their topologies; archived ones only on request."""
    found = await list_definitions(plane.records, statuses=status or (), name=name)
    return answer(page_of_definitions(found, limit=limit, after=after))


@router.post(
    "",
    summary="Create a lablet definition",
    **documented(LabletDefinitionView, 201, "Created.", problems=[409, 413, 422]),
    **reads(NewDefinition),
)
async def create(
    person: Admin,
    body: Annotated[NewDefinition, Depends(body_of(NewDefinition))],
    plane: Plane,
    keyed: Keyed,
) -> Response:
    """Its needs, ports and node definitions are computed from the topology; a mistake is named with its line.

    With an `Idempotency-Key` a repeated request returns the same definition and never creates a second one.
    """
    stored = await create_definition(
        plane.records,
        name=body.name,
        lab_yaml=body.lab_yaml,
        version=body.version,
        options=body.options,
        access=body.access,
        file_set=body.file_set,
        by=person.name,
        request=keyed,
    )
    return _view(stored, 201)


@router.post(
    "/analyse",
    summary="Analyse a topology",
    **documented(TopologyAnalysis, problems=[413, 422]),
    **reads(TopologyText),
)
async def analyse(
    _: Viewer, body: Annotated[TopologyText, Depends(body_of(TopologyText))], plane: Plane
) -> Response:
    """What the lab needs, the ports it asks for, and which workers and templates could run it. Nothing is
    stored."""
    return answer(await analyse_topology(plane.records, plane.policies, body.lab_yaml))


@router.get(
    "/by-name/{name}",
    summary="Get a lablet definition by name",
    **documented(LabletDefinitionView, problems=[404, 422]),
)
async def by_name(
    name: str, _: Viewer, plane: Plane, version: Annotated[str | None, Query(max_length=20)] = None
) -> Response:
    """The newest active version, or the one that `version` names, whatever its status."""
    return _view(await plane.records.definitions.named(name, version))


@router.get(
    "/{definition_id}", summary="Get a lablet definition", **documented(LabletDefinitionView, problems=[404])
)
async def get(definition_id: DefinitionRef, _: Viewer, plane: Plane) -> Response:
    """The `ETag` names this state of it; send it as `If-Match` to change this state only."""
    return _view(await plane.records.definitions.get(definition_id))


@router.get("/{definition_id}/topology", summary="Get the topology of a lablet definition", **_YAML)
async def topology(definition_id: DefinitionRef, _: Viewer, plane: Plane) -> Response:
    stored = await plane.records.definitions.get(definition_id)
    text = await plane.records.definitions.topology(stored.definition.lab_yaml_hash)
    return Response(text.encode(), media_type="text/yaml")


@router.get(
    "/{definition_id}/analysis",
    summary="Analyse a lablet definition",
    **documented(TopologyAnalysis, problems=[404, 422]),
)
async def analysis(definition_id: DefinitionRef, _: Viewer, plane: Plane) -> Response:
    """Its nodes with their places and links, what it needs, and which workers and templates could run it."""
    return answer(await analyse_definition(plane.records, plane.policies, definition_id))


@router.put(
    "/{definition_id}",
    summary="Replace a lablet definition by its next version",
    **documented(LabletDefinitionView, 200, "The next version.", problems=[404, 409, 412, 413, 422]),
    **reads(NextDefinition),
)
async def replace(
    definition_id: DefinitionRef,
    person: Admin,
    body: Annotated[NextDefinition, Depends(body_of(NextDefinition))],
    plane: Plane,
    given: Given,
) -> Response:
    """A stored version never changes: the next one is created with an id of its own, and this one is
    deprecated. Sessions that exist keep what they copied. The same content again changes nothing."""
    stored = await replace_definition(
        plane.records,
        definition_id,
        lab_yaml=body.lab_yaml,
        options=body.options,
        access=body.access,
        by=person.name,
        preconditions=given,
    )
    return _view(stored)


@router.put(
    "/{definition_id}/access",
    summary="Set the login of a lablet definition",
    **documented(LabletDefinitionView, problems=[404, 409, 412, 413, 422]),
    **reads(AccessLogin),
)
async def set_access(
    definition_id: DefinitionRef,
    person: Admin,
    body: Annotated[AccessLogin, Depends(body_of(AccessLogin))],
    plane: Plane,
    given: Given,
) -> Response:
    """People get this login for the nodes of their session, those of sessions that run included. It is
    stored sealed; the definition only says that there is one."""
    return _view(await set_login(plane.records, definition_id, body, by=person.name, preconditions=given))


@router.delete(
    "/{definition_id}/access",
    summary="Remove the login of a lablet definition",
    **documented(LabletDefinitionView, problems=[404, 409, 412, 422]),
)
async def remove_access(definition_id: DefinitionRef, person: Admin, plane: Plane, given: Given) -> Response:
    """People get no login with their session."""
    return _view(await remove_login(plane.records, definition_id, by=person.name, preconditions=given))


@router.post(
    "/{definition_id}/deprecate",
    summary="Deprecate a lablet definition",
    **documented(LabletDefinitionView, problems=[404, 409, 412, 422]),
)
async def deprecate(definition_id: DefinitionRef, person: Admin, plane: Plane, given: Given) -> Response:
    """No new sessions can be created from it; sessions that exist go on."""
    return _view(
        await deprecate_definition(plane.records, definition_id, by=person.name, preconditions=given)
    )


@router.delete(
    "/{definition_id}",
    summary="Delete a lablet definition",
    **documented(None, 204, "Archived.", problems=[404, 409, 412, 422]),
)
async def delete(definition_id: DefinitionRef, person: Admin, plane: Plane, given: Given) -> Response:
    """Refused while sessions of it are live. The record is archived: ended sessions refer to it."""
    await delete_definition(plane.records, definition_id, by=person.name, preconditions=given)
    return Response(status_code=204)
