"""What Prometheus sees of the worker controller, besides the machinery's and the monitors' own metrics.

Everything is read from where it is kept when somebody looks; a worker's series end with the worker.
"""

from collections import Counter

from lcm.core.telemetry import Telemetry
from lcm.worker_controller.reconciler import WorkerReconciler


def register_metrics(telemetry: Telemetry, reconciler: WorkerReconciler) -> None:
    """Call once for each process."""
    stats = reconciler.stats
    telemetry.counter(
        "worker_operations_total",
        "What was done to workers since this process started, by the names of /admin/stats.",
        lambda: [(count, {"operation": name.removesuffix("_count")}) for name, count in stats.counts.items()],
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
            for worker_id, state in reconciler.observer.last_seen.items()
        ],
    )
    telemetry.gauge(
        "worker_stuck",
        "1 for a worker whose instance takes longer to get on than it ever should.",
        lambda: [(1, {"worker_id": worker_id}) for worker_id in stats.stuck],
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
