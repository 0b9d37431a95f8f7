"""What every process answers about itself: probes, facts and metrics; and `/admin` of the controllers.

Metrics need METRICS_TOKEN where it is set. Everything under `/admin/` needs the controller's key; what only a
leader can do answers 409 on a standby. A process adds its own facts, a controller also its own pages and
actions, to those that all of them have.
"""

import hmac
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from typing import Any, Final

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lcm.core.clock import Clock
from lcm.core.controller import LeaderElectedHostedService, WatchTriggeredHostedService
from lcm.core.health import Health
from lcm.core.loop import ResourceStatus
from lcm.core.secret_strength import keys_in
from lcm.core.telemetry import LoopLagMonitor, Telemetry
from lcm.domain.errors import TransientError
from lcm.rest.schemas import API_KEY_HEADER
from lcm.rest.system import ControllerState, FleetFinds, ProcessReport
from lcm.web.problems import problem, unexpected_problem
from lcm.web.process_reports import ProcessReporter

log = structlog.get_logger(__name__)

Handler = Callable[[Request], Awaitable[Response]]

METRICS_MAX_AGE_SECONDS: Final = 1.0
"""Metrics are rendered once in this time, however often they are asked for: the event loop does it."""
REFUSALS_LOGGED_EVERY_SECONDS: Final = 1.0


class LeaderStatusView(msgspec.Struct, frozen=True, kw_only=True):
    """Which instance leads, and by which right."""

    is_leader: bool
    instance_id: str
    leader_id: str | None
    """The leader as this instance last read it; None if there is none."""
    election_key: str
    coordination: str
    """`elected`, or `alone` when no coordination store is configured."""
    lease_ttl_seconds: int
    epoch: int | None
    revision: int | None
    """The election key's create-revision, with which the epoch was claimed."""
    seconds_left: float | None
    """How long it may act without another renewal; None on a standby, or where the lead is not contested."""


class OperationsView(msgspec.Struct, frozen=True, kw_only=True):
    """What is reconciled now, what waits, and what is retried."""

    in_progress: list[dict[str, Any]]
    max_concurrent: int
    waiting: int
    """Resources that are due and wait for a slot."""
    scheduled: int
    """Resources to be reconciled again later."""
    left_out: int
    """Times that the queue was too full for a resource."""
    retrying: list[dict[str, Any]]
    frozen: list[str]


class HealthView(msgspec.Struct, frozen=True, kw_only=True):
    """`unhealthy` if a loop is silent; a process that cannot reach what it needs says so and is healthy."""

    status: str
    frozen: list[str]
    """What is missing; a controller starts, stops and terminates nothing meanwhile."""
    silent_loops: list[str]


class ReadyView(msgspec.Struct, frozen=True, kw_only=True):
    """Whether requests should be sent here, and what is missing."""

    ready: bool
    frozen: list[str]


class InfoView(msgspec.Struct, frozen=True, kw_only=True):
    """Which process this is, and of which version. A process adds its own facts."""

    service: str
    version: str


class LeadershipFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What `/health` of a controller says besides; a standby is healthy too."""

    is_leader: bool
    instance_id: str
    last_reconciliation: datetime | None
    epoch: int | None
    watching: bool
    coordination: str


class KeyCheck:
    """Compares what is given with a key, and logs refusals: one line a second says how many there were."""

    def __init__(self, key: str, clock: Clock) -> None:
        self._valid = [each.encode() for each in keys_in(key)]
        self._clock = clock
        self._logged_at = float("-inf")
        self._refused = 0

    def accepts(self, request: Request, given: str) -> bool:
        """Whether it is the key, during a rotation one of several by commas; without one nothing is."""
        matches = [hmac.compare_digest(given.encode(), key) for key in self._valid]
        if any(matches):
            return True
        now = self._clock.monotonic()
        self._refused += 1
        if now - self._logged_at >= REFUSALS_LOGGED_EVERY_SECONDS:
            address = request.client.host if request.client else ""
            log.warning("key refused", path=request.url.path, address=address, count=self._refused)
            self._logged_at, self._refused = now, 0
        return False


class MetricsPage:
    """The metrics, for clients with the token if there is one."""

    def __init__(self, telemetry: Telemetry, clock: Clock, token: str = "") -> None:
        self.telemetry = telemetry
        self._clock = clock
        self._token = KeyCheck(token, clock) if token else None
        self._rendered = b""
        self._rendered_at = float("-inf")

    async def show(self, request: Request) -> Response:
        kind, _, given = request.headers.get("Authorization", "").partition(" ")
        token = given.strip() if kind.lower() == "bearer" else ""
        if self._token is not None and not self._token.accepts(request, token):
            return problem(401, "unauthorized", "Not allowed", "send METRICS_TOKEN as a bearer token")
        now = self._clock.monotonic()
        if now - self._rendered_at >= METRICS_MAX_AGE_SECONDS:
            self._rendered, self._rendered_at = self.telemetry.render(), now
        return Response(self._rendered, media_type=self.telemetry.content_type)


@dataclass(frozen=True)
class ProcessOperations:
    """The probes, facts and metrics of a process."""

    health: Health
    metrics: MetricsPage
    is_ready: Callable[[], bool]
    info_facts: Callable[[], Mapping[str, Any]]
    """Added to `/info`; at least the name of the service."""
    health_facts: Callable[[], Mapping[str, Any]] = dict
    """Added to `/health`."""

    async def show_health(self, _: Request) -> Response:
        silent = self.health.silent_loops
        view = HealthView(
            status="unhealthy" if silent else "healthy",
            frozen=self.health.freeze_reasons,
            silent_loops=silent,
        )
        return json_answer({**msgspec.structs.asdict(view), **self.health_facts()}, 503 if silent else 200)

    async def show_ready(self, _: Request) -> Response:
        view = ReadyView(ready=self.is_ready(), frozen=self.health.freeze_reasons)
        return json_answer(view, 200 if view.ready else 503)

    async def show_info(self, _: Request) -> Response:
        return json_answer({**self.info_facts(), "version": version("lablet-cloud-manager")})

    async def show_metrics(self, request: Request) -> Response:
        return await self.metrics.show(request)


@dataclass(frozen=True)
class ControllerOperations:
    """What an operator can see of a controller and do to it."""

    service: LeaderElectedHostedService[Any]
    health: Health
    metrics: MetricsPage
    api_key: KeyCheck
    """Opens `/admin/`."""
    health_facts: Callable[[], Mapping[str, Any]] = dict
    """Added to `/health`."""
    info_facts: Callable[[], Mapping[str, Any]] = dict
    """Added to `/info`."""
    pages: Mapping[str, Handler] = field(default_factory=dict)
    """More under `/admin/`, by name: read only."""
    actions: Mapping[str, Handler] = field(default_factory=dict)
    """More under `/admin/`, by name: POST, on the leader only."""
    finds: Callable[[], FleetFinds | None] = lambda: None
    """Added to the reports of the process."""

    def app(self) -> Starlette:
        process = ProcessOperations(
            self.health,
            self.metrics,
            is_ready=lambda: not self.health.freeze_reasons,
            info_facts=self._info_facts,
            health_facts=self._health_facts,
        )
        pages = {
            "operations": self.show_operations,
            "leader-status": self.show_leader_status,
            **self.pages,
        }
        actions = {
            "trigger-reconcile": self.trigger_reconcile,
            "resign-leadership": self.resign_leadership,
            **self.actions,
        }
        return Starlette(
            routes=[
                Route("/health", process.show_health),
                Route("/ready", process.show_ready),
                Route("/info", process.show_info),
                Route("/metrics", process.show_metrics),
                *(Route(f"/admin/{name}", self._with_key(page)) for name, page in pages.items()),
                *(
                    Route(f"/admin/{name}", self._with_key(self._on_leader(action)), methods=["POST"])
                    for name, action in actions.items()
                ),
            ],
            exception_handlers={TransientError: _unavailable, Exception: _unexpected},
        )

    def reporter(
        self, send: Callable[[ProcessReport], Awaitable[None]], clock: Clock, lag: LoopLagMonitor
    ) -> ProcessReporter:
        """Return what reports this process to a control plane."""
        election = self.service.election.config
        return ProcessReporter(
            send,
            service=election.service_name,
            instance_id=election.instance_id,
            clock=clock,
            health=self.health,
            lag=lag,
            controller=self.state,
            finds=self.finds,
        )

    # Facts.

    def state(self) -> ControllerState:
        """What a report of the process says about its work."""
        election, loop = self.service.election, self.service.loop
        return ControllerState(
            is_leader=election.is_leader,
            epoch=election.leadership.epoch if election.leadership else None,
            coordination=self._coordination,
            is_watching=self._is_watching,
            last_reconciliation=loop.last_reconciliation,
            in_progress=len(loop.in_progress()),
            waiting=loop.queue.ready_count,
            scheduled=len(loop.queue) - loop.queue.ready_count,
            retrying=sum(state.status is ResourceStatus.FAILED for state in loop.states.values()),
        )

    def _health_facts(self) -> Mapping[str, Any]:
        election = self.service.election
        facts = LeadershipFacts(
            is_leader=election.is_leader,
            instance_id=election.config.instance_id,
            last_reconciliation=self.service.loop.last_reconciliation,
            epoch=election.leadership.epoch if election.leadership else None,
            watching=self._is_watching,
            coordination=self._coordination,
        )
        return {**msgspec.structs.asdict(facts), **self.health_facts()}

    def _info_facts(self) -> Mapping[str, Any]:
        election = self.service.election.config
        return {
            "service": election.service_name,
            "instance_id": election.instance_id,
            "election_key": election.key,
            **self.info_facts(),
        }

    # Pages.

    async def show_operations(self, _: Request) -> Response:
        loop, label = self.service.loop, self.service.loop.reconciler.resource_label
        view = OperationsView(
            in_progress=[
                {label: one.resource_id, "seconds": one.seconds, "is_parked": one.is_parked}
                for one in loop.in_progress()
            ],
            max_concurrent=loop.config.max_concurrent,
            waiting=loop.queue.ready_count,
            scheduled=len(loop.queue) - loop.queue.ready_count,
            left_out=loop.queue.dropped,
            retrying=[
                {
                    label: state.resource_id,
                    "retry_count": state.retry_count,
                    "next_retry_at": state.next_retry_at,
                    "reason": state.reason,
                }
                for state in loop.states.values()
                if state.status is ResourceStatus.FAILED
            ],
            frozen=self.health.freeze_reasons,
        )
        return json_answer(view)

    async def show_leader_status(self, _: Request) -> Response:
        election = self.service.election
        leadership = election.leadership
        is_contested = leadership is not None and math.isfinite(leadership.deadline)
        view = LeaderStatusView(
            is_leader=election.is_leader,
            instance_id=election.config.instance_id,
            leader_id=election.leader_id,
            election_key=election.config.key,
            coordination=self._coordination,
            lease_ttl_seconds=election.config.lease_ttl,
            epoch=leadership.epoch if leadership else None,
            revision=leadership.win.revision if leadership else None,
            seconds_left=leadership.seconds_left if leadership and is_contested else None,
        )
        return json_answer(view)

    # Actions.

    async def trigger_reconcile(self, request: Request) -> Response:
        """Reconcile one resource (`?worker_id=`, by the name its ids have here) or all of them, now."""
        loop = self.service.loop
        resource_id = request.query_params.get(loop.reconciler.resource_label)
        if resource_id:
            loop.trigger(resource_id)
            return json_answer({"queued": 1}, 202)
        return json_answer({"queued": await loop.resync(everything=True)}, 202)

    async def resign_leadership(self, _: Request) -> Response:
        """Let another instance lead; it takes over at once. Without another one this one leads again."""
        self.service.election.resign()
        return json_answer({"resigned": self.service.election.config.instance_id}, 202)

    # Access.

    @property
    def _is_watching(self) -> bool:
        return isinstance(self.service, WatchTriggeredHostedService) and self.service.watch.is_watching

    @property
    def _coordination(self) -> str:
        return "elected" if self.service.election.kv is not None else "alone"

    def _with_key(self, handler: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            given = request.headers.get(API_KEY_HEADER, "")
            if self.api_key.accepts(request, given):
                return await handler(request)
            detail = f"send the controller's key in {API_KEY_HEADER}; it is missing or wrong"
            return problem(401, "unauthorized", "Not allowed", detail)

        return guarded

    def _on_leader(self, handler: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            if self.service.election.is_leader:
                return await handler(request)
            leader = self.service.election.leader_id or "there is none now"
            return problem(409, "not-leader", "Not the leader", f"send it to the leader: {leader}")

        return guarded


async def _unavailable(_: Request, error: Exception) -> Response:
    return problem(503, "unavailable", "Try again later", str(error))


async def _unexpected(_: Request, __: Exception) -> Response:
    """The server logs it; the caller gets a problem like any other."""
    return unexpected_problem()


def json_answer(body: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")
