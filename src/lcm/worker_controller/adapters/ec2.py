"""EC2 by aiobotocore: a client per region, typed errors, our own timeouts and rate limits.

Every call waits for a permit of its API and region first (shared by the whole process), is bounded in
time, and is made once: the reconciler repeats it, after a new observation.
"""

import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
)
from botocore.parsers import ResponseParserError

from lcm.core.clock import Clock
from lcm.core.rate_limit import Rate, Saturated, TokenBucket
from lcm.core.timeouts import timeout
from lcm.domain import errors
from lcm.domain.launch import (
    DISCOVERY_TAG,
    WORKER_ID_TAG,
    Ami,
    InstanceId,
    InstanceTypeFacts,
    LaunchSpec,
    WorkerId,
    newest_image,
)
from lcm.domain.worker import Instance
from lcm.worker_controller.adapters.account import AccountCheck
from lcm.worker_controller.adapters.coalescing import Coalescer
from lcm.worker_controller.adapters.ec2_errors import UnknownInstance, translate
from lcm.worker_controller.adapters.ec2_launch import launch_request
from lcm.worker_controller.adapters.off_loop import OffLoopParserFactory

T = TypeVar("T")

LIMITS: Final[Mapping[str, Rate]] = {
    "DescribeInstances": Rate(per_second=20, burst=100),
    "DescribeImages": Rate(per_second=20, burst=100),
    "DescribeInstanceTypes": Rate(per_second=20, burst=100),
    "RunInstances": Rate(per_second=2, burst=5),
    "StartInstances": Rate(per_second=2, burst=5),
    "StopInstances": Rate(per_second=2, burst=5),
    "TerminateInstances": Rate(per_second=5, burst=100),
    "CreateTags": Rate(per_second=10, burst=100),
    "DeleteTags": Rate(per_second=10, burst=100),
}
"""What AWS grants an account by default, per region. Ours are not the only calls of the account: EC2 may
refuse all the same, and then all calls of the process pause."""

CHANGES: Final = frozenset(operation for operation in LIMITS if not operation.startswith("Describe"))
PERMIT_WITHIN_SECONDS: Final = 10.0
IDS_PER_CALL: Final = 1_000
FILTER_VALUES: Final = 200
LAUNCHABLE: Final = {"state": "available", "architecture": "x86_64", "root-device-type": "ebs"}
"""The AMIs that a worker can run: CML is made for x86_64 alone, and only a volume outlasts a pause."""


@dataclass(frozen=True)
class Ec2Settings:
    """Access to EC2. Without an endpoint and keys: AWS itself, with boto's usual credentials."""

    endpoint_url: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None
    account_id: str | None = None
    """The only account to work in; None: the account of the credentials."""
    connect_timeout_seconds: float = 3.0
    read_timeout_seconds: float = 10.0
    page_size: int = 1000
    limits: Mapping[str, Rate] = field(default_factory=lambda: LIMITS)


class Ec2Provider:
    """Use as `async with`. Creates a client for each region on entry, because that is slow.

    `before_effect` is called right before each call that changes something, after all waiting is over;
    it raises if we may not act any more.
    """

    def __init__(
        self,
        settings: Ec2Settings,
        regions: Iterable[str],
        *,
        clock: Clock,
        chance: random.Random,
        before_effect: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._regions = tuple(regions)
        self._before_effect = before_effect
        self._open_clients = AsyncExitStack()
        self._sdk = get_session()
        self._clients: dict[str, Any] = {}
        self._parsing = ThreadPoolExecutor(1, thread_name_prefix="ec2-parser")
        self._buckets = {
            (region, operation): TokenBucket(rate, clock, chance)
            for region in self._regions
            for operation, rate in settings.limits.items()
        }
        self._account = (
            AccountCheck(settings.account_id, self._ask_account, clock) if settings.account_id else None
        )
        self._sts: Any = None
        self._coalescers = {region: self._coalescer(region) for region in self._regions}
        # Longer than one attempt inside botocore, so that its own timeouts come first.
        self._call_timeout_seconds = settings.connect_timeout_seconds + settings.read_timeout_seconds + 1.0

    async def __aenter__(self) -> Self:
        self._sdk.register_component("response_parser_factory", OffLoopParserFactory(self._parsing))
        for region in self._regions:
            self._clients[region] = await self._open_client("ec2", region)
        if self._account is not None and self._regions:
            self._sts = await self._open_client("sts", self._regions[0])
        return self

    async def _open_client(self, service: str, region: str) -> Any:
        client = self._sdk.create_client(
            service,
            region_name=region,
            endpoint_url=self._settings.endpoint_url,
            aws_access_key_id=self._settings.access_key_id,
            aws_secret_access_key=self._settings.secret_access_key,
            config=AioConfig(
                connect_timeout=self._settings.connect_timeout_seconds,
                read_timeout=self._settings.read_timeout_seconds,
                retries={"mode": "standard", "total_max_attempts": 1},
                max_pool_connections=50,
            ),
        )
        return await self._open_clients.enter_async_context(client)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open_clients.aclose()
        self._parsing.shutdown(wait=False, cancel_futures=True)

    async def list_instances(self, region: str, tags: Mapping[str, str] | None = None) -> Sequence[Instance]:
        wanted = tags or {DISCOVERY_TAG: "true"}
        return await self._describe(
            region,
            Filters=[{"Name": f"tag:{key}", "Values": [value]} for key, value in sorted(wanted.items())],
            MaxResults=self._settings.page_size,
        )

    async def describe_instance(self, region: str, instance_id: InstanceId) -> Instance | None:
        return await self._of(region, self._coalescers).get(instance_id)

    async def describe_instances(self, region: str, instance_ids: Sequence[InstanceId]) -> Sequence[Instance]:
        found: list[Instance] = []
        for first in range(0, len(instance_ids), IDS_PER_CALL):
            chunk = instance_ids[first : first + IDS_PER_CALL]
            found += (await self._describe_by_id(region, partial(list, chunk), urgent=False)).values()
        return found

    async def find_instances(self, region: str, worker_id: WorkerId) -> Sequence[Instance]:
        return await self._describe(
            region, urgent=True, Filters=[{"Name": f"tag:{WORKER_ID_TAG}", "Values": [worker_id]}]
        )

    async def launch_instance(self, spec: LaunchSpec, client_token: str) -> Instance:
        async with self._permitted(spec.region, "RunInstances") as ec2:
            answer = await ec2.run_instances(**launch_request(spec, client_token))
        return _instance(answer["Instances"][0], spec.region, answer.get("OwnerId"))

    async def start_instance(self, region: str, instance_id: InstanceId) -> None:
        async with self._permitted(region, "StartInstances") as ec2:
            await ec2.start_instances(InstanceIds=[instance_id])

    async def stop_instance(self, region: str, instance_id: InstanceId) -> None:
        async with self._permitted(region, "StopInstances") as ec2:
            await ec2.stop_instances(InstanceIds=[instance_id])

    async def terminate_instance(self, region: str, instance_id: InstanceId) -> None:
        try:
            async with self._permitted(region, "TerminateInstances") as ec2:
                await ec2.terminate_instances(InstanceIds=[instance_id])
        except UnknownInstance:
            return  # already gone

    async def tag_instance(self, region: str, instance_id: InstanceId, tags: Mapping[str, str]) -> None:
        wanted = [{"Key": key, "Value": value} for key, value in sorted(tags.items())]
        async with self._permitted(region, "CreateTags") as ec2:
            await ec2.create_tags(Resources=[instance_id], Tags=wanted)

    async def untag_instance(self, region: str, instance_id: InstanceId, keys: Sequence[str]) -> None:
        async with self._permitted(region, "DeleteTags") as ec2:
            await ec2.delete_tags(Resources=[instance_id], Tags=[{"Key": key} for key in keys])

    async def resolve_ami(self, region: str, name_pattern: str, owners: Sequence[str]) -> Ami:
        wanted = {"name": name_pattern, **LAUNCHABLE}
        async with self._permitted(region, "DescribeImages") as ec2:
            answer = await ec2.describe_images(
                Owners=list(owners),
                Filters=[{"Name": name, "Values": [value]} for name, value in wanted.items()],
            )
        if not answer["Images"]:
            raise errors.ImageNotFound(
                f"no AMI named {name_pattern!r} in {region} that is available, for x86_64 and owned by"
                f" {' or '.join(owners)}; make one or copy one there, or name the account that shares one"
                " in ami_owners of the template"
            )
        return newest_image([_image(described) for described in answer["Images"]])

    async def describe_instance_type(self, region: str, instance_type: str) -> InstanceTypeFacts:
        # A filter, not InstanceTypes: of a name that is not known EC2 gives an empty answer, not an error.
        wanted = {"Name": "instance-type", "Values": [instance_type]}
        async with self._permitted(region, "DescribeInstanceTypes") as ec2:
            answer = await ec2.describe_instance_types(Filters=[wanted])
        if not answer["InstanceTypes"]:
            raise errors.InstanceTypeUnfit(f"{region} has no instance type {instance_type!r}")
        [described] = answer["InstanceTypes"]
        features = described.get("ProcessorInfo", {}).get("SupportedFeatures", [])
        return InstanceTypeFacts(
            is_bare_metal=described.get("BareMetal", False), can_nest="nested-virtualization" in features
        )

    async def list_images(self, region: str, image_ids: Sequence[str]) -> Sequence[Ami]:
        found: list[Ami] = []
        for first in range(0, len(image_ids), FILTER_VALUES):
            # A filter, not ImageIds: one image that was deregistered would fail the whole call.
            wanted = {"Name": "image-id", "Values": list(image_ids[first : first + FILTER_VALUES])}
            async with self._permitted(region, "DescribeImages", urgent=False) as ec2:
                answer = await ec2.describe_images(Filters=[wanted])
            found += [_image(described) for described in answer["Images"]]
        return found

    def _coalescer(self, region: str) -> Coalescer[InstanceId, Instance]:
        async def ask(take: Callable[[], Sequence[InstanceId]]) -> Mapping[InstanceId, Instance]:
            return await self._describe_by_id(region, take, urgent=True)

        return Coalescer(ask, limit=IDS_PER_CALL)

    async def _describe_by_id(
        self, region: str, take: Callable[[], Sequence[InstanceId]], *, urgent: bool
    ) -> dict[InstanceId, Instance]:
        """The instances that EC2 knows. It refuses a batch for one unknown id, so the batch is split."""
        ids: Sequence[InstanceId] = ()
        try:
            async with self._permitted(region, "DescribeInstances", urgent=urgent) as ec2:
                ids = take()
                answer = await ec2.describe_instances(InstanceIds=list(ids))
        except UnknownInstance as refusal:
            rest = [instance_id for instance_id in ids if instance_id not in str(refusal)]
            halves = [rest] if len(rest) < len(ids) else [ids[: len(ids) // 2], ids[len(ids) // 2 :]]
            found: dict[InstanceId, Instance] = {}
            for half in halves if len(ids) > 1 else []:
                if half:
                    found |= await self._describe_by_id(region, partial(list, half), urgent=urgent)
            return found
        return {instance.id: instance for instance in _instances(answer, region)}

    async def _describe(self, region: str, *, urgent: bool = False, **request: Any) -> list[Instance]:
        """All pages or an error: a partial list is never returned."""
        found: list[Instance] = []
        while True:
            async with self._permitted(region, "DescribeInstances", urgent=urgent) as ec2:
                answer = await ec2.describe_instances(**request)
            found += _instances(answer, region)
            if not answer.get("NextToken"):
                return found
            request["NextToken"] = answer["NextToken"]

    @asynccontextmanager
    async def _permitted(self, region: str, operation: str, *, urgent: bool = True) -> AsyncIterator[Any]:
        """The region's client, for one call: permitted, bounded in time, with errors of the domain."""
        client = self._of(region, self._clients)
        if self._account is not None:
            await self._account.require()
        bucket = self._buckets.get((region, operation))
        if bucket is not None:
            try:
                await bucket.take(urgent=urgent, within_seconds=PERMIT_WITHIN_SECONDS)
            except Saturated as full:
                raise errors.Throttled(f"{operation} in {region} got no permit: {full}") from None
        if operation in CHANGES:
            self._before_effect()
        try:
            async with self._bounded(operation, f"EC2 {region}"):
                yield client
        except errors.Throttled as slow_down:
            if bucket is not None:
                bucket.refused(str(slow_down))
            raise
        except errors.CredentialsRefused:
            if self._account is not None:
                self._account.ask_again()
            raise
        if bucket is not None:
            bucket.accepted()

    @asynccontextmanager
    async def _bounded(self, operation: str, where: str) -> AsyncIterator[None]:
        """One call: bounded in time, with errors of the domain."""
        try:
            async with timeout(self._call_timeout_seconds):
                yield
        except ClientError as refusal:
            raise _translate(refusal) from refusal
        except ParamValidationError as mistake:
            kind = errors.LaunchRefused if operation == "RunInstances" else errors.Unreachable
            raise kind(f"{where}: {operation} was never sent: {mistake}") from mistake
        except (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError) as error:
            raise errors.CredentialsRefused(f"{where}: {error}") from error
        except (BotoCoreError, ResponseParserError, TimeoutError, OSError) as error:
            raise errors.Unreachable(f"{where}: {str(error) or type(error).__name__}") from error

    async def _ask_account(self) -> str:
        sts = self._sts
        async with self._bounded("GetCallerIdentity", "STS"):
            answer = await sts.get_caller_identity()
        return str(answer["Account"])

    @staticmethod
    def _of(region: str, by_region: Mapping[str, T]) -> T:
        found = by_region.get(region)
        if found is None:
            raise errors.RegionNotConfigured(f"region {region!r} is not in aws_region_configs; configure it")
        return found


def _translate(refusal: ClientError) -> errors.LcmError:
    error = refusal.response.get("Error", {})
    status = refusal.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
    return translate(refusal.operation_name, error.get("Code", ""), error.get("Message", ""), status)


def _instances(answer: Mapping[str, Any], region: str) -> list[Instance]:
    return [
        _instance(described, region, reservation.get("OwnerId"))
        for reservation in answer["Reservations"]
        for described in reservation["Instances"]
    ]


def _instance(described: Mapping[str, Any], region: str, owner_id: str | None) -> Instance:
    reason = described.get("StateReason") or {}
    return Instance(
        id=InstanceId(described["InstanceId"]),
        region=region,
        state=described["State"]["Name"],
        instance_type=described["InstanceType"],
        image_id=described["ImageId"],
        private_ip=described.get("PrivateIpAddress") or None,
        public_ip=described.get("PublicIpAddress") or None,
        state_reason=reason.get("Message") or None,
        state_reason_code=reason.get("Code") or None,
        client_token=described.get("ClientToken") or None,
        owner_id=owner_id or None,
        vpc_id=described.get("VpcId") or None,
        subnet_id=described.get("SubnetId") or None,
        tags={tag["Key"]: tag["Value"] for tag in described.get("Tags", [])},
    )


def _image(described: Mapping[str, Any]) -> Ami:
    root_device = described.get("RootDeviceName", "")
    volumes = {
        volume["DeviceName"]: volume.get("Ebs", {}) for volume in described.get("BlockDeviceMappings", [])
    }
    return Ami(
        id=described["ImageId"],
        name=described.get("Name", ""),
        description=described.get("Description", ""),
        creation_date=described.get("CreationDate", ""),
        root_device=root_device,
        disk_gb=volumes.get(root_device, {}).get("VolumeSize", 0),
    )
