"""The reconciler of the scheduler: the whole queue is one resource, so that cycles never overlap."""

from collections.abc import Sequence
from typing import Final

from lcm.core.clock import Clock
from lcm.core.election import LeadershipLost
from lcm.core.loop import Reconciler
from lcm.core.results import ReconciliationResult, Requeue
from lcm.domain.errors import Fenced, TransientError
from lcm.resource_scheduler.cycle import SchedulingCycle
from lcm.resource_scheduler.ports import ControlPlane
from lcm.resource_scheduler.stats import Stats
from lcm.rest.lablets import WindowsMoved

QUEUE: Final = "queue"
LEAST_WAIT_SECONDS: Final = 1.0
"""The control plane's clock decides; where it is behind ours, asking again at once would not help."""


class SchedulerReconciler(Reconciler[str]):
    """Moves the windows that are due, then runs a decision cycle."""

    fatal = (LeadershipLost, Fenced)
    passing = (TransientError,)
    resource_label = "queue"

    def __init__(
        self,
        control_plane: ControlPlane,
        cycle: SchedulingCycle,
        clock: Clock,
        stats: Stats,
        *,
        scan_seconds: float,
        poll_seconds: float,
    ) -> None:
        self._control_plane = control_plane
        self._cycle = cycle
        self._clock = clock
        self._stats = stats
        self._scan_seconds = scan_seconds
        self._poll_seconds = poll_seconds
        self._scanned_at = float("-inf")
        self.windows = WindowsMoved()
        """What the last scan found."""

    def reset(self) -> None:
        """Forget what another leadership learned."""
        self._scanned_at = float("-inf")
        self.windows = WindowsMoved()
        self._cycle.reset()

    def scan_soon(self) -> None:
        """Let the next reconcile scan the windows."""
        self._scanned_at = float("-inf")

    async def list_resources(self) -> Sequence[str]:
        return (QUEUE,)

    async def fetch_single_resource(self, resource_id: str) -> str | None:
        return QUEUE

    def resource_id(self, resource: str) -> str:
        return resource

    async def reconcile_resource(self, resource: str) -> ReconciliationResult:
        if self._is_scan_due():
            self.windows = await self._control_plane.move_windows()
            self._scanned_at = self._clock.monotonic()
            self._stats.on_windows(self.windows)
        next_cycle_at = await self._cycle.run()
        moments = [moment for moment in (next_cycle_at, self.windows.next_at) if moment is not None]
        now = self._clock.now()
        waits = [max(LEAST_WAIT_SECONDS, (moment - now).total_seconds()) for moment in moments]
        return Requeue("the queue is never finished", min([self._poll_seconds, *waits]))

    def _is_scan_due(self) -> bool:
        """At the next moment at which a window opens or closes; every minute, whatever is known of that."""
        if self._clock.monotonic() - self._scanned_at >= self._scan_seconds:
            return True
        return self.windows.next_at is not None and self._clock.now() >= self.windows.next_at
