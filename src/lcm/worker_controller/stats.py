"""Stats of the worker controller: counters, drift, stuck workers.

Only the number of running workers decides anything. The stats of a worker end with the worker, those of the
fleet end with the leadership, counters of events last until the process ends.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from lcm.core.telemetry import DurationsBy, Telemetry
from lcm.domain.launch import WorkerId
from lcm.domain.lifecycle import DRAINING, PROVISIONING, RUNNING, STOPPED, TERMINATED, WorkerStatus
from lcm.domain.worker import Worker

COUNTERS: Final = (
    "provisioned_count",
    "started_count",
    "stopped_count",
    "terminated_count",
    "idle_detection_count",
    "auto_pause_count",
    "license_registered_count",
    "license_deregistered_count",
    "scale_down_drain_count",
)
"""Each event counts once. Collected metrics are counted by the metrics loop."""

_ARRIVALS: Final = {
    PROVISIONING: "provisioned_count",
    RUNNING: "started_count",
    STOPPED: "stopped_count",
    TERMINATED: "terminated_count",
}


class Stats:
    """Updated by the reconciler."""

    def __init__(self, telemetry: Telemetry) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self.managed: dict[WorkerId, WorkerStatus] = {}
        self.drifts: Counter[tuple[WorkerId, str]] = Counter()
        self.drifting: set[WorkerId] = set()
        self.stuck: set[WorkerId] = set()
        self._durations: DurationsBy = telemetry.durations_by(
            "worker_id", "worker_reconciliation_duration_seconds", "Duration of one reconcile of a worker."
        )

    @property
    def running_workers(self) -> int:
        return sum(status is RUNNING for status in self.managed.values())

    def stats(self) -> dict[str, int]:
        """The count of each event since the start of this process, and of the workers that run now."""
        counted = {name: self.counts[name] for name in COUNTERS}
        return {**counted, "running_worker_count": self.running_workers}

    def on_new_list(self, workers: Iterable[Worker]) -> None:
        self.managed = {worker.id: worker.status for worker in workers}

    def on_arrival(self, before: Worker, after: Worker, *, seen: bool = True) -> None:
        """Count the new status, if it changed.

        A cancelled drain started nothing; without an instance that was seen nothing stopped.
        """
        if before.status is after.status:
            return
        self.managed[after.id] = after.status
        is_cancelled_drain = before.status is DRAINING and after.status is RUNNING
        is_unseen_stop = after.status is STOPPED and not seen
        counter = _ARRIVALS.get(after.status)
        if counter is not None and not (is_cancelled_drain or is_unseen_stop):
            self.counts[counter] += 1

    def on_drift(self, worker: Worker, drift: str) -> None:
        self.drifts[worker.id, drift] += 1
        self.drifting.add(worker.id)

    def on_reconciled(self, worker_id: str, seconds: float) -> None:
        self._durations.record(worker_id, seconds)

    def forget(self, worker_id: WorkerId) -> None:
        """Drop everything about a worker that is gone, in memory and in the metrics."""
        self.managed.pop(worker_id, None)
        self.drifting.discard(worker_id)
        self.stuck.discard(worker_id)
        self._durations.forget(worker_id)
        for key in [key for key in self.drifts if key[0] == worker_id]:
            del self.drifts[key]

    def forget_all(self) -> None:
        """Drop everything but the counters: another process may be leader now."""
        self.managed = {}
        self.drifting.clear()
        self.stuck.clear()
        self.drifts.clear()
        self._durations.clear()
