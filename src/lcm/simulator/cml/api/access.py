"""Logging in and out."""

from typing import Any, Final

from lcm.simulator.cml.accounts import User
from lcm.simulator.cml.api.routing import Call, Route
from lcm.simulator.cml.refusal import Refused


def authenticate(call: Call) -> str:
    """A bare token."""
    user = _login(call)
    return call.server.sessions.open(user.id, call.now)


def auth_extended(call: Call) -> dict[str, Any]:
    user = _login(call)
    return _identity(user, call.server.sessions.open(user.id, call.now))


def authok(call: Call) -> str:
    return "OK"


def authentication(call: Call) -> dict[str, Any]:
    """Since 2.10."""
    if not call.server.version.is_2_10:
        raise Refused(404, f"The requested URL {call.query.path} was not found on the server.")
    return _identity(call.user, call.token)


def logout(call: Call) -> bool:
    if call.flag("clear_all_sessions"):
        call.server.sessions.close_all(call.user.id)
    else:
        call.server.sessions.close(call.token)
    return True


def web_session_timeout(call: Call) -> int:
    return call.server.web_session_seconds


def set_web_session_timeout(call: Call) -> str:
    call.need_admin()
    seconds = call.names["seconds"]
    if not seconds.isdecimal() or not 300 <= int(seconds) <= 604_800:
        raise Refused(400, "The web session timeout must be between 300 and 604800 seconds.")
    call.server.web_session_seconds = int(seconds)
    return "OK"


def _login(call: Call) -> User:
    body = call.fields()
    if not isinstance(body.get("username"), str) or not isinstance(body.get("password"), str):
        raise Refused(400, "Bad request: username and password are required")
    call.server.counters["logins"] += 1
    user = call.server.accounts.login(body["username"], body["password"])
    if user is None:
        raise Refused(403, "Authentication failed!")
    return user


def _identity(user: User, token: str) -> dict[str, Any]:
    return {"username": user.username, "id": user.id, "token": token, "admin": user.admin, "error": None}


OPEN_ROUTES: Final[tuple[Route, ...]] = (
    ("POST", "authenticate", authenticate),
    ("POST", "auth_extended", auth_extended),
)

ROUTES: Final[tuple[Route, ...]] = (
    ("GET", "authok", authok),
    ("GET", "authentication", authentication),
    ("DELETE", "logout", logout),
    ("GET", "web_session_timeout", web_session_timeout),
    ("PATCH", "web_session_timeout/{seconds}", set_web_session_timeout),
)
