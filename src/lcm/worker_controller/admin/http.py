"""The worker controller's own HTTP: health for probes, metrics, and a few levers for operators.

Everything under `/admin/` needs the controllers' key; what only a leader can do answers 409 on a standby.
"""

import hmac
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import version

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lcm.core.health import Health
from lcm.core.reconciliation import ResourceState, ResourceStatus
from lcm.core.telemetry import Telemetry
from lcm.domain.errors import TransientError
from lcm.domain.launch import WorkerId
from lcm.rest.schemas import API_KEY_HEADER
from lcm.web.problems import problem, unexpected_problem
from lcm.worker_controller.admin.schemas import (
    FleetView,
    FleetWorker,
    HealthView,
    LeaderStatusView,
    OperationsView,
    OrphansView,
    OrphanView,
    ReconcileView,
    RetryView,
    StatsView,
)
from lcm.worker_controller.reconciler import WorkerReconciler

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Operations:
    """What an operator can see and do."""

    reconciler: WorkerReconciler
    health: Health
    telemetry: Telemetry
    api_key: str
    metrics_collected: Callable[[], int]
    scale_down_enabled: bool

    def app(self) -> Starlette:
        seen, done = self._for_operators, self._for_operators_of_the_leader
        return Starlette(
            routes=[
                Route("/health", self.show_health),
                Route("/ready", self.show_ready),
                Route("/info", self.show_info),
                Route("/metrics", self.show_metrics),
                Route("/admin/stats", seen(self.show_stats)),
                Route("/admin/fleet", seen(self.show_fleet)),
                Route("/admin/operations", seen(self.show_operations)),
                Route("/admin/leader-status", seen(self.show_leader_status)),
                Route("/admin/orphans", seen(self.show_orphans)),
                Route("/admin/discovery", seen(self.show_discovery)),
                Route("/admin/trigger-discovery", done(self.trigger_discovery), methods=["POST"]),
                Route("/admin/trigger-reconcile", done(self.trigger_reconcile), methods=["POST"]),
                Route("/admin/resign-leadership", done(self.resign_leadership), methods=["POST"]),
            ],
            exception_handlers={TransientError: answer_later, Exception: answer_unexpected},
        )

    # For probes.

    async def show_health(self, _: Request) -> Response:
        reconciler = self.reconciler
        silent = self.health.silent_loops
        view = HealthView(
            status="unhealthy" if silent else "healthy",
            is_leader=reconciler.is_leader,
            instance_id=reconciler.election.instance_id,
            last_reconciliation=reconciler.last_reconciliation,
            workers_managed=len(reconciler.stats.managed),
            workers_with_drift=len(reconciler.stats.drifting),
            epoch=reconciler.leadership.epoch if reconciler.leadership else None,
            watching=reconciler.is_watching,
            frozen=self.health.freeze_reasons,
            silent_loops=silent,
            coordination=self._coordination,
        )
        return _json(view, 503 if silent else 200)

    async def show_ready(self, _: Request) -> Response:
        """A standby is ready; only a controller that cannot reach what it needs is not."""
        frozen = self.health.freeze_reasons
        return _json({"ready": not frozen, "frozen": frozen}, 503 if frozen else 200)

    async def show_info(self, _: Request) -> Response:
        return _json(
            {
                "service": "worker-controller",
                "version": version("lablet-cloud-manager"),
                "instance_id": self.reconciler.election.instance_id,
                "election_key": self.reconciler.election.key,
                "reconcile_interval_seconds": self.reconciler.config.interval_seconds,
            }
        )

    async def show_metrics(self, _: Request) -> Response:
        return Response(self.telemetry.render(), media_type=self.telemetry.content_type)

    # For operators, to look.

    async def show_stats(self, _: Request) -> Response:
        view = StatsView(
            **self.reconciler.stats.stats(),
            metrics_collected_count=self.metrics_collected(),
            scale_down_enabled=self.scale_down_enabled,
        )
        return _json(view)

    async def show_fleet(self, _: Request) -> Response:
        managed = self.reconciler.stats.managed
        view = FleetView(
            is_leader=self.reconciler.is_leader,
            last_reconciliation=self.reconciler.last_reconciliation,
            by_status=dict(sorted(Counter(managed.values()).items())),
            workers=[self._worker(worker_id) for worker_id in sorted(managed)],
        )
        return _json(view)

    def _worker(self, worker_id: WorkerId) -> FleetWorker:
        stats, known = self.reconciler.stats, self.reconciler.states.get(worker_id)
        state = known or ResourceState(worker_id)
        return FleetWorker(
            worker_id=worker_id,
            status=stats.managed[worker_id],
            ec2_state=self.reconciler.observer.last_seen.get(worker_id),
            has_drift=worker_id in stats.drifting,
            is_stuck=worker_id in stats.stuck,
            reconcile_status=state.status if known else None,
            reason=state.reason,
            retry_count=state.retry_count,
            next_retry_at=state.next_retry_at,
            last_reconciled_at=state.last_reconciled_at,
        )

    async def show_operations(self, _: Request) -> Response:
        reconciler = self.reconciler
        failed = [s for s in reconciler.states.values() if s.status is ResourceStatus.FAILED]
        view = OperationsView(
            in_progress=[
                ReconcileView(worker_id=one.resource_id, seconds=one.seconds, is_parked=one.is_parked)
                for one in reconciler.in_progress()
            ],
            max_concurrent=reconciler.config.max_concurrent,
            waiting=reconciler.queue.ready_count,
            scheduled=len(reconciler.queue) - reconciler.queue.ready_count,
            left_out=reconciler.queue.dropped,
            retrying=[
                RetryView(
                    worker_id=state.resource_id,
                    retry_count=state.retry_count,
                    next_retry_at=state.next_retry_at,
                    reason=state.reason,
                )
                for state in failed
            ],
            frozen=self.health.freeze_reasons,
        )
        return _json(view)

    async def show_leader_status(self, _: Request) -> Response:
        reconciler, leadership = self.reconciler, self.reconciler.leadership
        is_contested = leadership is not None and math.isfinite(leadership.deadline)
        view = LeaderStatusView(
            is_leader=reconciler.is_leader,
            instance_id=reconciler.election.instance_id,
            leader_id=reconciler.leader_id,
            election_key=reconciler.election.key,
            coordination=self._coordination,
            lease_ttl_seconds=reconciler.election.lease_ttl,
            epoch=leadership.epoch if leadership else None,
            revision=leadership.win.revision if leadership else None,
            seconds_left=leadership.seconds_left if leadership and is_contested else None,
        )
        return _json(view)

    async def show_orphans(self, _: Request) -> Response:
        orphans = self.reconciler.discovery.orphans
        view = OrphansView(
            orphans=[
                OrphanView(
                    instance_id=orphan.instance.id,
                    region=orphan.instance.region,
                    state=orphan.instance.state,
                    kind=orphan.kind,
                    worker_id=orphan.worker_id,
                    detail=orphan.detail,
                )
                for found in orphans.found.values()
                for orphan in found.values()
            ],
            only_looking=orphans.only_looking,
            may_terminate=orphans.may_terminate,
            records_ended=orphans.counts["records_ended"],
            machines_terminated=orphans.counts["machines_terminated"],
        )
        return _json(view)

    async def show_discovery(self, _: Request) -> Response:
        """How the last look at each region went."""
        return _json({"regions": self.reconciler.discovery.looks})

    # For operators, to act.

    async def trigger_reconcile(self, request: Request) -> Response:
        """Look at one worker (`?worker_id=`) or at all of them, now."""
        worker_id = request.query_params.get("worker_id")
        if worker_id:
            self.reconciler.trigger(worker_id)
            return _json({"queued": 1}, 202)
        return _json({"queued": await self.reconciler.sweep(everything=True)}, 202)

    async def trigger_discovery(self, _: Request) -> Response:
        """Look for machines and orphans now, by the newest settings."""
        self.reconciler.discovery.look_now()
        return _json({"queued": 1}, 202)

    async def resign_leadership(self, _: Request) -> Response:
        """Let another instance lead; it takes over at once. Without another one this one leads again."""
        self.reconciler.resign()
        return _json({"resigned": self.reconciler.election.instance_id}, 202)

    # Who may.

    @property
    def _coordination(self) -> str:
        return "elected" if self.reconciler.kv is not None else "alone"

    def _for_operators(self, handler: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            given = request.headers.get(API_KEY_HEADER, "")
            if self.api_key and hmac.compare_digest(given.encode(), self.api_key.encode()):
                return await handler(request)
            detail = f"send the controllers' key in {API_KEY_HEADER}; it is missing or wrong"
            return problem(401, "unauthorized", "Not allowed", detail)

        return guarded

    def _for_operators_of_the_leader(self, handler: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            if self.reconciler.is_leader:
                return await handler(request)
            leader = self.reconciler.leader_id or "nobody leads now"
            return problem(409, "not-leader", "Not the leader", f"ask the leader: {leader}")

        return self._for_operators(guarded)


async def answer_later(_: Request, error: Exception) -> Response:
    """What is needed for it cannot be had at the moment."""
    return problem(503, "unavailable", "Try again later", str(error))


async def answer_unexpected(_: Request, __: Exception) -> Response:
    """The server logs it; the caller gets a problem like any other."""
    return unexpected_problem()


def _json(body: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")
