"""Authentication, rate and body limits of every request, and the security headers of every answer.

Access is denied by default: a path is open only if it is named here.
"""

import math
import re
from collections import Counter
from ipaddress import ip_address

import structlog
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lcm.control_plane.access.identity import Identity
from lcm.control_plane.access.rate_limit import Buckets
from lcm.control_plane.access.roles import AccessDenied, Principal, TooManyRequests
from lcm.control_plane.access.security_log import one_request
from lcm.control_plane.store.port import StoreUnavailable
from lcm.core.clock import Clock
from lcm.core.telemetry import Telemetry
from lcm.core.timeouts import timeout
from lcm.web.problems import problem, unexpected_problem

log = structlog.get_logger(__name__)

MAX_BODY_BYTES = 1024 * 1024
MAX_TOPOLOGY_BODY_BYTES = 4 * 1024 * 1024
"""For a topology, whose characters take up to this much in JSON."""
TOPOLOGY_PREFIX = "/api/lablet-definitions"
MAX_FLEET_BODY_BYTES = 16 * 1024 * 1024
"""For the documents of a fleet, with the topologies of its definitions."""
FLEET_PATH = "/api/plan"
BODY_TIMEOUT_SECONDS = 10.0
API_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0)
"""Few: there is a histogram for each operation."""

OPEN_PATHS = frozenset({"/", "/favicon.svg", "/health", "/ready", "/metrics"})
OPEN_PREFIXES = ("/assets/",)
REFUSALS = frozenset({401, 403, 429})
SESSION = (
    ("POST", "/api/session"),
    ("DELETE", "/api/session"),
    ("GET", "/api/session/sign-in"),
    ("GET", "/api/session/oidc"),
    ("GET", "/api/session/oidc/callback"),
)

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
        " font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "X-Permitted-Cross-Domain-Policies": "none",
}

_PAGE_HEADERS = [(name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
_API_HEADERS = [*_PAGE_HEADERS, (b"cache-control", b"no-store")]
_TLS_HEADERS = [(b"strict-transport-security", b"max-age=31536000")]


class BodyTooLarge(Exception):
    """The body of a request exceeds its limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(f"more than {limit} bytes")


class AccessMiddleware:
    """ASGI middleware in front of everything else.

    A request passes only with a known principal, stored in its state, and within that principal's rate.
    Controllers have no rate limit: their own queues pace them, and delaying them would delay the fleet.
    """

    def __init__(
        self,
        app: ASGIApp,
        identity: Identity,
        rate: Buckets,
        *,
        is_local: bool = False,
        latency: "Latency | None" = None,
    ) -> None:
        """With `is_local` only requests to an address or to localhost are served.

        A site whose name leads to loopback could otherwise read what needs no token.
        """
        self._latency = latency
        self._is_local = is_local
        self._app = app
        self.identity = identity
        self._rate = rate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return

        with one_request():
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._latency is not None:
            send = self._latency.timed(scope, send)
        answer = _Answer(scope, send, self.identity.refusals)
        if self._is_local and not is_address_or_localhost(Headers(scope=scope).get("host", "")):
            detail = "LCM listens on loopback: call it localhost, or name the proxy in FORWARDED_ALLOW_IPS"
            await problem(421, "misdirected", "Another host was called", detail)(scope, receive, answer.send)
            return
        try:
            await self._check_access(scope)
            with_body = await _read_body(Headers(scope=scope), receive, _limit_of(scope["path"]))
        except (AccessDenied, TooManyRequests, StoreUnavailable, BodyTooLarge, TimeoutError) as error:
            await _refusal(error)(scope, receive, answer.send)
            return
        try:
            await self._app(scope, with_body, answer.send)
        except Exception:
            log.exception("request failed", method=scope["method"], path=scope["path"])
            if answer.has_begun:
                raise
            await unexpected_problem()(scope, receive, answer.send)

    async def _check_access(self, scope: Scope) -> None:
        path: str = scope["path"]
        if path in OPEN_PATHS or path.startswith(OPEN_PREFIXES) or (scope["method"], path) in SESSION:
            return
        connection = HTTPConnection(scope)
        if path.startswith("/api/internal/"):
            await self.identity.require_service(connection)
            return
        principal = await self.identity.authenticate(connection)
        charge(self._rate, principal)
        scope.setdefault("state", {})["principal"] = principal


def is_address_or_localhost(host: str) -> bool:
    """Return whether a Host header names no site; HTTP/1.0 may have none."""
    name = host.rpartition(":")[0] if re.search(r":[0-9]*$", host) else host
    if name in ("", "localhost") or name.endswith(".localhost"):
        return True
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


class _Answer:
    """The send side of a request: adds the headers of every answer and counts refusals."""

    def __init__(self, scope: Scope, send: Send, refusals: Counter[int]) -> None:
        self._scope = scope
        self._send = send
        self._refusals = refusals
        self.has_begun = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            if message["status"] in REFUSALS:
                self._refusals[message["status"]] += 1
            given = message.get("headers", [])
            names = {name for name, _ in given}
            message["headers"] = [*given, *(header for header in self._headers() if header[0] not in names)]
        await self._send(message)

    def _headers(self) -> list[tuple[bytes, bytes]]:
        wanted = _API_HEADERS if self._scope["path"].startswith("/api/") else _PAGE_HEADERS
        return [*wanted, *_TLS_HEADERS] if self._scope["scheme"] == "https" else wanted


class Latency:
    """How long each operation takes until its answer begins: an event stream has no end."""

    def __init__(self, telemetry: Telemetry, clock: Clock) -> None:
        self._now = clock.monotonic
        self._record = telemetry.durations_by(
            "operation",
            "lcm_api_request_seconds",
            "From a request of the API until its answer begins, by method and path; refused ones left out.",
            API_BUCKETS,
        ).record

    def timed(self, scope: Scope, send: Send) -> Send:
        begun_at = self._now()

        async def timed_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                method, route = scope["method"], scope.get("route")
                # A path is matched for every method, and those that it does not have are refused.
                if isinstance(route, APIRoute) and method in (route.methods or ()):
                    self._record(f"{method} {route.path}", self._now() - begun_at)
            await send(message)

        return timed_send


def charge(rate: Buckets, principal: Principal) -> None:
    """Count a request of this principal. Raises TooManyRequests beyond its rate."""
    wait = rate.take(principal.id)
    if wait > 0:
        raise TooManyRequests(wait, "the token exceeds its request rate; wait and try again")


def principal_behind(connection: HTTPConnection) -> Principal:
    """Return the principal that the middleware authenticated."""
    principal: Principal | None = connection.scope.get("state", {}).get("principal")
    if principal is None:
        raise AccessDenied(401, "sign in first")
    return principal


def _limit_of(path: str) -> int:
    if path == FLEET_PATH:
        return MAX_FLEET_BODY_BYTES
    return MAX_TOPOLOGY_BODY_BYTES if path.startswith(TOPOLOGY_PREFIX) else MAX_BODY_BYTES


async def _read_body(headers: Headers, receive: Receive, limit: int) -> Receive:
    """Read the whole body before the application does, and replay it; refuse one that is too large."""
    announced = headers.get("content-length", "0")
    if not announced.isdigit() or int(announced) > limit:
        raise BodyTooLarge(limit)
    chunks: list[bytes] = []
    received = 0
    async with timeout(BODY_TIMEOUT_SECONDS):
        while True:
            message = await receive()
            if message["type"] != "http.request":
                break  # the client disconnected
            chunks.append(message.get("body", b""))
            received += len(chunks[-1])
            if received > limit:
                raise BodyTooLarge(limit)
            if not message.get("more_body", False):
                message = {"type": "http.request", "body": b"".join(chunks), "more_body": False}
                break
    pending: list[Message] = [message]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay


def _refusal(
    error: AccessDenied | TooManyRequests | StoreUnavailable | BodyTooLarge | TimeoutError,
) -> Response:
    """Return the answer to a request that does not pass."""
    match error:
        case AccessDenied():
            return access_problem(error)
        case TooManyRequests():
            return rate_problem(error)
        case StoreUnavailable():
            return store_problem(error)
        case BodyTooLarge():
            detail = f"a body may have at most {error.limit} bytes; send less"
            return problem(413, "too-large", "Body too large", detail)
        case TimeoutError():
            detail = f"the body did not arrive within {BODY_TIMEOUT_SECONDS:g} seconds; send it again"
            return problem(408, "too-slow", "Body too slow", detail)


_DENIALS = {
    401: ("unauthorized", "Not signed in"),
    403: ("forbidden", "Not allowed"),
    503: ("issuer-unavailable", "Identity provider unreachable"),
}


def access_problem(denied: AccessDenied) -> Response:
    kind, title = _DENIALS[denied.status]
    return problem(denied.status, kind, title, denied.detail)


def rate_problem(refused: TooManyRequests) -> Response:
    response = problem(429, "too-many-requests", "Too many requests", refused.detail)
    response.headers["Retry-After"] = str(math.ceil(refused.retry_after_seconds))
    return response


def store_problem(error: StoreUnavailable) -> Response:
    return problem(
        503, "store-unavailable", "Store unavailable", f"{error}; nothing was changed, try again later"
    )
