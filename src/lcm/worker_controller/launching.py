"""The launch, step by step: decide what to ask for, promise it in writing, ask, record.

The only place that creates instances. It can be cut anywhere: before the promise nothing happened,
after it every repetition asks EC2 for the same instance under the same token (docs/adr/0003).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lcm.domain.errors import LaunchRefused, LaunchVoid, RegionNotConfigured, TemplateMissing
from lcm.domain.launch import instance_tags, launch_spec
from lcm.domain.lifecycle import PROVISIONING
from lcm.domain.template import RegionConfig
from lcm.domain.worker import Worker
from lcm.worker_controller.ports import CloudProvider, ControlPlane


@dataclass(frozen=True)
class Launcher:
    """Turns PENDING workers into instances."""

    control_plane: ControlPlane
    cloud: CloudProvider
    regions: Mapping[str, RegionConfig]
    environment: str
    check_leadership: Callable[[], None]

    async def launch(self, worker: Worker) -> Worker:
        """Launch, or repeat a launch that was promised before, and record the instance."""
        if worker.launch is None:
            worker = await self._promise(worker)
        assert worker.launch is not None
        self.check_leadership()
        try:
            instance = await self.cloud.launch_instance(worker.launch.spec, worker.launch.client_token)
        except LaunchVoid as gone:
            return await self.control_plane.void_launch(worker, str(gone))
        except LaunchRefused as refusal:
            # Nothing was launched: a retry must be free to ask for something else.
            await self.control_plane.void_launch(worker, str(refusal))
            raise
        # Record the id before anything else: a crash between the launch and this line leaves a machine
        # that only the token and the tag can find again.
        return await self.control_plane.update_status(
            worker, PROVISIONING, f"EC2 accepted the launch of {instance.id}", instance=instance
        )

    async def _promise(self, worker: Worker) -> Worker:
        template = await self.control_plane.get_worker_template(worker.template_name)
        if template is None:
            raise TemplateMissing(
                f"template {worker.template_name!r} no longer exists; create it, then retry"
            )
        region = self.regions.get(worker.aws_region)
        if region is None:
            raise RegionNotConfigured(
                f"region {worker.aws_region!r} is not in aws_region_configs; configure it, then retry"
            )
        image = await self.cloud.resolve_ami(region.region, template.ami_name_pattern)
        tags = instance_tags(
            worker_id=worker.id,
            name=worker.name,
            template=template,
            region=region,
            overrides=worker.tags,
            environment=self.environment,
        )
        spec = launch_spec(region=region, template=template, image=image, tags=tags)
        return await self.control_plane.promise_launch(worker, spec)
