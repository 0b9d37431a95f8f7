"""Signing in: a token becomes a cookie that scripts cannot read."""

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from lcm.control_plane.access import SESSION_COOKIE, AccessDenied
from lcm.control_plane.routes.dependencies import Viewer, services
from lcm.rest.schemas import SessionView
from lcm.web.answers import answer, documented

router = APIRouter(prefix="/api/session", tags=["session"])


class SignIn(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    token: str = Field(min_length=1, max_length=200, description="The access token printed at start.")


@router.get("", summary="Who is signed in", **documented(SessionView))
async def who(person: Viewer) -> Response:
    return answer(SessionView(actor=person.name, role=person.role.name.lower()))


@router.post("", summary="Sign in", **documented(SessionView, 200, "Signed in.", problems=[422]))
async def sign_in(body: SignIn, request: Request) -> Response:
    principal = services(request).keys.principal_of(body.token)
    if principal is None:
        raise AccessDenied(401, "this token is not valid; use the one printed at start")
    response = answer(SessionView(actor=principal.name, role=principal.role.name.lower()))
    remember(response, body.token)
    return response


@router.delete("", summary="Sign out", **documented(None, 204, "Signed out."))
async def sign_out() -> Response:
    response = Response(status_code=204)
    response.delete_cookie(SESSION_COOKIE, path="/")
    return response


def remember(response: Response, token: str) -> None:
    """Only sent back to this site, never readable by scripts."""
    response.set_cookie(SESSION_COOKIE, token, httponly=True, samesite="strict", path="/")
