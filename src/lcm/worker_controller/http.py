"""The worker controller's own HTTP: health for probes, metrics, and a few levers for operators."""

import hmac
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lcm.core.health import Health
from lcm.core.telemetry import Telemetry
from lcm.domain.lifecycle import RUNNING
from lcm.rest.schemas import API_KEY_HEADER
from lcm.web.problems import problem, unexpected_problem
from lcm.worker_controller.reconciler import WorkerReconciler

COUNTERS = ("provisioned_count", "started_count", "stopped_count", "terminated_count")


class HealthView(msgspec.Struct, frozen=True, kw_only=True):
    """`healthy` unless a loop is silent; a standby is healthy too."""

    status: str
    is_leader: bool
    instance_id: str
    last_reconciliation: datetime | None
    workers_managed: int
    workers_with_drift: int
    epoch: int | None
    watching: bool
    frozen: list[str]
    """What is missing, so that nothing is started, stopped or terminated meanwhile."""
    silent_loops: list[str]
    coordination: str
    """`elected`, or `alone` when no coordination store is configured."""


class OrphanView(msgspec.Struct, frozen=True, kw_only=True):
    """A machine with our tags that no record owns."""

    instance_id: str
    region: str
    state: str
    kind: str
    worker_id: str
    detail: str


class OrphansView(msgspec.Struct, frozen=True, kw_only=True):
    """Every orphan the last complete lists showed, and why nothing is done where nothing is done."""

    orphans: list[OrphanView]
    only_looking: dict[str, str]
    may_terminate: bool
    records_ended: int
    machines_terminated: int


@dataclass(frozen=True)
class Operations:
    """What an operator can see and do."""

    reconciler: WorkerReconciler
    health: Health
    telemetry: Telemetry
    api_key: str

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/health", self.show_health),
                Route("/ready", self.show_ready),
                Route("/info", self.show_info),
                Route("/metrics", self.show_metrics),
                Route("/admin/stats", self.show_stats),
                Route("/admin/orphans", self.show_orphans),
                Route("/admin/discovery", self.show_discovery),
                Route("/admin/trigger-discovery", self.trigger_discovery, methods=["POST"]),
                Route("/admin/trigger-reconcile", self.trigger_reconcile, methods=["POST"]),
            ],
            exception_handlers={Exception: answer_unexpected},
        )

    async def show_health(self, _: Request) -> Response:
        reconciler = self.reconciler
        silent = self.health.silent_loops
        view = HealthView(
            status="unhealthy" if silent else "healthy",
            is_leader=reconciler.is_leader,
            instance_id=reconciler.election.instance_id,
            last_reconciliation=reconciler.last_reconciliation,
            workers_managed=len(reconciler.managed),
            workers_with_drift=len(reconciler.drifting),
            epoch=reconciler.leadership.epoch if reconciler.leadership else None,
            watching=reconciler.is_watching,
            frozen=self.health.freeze_reasons,
            silent_loops=silent,
            coordination="elected" if reconciler.kv is not None else "alone",
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

    async def show_stats(self, request: Request) -> Response:
        if (refusal := self._refuse(request)) is not None:
            return refusal
        return _json(self.stats())

    async def trigger_reconcile(self, request: Request) -> Response:
        """Look at one worker (`?worker_id=`) or at all of them, now."""
        if (refusal := self._refuse(request)) is not None:
            return refusal
        if not self.reconciler.is_leader:
            return problem(409, "not-leader", "Not the leader", "ask the leader; /health says who leads")
        worker_id = request.query_params.get("worker_id")
        if worker_id:
            self.reconciler.trigger(worker_id)
            return _json({"queued": 1}, 202)
        return _json({"queued": await self.reconciler.sweep(everything=True)}, 202)

    async def show_orphans(self, request: Request) -> Response:
        if (refusal := self._refuse(request)) is not None:
            return refusal
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

    async def show_discovery(self, request: Request) -> Response:
        """How the last look at each region went."""
        if (refusal := self._refuse(request)) is not None:
            return refusal
        return _json({"regions": self.reconciler.discovery.looks})

    async def trigger_discovery(self, request: Request) -> Response:
        """Look for machines and orphans now, by the newest settings."""
        if (refusal := self._refuse(request)) is not None:
            return refusal
        if not self.reconciler.is_leader:
            return problem(409, "not-leader", "Not the leader", "ask the leader; /health says who leads")
        self.reconciler.discovery.look_now()
        return _json({"queued": 1}, 202)

    def stats(self) -> dict[str, int]:
        """How often each thing happened since this process started; each event counts once."""
        statuses = Counter(self.reconciler.managed.values())
        counted = {name: self.reconciler.counts[name] for name in COUNTERS}
        return {**counted, "running_worker_count": statuses[RUNNING]}

    def _refuse(self, request: Request) -> Response | None:
        given = request.headers.get(API_KEY_HEADER, "")
        if hmac.compare_digest(given.encode(), self.api_key.encode()):
            return None
        return problem(
            401,
            "unauthorized",
            "Not allowed",
            f"send the controllers' key in {API_KEY_HEADER}; it is missing or wrong",
        )


async def answer_unexpected(_: Request, __: Exception) -> Response:
    """The server logs it; the caller gets a problem like any other."""
    return unexpected_problem()


def _json(body: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")


def register_metrics(telemetry: Telemetry, reconciler: WorkerReconciler) -> None:
    """Read from the reconciler when somebody looks; a worker's series end with the worker."""
    telemetry.counter(
        "worker_drift_detected_total",
        "Differences between a worker's record and EC2 that were found and repaired or reported.",
        lambda: [
            (count, {"worker_id": worker_id, "drift_type": drift})
            for (worker_id, drift), count in reconciler.drifts.items()
        ],
    )
    telemetry.gauge(
        "worker_ec2_state",
        "1 for the EC2 state a worker's instance was last seen in.",
        lambda: [
            (1, {"worker_id": worker_id, "state": state})
            for worker_id, state in reconciler.observer.last_seen.items()
        ],
    )
    telemetry.gauge(
        "worker_stuck",
        "1 for a worker whose instance takes longer to get on than it ever should.",
        lambda: [(1, {"worker_id": worker_id}) for worker_id in reconciler.stuck],
    )
    telemetry.gauge(
        "worker_orphan_instances",
        "Instances with our tags that no record owns, by the last complete list.",
        lambda: [
            (count, {"region": region, "kind": kind})
            for region, found in reconciler.discovery.orphans.found.items()
            for kind, count in Counter(orphan.kind.value for orphan in found.values()).items()
        ],
    )
    telemetry.counter(
        "worker_orphans_total",
        "Records ended and instances terminated because their other half was missing.",
        lambda: [(count, {"what": what}) for what, count in reconciler.discovery.orphans.counts.items()],
    )
    telemetry.counter(
        "worker_discovery_total",
        "Looks for new instances (scans), those that failed, and instances imported, by region.",
        lambda: [
            (count, {"region": region, "what": what})
            for (region, what), count in reconciler.discovery.counts.items()
        ],
    )
    telemetry.gauge(
        "worker_controller_leader", "1 while this instance leads.", lambda: [(int(reconciler.is_leader), {})]
    )
