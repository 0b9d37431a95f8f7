"""The OpenAPI documents: what generators of clients need, and public operations apart from internal ones."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from lcm.control_plane.access.identity import COOKIE
from lcm.control_plane.api.dependencies import Viewer, role_of
from lcm.rest.schemas import API_KEY_HEADER

INTERNAL: Final = "/api/internal/"
SECURITY_SCHEMES: Final = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "An access token of LCM, or one of the identity provider.",
    },
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "The cookie of a signed-in browser; over TLS its name begins with `__Host-`.",
    },
    "controller": {
        "type": "apiKey",
        "in": "header",
        "name": API_KEY_HEADER,
        "description": "The key of a service, beside its name in `X-LCM-Service`; for internal routes alone.",
    },
}
_OF_PEOPLE: Final[list[dict[str, list[str]]]] = [{"token": []}, {"session": []}]
_OF_CONTROLLERS: Final[list[dict[str, list[str]]]] = [{"controller": []}]
_ARTICLES: Final = frozenset({"a", "an", "the"})
_REF: Final = "#/components/schemas/"
_INTERNAL_INFO: Final = {
    "title": "LCM control plane, internal operations",
    "description": "For LCM's own processes alone: these operations may change at any time.",
}

router = APIRouter(include_in_schema=False)


@router.get("/api/openapi.json")
async def show_document(request: Request, _: Viewer) -> Response:
    return JSONResponse(part_of(request.app.openapi(), internal=False))


def describe_operations(schema: dict[str, Any], routes: Iterable[BaseRoute]) -> None:
    """Give each operation a name from its summary, which is part of the contract, and what access it needs.

    `x-role` is the lowest role that may use it. Internal routes are marked `x-internal`: they are for LCM's
    own processes and may change at any time.
    """
    schema["components"]["securitySchemes"] = SECURITY_SCHEMES
    roles = dict(_roles(routes))
    for path, operations in schema["paths"].items():
        is_internal = path.startswith(INTERNAL)
        for method, operation in operations.items():
            name = operation_id(operation["summary"])
            operation["operationId"] = f"internal_{name}" if is_internal else name
            if is_internal:
                operation["x-internal"] = True
            role = roles.get((method, path))
            if role is not None:
                operation["x-role"] = role
            of_people = _OF_PEOPLE if role is not None else []
            operation["security"] = _OF_CONTROLLERS if is_internal else of_people
    _drop_empty_items(schema["components"]["schemas"])


def operation_id(summary: str) -> str:
    """Return the name of an operation: "Get a worker's load" is get_worker_load."""
    words = re.findall(r"[a-z0-9]+", summary.lower().replace("'s", ""))
    return "_".join(word for word in words if word not in _ARTICLES)


def _drop_empty_items(part: Any) -> None:
    """Generators cannot read `items: false` of an array; its length is in `maxItems` too."""
    match part:
        case dict():
            if part.get("items") is False:
                del part["items"]
            for value in part.values():
                _drop_empty_items(value)
        case list():
            for value in part:
                _drop_empty_items(value)


def part_of(document: dict[str, Any], *, internal: bool) -> dict[str, Any]:
    """Return the document of the internal operations, or of all others, with the schemas that concern them.

    A schema that no operation refers to is one of the public's: documents of a fleet, records in events.
    """
    both = {
        is_internal: {
            path: at for path, at in document["paths"].items() if path.startswith(INTERNAL) is is_internal
        }
        for is_internal in (False, True)
    }
    components = document["components"]
    schemas = components["schemas"]
    used = {is_internal: _used(paths, schemas) for is_internal, paths in both.items()}
    of_none = {name: schema for name, schema in schemas.items() if name not in used[True]}
    shown = used[True] if internal else used[False] | set(of_none) | _used(of_none, schemas)
    schemes = _schemes(both[internal])
    return {
        **document,
        "info": document["info"] | (_INTERNAL_INFO if internal else {}),
        "paths": both[internal],
        "components": {
            "schemas": {name: schema for name, schema in schemas.items() if name in shown},
            "securitySchemes": {
                name: scheme for name, scheme in components["securitySchemes"].items() if name in schemes
            },
        },
    }


def _roles(routes: Iterable[BaseRoute]) -> Iterator[tuple[tuple[str, str], str]]:
    for route in routes:
        if isinstance(route, APIRoute) and (role := role_of(route)) is not None:
            yield from (((method.lower(), route.path), role.label) for method in route.methods or ())


def _schemes(paths: dict[str, Any]) -> set[str]:
    operations = (operation for at in paths.values() for operation in at.values())
    return {name for operation in operations for choice in operation["security"] for name in choice}


def _used(part: Any, schemas: dict[str, Any]) -> set[str]:
    """Return the names of all schemas that this refers to, and that those refer to."""
    found: set[str] = set()
    waiting = set(_references(part))
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting |= set(_references(schemas[name])) - found
    return found


def _references(part: Any) -> Iterator[str]:
    match part:
        case {"$ref": str(reference)}:
            yield reference.removeprefix(_REF)
        case dict():
            for value in part.values():
                yield from _references(value)
        case list():
            for value in part:
                yield from _references(value)
