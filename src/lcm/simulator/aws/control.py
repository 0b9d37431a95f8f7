"""The simulator's own endpoint under `/_lcm/`: look behind the scenes, cause trouble, play the console."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from werkzeug.wrappers import Request, Response

from lcm.simulator.aws.errors import Ec2Error
from lcm.simulator.aws.faults import Fault
from lcm.simulator.aws.world import World

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse

MAX_WAIT_SECONDS: Final = 60.0


class ConsoleAction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person does to an instance in the AWS console, or fate (`forget`)."""

    action: Literal["start", "stop", "terminate", "forget"]
    region: str
    instance_id: str


class Control:
    """The WSGI application behind `/_lcm/`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._routes: dict[tuple[str, str], Callable[[Request], Response]] = {
            ("GET", "/_lcm/instances"): self._instances,
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

    def _add_fault(self, request: Request) -> Response:
        self._world.faults.add(msgspec.json.decode(request.get_data(), type=Fault))
        return Response(status=204)

    def _clear_faults(self, request: Request) -> Response:
        self._world.faults.clear()
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
