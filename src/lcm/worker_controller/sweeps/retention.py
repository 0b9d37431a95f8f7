"""Purge the records of workers that were terminated long ago, every hour, on the leader only.

A record is evidence of who owns an instance, so the records that the tags of live instances name are kept;
if EC2 cannot be listed, nothing is purged this time.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from lcm.core.clock import Clock
from lcm.domain.errors import Fenced, LcmError
from lcm.domain.launch import MANAGED_BY, MANAGED_BY_TAG, WORKER_ID_TAG, WorkerId
from lcm.domain.template import RegionConfig
from lcm.rest.fleet import Cleanup
from lcm.worker_controller.ports import CloudProvider, ControlPlane
from lcm.worker_controller.settings import WorkerControllerSettings

log = structlog.get_logger(__name__)


@dataclass
class Retention:
    """Requests the purge, and names the records that must stay."""

    settings: WorkerControllerSettings
    regions: Mapping[str, RegionConfig]
    control_plane: ControlPlane
    cloud: CloudProvider
    clock: Clock

    async def run(self) -> None:
        while True:
            await self.clock.sleep(self.settings.cleanup_interval_seconds)
            try:
                await self._clean_up()
            except Fenced:
                raise
            except LcmError as error:
                log.warning("purge failed", error=str(error))

    async def _clean_up(self) -> None:
        alive: set[str] = set()
        for region in self.regions:
            listed = await self.cloud.list_instances(region, {MANAGED_BY_TAG: MANAGED_BY})
            alive |= {m.tags.get(WORKER_ID_TAG, "") for m in listed if not m.is_gone}
        result = await self.control_plane.clean_up(
            Cleanup(
                retention_days=self.settings.cleanup_retention_days,
                keep=[WorkerId(worker_id) for worker_id in sorted(alive)],
            )
        )
        if result.worker_ids:
            log.info("records purged", records=len(result.worker_ids))
