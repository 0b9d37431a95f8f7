"""Discovery: import instances that should be workers and have no record, region by region.

Runs on the leader only. EC2 is listed first and the records are read after it, so an instance whose
record was created meanwhile is never taken for a new one. Each scan is followed by the orphan sweep.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import structlog
from msgspec.structs import replace

from lcm.core.clock import Clock
from lcm.core.health import Health
from lcm.core.timeouts import timeout
from lcm.core.tracing import span
from lcm.domain.discovery import (
    DiscoveryPlan,
    FoundInstance,
    KnownWorkers,
    matches_ami_filter,
    plan_discovery,
    reason_not_to_import,
)
from lcm.domain.errors import Fenced, LcmError
from lcm.domain.launch import Ami
from lcm.domain.template import RegionConfig
from lcm.domain.worker import Instance, Worker
from lcm.rest.fleet import IMPORT_BATCH
from lcm.worker_controller.ports import CloudProvider, CmlSystem, ControlPlane
from lcm.worker_controller.settings import WorkerControllerSettings
from lcm.worker_controller.sweeps.orphans import Orphans

log = structlog.get_logger(__name__)

SETTINGS_MAX_AGE_SECONDS: Final = 300.0
FIRST_SCAN_AFTER_SECONDS: Final = 10.0
"""After the resync with which a new leader begins."""
MAX_CONCURRENT_QUERIES: Final = 10


@dataclass(frozen=True)
class RegionResult:
    """The result of the last scan of a region."""

    at: datetime
    error: str = ""
    found: int = 0
    imported: int = 0


@dataclass
class Discovery:
    """Imports instances, for the time of one leadership."""

    settings: WorkerControllerSettings
    regions: Mapping[str, RegionConfig]
    control_plane: ControlPlane
    cloud: CloudProvider
    cml: CmlSystem
    clock: Clock
    health: Health
    orphans: Orphans
    region_results: dict[str, RegionResult] = field(default_factory=dict)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By region and event: scans, failures, imported."""
    _plan: DiscoveryPlan | None = None
    _planned_at: float = 0.0
    _triggered: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        interval = self.settings.worker_discovery_interval
        self.health.tick("discovery", interval)
        try:
            await self._wait(FIRST_SCAN_AFTER_SECONDS)
            while True:
                self.health.tick("discovery", interval)
                await self.scan()
                await self._wait(interval)
        finally:
            self.health.forget("discovery")

    def trigger(self) -> None:
        """Scan now, with freshly read settings."""
        self._plan = None
        self._triggered.set()

    async def _wait(self, seconds: float) -> None:
        try:
            async with timeout(seconds):
                await self._triggered.wait()
        except TimeoutError:
            return
        self._triggered.clear()

    async def scan(self) -> None:
        """Scan one region after the other; a failure does not prevent the others."""
        try:
            plan = await self.current_plan()
        except Fenced:
            raise
        except LcmError as error:
            log.warning("discovery settings not read", error=str(error))
            return
        if not plan.enabled:
            return
        for region in plan.regions:
            with span(region=region):
                await self._scan_region(region, plan)
        for region in self.regions:
            await self.orphans.sweep(region)

    async def current_plan(self) -> DiscoveryPlan:
        """The merged settings, not older than five minutes."""
        now = self.clock.monotonic()
        if self._plan is not None and now - self._planned_at < SETTINGS_MAX_AGE_SECONDS:
            return self._plan
        plan = plan_discovery(
            await self.control_plane.get_discovery_settings(),
            enabled=self.settings.is_discovery_enabled,
            regions=self.settings.discovery_regions,
            default_region=self.settings.aws_region,
            tag_filter=self.settings.worker_discovery_tag_filter,
            ami_filter=self.settings.worker_discovery_ami_filter,
        )
        if not self._triggered.is_set():  # else they may have changed since they were read
            self._plan, self._planned_at = plan, now
        return plan

    async def _scan_region(self, region: str, plan: DiscoveryPlan) -> None:
        self.counts[region, "scans"] += 1
        try:
            found = await self._find(region, plan)
            imported = await self._import(found)
        except Fenced:
            raise
        except LcmError as error:
            self.counts[region, "failures"] += 1
            self.region_results[region] = RegionResult(self.clock.now(), error=str(error))
            log.warning("discovery failed", region=region, error=str(error))
            return
        self.counts[region, "imported"] += imported
        self.region_results[region] = RegionResult(self.clock.now(), found=len(found), imported=imported)

    async def _find(self, region: str, plan: DiscoveryPlan) -> list[FoundInstance]:
        listed = await self.cloud.list_instances(region, plan.tags)
        new = self._new_among(listed, await self.control_plane.list_resources())
        if new:  # or of a terminated worker, of which there may be very many
            new = self._new_among(new, await self.control_plane.list_resources(include_terminated=True))
        if not new:
            return []
        image_ids = sorted({instance.image_id for instance in new})
        images = {image.id: image for image in await self.cloud.list_images(region, image_ids)}
        fitting = [i for i in new if matches_ami_filter(images.get(i.image_id), plan.ami_filter)]
        return await self._ask_all(fitting, images)

    def _new_among(self, listed: Sequence[Instance], workers: Sequence[Worker]) -> list[Instance]:
        known, fleet = KnownWorkers.of(workers), self.settings.environment_tag
        return [instance for instance in listed if reason_not_to_import(instance, known, fleet) is None]

    async def _ask_all(self, instances: Sequence[Instance], images: Mapping[str, Ami]) -> list[FoundInstance]:
        slots = asyncio.Semaphore(MAX_CONCURRENT_QUERIES)

        async def ask(instance: Instance) -> FoundInstance:
            async with slots:
                return await self._observe_cml(instance, images.get(instance.image_id))

        async with asyncio.TaskGroup() as tasks:
            asking = [tasks.create_task(ask(instance)) for instance in instances]
        return [task.result() for task in asking]

    async def _observe_cml(self, instance: Instance, image: Ami | None) -> FoundInstance:
        """Read CML's version; an instance whose CML does not answer is imported all the same."""
        found = FoundInstance(
            instance=instance, image=image, is_allowed=self.settings.allow_list.allows(instance)
        )
        host = instance.private_ip if self.settings.use_private_ip_for_monitoring else instance.public_ip
        host = host or instance.private_ip
        if instance.state != "running" or host is None:
            return found
        try:
            information = await self.cml.get_system_information(host, None)
        except LcmError as error:
            log.info("CML of found instance not reached", instance_id=instance.id, error=str(error))
            return found
        return replace(
            found,
            cml_version=information.version,
            cml_ready=information.ready,
            cml_certificate_sha256=information.certificate_sha256,
        )

    async def _import(self, found: Sequence[FoundInstance]) -> int:
        imported = 0
        for first in range(0, len(found), IMPORT_BATCH):
            result = await self.control_plane.bulk_import(found[first : first + IMPORT_BATCH])
            imported += len(result.imported)
            for item in result.items:
                log.info(
                    "instance found",
                    instance_id=item.instance_id,
                    worker_id=item.worker_id,
                    outcome=item.detail or "imported",
                )
        return imported
