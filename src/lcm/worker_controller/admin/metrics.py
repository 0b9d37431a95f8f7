"""The worker controller's Prometheus metrics, besides those of the loop and of the monitors.

Everything is read where it is kept at the time of a scrape; a worker's series end with the worker.
"""

from collections import Counter
from collections.abc import Callable

from lcm.core.controller import LeaderElectedHostedService
from lcm.core.telemetry import Telemetry
from lcm.domain.worker import Worker
from lcm.worker_controller.reconciler import WorkerReconciler


def register_metrics(
    telemetry: Telemetry,
    service: LeaderElectedHostedService[Worker],
    reconciler: WorkerReconciler,
    *,
    metrics_collected: Callable[[], int],
) -> None:
    """Call once for each process."""
    stats, election = reconciler.stats, service.election
    telemetry.counter(
        "worker_operations_total",
        "What was done to workers since this process started, by the names of /admin/stats.",
        lambda: [
            (count, {"operation": name.removesuffix("_count")})
            for name, count in {**stats.counts, "metrics_collected_count": metrics_collected()}.items()
        ],
    )
    telemetry.gauge(
        "worker_running_workers",
        "Workers that are RUNNING, by the last list; running_worker_count of /admin/stats.",
        lambda: [(stats.running_workers, {})],
    )
    telemetry.counter(
        "worker_drift_detected_total",
        "Differences between a worker's record and EC2 that were found and repaired or reported.",
        lambda: [
            (count, {"worker_id": worker_id, "drift_type": drift})
            for (worker_id, drift), count in stats.drifts.items()
        ],
    )
    telemetry.gauge(
        "worker_ec2_state",
        "1 for the EC2 state a worker's instance was last seen in.",
        lambda: [
            (1, {"worker_id": worker_id, "state": state})
            for worker_id, state in reconciler.scope.observer.last_seen.items()
        ],
    )
    telemetry.gauge(
        "worker_stuck",
        "1 for a worker whose instance made no progress for too long, or that EC2 has no capacity to start.",
        lambda: [(1, {"worker_id": worker_id}) for worker_id in stats.stuck],
    )
    telemetry.gauge(
        "worker_orphan_instances",
        "Instances with our tags that no record owns, by the last complete list.",
        lambda: [
            (count, {"region": region, "kind": kind})
            for region, found in reconciler.scope.discovery.orphans.found.items()
            for kind, count in Counter(orphan.kind.value for orphan in found.values()).items()
        ],
    )
    telemetry.counter(
        "worker_orphans_total",
        "Records ended and instances terminated because their counterpart was missing.",
        lambda: [
            (count, {"what": what}) for what, count in reconciler.scope.discovery.orphans.counts.items()
        ],
    )
    telemetry.counter(
        "worker_discovery_total",
        "Scans for new instances, scans that failed, and instances imported, by region.",
        lambda: [
            (count, {"region": region, "what": what})
            for (region, what), count in reconciler.scope.discovery.counts.items()
        ],
    )
    telemetry.gauge(
        "worker_controller_leader",
        "1 while this instance leads.",
        lambda: [(int(election.is_leader), {})],
    )
