"""Access tokens, for admins. A token is shown once, at its creation; later only its details are."""

import re
from datetime import timedelta
from typing import Annotated, Literal

import structlog
from fastapi import APIRouter, Request
from pydantic import AfterValidator, ConfigDict, Field
from starlette.responses import Response

from lcm.control_plane.access.credentials import Credential
from lcm.control_plane.access.roles import Role
from lcm.control_plane.api.bodies import RequestBody
from lcm.control_plane.api.dependencies import Admin, Plane, services
from lcm.domain.security import SERVICE_ACTORS
from lcm.rest.access import TokenCreated, TokenList, TokenView
from lcm.web.answers import answer, documented

log = structlog.get_logger(__name__)

router = APIRouter(prefix="/api/tokens", tags=["access"])

NAME_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9 ._@-]{0,61}[A-Za-z0-9])?$"
TEN_YEARS_SECONDS = 10 * 365 * 24 * 3600


def _is_usable_name(name: str) -> str:
    if re.fullmatch(NAME_PATTERN, name) is None:
        raise ValueError("use 1 to 63 letters, digits, spaces and . _ @ -, a letter or digit at either end")
    if name.lower() in {role.label for role in Role}:
        raise ValueError("the names of the roles are reserved for the keys created at the first start")
    if re.sub(r"[ ._-]+", " ", name.lower()) in SERVICE_ACTORS:
        raise ValueError("the names of LCM's own services are reserved: they act in timelines, too")
    return name


class NewToken(RequestBody):
    """The token to create."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "ci-pipeline", "role": "operator"}]},
    )

    name: Annotated[str, AfterValidator(_is_usable_name)] = Field(
        description="Shown in timelines as the actor; unique among tokens.",
        json_schema_extra={"pattern": NAME_PATTERN},
    )
    role: Literal["viewer", "operator", "admin"]
    expires_in_seconds: int | None = Field(
        None, ge=60, le=TEN_YEARS_SECONDS, description="Without it the token does not expire."
    )


def _view(credential: Credential) -> TokenView:
    return TokenView(**{name: getattr(credential, name) for name in TokenView.__struct_fields__})


@router.get("", summary="List tokens", **documented(TokenList))
async def list_all(_: Admin, request: Request) -> Response:
    """Tokens by name, without the keys created at the first start."""
    tokens = await services(request).identity.tokens.list_all()
    return answer(TokenList(items=[_view(token) for token in tokens]))


@router.post("", summary="Create a token", **documented(TokenCreated, 201, "Created.", problems=[409, 422]))
async def create(body: NewToken, person: Admin, plane: Plane, request: Request) -> Response:
    """Names are unique, so a repeated request creates no second token; it gets 409.

    If the answer was lost, revoke the token and create another: LCM does not keep the token either.
    """
    expires_in = body.expires_in_seconds
    token, credential = await services(request).identity.tokens.issue(
        name=body.name,
        role=Role[body.role.upper()],
        by=person.name,
        expires_at=None if expires_in is None else plane.records.clock.now() + timedelta(seconds=expires_in),
    )
    log.info("token created", token_id=credential.id, name=body.name, role=body.role, by=person.name)
    return answer(TokenCreated(token=token, details=_view(credential)), 201)


@router.delete("/{token_id}", summary="Revoke a token", **documented(None, 204, "Revoked.", problems=[404]))
async def revoke(token_id: str, person: Admin, request: Request) -> Response:
    """By id or name. The token is invalid at once; its sessions and event streams end within seconds."""
    identity = services(request).identity
    named = [token.id for token in await identity.tokens.list_all() if token.name == token_id]
    credential = await identity.revoke_token(named[0] if named else token_id)
    log.info("token revoked", token_id=token_id, name=credential.name, by=person.name)
    return Response(status_code=204)
