"""People change a worker's tags: its instance follows while it runs.

The wish is in the record, the truth on the instance: a crash in between is made up for at the next look.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from lcm.domain.launch import instance_tags, tag_changes
from lcm.domain.template import RegionConfig
from lcm.domain.worker import Instance, Worker
from lcm.worker_controller.ports import CloudProvider

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Tagger:
    """Puts right what differs; of a machine that was imported only what people named here."""

    cloud: CloudProvider
    regions: Mapping[str, RegionConfig]
    environment: str
    check_leadership: Callable[[], None]

    async def put_right(self, worker: Worker, instance: Instance) -> bool:
        """Whether anything was changed at EC2, so that what was seen of it is old."""
        changes = tag_changes(
            instance.tags,
            wanted=worker.tags,
            retired=worker.retired_tags,
            defaults=self._defaults(worker),
        )
        if changes.put:
            self.check_leadership()
            await self.cloud.tag_instance(worker.aws_region, instance.id, changes.put)
        if changes.remove:
            self.check_leadership()
            await self.cloud.untag_instance(worker.aws_region, instance.id, changes.remove)
        if changes.put or changes.remove:
            log.info("tags put right", worker_id=worker.id, put=sorted(changes.put), removed=changes.remove)
            return True
        return False

    def _defaults(self, worker: Worker) -> Mapping[str, str]:
        region = self.regions.get(worker.aws_region)
        if worker.imported or region is None:
            return {}
        return instance_tags(
            worker_id=worker.id,
            name=worker.name,
            template_name=worker.template_name,
            region=region,
            overrides={},
            environment=self.environment,
        )
