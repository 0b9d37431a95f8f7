"""Every request is a piece of work: its log lines name its trace and the worker or session it is about."""

import re
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from lcm.core.ids import Ids
from lcm.core.tracing import TRACEPARENT_HEADER, TraceContext, doing, trace_id_of
from lcm.rest.schemas import EPOCH_HEADER, SERVICE_HEADER

_WORKER_PATH: Final = re.compile(r"/api/(?:internal/)?workers/([0-9a-f-]{36})(?:/|$)")
_SESSION_PATH: Final = re.compile(r"/api/(?:internal/)?lablet-sessions/([0-9a-f-]{36})(?:/|$)")
_SERVICE: Final = re.compile(r"[a-z-]{1,40}")
_EPOCH: Final = re.compile(r"[0-9]{1,18}")


class Traced:
    """ASGI middleware: goes on in the trace of the caller's `traceparent`, or in a new one.

    What comes from outside is logged only if it is well-formed.
    """

    def __init__(self, app: ASGIApp, ids: Ids) -> None:
        self._app = app
        self._ids = ids

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        fields: dict[str, str | int] = {}
        if (worker := _WORKER_PATH.match(scope["path"])) is not None:
            fields["worker_id"] = worker[1]
        if (session := _SESSION_PATH.match(scope["path"])) is not None:
            fields["session_id"] = session[1]
        if _SERVICE.fullmatch(service := headers.get(SERVICE_HEADER, "")):
            fields["caller"] = service
        if _EPOCH.fullmatch(epoch := headers.get(EPOCH_HEADER, "")):
            fields["epoch"] = int(epoch)
        with doing(TraceContext(self._ids, fields, trace_id_of(headers.get(TRACEPARENT_HEADER)))):
            await self._app(scope, receive, send)
