"""Dependencies of the routes: the control plane, the person or controller behind a request, preconditions.

All are coroutines: FastAPI would run plain functions in a thread.
"""

from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Annotated, Any

import msgspec
from fastapi import Depends, Header, Request
from fastapi.routing import APIRoute
from pydantic import BeforeValidator

from lcm.control_plane.access.guessing import address_of
from lcm.control_plane.access.roles import SAFE_METHODS, AccessDenied, Principal, Role, require
from lcm.control_plane.access.security_log import audit_request
from lcm.control_plane.api.middleware import principal_behind
from lcm.control_plane.api.services import ControlPlane, Services
from lcm.control_plane.commands.claim_leadership import fence_for
from lcm.control_plane.records.preconditions import Preconditions, keyed_request
from lcm.control_plane.store.port import Fence
from lcm.domain.errors import PreconditionRequired
from lcm.domain.idempotency import KeyedRequest
from lcm.rest.schemas import EPOCH_HEADER, LABLET_CONTROLLER, SERVICE_HEADER


def services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


async def control_plane(request: Request) -> ControlPlane:
    return services(request).control_plane


def person(role: Role) -> Callable[[Request], Coroutine[Any, Any, Principal]]:
    """Return a dependency: a signed-in principal with at least this role, whose changes are audited."""

    async def check(request: Request) -> Principal:
        principal = principal_behind(request)
        try:
            require(principal, role)
        except AccessDenied as denied:
            await services(request).identity.record_denied(request, principal, denied.detail)
            raise
        if request.method not in SAFE_METHODS:
            audit_changes(request, principal)
        return principal

    return check


_CHECKS = {role: person(role) for role in Role}


def audit_changes(request: Request, principal: Principal) -> None:
    """Have what this request changes recorded as done by this principal."""
    audit_request(f"{request.method} {request.scope['route'].path}", address_of(request), principal)


def role_of(route: APIRoute) -> Role | None:
    """Return the lowest role that may use the route; None if it asks for none."""
    checks = {dependency.call for dependency in route.dependant.dependencies}
    return next((role for role, check in _CHECKS.items() if check in checks), None)


async def calling_service(request: Request) -> str:
    """Require the key of a service that needs this route; return its name."""
    identity = services(request).identity
    service = await identity.require_service(request)
    await identity.require_route(request, service, request.scope["route"].path)
    return service


async def controller(request: Request) -> str:
    """Return the name of the controller that works with this request; a scheduler that does is at work."""
    service = await calling_service(request)
    services(request).control_plane.records.scheduler.on_call(service)
    return service


async def leader_fence(request: Request, service: Annotated[str, Depends(controller)]) -> Fence:
    """Return the fence of the epoch that a leader's write must carry."""
    epoch = request.headers.get(EPOCH_HEADER, "")
    if not (epoch.isascii() and epoch.isdigit()):
        raise AccessDenied(403, f"a write needs the leader's epoch in {EPOCH_HEADER}; claim one first")
    return fence_for(service, int(epoch))


async def lablet_fence(
    service: Annotated[str, Depends(controller)], fence: Annotated[Fence, Depends(leader_fence)]
) -> Fence:
    """Return the fence of the lablet controller; no other service decides on labs."""
    if service != LABLET_CONTROLLER:
        raise AccessDenied(403, f"only the {LABLET_CONTROLLER} reports this; name it in {SERVICE_HEADER}")
    return fence


def secret_fence(*allowed: str) -> Callable[..., Coroutine[Any, Any, Fence]]:
    """Return a dependency: the fence of the newest epoch of a service that needs this secret."""

    async def check(
        service: Annotated[str, Depends(controller)],
        fence: Annotated[Fence, Depends(leader_fence)],
        plane: Annotated[ControlPlane, Depends(control_plane)],
    ) -> Fence:
        if service not in allowed:
            raise AccessDenied(403, f"only for {', '.join(allowed)}; name it in {SERVICE_HEADER}")
        await plane.records.epochs.require_newest(fence)
        return fence

    return check


async def keyed(
    request: Request,
    idempotency_key: Annotated[
        str | None,
        Header(min_length=1, max_length=200, description="Makes it safe to send this request again."),
    ] = None,
) -> KeyedRequest | None:
    """Return the digests by which a repeated request is recognised; None without an idempotency key."""
    if idempotency_key is None:
        return None
    return keyed_request(
        principal_behind(request).id,
        idempotency_key,
        request.method.encode(),
        request.url.path.encode(),
        request.url.query.encode(),
        await request.body(),
    )


async def preconditions(
    request: Annotated[KeyedRequest | None, Depends(keyed)],
    if_match: Annotated[
        str | None, Header(max_length=1000, description="Refused unless the present `ETag` is one of these.")
    ] = None,
) -> Preconditions:
    """Return the idempotency key and the `If-Match` of the request."""
    return Preconditions(request, entity_tags(if_match) if if_match is not None else None)


def entity_tags(if_match: str) -> frozenset[str] | None:
    """Return the entity tags of which one must be the record's; None for `*`."""
    return None if if_match.strip() == "*" else frozenset(tag.strip() for tag in if_match.split(","))


async def seen_version(
    if_match: Annotated[
        str | None, Header(max_length=1000, description="The `ETag` of the version you read; `*` for any.")
    ] = None,
) -> frozenset[str] | None:
    """Return the version to change; the caller must name it."""
    if if_match is None:
        raise PreconditionRequired(
            "read it first and send its ETag as If-Match, or * to overwrite any version"
        )
    return entity_tags(if_match)


def _moment(text: Any) -> datetime:
    """Return the moment in a query or a body; pydantic would take a number as seconds."""
    try:
        found: datetime = msgspec.convert(text, Annotated[datetime, msgspec.Meta(tz=True)])
    except msgspec.ValidationError:
        raise ValueError("write it as in 2026-01-31T09:00:00Z") from None
    return found


Moment = Annotated[datetime, BeforeValidator(_moment)]
Plane = Annotated[ControlPlane, Depends(control_plane)]
Viewer = Annotated[Principal, Depends(_CHECKS[Role.VIEWER])]
Operator = Annotated[Principal, Depends(_CHECKS[Role.OPERATOR])]
Admin = Annotated[Principal, Depends(_CHECKS[Role.ADMIN])]
Controller = Annotated[str, Depends(controller)]
Service = Annotated[str, Depends(calling_service)]
Keyed = Annotated[KeyedRequest | None, Depends(keyed)]
SeenVersion = Annotated[frozenset[str] | None, Depends(seen_version)]
Given = Annotated[Preconditions, Depends(preconditions)]
LeaderFence = Annotated[Fence, Depends(leader_fence)]
LabletFence = Annotated[Fence, Depends(lablet_fence)]
