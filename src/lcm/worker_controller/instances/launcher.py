"""The launch, step by step: decide the parameters, record the intent, call EC2, record the instance.

The only place that creates instances. It can crash anywhere: before the intent nothing happened, after it
every repetition requests the same instance under the same client token (docs/adr/0003). Another subnet is
another intent, recorded only when the one before cannot take effect any more.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from lcm.core.clock import Clock
from lcm.domain.errors import (
    CapacityShortage,
    InstanceTypeUnfit,
    LaunchLapsed,
    LaunchRefused,
    QuotaExceeded,
    RegionNotConfigured,
    TemplateMissing,
)
from lcm.domain.launch import LaunchIntent, instance_tags, kvm_mistake, launch_spec, other_subnets
from lcm.domain.lifecycle import PROVISIONING, DesiredStatus
from lcm.domain.template import RegionConfig, WorkerTemplate
from lcm.domain.worker import Worker
from lcm.worker_controller.ports import CloudProvider, ControlPlane

TAKES_EFFECT_WITHIN_SECONDS: Final = 600.0
"""A launch without an answer may still take effect for so long."""


@dataclass(frozen=True)
class Launcher:
    """Launches the instances of PENDING workers, for the time of one leadership."""

    control_plane: ControlPlane
    cloud: CloudProvider
    regions: Mapping[str, RegionConfig]
    environment: str
    check_leadership: Callable[[], None]
    clock: Clock
    _may_take_effect_until: dict[str, float] = field(default_factory=dict)
    """By client token: until when an unanswered request may still take effect."""

    async def launch(self, worker: Worker) -> Worker:
        """Launch, or repeat an intended launch, and record the instance."""
        if worker.launch.intent is None:
            worker = await self._record_intent(worker)
        tried: list[str] = []
        while True:
            intent = worker.launch.intent
            assert intent is not None
            try:
                return await self._run_instances(worker, intent)
            except LaunchLapsed as gone:
                return await self.control_plane.withdraw_launch_intent(worker, str(gone))
            except LaunchRefused as refusal:
                # Nothing was launched: a retry may use other parameters.
                if self._cannot_take_effect(intent):
                    await self.control_plane.withdraw_launch_intent(worker, str(refusal), refused=True)
                raise
            except (CapacityShortage, QuotaExceeded) as shortage:
                if not self._cannot_take_effect(intent):
                    raise
                if worker.desired_status is DesiredStatus.STOPPED:
                    reason = "stopped before anything was launched"
                    return await self.control_plane.withdraw_launch_intent(worker, reason, refused=True)
                tried.append(intent.spec.subnet_id)
                elsewhere = self._untried_subnet(worker, tried)
                if isinstance(shortage, QuotaExceeded) or elsewhere is None:
                    raise
                worker = await self.control_plane.withdraw_launch_intent(worker, str(shortage), refused=True)
                worker = await self._record_intent(worker, elsewhere)

    def _untried_subnet(self, worker: Worker, tried: Sequence[str]) -> str | None:
        """The next subnet of the region after the first one that was tried."""
        region = self.regions.get(worker.aws_region)
        others = other_subnets(region, tried[0]) if region else []
        return next((subnet for subnet in others if subnet not in tried), None)

    async def _run_instances(self, worker: Worker, launch: LaunchIntent) -> Worker:
        self.check_leadership()
        now, token = self.clock.monotonic(), launch.client_token
        # An earlier leader may have sent a request under an intent that this one did not record.
        earlier = self._may_take_effect_until.get(token, now + TAKES_EFFECT_WITHIN_SECONDS)
        self._may_take_effect_until[token] = now + TAKES_EFFECT_WITHIN_SECONDS
        try:
            instance = await self.cloud.launch_instance(launch.spec, token)
        except (CapacityShortage, QuotaExceeded, LaunchRefused):
            self._may_take_effect_until[token] = earlier  # an answer: nothing will come of this request
            raise
        self._may_take_effect_until.pop(token, None)
        # Record the id before anything else: a crash between the launch and this line leaves an instance
        # that only the token and the tag can find again.
        return await self.control_plane.update_status(
            worker, PROVISIONING, f"EC2 accepted the launch of {instance.id}", instance=instance
        )

    def _cannot_take_effect(self, launch: LaunchIntent) -> bool:
        return self._may_take_effect_until[launch.client_token] <= self.clock.monotonic()

    async def _record_intent(self, worker: Worker, subnet_id: str | None = None) -> Worker:
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
        if template.nested_virtualization or not template.allow_without_kvm:
            await self._require_kvm(region.region, template)
        image = await self.cloud.resolve_ami(region.region, template.ami_name_pattern, template.ami_owners)
        tags = instance_tags(
            worker_id=worker.id,
            name=worker.name,
            template_name=template.name,
            region=region,
            overrides=worker.tags,
            environment=self.environment,
        )
        spec = launch_spec(region=region, template=template, image=image, tags=tags, subnet_id=subnet_id)
        intended = await self.control_plane.record_launch_intent(worker, spec)
        assert intended.launch.intent is not None
        self._may_take_effect_until[intended.launch.intent.client_token] = self.clock.monotonic()
        return intended

    async def _require_kvm(self, region: str, template: WorkerTemplate) -> None:
        """Ask EC2 what the type can."""
        facts = await self.cloud.describe_instance_type(region, template.instance_type)
        if mistake := kvm_mistake(template, facts):
            raise InstanceTypeUnfit(f"template {template.name!r}: {mistake}; then retry")
