"""Probes and metrics of the control plane."""

from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from lcm.control_plane.replication.publisher import Publisher
from lcm.core.health import Health
from lcm.web.answers import answer, documented

router = APIRouter(tags=["operations"])


@dataclass(frozen=True)
class Operations:
    """What these routes read."""

    health: Health
    publisher: Publisher


class HealthView(msgspec.Struct, frozen=True, kw_only=True):
    """`unhealthy` if a loop is silent; `reasons` says what is missing."""

    status: str
    reasons: list[str]


class ReadyView(msgspec.Struct, frozen=True, kw_only=True):
    ready: bool


def _answers(struct: type, when_not: str) -> dict[str, Any]:
    documentation = documented(struct, public=True)
    documentation["responses"][503] = {**documentation["responses"][200], "description": when_not}
    return documentation


@router.get("/health", summary="Liveness probe", **_answers(HealthView, "A loop is silent."))
async def health(request: Request) -> Response:
    operations: Operations = request.app.state.operations
    silent = [f"loop {name} is silent" for name in operations.health.silent_loops]
    view = HealthView(
        status="unhealthy" if silent else "healthy", reasons=silent + operations.health.freeze_reasons
    )
    return answer(view, 503 if silent else 200)


@router.get("/ready", summary="Readiness probe", **_answers(ReadyView, "Not everything is published yet."))
async def ready(request: Request) -> Response:
    operations: Operations = request.app.state.operations
    is_ready = not operations.publisher.is_behind
    return answer(ReadyView(ready=is_ready), 200 if is_ready else 503)


@router.get("/metrics", summary="Prometheus metrics", include_in_schema=False)
async def metrics(request: Request) -> Response:
    telemetry = request.app.state.telemetry
    return Response(telemetry.render(), media_type=telemetry.content_type)
