"""What `lcm doctor` asks AWS: permissions by DryRun, the network, the quota, the time. Nothing is changed."""

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final, Self

from botocore.exceptions import ClientError

from lcm.core.clock import Clock
from lcm.domain.diagnosis import STANDARD_FAMILIES, Ingress, Subnet, family_of
from lcm.domain.errors import WrongInstanceState
from lcm.domain.launch import InstanceId, LaunchSpec
from lcm.worker_controller.adapters.ec2 import FILTER_VALUES, Ec2Provider, Ec2Settings
from lcm.worker_controller.adapters.ec2_launch import launch_request
from lcm.worker_controller.ports import CallerIdentity

PERMITTED: Final = "DryRunOperation"
"""EC2's answer to a dry run of what it would do."""
STANDARD_VCPUS: Final = "L-1216C47A"
"""Service Quotas: Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances."""
DRY_LAUNCH: Final = "lcm-doctor"
"""Its client token: no launch intent has it."""

_DryRun = Callable[[Any, InstanceId | None], Awaitable[Any]]
_DRY_RUNS: Final[Mapping[str, _DryRun]] = {
    "DescribeInstances": lambda ec2, _: ec2.describe_instances(DryRun=True),
    "DescribeImages": lambda ec2, _: ec2.describe_images(Owners=["self"], DryRun=True),
    "DescribeInstanceTypes": lambda ec2, _: ec2.describe_instance_types(DryRun=True),
    "StartInstances": lambda ec2, i: ec2.start_instances(InstanceIds=[i], DryRun=True),
    "StopInstances": lambda ec2, i: ec2.stop_instances(InstanceIds=[i], DryRun=True),
    "TerminateInstances": lambda ec2, i: ec2.terminate_instances(InstanceIds=[i], DryRun=True),
    "CreateTags": lambda ec2, i: ec2.create_tags(
        Resources=[i], Tags=[{"Key": "Name", "Value": "any"}], DryRun=True
    ),
    "DeleteTags": lambda ec2, i: ec2.delete_tags(Resources=[i], Tags=[{"Key": "any"}], DryRun=True),
}


class Ec2Inspection(Ec2Provider):
    """EC2 as workers use it, and the questions of `lcm doctor`. Use as `async with`."""

    def __init__(
        self,
        settings: Ec2Settings,
        regions: Iterable[str],
        *,
        home_region: str,
        clock: Clock,
        chance: random.Random,
    ) -> None:
        """The home region is where STS is asked: it needs no region config."""
        super().__init__(settings, regions, clock=clock, chance=chance)
        self._home_region = home_region
        self._clock = clock
        self._quotas: dict[str, Any] = {}

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._sts = await self._open_client("sts", self._home_region)
        for region in self._regions:
            self._quotas[region] = await self._open_client("service-quotas", region)
        return self

    async def caller_identity(self) -> CallerIdentity:
        sts = self._sts
        async with self._bounded("GetCallerIdentity", "STS"):
            answer = await sts.get_caller_identity()
        return CallerIdentity(account=str(answer["Account"]), arn=str(answer["Arn"]))

    async def clock_skew(self) -> timedelta | None:
        sts = self._sts
        asked_at = self._clock.now()
        async with self._bounded("GetCallerIdentity", "STS"):
            try:
                answer = await sts.get_caller_identity()
            except ClientError as refusal:  # also with AWS's time
                answer = refusal.response
        return skew_of(read_date(answer), asked_at, self._clock.now())

    async def dry_run(self, region: str, action: str, instance_id: InstanceId | None) -> None:
        await self._dry_run(region, action, lambda ec2: _DRY_RUNS[action](ec2, instance_id))

    async def dry_run_launch(self, spec: LaunchSpec) -> None:
        request = launch_request(spec, DRY_LAUNCH)
        await self._dry_run(
            spec.region, "RunInstances", lambda ec2: ec2.run_instances(**request, DryRun=True)
        )

    async def _dry_run(self, region: str, action: str, call: Callable[[Any], Awaitable[Any]]) -> None:
        try:
            async with self._permitted(region, action) as ec2:
                try:
                    await call(ec2)
                except ClientError as answer:
                    if answer.response.get("Error", {}).get("Code") != PERMITTED:
                        raise
        except WrongInstanceState:
            return  # EC2 reads the state only of what it permits

    async def describe_subnets(self, region: str, subnet_ids: Sequence[str]) -> Sequence[Subnet]:
        wanted = {"Name": "subnet-id", "Values": list(subnet_ids)}
        async with self._permitted(region, "DescribeSubnets") as ec2:
            answer = await ec2.describe_subnets(Filters=[wanted])
        return [
            Subnet(
                id=described["SubnetId"],
                state=described["State"],
                zone=described["AvailabilityZone"],
                network=described["CidrBlock"],
                free_addresses=described["AvailableIpAddressCount"],
                gives_public_addresses=described["MapPublicIpOnLaunch"],
            )
            for described in answer["Subnets"]
        ]

    async def describe_ingress(self, region: str, group_ids: Sequence[str]) -> Sequence[Ingress]:
        async with self._permitted(region, "DescribeSecurityGroups") as ec2:
            answer = await ec2.describe_security_groups(GroupIds=list(group_ids))
        return [read_ingress(rule) for group in answer["SecurityGroups"] for rule in group["IpPermissions"]]

    async def vcpus_in_use(self, region: str) -> int:
        running = await self._count_running(region)
        vcpus = await self.vcpus_of(region, sorted(running))
        return sum(count * vcpus.get(instance_type, 0) for instance_type, count in running.items())

    async def _count_running(self, region: str) -> Counter[str]:
        """How many instances of each type count against the quota."""
        running: Counter[str] = Counter()
        request: dict[str, Any] = {
            "Filters": [{"Name": "instance-state-name", "Values": ["pending", "running"]}],
            "MaxResults": self._settings.page_size,
        }
        while True:
            async with self._permitted(region, "DescribeInstances", urgent=False) as ec2:
                answer = await ec2.describe_instances(**request)
            running.update(
                described["InstanceType"]
                for reservation in answer["Reservations"]
                for described in reservation["Instances"]
                if described.get("InstanceLifecycle") != "spot"
                and family_of(described["InstanceType"]) in STANDARD_FAMILIES
            )
            if not answer.get("NextToken"):
                return running
            request["NextToken"] = answer["NextToken"]

    async def vcpus_of(self, region: str, instance_types: Sequence[str]) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for first in range(0, len(instance_types), FILTER_VALUES):
            wanted = {"Name": "instance-type", "Values": instance_types[first : first + FILTER_VALUES]}
            async with self._permitted(region, "DescribeInstanceTypes") as ec2:
                answer = await ec2.describe_instance_types(Filters=[wanted])
            found |= {
                described["InstanceType"]: described["VCpuInfo"]["DefaultVCpus"]
                for described in answer["InstanceTypes"]
            }
        return found

    async def vcpu_quota(self, region: str) -> float:
        servicequotas = self._of(region, self._quotas)
        async with self._bounded("GetServiceQuota", f"Service Quotas {region}"):
            answer = await servicequotas.get_service_quota(ServiceCode="ec2", QuotaCode=STANDARD_VCPUS)
        return float(answer["Quota"]["Value"])


def read_date(answer: Mapping[str, Any]) -> datetime | None:
    """AWS's time when it answered; None if the answer has none."""
    header = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    try:
        return parsedate_to_datetime(header) if header else None
    except ValueError:
        return None


def skew_of(theirs: datetime | None, asked_at: datetime, answered_at: datetime) -> timedelta | None:
    """How far our clock is ahead at least: their time was written between request and answer, in seconds."""
    if theirs is None:
        return None
    if theirs > answered_at:
        return answered_at - theirs
    return max(asked_at - theirs - timedelta(seconds=1), timedelta(0))


def read_ingress(rule: Mapping[str, Any]) -> Ingress:
    """A rule of a security group."""
    return Ingress(
        protocol=rule["IpProtocol"],
        first_port=rule.get("FromPort", 0),
        last_port=rule.get("ToPort", 65535),
        networks=tuple(
            [found["CidrIp"] for found in rule.get("IpRanges", [])]
            + [found["CidrIpv6"] for found in rule.get("Ipv6Ranges", [])]
        ),
        others=tuple(
            [found["GroupId"] for found in rule.get("UserIdGroupPairs", [])]
            + [found["PrefixListId"] for found in rule.get("PrefixListIds", [])]
        ),
    )
