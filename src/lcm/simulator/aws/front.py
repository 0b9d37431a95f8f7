"""The WSGI entry point of the AWS process: faults first, then moto, one request at a time."""

import re
import time
import traceback
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final
from xml.sax.saxutils import escape

import msgspec
from werkzeug.http import http_date
from werkzeug.wrappers import Response

from lcm.simulator.aws import quotas
from lcm.simulator.aws.calls import Call, read_call
from lcm.simulator.aws.instances import TransitionFault
from lcm.simulator.aws.state import AwsState

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

CONTROL: Final = "/_lcm/"
JSON_SERVICES: Final = ("monitoring", quotas.SERVICE)
REQUEST: Final = "00000000-0000-4000-8000-000000000000"
READING: Final = ("Describe", "Get")
"""Prefixes of the operations that change nothing."""

_CODE: Final = re.compile(rb"<Code>([^<]+)</Code>")


class ReplyLostError(ConnectionError):
    """Raised to close the connection without an answer."""


class Front:
    """The WSGI application of the AWS process."""

    def __init__(self, state: AwsState, *, aws: "WSGIApplication", control: "WSGIApplication") -> None:
        self._state = state
        self._aws = aws
        self._control = control

    def __call__(self, environ: dict[str, Any], start_response: "StartResponse") -> Iterable[bytes]:
        if "HTTP_ORIGIN" in environ:  # only browsers send it: a site could wreck the simulation
            return Response("Requests of web pages are refused.", 403)(environ, start_response)
        if environ["PATH_INFO"].startswith(CONTROL):
            return self._control(environ, start_response)
        call = read_call(environ)
        response = self._ask_moto("ec2", environ) if call is None else self._answer(call, environ)
        response.headers["Date"] = http_date(time.time() + self._state.account.clock_ahead_seconds)
        return response(environ, start_response)

    def _answer(self, call: Call, environ: dict[str, Any]) -> Response:
        if call.service == "ec2":
            self._state.calls.add(call)
        strike = self._state.faults.strike(call.operation, call.instance_ids)
        if strike is None:
            return self._perform(call, environ)
        match strike.fault.kind:
            case "error":
                call.outcome = strike.fault.code
                return error(
                    call.service, strike.fault.status, strike.fault.code, "Fault injected by the simulator."
                )
            case "hang":
                call.outcome = "hung"
                strike.wait()
                raise ReplyLostError
            case "delay":
                strike.wait(default_seconds=1.0)
                return self._perform(call, environ)
            case "lose_reply":
                self._perform(call, environ)
                call.outcome = "reply lost"
                raise ReplyLostError
            case "stall":
                with (
                    self._state.changed,
                    self._state.instances.with_fault(TransitionFault(failure_code=None)),
                ):
                    return self._perform(call, environ)
            case "give_up":
                with (
                    self._state.changed,
                    self._state.instances.with_fault(TransitionFault(strike.fault.code)),
                ):
                    return self._perform(call, environ)

    def _perform(self, call: Call, environ: dict[str, Any]) -> Response:
        if call.service == quotas.SERVICE:
            return quotas.answer(environ, self._state.account.vcpu_quota)
        response = self._ask_moto(call.service, environ)
        call.outcome = _outcome(response)
        if not call.operation.startswith(READING):
            with self._state.changed:
                self._state.instances.mark_changed()
                self._state.changed.notify_all()
        return response

    def _ask_moto(self, service: str, environ: dict[str, Any]) -> Response:
        """Answer one request at a time and completely, because moto is not thread-safe."""
        with self._state.changed:
            self._state.instances.settle()
            try:
                return Response.from_app(self._aws, environ, buffered=True)
            except NotImplementedError as missing:
                return error(service, 400, "UnsupportedOperation", str(missing))
            except Exception as failure:
                traceback.print_exc()
                return error(service, 500, "InternalError", f"The simulator failed: {failure!r}")


def error(service: str, status: int, code: str, message: str) -> Response:
    """An error as the service writes it."""
    if service in JSON_SERVICES:
        body = msgspec.json.encode({"__type": code, "message": message})
        return Response(body, status=status, content_type="application/x-amz-json-1.1")
    named = f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
    if service == "ec2":
        xml = f"<Response><Errors><Error>{named}</Error></Errors><RequestID>{REQUEST}</RequestID></Response>"
    else:
        xml = f"<ErrorResponse><Error>{named}</Error><RequestId>{REQUEST}</RequestId></ErrorResponse>"
    return Response(
        f'<?xml version="1.0" encoding="UTF-8"?>\n{xml}', status=status, content_type="text/xml;charset=UTF-8"
    )


def _outcome(response: Response) -> str:
    if response.status_code < 400:
        return "ok"
    code = _CODE.search(response.get_data())
    return code[1].decode() if code else str(response.status_code)
