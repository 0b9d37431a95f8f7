"""Default deny, seen from inside: what no rule lets through never reaches a handler."""

import asyncio
from typing import Any

import pytest
from starlette.requests import HTTPConnection
from starlette.types import Message, Receive, Scope, Send

from lcm.control_plane.access.identity import Identity
from lcm.control_plane.access.rate_limit import Buckets
from lcm.control_plane.access.roles import AccessDenied, AccessKeys, Role
from lcm.control_plane.api.middleware import BODY_TIMEOUT_SECONDS, AccessMiddleware, principal_behind
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import Document, StoreUnavailable
from support.asgi import request
from support.virtual_time import VirtualClock

KEYS = AccessKeys("viewer-key", "operator-key", "admin-key", "controller-key")


class Handler:
    """Remembers who came in."""

    def __init__(self) -> None:
        self.entered: list[Scope] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.entered.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def handler() -> Handler:
    return Handler()


def middleware(handler: Handler, store: MemoryStore | None = None, burst: int = 1000) -> AccessMiddleware:
    clock = VirtualClock()
    identity = Identity(KEYS, store or MemoryStore(), clock)
    return AccessMiddleware(handler, identity, Buckets(clock, per_second=1.0, burst=burst))


@pytest.mark.parametrize(
    "path",
    [
        "/api/workers",
        "/api/internal/workers",
        "/api/internal",
        "/api/INTERNAL/workers",
        "/API/session",
        "/api/session/",
        "//",
        "/docs",
        "/health/",
        "/metrics/x",
        "/assets",
        "/assetsx",
        "/new-route-without-a-rule",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PUT", "TRACE"])
async def test_a_stranger_reaches_no_handler(path: str, method: str, handler: Handler) -> None:
    status, _ = await request(middleware(handler), method, path, {}, b"")
    assert status == 401
    assert handler.entered == []


async def test_a_handler_knows_the_authenticated_principal(handler: Handler) -> None:
    await request(middleware(handler), "GET", "/api/workers", {"Authorization": "Bearer operator-key"}, None)
    (scope,) = handler.entered
    assert scope["state"]["principal"].role is Role.OPERATOR


async def test_the_controllers_key_is_invalid_outside_the_internal_routes(handler: Handler) -> None:
    controller = {"X-API-Key": "controller-key", "Authorization": "Bearer controller-key"}
    assert (await request(middleware(handler), "GET", "/api/workers", controller, None))[0] == 401
    assert (await request(middleware(handler), "GET", "/api/internal/x", controller, None))[0] == 200
    assert "principal" not in handler.entered[0].get("state", {})


async def test_a_websocket_is_refused(handler: Handler) -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: dict[str, Any] = {"type": "websocket", "path": "/api/workers", "headers": []}
    await middleware(handler)(scope, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]
    assert handler.entered == []


@pytest.mark.parametrize(
    ("path", "megabytes"), [("/api/workers", 1), ("/api/lablet-definitions", 4), ("/api/plan", 16)]
)
async def test_no_body_exceeds_the_limit_of_its_route(path: str, megabytes: int, handler: Handler) -> None:
    admin = {"Authorization": "Bearer admin-key"}
    limit = megabytes * 1024 * 1024
    for size, status in ((limit, 200), (limit + 1, 413)):
        assert (await request(middleware(handler), "POST", path, admin, b"x" * size))[0] == status
    assert len(handler.entered) == 1


async def test_a_body_that_does_not_arrive_is_not_waited_for(handler: Handler) -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        await VirtualClock().sleep(9)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"authorization", b"Bearer admin-key")]
    scope = {
        "type": "http",
        "method": "POST",
        "scheme": "http",
        "path": "/api/workers",
        "headers": headers,
        "client": ("10.0.0.1", 1),
    }
    began = asyncio.get_running_loop().time()
    await middleware(handler)(scope, receive, send)
    assert asyncio.get_running_loop().time() - began == BODY_TIMEOUT_SECONDS
    assert sent[0]["status"] == 408
    assert handler.entered == []


async def test_refusals_are_counted_and_each_principal_has_its_own_rate(handler: Handler) -> None:
    guarded = middleware(handler, burst=2)
    viewer = {"Authorization": "Bearer viewer-key"}
    assert [(await request(guarded, "GET", "/api/x", viewer, None))[0] for _ in range(3)] == [200, 200, 429]
    assert (await request(guarded, "GET", "/api/x", {"Authorization": "Bearer admin-key"}, None))[0] == 200
    assert (await request(guarded, "GET", "/api/x", {}, None))[0] == 401
    assert guarded.identity.refusals == {429: 1, 401: 1}


async def test_no_request_passes_while_the_store_cannot_be_read(handler: Handler) -> None:
    class Away(MemoryStore):
        async def get(self, kind: str, document_id: str) -> Document | None:
            raise StoreUnavailable("away")

    guarded = middleware(handler, Away())
    assert (await request(guarded, "GET", "/api/x", {"Authorization": "Bearer lcm_x"}, None))[0] == 503
    assert handler.entered == []
    assert (await request(guarded, "GET", "/api/x", {"Authorization": "Bearer admin-key"}, None))[0] == 200


def test_without_the_middleware_there_is_no_principal() -> None:
    with pytest.raises(AccessDenied):
        principal_behind(HTTPConnection({"type": "http", "headers": [], "path": "/"}))


@pytest.mark.parametrize(
    ("host", "is_served"),
    [
        ("localhost:8080", True),
        ("127.0.0.1:8080", True),
        ("[::1]:8080", True),
        ("lcm.localhost", True),
        ("", True),
        ("rebound.example", False),
        ("rebound.example:8080", False),
        ("127.0.0.1.rebound.example", False),
    ],
)
async def test_a_site_whose_name_leads_to_loopback_reads_nothing(
    host: str, is_served: bool, handler: Handler
) -> None:
    """DNS rebinding, on a path that needs no token."""
    clock = VirtualClock()
    local = AccessMiddleware(
        handler,
        Identity(KEYS, MemoryStore(), clock),
        Buckets(clock, per_second=1e6, burst=1000),
        is_local=True,
    )
    status, _ = await request(local, "GET", "/metrics", {"host": host}, None)
    assert (status == 200, bool(handler.entered)) == (is_served, is_served)
    assert status in (200, 421)
