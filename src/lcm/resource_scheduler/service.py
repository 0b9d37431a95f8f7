"""The hosted service of the scheduler: woken by sessions that wait and by workers that change."""

import asyncio

from lcm.core.controller import WatchTriggeredHostedService
from lcm.core.election import ClaimEpoch, Election
from lcm.core.key_watch import KeyWatch
from lcm.core.kv.port import Change
from lcm.core.loop import ReconcileLoop
from lcm.resource_scheduler.reconciler import QUEUE, SchedulerReconciler


class SchedulerHostedService(WatchTriggeredHostedService[str]):
    """Runs decision cycles while this instance leads."""

    def __init__(
        self,
        loop: ReconcileLoop[str],
        election: Election,
        sessions: KeyWatch,
        workers: KeyWatch,
        claim_epoch: ClaimEpoch,
        reconciler: SchedulerReconciler,
    ) -> None:
        super().__init__("resource-scheduler", loop, election, sessions, claim_epoch, reset=reconciler.reset)
        self._workers = workers

    def _start_loop(self, tasks: asyncio.TaskGroup) -> None:
        super()._start_loop(tasks)
        if self._workers.is_enabled:
            tasks.create_task(self._workers.run(self._on_change, self._resync), name="watch workers")

    def _on_change(self, resource_id: str, change: Change, after_seconds: float) -> None:
        self.loop.wake(QUEUE, after_seconds)
