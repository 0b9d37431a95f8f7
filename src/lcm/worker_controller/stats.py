"""What the worker controller knows about its fleet for those who ask: counts, drift, what is stuck.

Nothing here decides anything but the number of running workers. What is known of a worker ends with it; what
is known of the fleet ends with the leadership; what happened is counted until the process ends.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from lcm.core.telemetry import DurationsBy, Telemetry
from lcm.domain.launch import WorkerId
from lcm.domain.lifecycle import PROVISIONING, RUNNING, STOPPED, TERMINATED, WorkerStatus
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
"""Each event counts once. Metrics that were collected are counted where they are."""

_ARRIVALS: Final = {
    PROVISIONING: "provisioned_count",
    RUNNING: "started_count",
    STOPPED: "stopped_count",
    TERMINATED: "terminated_count",
}


class Stats:
    """Kept by the reconciler as things happen."""

    def __init__(self, telemetry: Telemetry) -> None:
        self.counts: Counter[str] = Counter()
        self.managed: dict[WorkerId, WorkerStatus] = {}
        self.drifts: Counter[tuple[WorkerId, str]] = Counter()
        self.drifting: set[WorkerId] = set()
        self.stuck: set[WorkerId] = set()
        self._durations: DurationsBy = telemetry.durations_by(
            "worker_id", "worker_reconciliation_duration_seconds", "Time one look at a worker took."
        )

    @property
    def running_workers(self) -> int:
        return sum(status is RUNNING for status in self.managed.values())

    def stats(self) -> dict[str, int]:
        """How often each thing happened since this process started, and how many workers run now."""
        counted = {name: self.counts[name] for name in COUNTERS}
        return {**counted, "running_worker_count": self.running_workers}

    def on_new_list(self, workers: Iterable[Worker]) -> None:
        self.managed = {worker.id: worker.status for worker in workers}

    def on_arrival(self, before: Worker, after: Worker) -> None:
        """A worker may be in another status now."""
        if before.status is not after.status:
            self.managed[after.id] = after.status
            counter = _ARRIVALS.get(after.status)
            if counter is not None:
                self.counts[counter] += 1

    def on_drift(self, worker: Worker, drift: str) -> None:
        self.drifts[worker.id, drift] += 1
        self.drifting.add(worker.id)

    def on_look(self, worker_id: str, seconds: float) -> None:
        self._durations.record(worker_id, seconds)

    def forget(self, worker_id: WorkerId) -> None:
        """A worker that is gone leaves nothing behind, neither in memory nor in the metrics."""
        self.managed.pop(worker_id, None)
        self.drifting.discard(worker_id)
        self.stuck.discard(worker_id)
        self._durations.forget(worker_id)
        for key in [key for key in self.drifts if key[0] == worker_id]:
            del self.drifts[key]

    def forget_all(self) -> None:
        """Somebody else may lead now: only the counts of what was done here stay true."""
        self.managed = {}
        self.drifting.clear()
        self.stuck.clear()
        self.drifts.clear()
        self._durations.clear()
