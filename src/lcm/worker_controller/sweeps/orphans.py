"""Both kinds of orphans: records without an instance, and instances of LCM without a record.

The most dangerous part of a controller: it acts on what is *not* there. So EC2 is listed before the
records are read, a list counts only if it is complete, one list proves nothing, a budget limits how many
are ended at a time, nothing happens while the controller is frozen or soon after a start, and instances
are only reported unless a setting says otherwise. The decisions are in `lcm.domain.orphans`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from lcm.core.clock import Clock
from lcm.core.health import Health
from lcm.domain.errors import Conflict, Fenced, LcmError
from lcm.domain.launch import MANAGED_BY, MANAGED_BY_TAG, InstanceId, WorkerId
from lcm.domain.lifecycle import TERMINATED
from lcm.domain.observation import Absent, Misses
from lcm.domain.orphans import (
    DESTROYABLE,
    AbsenceTracker,
    Budget,
    Orphan,
    OrphanKind,
    find_orphans,
    may_have_lost_instance,
    reason_for_dry_run,
)
from lcm.domain.worker import Instance, Worker
from lcm.worker_controller.ports import CloudProvider, ControlPlane

log = structlog.get_logger(__name__)

OURS: Final = {MANAGED_BY_TAG: MANAGED_BY}
REASON: Final = "orphan_detection"


@dataclass
class Orphans:
    """Finds orphans, for the time of one leadership."""

    control_plane: ControlPlane
    cloud: CloudProvider
    clock: Clock
    health: Health
    environment: str
    may_terminate: bool
    check_leadership: Callable[[], None]
    adopt: Callable[[str], None]
    """Reconcile a worker now, so that it finds its instance."""
    forget: Callable[[str], None]
    """Drop what is kept about a worker that is gone."""

    found: dict[str, dict[InstanceId, Orphan]] = field(default_factory=dict)
    """Instances without a record, by region, in the last complete list."""
    dry_run_reasons: dict[str, str] = field(default_factory=dict)
    """Why orphans of a region are only reported."""
    counts: Counter[str] = field(default_factory=Counter)
    _started_at: float = 0.0
    _fleet_size: int = 0
    _trackers: dict[str, AbsenceTracker] = field(default_factory=dict)
    _misses: dict[str, dict[tuple[WorkerId, InstanceId], Misses]] = field(default_factory=dict)
    """By region: instances that the last lists lacked."""
    _budget: Budget = field(default_factory=Budget)
    _refused_at: dict[InstanceId, float] = field(default_factory=dict)
    """When the termination of an instance last failed."""

    def __post_init__(self) -> None:
        self._started_at = self.clock.monotonic()

    async def sweep(self, region: str) -> None:
        """Sweep one region. A failed sweep concludes nothing."""
        try:
            listed = await self.cloud.list_instances(region, OURS)
            workers = await self.control_plane.list_resources()
            self._fleet_size = len(workers)
            here = [worker for worker in workers if worker.aws_region == region]
            self._set_dry_run_reason(region, listed, here)
            await self._end_records_without_instance(region, listed, here)
            if find_orphans(listed, workers, self.environment):  # what they are, terminated workers say too
                workers = await self.control_plane.list_resources(include_terminated=True)
            await self._handle_instances_without_record(region, listed, workers)
        except Fenced:
            raise
        except LcmError as error:
            self.dry_run_reasons[region] = str(error)
            log.warning("orphan sweep failed", region=region, error=str(error))

    def _set_dry_run_reason(self, region: str, listed: Sequence[Instance], workers: Sequence[Worker]) -> None:
        launched = [worker for worker in workers if worker.instance.id and not worker.imported]
        reason = reason_for_dry_run(
            freeze_reasons=self.health.freeze_reasons,
            seconds_since_start=self.clock.monotonic() - self._started_at,
            expected=len(launched),
            listed=len(listed),
        )
        if reason is None:
            self.dry_run_reasons.pop(region, None)
        else:
            self.dry_run_reasons[region] = reason

    # Records without an instance.

    async def _end_records_without_instance(
        self, region: str, listed: Sequence[Instance], workers: Sequence[Worker]
    ) -> None:
        live = {instance.id for instance in listed if not instance.is_gone}
        unseen = {
            worker.instance.id: worker
            for worker in workers
            if worker.instance.id is not None
            and may_have_lost_instance(worker)
            and worker.instance.id not in live
        }
        described = await self.cloud.describe_instances(region, list(unseen)) if unseen else []
        states = {instance.id: instance.state for instance in described}
        now = self.clock.monotonic()
        before, misses = self._misses.get(region, {}), {}
        for instance_id, worker in unseen.items():
            state = states.get(instance_id)
            key = (worker.id, instance_id)
            if state is None:
                misses[key] = before[key].again(now) if key in before else Misses.first(now)
                verdict = misses[key].verdict()
                if isinstance(verdict, Absent):
                    await self._end(worker, verdict.proof)
            elif state == "terminated":
                await self._end(worker, "EC2 reports terminated")
        self._misses[region] = misses

    async def _end(self, worker: Worker, proof: str) -> None:
        now = self.clock.monotonic()
        if worker.aws_region in self.dry_run_reasons or not self._budget.allows(self._fleet_size, now):
            return
        # Before the report: one whose answer is lost counts, too.
        self._budget.spend(now)
        try:
            await self.control_plane.update_status(worker, TERMINATED, f"{REASON}: {proof}", observed=True)
        except Conflict:
            return  # the record changed meanwhile
        self.counts["records_ended"] += 1
        self.forget(worker.id)
        log.warning("record without instance ended", worker_id=worker.id, proof=proof)

    # Instances without a record.

    async def _handle_instances_without_record(
        self, region: str, listed: Sequence[Instance], workers: Sequence[Worker]
    ) -> None:
        orphans = find_orphans(listed, workers, self.environment)
        tracker = self._trackers.setdefault(region, AbsenceTracker())
        tracker.record(orphans, self.clock.monotonic())
        for instance_id, orphan in orphans.items():
            if instance_id not in self.found.get(region, {}):
                log.warning(
                    "instance without record found",
                    instance_id=instance_id,
                    worker_id=orphan.worker_id,
                    kind=orphan.kind.value,
                    detail=orphan.detail,
                )
        self.found[region] = orphans
        # An instance that cannot be terminated must not use up the budget of the others.
        for orphan in sorted(orphans.values(), key=self._last_refused):
            if orphan.kind is OrphanKind.INTENDED:
                self.adopt(orphan.worker_id)
            elif self.may_terminate and orphan.kind in DESTROYABLE and workers:
                await self._terminate(orphan, tracker)

    def _last_refused(self, orphan: Orphan) -> float:
        return self._refused_at.get(orphan.instance.id, float("-inf"))

    async def _terminate(self, orphan: Orphan, tracker: AbsenceTracker) -> None:
        instance, now = orphan.instance, self.clock.monotonic()
        if (
            instance.region in self.dry_run_reasons
            or not tracker.is_confirmed(instance.id, now)
            or not self._budget.allows(self._fleet_size, now)
        ):
            return
        # The record may have been restored since it was listed; the instance is described once more too.
        workers = await self.control_plane.list_resources(include_terminated=True)
        current = await self.cloud.describe_instance(instance.region, instance.id)
        still = find_orphans([current], workers, self.environment) if current and workers else {}
        if instance.id not in still or still[instance.id].kind is not orphan.kind:
            return
        self.check_leadership()
        self._budget.spend(now)
        log.warning("instance without record terminating", instance_id=instance.id, detail=orphan.detail)
        try:
            await self.cloud.terminate_instance(instance.region, instance.id)
        except LcmError as error:
            self._refused_at[instance.id] = now
            log.warning("instance without record not terminated", instance_id=instance.id, error=str(error))
            return
        self.counts["instances_terminated"] += 1
