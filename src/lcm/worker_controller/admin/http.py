"""The worker controller's own pages and actions under `/admin`, beside those that every controller has."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from lcm.core.controller import WatchTriggeredHostedService
from lcm.core.health import Health
from lcm.core.loop import ResourceState
from lcm.domain.launch import WorkerId
from lcm.domain.worker import Worker
from lcm.rest.system import MAX_ORPHANS, FleetFinds, OrphanView, RegionScan
from lcm.web.operations import ControllerOperations, KeyCheck, MetricsPage, json_answer
from lcm.worker_controller.admin.schemas import FleetView, FleetWorker, OrphansView, StatsView
from lcm.worker_controller.reconciler import WorkerReconciler


def worker_operations(
    service: WatchTriggeredHostedService[Worker],
    reconciler: WorkerReconciler,
    health: Health,
    metrics: MetricsPage,
    api_key: KeyCheck,
    *,
    metrics_collected: Callable[[], int],
    scale_down_enabled: bool,
) -> ControllerOperations:
    """Everything that an operator can see of a worker controller and do to it."""
    own = WorkerPages(service, reconciler, metrics_collected, scale_down_enabled)
    return ControllerOperations(
        service,
        health,
        metrics,
        api_key,
        health_facts=lambda: {
            "workers_managed": len(reconciler.stats.managed),
            "workers_with_drift": len(reconciler.stats.drifting),
        },
        info_facts=lambda: {"reconcile_interval_seconds": service.loop.config.interval_seconds},
        finds=own.finds,
        pages={
            "stats": own.show_stats,
            "fleet": own.show_fleet,
            "orphans": own.show_orphans,
            "discovery": own.show_discovery,
        },
        actions={"trigger-discovery": own.trigger_discovery},
    )


@dataclass(frozen=True)
class WorkerPages:
    """Read from where things are kept, when they are asked for."""

    service: WatchTriggeredHostedService[Worker]
    reconciler: WorkerReconciler
    metrics_collected: Callable[[], int]
    scale_down_enabled: bool

    async def show_stats(self, _: Request) -> Response:
        view = StatsView(
            **self.reconciler.stats.stats(),
            metrics_collected_count=self.metrics_collected(),
            scale_down_enabled=self.scale_down_enabled,
        )
        return json_answer(view)

    async def show_fleet(self, _: Request) -> Response:
        managed = self.reconciler.stats.managed
        view = FleetView(
            is_leader=self.service.election.is_leader,
            last_reconciliation=self.service.loop.last_reconciliation,
            by_status=dict(sorted(Counter(managed.values()).items())),
            workers=[self._worker(worker_id) for worker_id in sorted(managed)],
        )
        return json_answer(view)

    def _worker(self, worker_id: WorkerId) -> FleetWorker:
        stats, known = self.reconciler.stats, self.service.loop.states.get(worker_id)
        state = known or ResourceState(worker_id)
        return FleetWorker(
            worker_id=worker_id,
            status=stats.managed[worker_id],
            ec2_state=self.reconciler.scope.observer.last_seen.get(worker_id),
            has_drift=worker_id in stats.drifting,
            is_stuck=worker_id in stats.stuck,
            reconcile_status=state.status if known else None,
            reason=state.reason,
            retry_count=state.retry_count,
            next_retry_at=state.next_retry_at,
            last_reconciled_at=state.last_reconciled_at,
        )

    async def show_orphans(self, _: Request) -> Response:
        orphans = self.reconciler.scope.discovery.orphans
        view = OrphansView(
            orphans=self._orphans(),
            dry_run_reasons=orphans.dry_run_reasons,
            may_terminate=orphans.may_terminate,
            records_ended=orphans.counts["records_ended"],
            instances_terminated=orphans.counts["instances_terminated"],
        )
        return json_answer(view)

    def _orphans(self) -> list[OrphanView]:
        return [
            OrphanView(
                instance_id=orphan.instance.id,
                region=orphan.instance.region,
                state=orphan.instance.state,
                kind=orphan.kind,
                worker_id=orphan.worker_id,
                detail=orphan.detail,
            )
            for found in self.reconciler.scope.discovery.orphans.found.values()
            for orphan in found.values()
        ]

    def finds(self) -> FleetFinds | None:
        """What the last scans found; nothing on a standby, whose scans are of an earlier lead."""
        if not self.service.election.is_leader:
            return None
        discovery, orphans = self.reconciler.scope.discovery, self._orphans()
        return FleetFinds(
            scans=tuple(
                RegionScan(
                    region=region, at=scan.at, error=scan.error, found=scan.found, imported=scan.imported
                )
                for region, scan in sorted(discovery.region_results.items())
            ),
            orphans=tuple(orphans[:MAX_ORPHANS]),
            orphan_count=len(orphans),
            may_terminate=discovery.orphans.may_terminate,
            dry_run_reasons=discovery.orphans.dry_run_reasons,
        )

    async def show_discovery(self, _: Request) -> Response:
        """How the last scan of each region went."""
        return json_answer({"regions": self.reconciler.scope.discovery.region_results})

    async def trigger_discovery(self, _: Request) -> Response:
        """Scan for new instances and orphans now, with the newest settings."""
        self.reconciler.scope.discovery.trigger()
        return json_answer({"queued": 1}, 202)
