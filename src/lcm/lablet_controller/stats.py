"""What the lablet controller counts, and its metrics."""

from collections import Counter
from typing import Final

from lcm.core.telemetry import Telemetry
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.states import RUNNING, SessionStatus

START_BUCKETS: Final = (5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_200.0)


class Stats:
    """Counts since the start of the process."""

    def __init__(self, telemetry: Telemetry) -> None:
        self.labs: Counter[str] = Counter()
        """imported, adopted, started, restarted, collected, stopped, deleted; removed (of no session)."""
        self.discoveries: Counter[str] = Counter()
        """full, partial, failed."""
        self.managed: dict[str, SessionStatus] = {}
        self._starts = telemetry.durations(
            "lcm_lab_start_duration_seconds",
            "From the accepted start of a lab until every node has booted.",
            START_BUCKETS,
        )
        telemetry.counter(
            "lcm_lablet_labs_total",
            "Labs by what was done with them: imported, adopted, started, restarted, collected, stopped,"
            " deleted, removed (of no session).",
            lambda: [(count, {"action": action}) for action, count in sorted(self.labs.items())],
        )
        telemetry.counter(
            "lcm_lab_discoveries_total",
            "Listings of the labs of a worker: full, partial (LCM's account is no administrator), failed.",
            lambda: [(count, {"outcome": outcome}) for outcome, count in sorted(self.discoveries.items())],
        )
        telemetry.gauge(
            "lcm_lablet_sessions_managed",
            "Sessions that the lablet controller works on, by status; 0 on a standby.",
            lambda: [
                (count, {"status": str(status)})
                for status, count in sorted(Counter(self.managed.values()).items())
            ],
        )

    @property
    def instances_managed(self) -> int:
        return len(self.managed)

    @property
    def instances_running(self) -> int:
        return sum(status is RUNNING for status in self.managed.values())

    def on_ready(self, session: LabletSession) -> None:
        lab = session.lab
        if lab is not None and lab.started_at is not None and lab.booted_at is not None:
            self._starts.record((lab.booted_at - lab.started_at).total_seconds())

    def on_session(self, session: LabletSession) -> None:
        if session.is_ended:
            self.managed.pop(session.id, None)
        else:
            self.managed[session.id] = session.status

    def forget(self, session_id: str) -> None:
        self.managed.pop(session_id, None)
