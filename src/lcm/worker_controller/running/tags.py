"""Reconcile the tags of a running instance with those that people set on the worker.

The desired tags are in the record, the observed ones on the instance: the next pass repairs what a crash
left undone.
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
    """Changes tags that differ; on an imported instance only those that people set in LCM."""

    cloud: CloudProvider
    regions: Mapping[str, RegionConfig]
    environment: str
    check_leadership: Callable[[], None]

    async def reconcile(self, worker: Worker, instance: Instance) -> bool:
        """Apply the tags. Returns whether anything changed at EC2, so that the observation is outdated."""
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
            log.info("tags changed", worker_id=worker.id, put=sorted(changes.put), removed=changes.remove)
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
