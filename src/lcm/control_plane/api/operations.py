"""Probes, facts and metrics of the control plane, as every process answers them; documented here."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from lcm.control_plane.api.dependencies import Viewer
from lcm.control_plane.replication.publisher import Publisher
from lcm.core.health import Health
from lcm.web.answers import documented
from lcm.web.operations import HealthView, InfoView, MetricsPage, ProcessOperations, ReadyView

router = APIRouter(tags=["operations"])


def plane_operations(health: Health, metrics: MetricsPage, publisher: Publisher) -> ProcessOperations:
    """What a control plane says of itself; it is ready once everything is published."""
    return ProcessOperations(
        health,
        metrics,
        is_ready=lambda: not publisher.is_behind,
        info_facts=lambda: {"service": "control-plane"},
    )


def _operations(request: Request) -> ProcessOperations:
    found: ProcessOperations = request.app.state.operations
    return found


def _answers(struct: type, when_not: str) -> dict[str, Any]:
    documentation = documented(struct, public=True)
    documentation["responses"][503] = {**documentation["responses"][200], "description": when_not}
    return documentation


@router.get("/health", summary="Liveness probe", **_answers(HealthView, "A loop is silent."))
async def health(request: Request) -> Response:
    return await _operations(request).show_health(request)


@router.get("/ready", summary="Readiness probe", **_answers(ReadyView, "Not everything is published yet."))
async def ready(request: Request) -> Response:
    return await _operations(request).show_ready(request)


@router.get("/info", summary="Service and version", **documented(InfoView))
async def info(request: Request, _: Viewer) -> Response:
    return await _operations(request).show_info(request)


@router.get("/metrics", summary="Prometheus metrics", include_in_schema=False)
async def metrics(request: Request) -> Response:
    return await _operations(request).show_metrics(request)
