"""What the scheduler counts, and its metrics."""

from collections import Counter
from datetime import datetime

from lcm.core.telemetry import WAIT_BUCKETS, Telemetry
from lcm.domain.lablet.session import LabletSession
from lcm.rest.lablets import WindowsMoved


class Stats:
    """Counts since the start of the process."""

    def __init__(self, telemetry: Telemetry) -> None:
        self.pending_instances = 0
        self.successful_placements = 0
        self.failed_placements: Counter[str] = Counter()
        self.decisions: Counter[str] = Counter()
        self.scale_up_requests: Counter[str] = Counter()
        self.retries = 0
        self.max_retries = 0
        self.snapshots = 0
        self.timeslots_approaching = 0
        self.timeslots_expired = 0
        self.last_cycle_at: datetime | None = None
        self._decision = telemetry.durations(
            "lcm_scheduler_decision_duration_seconds", "CPU and waiting time of one decision cycle."
        )
        self._e2e = telemetry.durations(
            "lcm_scheduler_e2e_duration_seconds",
            "From a session's due time, the start of its timeslot or else its creation, until a worker has"
            " its claim; 0 if it is placed before.",
            WAIT_BUCKETS,
        )
        self._latency = telemetry.durations(
            "lcm_scheduling_latency_seconds",
            "From the moment a session waits for a worker, its creation or the opening of its window, until a"
            " worker has its claim. lcm_scheduler_e2e_duration_seconds counts from the due time instead.",
            WAIT_BUCKETS,
        )
        telemetry.counter(
            "lcm_scheduler_decisions_total",
            "Decisions by what follows from them.",
            lambda: [(count, {"action": action}) for action, count in self.decisions.items()],
        )
        telemetry.counter(
            "lcm_scheduler_successes_total", "Sessions placed.", lambda: [(self.successful_placements, {})]
        )
        telemetry.counter(
            "lcm_scheduler_failures_total",
            "Placements that the control plane refused, by the filter that did.",
            lambda: [(count, {"reason": reason}) for reason, count in self.failed_placements.items()],
        )
        telemetry.counter(
            "lcm_scheduler_scale_up_requests_total",
            "Workers requested, by template.",
            lambda: [(count, {"template": name}) for name, count in self.scale_up_requests.items()],
        )
        telemetry.counter(
            "lcm_scheduler_retries_total", "Placements tried again.", lambda: [(self.retries, {})]
        )
        telemetry.counter(
            "lcm_scheduler_max_retries_total",
            "Sessions that used the last of their retries (MAX_RETRIES).",
            lambda: [(self.max_retries, {})],
        )
        telemetry.counter(
            "lcm_scheduler_etcd_capacity_fetches_total",
            "Snapshots of capacity fetched for decisions. They come from the control plane; the capacity keys"
            " in etcd show the same and decide nothing.",
            lambda: [(self.snapshots, {})],
        )
        telemetry.counter(
            "lcm_timeslots_approaching_total",
            "Timeslots whose window was opened: the search for a worker began.",
            lambda: [(self.timeslots_approaching, {})],
        )
        telemetry.counter(
            "lcm_timeslots_expired_total",
            "Timeslots that were missed or over when they were scanned.",
            lambda: [(self.timeslots_expired, {})],
        )
        telemetry.gauge(
            "lcm_scheduler_pending_instances",
            "Sessions that wait for a worker.",
            lambda: [(self.pending_instances, {})],
        )

    def on_decided(self, seconds: float) -> None:
        self._decision.record(seconds)

    def on_placed(self, session: LabletSession, now: datetime) -> None:
        self.successful_placements += 1
        self.pending_instances -= 1
        self._e2e.record(max(0.0, (now - session.due_at).total_seconds()))
        self._latency.record(max(0.0, (now - session.waiting_since).total_seconds()))

    def on_windows(self, moved: WindowsMoved) -> None:
        self.timeslots_approaching += len(moved.opened)
        self.timeslots_expired += len(moved.missed) + len(moved.over)
