"""What operators see of a worker: its status, and what holds it up."""

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from lcm.domain.errors import CapacityShortage, Fenced, RequestError, TransientError
from lcm.domain.lifecycle import FAILED, STARTING, TERMINATED
from lcm.domain.worker import Worker
from lcm.worker_controller.decisions import Move
from lcm.worker_controller.ports import ControlPlane, Monitors
from lcm.worker_controller.stats import Stats

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class StatusReports:
    """Reports statuses and reasons to the control plane, and keeps stats and monitoring in line with them."""

    control_plane: ControlPlane
    stats: Stats
    monitors: Monitors | None
    forget: Callable[[str], None]
    """Call with the id of a worker that is terminated."""

    async def move(self, worker: Worker, move: Move) -> Worker:
        self.stats.stuck.discard(worker.id)
        moved = await self.control_plane.update_status(
            worker, move.to, move.reason, observed=move.observed, instance=move.instance
        )
        if moved.status is worker.status is not move.to:
            return moved  # refused, or not yet: a stop may wait for the configurations of nodes
        if move.drift is not None:
            self.stats.on_drift(worker, move.drift)
        self.stats.on_arrival(worker, moved, seen=move.observed or move.instance is not None)
        self.stop_monitoring_unless_live(moved)
        log.info(
            "worker status changed",
            worker_id=worker.id,
            was=str(worker.status),
            status=str(moved.status),
            reason=moved.status_reason,
        )
        if moved.status is TERMINATED:
            self.forget(worker.id)
        return moved

    def stop_monitoring_unless_live(self, worker: Worker) -> None:
        if self.monitors is not None and not worker.is_live:
            self.monitors.stop_monitoring(worker.id, f"the worker is {worker.status}")

    async def record_wait(self, worker: Worker, reason: str, is_alarm: bool) -> None:
        """Show operators an instance that makes no progress; nothing is forced."""
        if not is_alarm:
            self.stats.stuck.discard(worker.id)
            return
        self.stats.stuck.add(worker.id)
        if worker.status_reason != reason:
            log.warning("instance stuck", worker_id=worker.id, status=str(worker.status), reason=reason)
            await self.record_reason(worker, reason)

    async def record_failure(self, worker: Worker, error: TransientError) -> None:
        """Show operators what is repeated. A paused worker that EC2 has no capacity for raises an alarm.

        People wait for it, and on bare metal a shortage can last hours.
        """
        if worker.status is STARTING and isinstance(error, CapacityShortage):
            await self.record_reason(worker, f"{error}; the start is repeated until EC2 has capacity")
            self.stats.stuck.add(worker.id)
        else:
            await self.record_reason(worker, str(error))

    async def record_reason(self, worker: Worker, reason: str, *, give_up: bool = False) -> None:
        """Show operators what holds the worker up, once and not at every attempt; FAILED if it is final."""
        try:
            # Read again: the pass that failed may have changed the record on its way.
            current = await self.control_plane.fetch_single_resource(worker.id)
            if current is None or current.status is not worker.status:
                return
            target = FAILED if give_up else current.status
            if target is not current.status or reason != current.status_reason:
                await self.move(current, Move(target, reason))
        except Fenced:
            raise
        except (TransientError, RequestError) as error:
            log.info("reason not recorded", worker_id=worker.id, error=str(error))

    async def restore_reason(self, worker: Worker) -> None:
        """What held a running worker up is over: show the reason of its status again."""
        if worker.arrival is not None and worker.status_reason != worker.arrival.reason:
            await self.record_reason(worker, worker.arrival.reason)
