"""The simulator's own endpoint under `/_lcm/`: inspect its state, inject faults, act as the AWS console.

Routes under `/_lcm/cml/` belong to the CML servers, which live in the parent process: such requests
are forwarded to it, so that one address is enough to control everything.
"""

from collections.abc import Callable, Iterable
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol
from urllib.parse import urlsplit

import msgspec
from werkzeug.wrappers import Request, Response

from lcm.simulator.aws.errors import Ec2Error
from lcm.simulator.aws.faults import Fault
from lcm.simulator.aws.state import AwsState

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse

MAX_WAIT_SECONDS: Final = 60.0
CML: Final = "/_lcm/cml/"
FORWARD_SECONDS: Final = 30.0


class ConsoleAction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person does to an instance in the AWS console; `forget` removes it without a trace."""

    action: Literal["start", "stop", "terminate", "forget"]
    region: str
    instance_id: str


class AccountChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to change of the account; absent ones stay."""

    vcpu_quota: float | None = None
    clock_ahead_seconds: float | None = None


class Launch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Instances that exist from the beginning: they have been running for a while."""

    region: str
    instance_types: list[str]
    tags: dict[str, str] = {}
    seconds_up: float = 3600.0


class Launcher(Protocol):
    """Launches a pending instance and returns its id."""

    def __call__(self, region: str, instance_type: str, tags: dict[str, str], /) -> str: ...


class Control:
    """The WSGI application behind `/_lcm/`."""

    def __init__(self, state: AwsState, launcher: Launcher) -> None:
        self._state = state
        self._launcher = launcher
        self._routes: dict[tuple[str, str], Callable[[Request], Response]] = {
            ("GET", "/_lcm/instances"): self._instances,
            ("POST", "/_lcm/instances"): self._launch,
            ("POST", "/_lcm/faults"): self._add_fault,
            ("DELETE", "/_lcm/faults"): self._clear_faults,
            ("GET", "/_lcm/calls"): self._calls,
            ("DELETE", "/_lcm/calls"): self._reset_calls,
            ("POST", "/_lcm/console"): self._console,
            ("PATCH", "/_lcm/account"): self._change_account,
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
            self._state.listing(
                after=None if after is None else int(after), wait_seconds=min(wait, MAX_WAIT_SECONDS)
            )
        )

    def _launch(self, request: Request) -> Response:
        order = msgspec.json.decode(request.get_data(), type=Launch)
        with self._state.changed:
            launched = [
                self._state.instances.backdate(
                    self._launcher(order.region, instance_type, order.tags), order.seconds_up
                )
                for instance_type in order.instance_types
            ]
            self._state.changed.notify_all()
            return _json([self._state.describer.describe(instance) for instance in launched])

    def _forward(self, request: Request) -> Response:
        """Forward the request to the parent process."""
        if self._state.simulation is None:
            return _json({"error": "the simulation is not complete yet"}, status=503)
        split = urlsplit(self._state.simulation["cml_control_url"])
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
        self._state.faults.add(msgspec.json.decode(request.get_data(), type=Fault))
        return Response(status=204)

    def _clear_faults(self, request: Request) -> Response:
        self._state.faults.clear()
        with self._state.changed:
            self._state.instances.resume_stalled()
            self._state.changed.notify_all()
        return Response(status=204)

    def _calls(self, request: Request) -> Response:
        return _json(self._state.calls.newest())

    def _reset_calls(self, request: Request) -> Response:
        self._state.calls.reset()
        return Response(status=204)

    def _console(self, request: Request) -> Response:
        step = msgspec.json.decode(request.get_data(), type=ConsoleAction)
        with self._state.changed:
            if step.action == "forget":
                self._state.instances.forget(step.region, step.instance_id)
            else:
                self._state.instances.change_state(step.action, step.region, [step.instance_id])
            self._state.changed.notify_all()
        return Response(status=204)

    def _change_account(self, request: Request) -> Response:
        change = msgspec.json.decode(request.get_data(), type=AccountChange)
        for name, value in msgspec.structs.asdict(change).items():
            if value is not None:
                setattr(self._state.account, name, value)
        return Response(status=204)

    def _simulation(self, request: Request) -> Response:
        if self._state.simulation is None:
            return _json({"error": "the simulation is not complete yet"}, status=503)
        return _json(self._state.simulation)

    def _publish_simulation(self, request: Request) -> Response:
        self._state.simulation = msgspec.json.decode(request.get_data())
        return Response(status=204)


def _json(answer: Any, *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(answer), status=status, content_type="application/json")
