"""One CML server: requests in, answers out, no sockets.

Answers as CML 2.9 does, byte for byte where clients look. It lives as long as its instance: a stop
and a start boot it again with the same certificate and the same users.
"""

import hmac
import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from lcm.simulator.cml.boot import BootPhase, BootSchedule
from lcm.simulator.cml.hardware import HARDWARE, OTHER, Load, system_stats
from lcm.simulator.cml.sessions import Sessions
from lcm.simulator.listing import SimulatedInstance
from lcm.simulator.pace import Delays, Pace

IMAGE_NAME: Final = re.compile(r"CML-(?P<version>\d+\.\d+\.\d+)-\d+")
BUILDS: Final = {"2.8.1": 14, "2.9.0": 6, "2.9.1": 7}

BAD_GATEWAY: Final = (
    b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n"
    b"<center><h1>502 Bad Gateway</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"
)


class Credentials(msgspec.Struct, frozen=True):
    """Who may log in; also the body of `POST /authenticate`."""

    username: str
    password: str


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A request, as far as a server looks at it."""

    method: str
    path: str
    authorization: str = ""
    body: bytes = b""


class Answer(msgspec.Struct, frozen=True):
    """A response."""

    status: int
    body: bytes
    content_type: str = "application/json"


def is_cml_image(image_name: str) -> bool:
    """Whether a machine with this image is a CML server at all."""
    return IMAGE_NAME.fullmatch(image_name) is not None


class CmlServer:
    """The server on one instance."""

    def __init__(self, *, credentials: Credentials, pace: Pace, delays: Delays, secret: bytes) -> None:
        self._credentials = credentials
        self._pace = pace
        self._delays = delays
        self._sessions = Sessions(secret)
        self._routes: dict[str, dict[str, Callable[[Query, float], Answer]]] = {
            "/api/v0/system_information": {"GET": self._system_information},
            "/api/v0/authenticate": {"POST": self._authenticate},
            "/api/v0/authok": {"GET": self._with_session(self._authok)},
            "/api/v0/system_stats": {"GET": self._with_session(self._system_stats)},
        }

    def power_on(self, instance: SimulatedInstance) -> BootSchedule:
        """Begin a boot; the schedule says when to listen."""
        self._instance = instance
        self._running_since = instance.running_since or 0.0
        # The address, not the id, names the machine for the seed: ids differ from run to run.
        self._load = Load(f"{self._pace.seed}/load/{instance.private_ip}")
        self._boot = BootSchedule.draw(self._pace, self._delays, instance.private_ip, instance.generation)
        return self._boot

    def answer(self, query: Query, now: float) -> Answer:
        """What a client gets at that moment (Unix seconds)."""
        if self._phase(now) in {BootPhase.OFF, BootPhase.GATEWAY}:
            return Answer(502, BAD_GATEWAY, "text/html")
        methods = self._routes.get(query.path)
        if methods is None:
            return _error(404, f"The requested URL {query.path} was not found on the server.")
        handler = methods.get(query.method)
        return handler(query, now) if handler else _error(405, "Method Not Allowed")

    def _phase(self, now: float) -> BootPhase:
        return self._boot.phase(now - self._running_since)

    def _system_information(self, query: Query, now: float) -> Answer:
        return _ok(
            {
                "version": _version(self._instance.image_name),
                "ready": self._phase(now) is BootPhase.READY,
                "allow_ssh_pubkey_auth": False,
                "oui": "52:54:00:00:00:00",
            }
        )

    def _authenticate(self, query: Query, now: float) -> Answer:
        try:
            given = msgspec.json.decode(query.body, type=Credentials)
        except msgspec.DecodeError as mistake:
            return _error(400, f"Invalid request body: {mistake}")
        if not self._is_known(given):
            return _error(403, "Authentication failed!")
        return _ok(self._sessions.open(now))

    def _is_known(self, given: Credentials) -> bool:
        return given.username == self._credentials.username and hmac.compare_digest(
            given.password.encode(), self._credentials.password.encode()
        )

    def _authok(self, query: Query, now: float) -> Answer:
        return _ok("OK")

    def _system_stats(self, query: Query, now: float) -> Answer:
        hardware = HARDWARE.get(self._instance.instance_type, OTHER)
        return _ok(system_stats(hardware, self._load, now - self._running_since))

    def _with_session(self, handler: Callable[[Query, float], Answer]) -> Callable[[Query, float], Answer]:
        def guarded(query: Query, now: float) -> Answer:
            scheme, _, token = query.authorization.partition(" ")
            if scheme != "Bearer" or not token:
                return _error(401, "No authorization token provided.")
            if not self._sessions.is_valid(token, now):
                return _error(401, "Authorization token is invalid or has expired.")
            return handler(query, now)

        return guarded


def _version(image_name: str) -> str:
    match = IMAGE_NAME.fullmatch(image_name)
    version = match["version"] if match else "0.0.0"
    return f"{version}+build.{BUILDS.get(version, 1)}"


def _ok(body: Any) -> Answer:
    return Answer(200, msgspec.json.encode(body))


def _error(code: int, description: str) -> Answer:
    return Answer(code, msgspec.json.encode({"code": code, "description": description}))
