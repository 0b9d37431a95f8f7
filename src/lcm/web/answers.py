"""Answers and bodies that are msgspec structs, and their part of the OpenAPI document.

FastAPI knows pydantic only. These few functions let a route answer with a struct, read one, and
say so in the schema, from the one definition.
"""

from collections.abc import Callable, Collection, Coroutine, Iterable
from typing import Any, TypeVar

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lcm.rest.schemas import FieldError, Problem
from lcm.web.problems import MEDIA_TYPE

T = TypeVar("T")

_REF = "#/components/schemas/{name}"


class MalformedBody(Exception):
    """The body is not what the route takes."""

    def __init__(self, errors: list[FieldError]) -> None:
        self.errors = errors
        super().__init__("; ".join(f"{error.field}: {error.message}" for error in errors))


class PlainRoute(APIRoute):
    """Documented like any other route, but its function gets the request and nothing is done for it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler: Callable[[Request], Coroutine[Any, Any, Response]] = self.endpoint
        return handler


def answer(struct: Any, status: int = 200, *, etag: str | None = None) -> Response:
    headers = {"ETag": etag} if etag is not None else None
    return Response(msgspec.json.encode(struct), status, headers, media_type="application/json")


def documented(
    struct: type | None,
    status: int = 200,
    description: str = "Success.",
    *,
    problems: Iterable[int] = (),
    public: bool = False,
) -> dict[str, Any]:
    """Route arguments that say what comes back, the problems included; `public` needs no token."""
    responses: dict[int | str, dict[str, Any]] = {
        code: {"description": _PROBLEMS[code], "content": {MEDIA_TYPE: {"schema": _ref(Problem)}}}
        for code in (*problems, *(() if public else (401, 403, 429)))
    }
    content = {"application/json": {"schema": _ref(struct)}} if struct is not None else {}
    responses[status] = {"description": description, "content": content}
    return {"status_code": status, "responses": responses, "response_class": Response}


def reads(struct: type, *, is_required: bool = True) -> dict[str, Any]:
    """Route arguments that say which struct the body must be, or is if there is one."""
    return {
        "openapi_extra": {
            "requestBody": {
                "required": is_required,
                "content": {"application/json": {"schema": _ref(struct)}},
            }
        }
    }


def takes(place: str, **schemas: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a plain route that say what it reads from its `path` or its `query`."""
    return {
        "openapi_extra": {
            "parameters": [
                {"name": name, "in": place, "required": place == "path", "schema": schema}
                for name, schema in schemas.items()
            ]
        }
    }


def body_of(struct: type[T], *, is_required: bool = True) -> Callable[[Request], Coroutine[Any, Any, T]]:
    """A dependency that reads the body as this struct and refuses everything else.

    Without a body that is not required it is the struct with its defaults.
    """
    decoder = msgspec.json.Decoder(struct)
    absent = b"" if is_required else b"{}"

    async def read(request: Request) -> T:
        try:
            return decoder.decode(await request.body() or absent)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise _malformed(error, "body") from None

    return read


def query_of(request: Request, struct: type[T], *, several: Collection[str] = ()) -> T:
    """The query as this struct; only the parameters in `several` may be repeated."""
    query = request.query_params
    given = {name: query.getlist(name) if name in several else query[name] for name in query}
    try:
        return msgspec.convert(given, struct, strict=False)
    except msgspec.ValidationError as error:
        raise _malformed(error, "query") from None


def _malformed(error: Exception, where: str) -> MalformedBody:
    message, _, place = str(error).partition(" - at `$")
    return MalformedBody([FieldError(field=place.rstrip("`").lstrip(".") or where, message=message)])


def install_openapi(
    app: FastAPI,
    structs: Iterable[type],
    describe: Callable[[dict[str, Any], Iterable[BaseRoute]], None],
) -> None:
    """Put the structs' schemas beside FastAPI's own; `describe` completes the document."""

    def build() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )
            _, components = msgspec.json.schema_components([*structs, Problem], ref_template=_REF)
            schemas = schema.setdefault("components", {}).setdefault("schemas", {})
            schemas.update(components)
            _drop_pydantic_errors(schema)
            describe(schema, app.routes)
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = build  # type: ignore[method-assign]


def _drop_pydantic_errors(schema: dict[str, Any]) -> None:
    """FastAPI documents its own 422 body; ours is a problem document."""
    for operations in schema["paths"].values():
        for operation in operations.values():
            invalid = operation["responses"].get("422")
            if invalid is not None:
                invalid["description"] = _PROBLEMS[422]
                invalid["content"] = {MEDIA_TYPE: {"schema": _ref(Problem)}}
    for name in ("HTTPValidationError", "ValidationError"):
        schema["components"]["schemas"].pop(name, None)


def _ref(struct: type) -> dict[str, str]:
    return {"$ref": _REF.format(name=struct.__name__)}


_PROBLEMS = {
    400: "The request cannot be understood.",
    401: "No valid token.",
    403: "The token's role does not allow this.",
    404: "Resource not found.",
    409: "Not possible in this state; the document says what is.",
    413: "The body is too large.",
    412: "It is no longer at the version named in `If-Match`.",
    428: "Send the `ETag` you have seen as `If-Match`.",
    422: "The request names something unknown or has a wrong field.",
    429: "Too many requests; `Retry-After` says when to try again.",
    503: "The store cannot answer; the document says whether something may have changed.",
}
