"""An AWS account in memory, as far as `lcm doctor` examines it. Public fields are what is wrong with it."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from lcm.domain.diagnosis import Ingress, Subnet
from lcm.domain.errors import CredentialsRefused, LaunchRefused, LcmError, Unreachable
from lcm.domain.launch import InstanceId, LaunchSpec
from lcm.worker_controller.ports import CallerIdentity

VCPUS = {"m8i.xlarge": 4, "m5zn.metal": 48, "t3.large": 2, "p5.48xlarge": 192}


class MemoryInspection:
    """Implements `CloudInspection`."""

    def __init__(self) -> None:
        self.refusal: LcmError | None = None
        """Of every call."""
        self.skew: timedelta | None = timedelta(0)
        self.denied: set[str] = set()
        """Actions, with those of the doctor."""
        self.launch_mistake: str | None = None
        self.subnets = [
            Subnet(
                id="subnet-1",
                state="available",
                zone="us-east-1a",
                network="10.0.0.0/24",
                free_addresses=200,
                gives_public_addresses=True,
            )
        ]
        self.ingress = [Ingress(protocol="tcp", first_port=443, last_port=443, networks=("0.0.0.0/0",))]
        self.groups = {"sg-1"}
        self.used = 8
        self.quota = 64.0

    async def caller_identity(self) -> CallerIdentity:
        self._called("GetCallerIdentity")
        return CallerIdentity("111122223333", "arn:aws:sts::111122223333:assumed-role/lcm/host")

    async def clock_skew(self) -> timedelta | None:
        return self.skew

    async def dry_run(self, region: str, action: str, instance_id: InstanceId | None) -> None:
        self._called(action)

    async def dry_run_launch(self, spec: LaunchSpec) -> None:
        self._called("RunInstances")
        if self.launch_mistake is not None:
            raise LaunchRefused(self.launch_mistake)

    async def describe_subnets(self, region: str, subnet_ids: Sequence[str]) -> Sequence[Subnet]:
        self._called("DescribeSubnets")
        return [subnet for subnet in self.subnets if subnet.id in subnet_ids]

    async def describe_ingress(self, region: str, group_ids: Sequence[str]) -> Sequence[Ingress]:
        self._called("DescribeSecurityGroups")
        if not self.groups.issuperset(group_ids):
            raise LaunchRefused("InvalidGroup.NotFound")
        return self.ingress

    async def vcpus_in_use(self, region: str) -> int:
        return self.used

    async def vcpus_of(self, region: str, instance_types: Sequence[str]) -> Mapping[str, int]:
        return {name: VCPUS[name] for name in instance_types if name in VCPUS}

    async def vcpu_quota(self, region: str) -> float:
        self._called("GetServiceQuota")
        return self.quota

    def _called(self, action: str) -> None:
        if self.refusal is not None:
            raise self.refusal
        if action in self.denied:
            raise CredentialsRefused(f"UnauthorizedOperation: {action}")
        if f"{action}?" in self.denied:
            raise Unreachable(f"{action}: timed out")
