"""The simulator's own endpoint under `/_lcm/`: look behind the scenes, cause trouble, play the console.

What lies under `/_lcm/cml/` belongs to the CML servers, which live in the parent process: such requests
are passed on to it, so that one address is enough to control everything.
"""

from collections.abc import Callable, Iterable
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol
from urllib.parse import urlsplit

import msgspec
from werkzeug.wrappers import Request, Response

from lcm.simulator.aws.errors import Ec2Error
from lcm.simulator.aws.faults import Fault
from lcm.simulator.aws.world import World

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse

MAX_WAIT_SECONDS: Final = 60.0
CML: Final = "/_lcm/cml/"
FORWARD_SECONDS: Final = 30.0


class ConsoleAction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person does to an instance in the AWS console, or fate (`forget`)."""

    action: Literal["start", "stop", "terminate", "forget"]
    region: str
    instance_id: str


class Launch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Machines that are there from the beginning: they run, and have done so for a while."""

    region: str
    instance_types: list[str]
    tags: dict[str, str] = {}
    seconds_up: float = 3600.0


class Launcher(Protocol):
    """Makes a machine that is on its way to running."""

    def __call__(self, region: str, instance_type: str, tags: dict[str, str], /) -> str: ...


class Control:
    """The WSGI application behind `/_lcm/`."""

    def __init__(self, world: World, launcher: Launcher) -> None:
        self._world = world
        self._launcher = launcher
        self._routes: dict[tuple[str, str], Callable[[Request], Response]] = {
            ("GET", "/_lcm/instances"): self._instances,
            ("POST", "/_lcm/instances"): self._launch,
            ("POST", "/_lcm/faults"): self._add_fault,
            ("DELETE", "/_lcm/faults"): self._clear_faults,
            ("GET", "/_lcm/calls"): self._calls,
            ("DELETE", "/_lcm/calls"): self._reset_calls,
            ("POST", "/_lcm/console"): self._console,
            ("GET", "/_lcm/simulation"): self._simulation,
            ("PUT", "/_lcm/simulation"): self._publish_simulation,
        }

    def __call__(self, environ: dict[str, Any], start_response: "StartResponse") -> Iterable[bytes]:
        request = Request(environ)
        route = self._routes.get((request.method, request.path))
        if request.path.startswith(CML):
            route = self._forward
        try:
            response = route(request) if route else _json({"error": "no such control"}, status=404)
        except (msgspec.DecodeError, ValueError) as mistake:
            response = _json({"error": str(mistake)}, status=400)
        except Ec2Error as refusal:
            response = _json({"error": refusal.message, "code": refusal.code}, status=409)
        return response(environ, start_response)

    def _instances(self, request: Request) -> Response:
        after, wait = request.args.get("after"), float(request.args.get("wait", 0))
        return _json(
            self._world.listing(
                after=None if after is None else int(after), wait_seconds=min(wait, MAX_WAIT_SECONDS)
            )
        )

    def _launch(self, request: Request) -> Response:
        wish = msgspec.json.decode(request.get_data(), type=Launch)
        with self._world.changed:
            launched = [
                self._world.machines.age(
                    self._launcher(wish.region, instance_type, wish.tags), wish.seconds_up
                )
                for instance_type in wish.instance_types
            ]
            self._world.changed.notify_all()
            return _json([self._world.instances.describe(machine) for machine in launched])

    def _forward(self, request: Request) -> Response:
        """Let the parent process answer."""
        if self._world.simulation is None:
            return _json({"error": "the simulation is not complete yet"}, status=503)
        split = urlsplit(self._world.simulation["cml_control_url"])
        path = f"{split.path}/{request.path.removeprefix(CML)}"
        query = request.query_string.decode()
        connection = HTTPConnection(str(split.hostname), split.port, timeout=FORWARD_SECONDS)
        try:
            connection.request(request.method, f"{path}?{query}", body=request.get_data())
            answer = connection.getresponse()
            return Response(answer.read(), status=answer.status, content_type="application/json")
        except (OSError, HTTPException) as failure:
            return _json({"error": f"the CML servers do not answer: {failure!r}"}, status=502)
        finally:
            connection.close()

    def _add_fault(self, request: Request) -> Response:
        self._world.faults.add(msgspec.json.decode(request.get_data(), type=Fault))
        return Response(status=204)

    def _clear_faults(self, request: Request) -> Response:
        self._world.faults.clear()
        with self._world.changed:
            self._world.machines.go_on()
            self._world.changed.notify_all()
        return Response(status=204)

    def _calls(self, request: Request) -> Response:
        return _json(self._world.calls.newest())

    def _reset_calls(self, request: Request) -> Response:
        self._world.calls.reset()
        return Response(status=204)

    def _console(self, request: Request) -> Response:
        wish = msgspec.json.decode(request.get_data(), type=ConsoleAction)
        with self._world.changed:
            if wish.action == "forget":
                self._world.machines.forget(wish.region, wish.instance_id)
            else:
                self._world.machines.move(wish.action, wish.region, [wish.instance_id])
            self._world.changed.notify_all()
        return Response(status=204)

    def _simulation(self, request: Request) -> Response:
        if self._world.simulation is None:
            return _json({"error": "the simulation is not complete yet"}, status=503)
        return _json(self._world.simulation)

    def _publish_simulation(self, request: Request) -> Response:
        self._world.simulation = msgspec.json.decode(request.get_data())
        return Response(status=204)


def _json(answer: Any, *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(answer), status=status, content_type="application/json")
