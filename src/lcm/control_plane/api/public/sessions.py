"""Signing in exchanges a token for a session cookie that scripts cannot read and other sites cannot use."""

import base64
from datetime import datetime
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Query, Request
from pydantic import ConfigDict, Field
from starlette.responses import RedirectResponse, Response

from lcm.control_plane.access.credentials import Credential
from lcm.control_plane.access.identity import Attempt, Identity, Provider, cookie_name
from lcm.control_plane.access.roles import (
    AccessDenied,
    Principal,
    Role,
    TooManyRequests,
    refuse_foreign_origin,
    require,
)
from lcm.control_plane.api.bodies import RequestBody
from lcm.control_plane.api.dependencies import Viewer, audit_changes, services
from lcm.control_plane.api.middleware import charge
from lcm.domain.errors import NotFound
from lcm.rest.access import BrowserSession, BrowserSessions
from lcm.rest.schemas import CmlPlace, SessionView, SignInWays
from lcm.web.answers import answer, documented

router = APIRouter(prefix="/api/session", tags=["session"])


class SignIn(RequestBody):
    model_config = ConfigDict(hide_input_in_errors=True)

    token: str = Field(
        min_length=1,
        max_length=16 * 1024,
        description="The token printed at start, one of `lcm token`, or one of the identity provider.",
    )


class SignInLink(msgspec.Struct, frozen=True, kw_only=True):
    """A code that signs a browser in once."""

    code: str
    expires_at: datetime


ATTEMPT_SECONDS: Final = 600
"""How long a person may take at the identity provider."""


@router.get("", summary="Get the session", **documented(SessionView))
async def who(person: Viewer, request: Request) -> Response:
    return answer(_view(person, request))


@router.post("", summary="Sign in", **documented(SessionView, 200, "Signed in.", problems=[422, 429]))
async def sign_in(body: SignIn, request: Request) -> Response:
    """The cookie expires after twelve hours, and no later than its token."""
    if "origin" in request.headers:
        refuse_foreign_origin(request)
    identity = services(request).identity
    principal = await identity.principal_of(body.token, request)
    response = answer(_view(principal, request))
    await remember(response, request, identity, principal)
    return response


@router.delete("", summary="Sign out", **documented(None, 204, "Signed out."))
async def sign_out(request: Request) -> Response:
    """The session ends, also where its cookie was copied, and so do its event streams."""
    identity = services(request).identity
    principal = await identity.signed_in(request)
    if principal is not None:
        refuse_foreign_origin(request)
        audit_changes(request, principal)
        await identity.close_session(principal)
    return _signed_out(request)


@router.get("/all", summary="List browser sessions", **documented(BrowserSessions))
async def list_all(
    person: Viewer,
    request: Request,
    all_people: Annotated[bool, Query(description="Of all people; only for admins.")] = False,
) -> Response:
    """The browsers that are signed in as you."""
    if all_people:
        require(person, Role.ADMIN)
    identity = services(request).identity
    found = await identity.list_sessions(None if all_people else person.id)
    return answer(BrowserSessions(items=[_browser(session, person) for session in found]))


@router.delete("/all", summary="Sign out everywhere", **documented(None, 204, "Signed out."))
async def sign_out_everywhere(
    person: Viewer,
    request: Request,
    principal_id: Annotated[
        str | None, Query(max_length=300, description="Sign out this one instead of you; only for admins.")
    ] = None,
) -> Response:
    """Every browser session of yours ends, this one too, with its event streams and your sign-in links.
    Tokens stay valid."""
    if principal_id not in (None, person.id):
        require(person, Role.ADMIN)
    await services(request).identity.end_sessions(principal_id or person.id)
    return _signed_out(request) if principal_id in (None, person.id) else Response(status_code=204)


@router.post("/links", summary="Make a sign-in link", **documented(SignInLink, 201, "Made."))
async def make_link(person: Viewer, request: Request) -> Response:
    """Open `/?code=<code>` in a browser: it is signed in as you, once, within ten minutes."""
    code, link = await services(request).identity.make_link(person)
    assert link.expires_at is not None
    return answer(SignInLink(code=code, expires_at=link.expires_at), 201)


@router.get("/sign-in", summary="Get the ways to sign in", **documented(SignInWays, public=True))
async def ways(request: Request) -> Response:
    """What the sign-in page and `lcm login` offer besides a token."""
    identity = services(request).identity
    name = identity.provider.name if identity.provider else None
    return answer(SignInWays(identity_provider=name, device=identity.device_client))


@router.get(
    "/oidc",
    summary="Begin to sign in at the identity provider",
    **documented(None, 303, "To the identity provider.", problems=[404, 503], public=True),
)
async def begin(request: Request) -> Response:
    """For browsers: what the answer must fit to is kept in a cookie of the one that begins."""
    address, attempt = await _provider(request).begin(_redirect_uri(request))
    response = RedirectResponse(address, status_code=303)
    text = base64.urlsafe_b64encode(msgspec.json.encode(attempt)).decode()
    response.set_cookie(
        _attempt_cookie(request),
        text,
        max_age=ATTEMPT_SECONDS,
        httponly=True,
        samesite="lax",  # the provider's page leads back here
        secure=request.scope["scheme"] == "https",
        path="/",
    )
    return response


@router.get(
    "/oidc/callback",
    summary="Come back from the identity provider",
    **documented(None, 303, "To the dashboard.", problems=[404], public=True),
)
async def come_back(request: Request) -> Response:
    """Signed in, or with `sign_in` in the URL: `refused`, `no-role`, `unavailable` or `too-many`."""
    identity, provider = services(request).identity, _provider(request)
    response = RedirectResponse("/", status_code=303)
    try:
        principal = await identity.sign_in_at_provider(
            provider, _attempt_of(request), request, _redirect_uri(request)
        )
        await remember(response, request, identity, principal)
    except AccessDenied as denied:
        reasons = {403: "no-role", 503: "unavailable"}
        response = RedirectResponse(f"/?sign_in={reasons.get(denied.status, 'refused')}", status_code=303)
    except TooManyRequests:
        response = RedirectResponse("/?sign_in=too-many", status_code=303)
    response.delete_cookie(
        _attempt_cookie(request),
        path="/",
        secure=request.scope["scheme"] == "https",
        httponly=True,
        samesite="lax",
    )
    return response


def _provider(request: Request) -> Provider:
    provider = services(request).identity.provider
    if provider is None:
        raise NotFound("no identity provider is set up here: OIDC_ISSUER and OIDC_CLIENT_ID; use a token")
    return provider


def _redirect_uri(request: Request) -> str:
    """Where the provider leads back to: this host as the browser names it, if the provider knows it."""
    return f"{request.scope['scheme']}://{request.headers.get('host', '')}{router.prefix}/oidc/callback"


def _attempt_cookie(request: Request) -> str:
    return "__Host-lcm_sign_in" if request.scope["scheme"] == "https" else "lcm_sign_in"


def _attempt_of(request: Request) -> Attempt | None:
    try:
        text = base64.urlsafe_b64decode(request.cookies.get(_attempt_cookie(request), ""))
        return msgspec.json.decode(text, type=Attempt)
    except (ValueError, msgspec.MsgspecError):
        return None


async def sign_in_by_link(
    request: Request, response: Response, *, code: str | None, token: str | None
) -> None:
    """Sign in with the code or the token of a link; one that is not valid is ignored without an answer.

    Raises AccessDenied if another site leads here: it could sign a person in under a foreign account.
    """
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise AccessDenied(403, "links of another site are refused; open it from the address bar")
    identity = services(request).identity
    try:
        if code is not None:
            principal = await identity.use_link(code, request)
        else:
            principal = await identity.principal_of(token or "", request)
    except AccessDenied:
        return
    await remember(response, request, identity, principal)


async def remember(response: Response, request: Request, identity: Identity, principal: Principal) -> None:
    """Set the session cookie: for this site only, over TLS if the request was, unreadable for scripts.

    Raises TooManyRequests: signing in is charged like any request of the principal.
    """
    charge(request.app.state.rate, principal)
    audit_changes(request, principal)
    secret, session = await identity.open_session(principal)
    assert session.expires_at is not None
    response.set_cookie(
        cookie_name(request),
        secret,
        max_age=int((session.expires_at - session.created_at).total_seconds()),
        httponly=True,
        samesite="strict",
        secure=request.scope["scheme"] == "https",
        path="/",
    )


def _browser(session: Credential, person: Principal) -> BrowserSession:
    return BrowserSession(
        id=session.id,
        principal_id=session.owner_id,
        actor=session.name,
        role=session.role,
        created_at=session.created_at,
        expires_at=session.expires_at,
        last_used_at=session.last_used_at,
        is_current=session.id == person.session_id,
    )


def _signed_out(request: Request) -> Response:
    """The browser forgets its session and what it has cached."""
    response = Response(status_code=204, headers={"Clear-Site-Data": '"cache"'})
    response.delete_cookie(
        cookie_name(request),
        path="/",
        secure=request.scope["scheme"] == "https",
        httponly=True,
        samesite="strict",
    )
    return response


def _view(person: Principal, request: Request) -> SessionView:
    policies = services(request).control_plane.policies
    place = CmlPlace(uses_private_ip=policies.gives_private_ip, port=policies.cml_port)
    return SessionView(id=person.id, actor=person.name, role=person.role.label, cml=place)
