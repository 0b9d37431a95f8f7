"""AWS calls, recognised in requests; those of EC2 are kept for `GET /_lcm/calls`."""

import io
import re
import threading
import time
from collections import deque
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

CALLS_KEPT: Final = 10_000

_SCOPE: Final = re.compile(
    r"Credential=(?P<caller>[^/]+)/\d+/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request"
)
_NAMES_INSTANCE: Final = re.compile(r"(InstanceId|ResourceId)(\.\d+)?")


class Call(msgspec.Struct, kw_only=True):
    """One call of an AWS service. `outcome` is `ok`, an error code, or what became of the reply."""

    n: int = 0
    service: str
    """As requests are signed for it: `ec2`, `sts`, `monitoring`, `servicequotas`."""
    operation: str
    region: str
    instance_ids: list[str]
    client_token: str | None
    at: float
    caller: str
    """The access key it was signed with: it distinguishes two controllers with keys of their own."""
    outcome: str = "in progress"


def read_call(environ: dict[str, Any]) -> Call | None:
    """The call in a WSGI request, which stays readable; None if the request is not signed."""
    length = int(environ.get("CONTENT_LENGTH") or 0)
    body = environ["wsgi.input"].read(length) if length else b""
    environ["wsgi.input"] = io.BytesIO(body)
    scope = _SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
    if scope is None:
        return None
    parameters = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
    target = environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]  # in the protocols with JSON
    return Call(
        service=scope["service"],
        operation=target or dict(parameters).get("Action", ""),
        region=scope["region"],
        instance_ids=[value for name, value in parameters if _NAMES_INSTANCE.fullmatch(name)],
        client_token=dict(parameters).get("ClientToken"),
        at=time.time(),
        caller=scope["caller"],
    )


class CallLog:
    """The newest calls, numbered from 1. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: deque[Call] = deque(maxlen=CALLS_KEPT)
        self._count = 0

    def add(self, call: Call) -> None:
        with self._lock:
            self._count += 1
            call.n = self._count
            self._calls.append(call)

    def newest(self) -> list[Call]:
        """Oldest first."""
        with self._lock:
            return list(self._calls)

    def reset(self) -> None:
        """Forget the calls and count from 1 again."""
        with self._lock:
            self._calls.clear()
            self._count = 0
