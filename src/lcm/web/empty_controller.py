"""A controller that has no work yet: it is elected, claims its epoch, answers, and says that it does nothing.

The resource scheduler and the lablet controller are this until their work exists, so that a deployment can be
laid out, secured and watched as it will be.
"""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Never

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lcm.core.election import ElectionWin, LeaderElectedHostedService, LeadershipLost
from lcm.core.results import ReconciliationResult
from lcm.domain.errors import Fenced
from lcm.rest.client import ControlPlaneClient, Transport

log = structlog.get_logger(__name__)


class EmptyHealthView(msgspec.Struct, frozen=True, kw_only=True):
    """`healthy` unless a loop is silent; a standby is healthy too."""

    status: str
    does: str
    is_leader: bool
    instance_id: str
    epoch: int | None
    frozen: list[str]
    silent_loops: list[str]
    coordination: str


class EmptyController(LeaderElectedHostedService[Never]):
    """Leads and does nothing. A subclass says what it will do one day."""

    does = "nothing yet"
    metric_prefix = "reconciliation"
    fatal = (LeadershipLost, Fenced)

    def connect(self, transport: Transport, api_key: str) -> None:
        def epoch() -> int:
            return self.leadership.epoch if self.leadership else 0

        self._control_plane = ControlPlaneClient(transport, api_key, self.election.service_name, epoch)

    async def claim_epoch(self, win: ElectionWin) -> int:
        epoch = await self._control_plane.claim_leadership(win.cluster_id, win.revision, win.instance_id)
        log.warning("leading, but there is nothing to do", service=self.election.service_name, does=self.does)
        return epoch

    async def list_resources(self) -> Sequence[Never]:
        return ()

    async def fetch_single_resource(self, resource_id: str) -> None:
        return None

    async def reconcile_resource(self, resource: Never) -> ReconciliationResult:
        raise NotImplementedError

    def resource_id(self, resource: Never) -> str:
        raise NotImplementedError

    def app(self) -> Starlette:
        """Health, readiness, what it is, and metrics."""
        return Starlette(
            routes=[
                Route("/health", self._show_health),
                Route("/ready", self._show_ready),
                Route("/info", self._show_info),
                Route("/metrics", self._show_metrics),
            ]
        )

    async def _show_health(self, _: Request) -> Response:
        silent = self.health.silent_loops
        view = EmptyHealthView(
            status="unhealthy" if silent else "healthy",
            does=self.does,
            is_leader=self.is_leader,
            instance_id=self.election.instance_id,
            epoch=self.leadership.epoch if self.leadership else None,
            frozen=self.health.freeze_reasons,
            silent_loops=silent,
            coordination="elected" if self.kv is not None else "alone",
        )
        return _json(view, 503 if silent else 200)

    async def _show_ready(self, _: Request) -> Response:
        frozen = self.health.freeze_reasons
        return _json({"ready": not frozen, "frozen": frozen}, 503 if frozen else 200)

    async def _show_info(self, _: Request) -> Response:
        return _json(
            {
                "service": self.election.service_name,
                "does": self.does,
                "version": version("lablet-cloud-manager"),
                "instance_id": self.election.instance_id,
                "election_key": self.election.key,
            }
        )

    async def _show_metrics(self, _: Request) -> Response:
        return Response(self.telemetry.render(), media_type=self.telemetry.content_type)


def _json(body: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")
