"""The first thing a request meets: who are you, how much are you sending; and what every answer carries.

Access is denied by default: a path is open only if it is named here.
"""

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lcm.control_plane.access import AccessDenied, AccessKeys, authenticate
from lcm.rest.schemas import API_KEY_HEADER
from lcm.web.problems import problem

MAX_BODY_BYTES = 1024 * 1024

OPEN_PATHS = frozenset({"/", "/favicon.svg", "/health", "/ready", "/metrics"})
OPEN_PREFIXES = ("/assets/",)
SIGN_IN = ("POST", "/api/session")
SIGN_OUT = ("DELETE", "/api/session")

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
        " font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class BodyTooLarge(Exception):
    """More than one request may carry."""


class Gate:
    """ASGI middleware in front of everything else."""

    def __init__(self, app: ASGIApp, keys: AccessKeys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                if scope["path"].startswith("/api/"):
                    headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            self._check_access(scope)
            limited = _limit_body(Headers(scope=scope), receive)
        except AccessDenied as denied:
            refusal = access_problem(denied)
            await refusal(scope, receive, send_with_headers)
            return
        except BodyTooLarge:
            await body_too_large()(scope, receive, send_with_headers)
            return
        await self._app(scope, limited, send_with_headers)

    def _check_access(self, scope: Scope) -> None:
        path: str = scope["path"]
        if (
            path in OPEN_PATHS
            or path.startswith(OPEN_PREFIXES)
            or (scope["method"], path) in (SIGN_IN, SIGN_OUT)
        ):
            return
        connection = HTTPConnection(scope)
        if path.startswith("/api/internal/"):
            if not self._keys.is_controller(connection.headers.get(API_KEY_HEADER, "")):
                raise AccessDenied(
                    401, f"controllers send their key in {API_KEY_HEADER}; it is missing or wrong"
                )
            return
        authenticate(connection, self._keys)


def _limit_body(headers: Headers, receive: Receive) -> Receive:
    """Refuse a body that says it is too large, and count one that does not say."""
    announced = headers.get("content-length", "0")
    if not announced.isdigit() or int(announced) > MAX_BODY_BYTES:
        raise BodyTooLarge
    received = 0

    async def counting_receive() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > MAX_BODY_BYTES:
            raise BodyTooLarge
        return message

    return counting_receive


def access_problem(denied: AccessDenied) -> ASGIApp:
    kind, title = ("unauthorized", "Not signed in") if denied.status == 401 else ("forbidden", "Not allowed")
    return problem(denied.status, kind, title, denied.detail)


def body_too_large() -> ASGIApp:
    return problem(413, "too-large", "Body too large", f"a request may carry at most {MAX_BODY_BYTES} bytes")
