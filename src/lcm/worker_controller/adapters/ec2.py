"""EC2 by aiobotocore: one client per region, typed errors, our own timeouts."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
)
from botocore.parsers import ResponseParserError

from lcm.domain import errors
from lcm.domain.launch import DISCOVERY_TAG, WORKER_ID_TAG, InstanceId, LaunchSpec, MachineImage, WorkerId
from lcm.domain.worker import Instance

_ERRORS: Final[Mapping[str, type[errors.LcmError]]] = {
    "RequestLimitExceeded": errors.Throttled,
    "Throttling": errors.Throttled,
    "ThrottlingException": errors.Throttled,
    "InsufficientInstanceCapacity": errors.CapacityShortage,
    "InsufficientHostCapacity": errors.CapacityShortage,
    "InsufficientCapacity": errors.CapacityShortage,
    "Unsupported": errors.CapacityShortage,
    "InstanceLimitExceeded": errors.QuotaExceeded,
    "VcpuLimitExceeded": errors.QuotaExceeded,
    "VolumeLimitExceeded": errors.QuotaExceeded,
    "MaxSpotInstanceCountExceeded": errors.QuotaExceeded,
    "UnauthorizedOperation": errors.CredentialsRefused,
    "AuthFailure": errors.CredentialsRefused,
    "ExpiredToken": errors.CredentialsRefused,
    "RequestExpired": errors.CredentialsRefused,
    "InvalidClientTokenId": errors.CredentialsRefused,
    "SignatureDoesNotMatch": errors.CredentialsRefused,
    "OptInRequired": errors.CredentialsRefused,
    "IncorrectInstanceState": errors.WrongInstanceState,
    "IncorrectState": errors.WrongInstanceState,
    "IdempotentInstanceTerminated": errors.LaunchVoid,
    "IdempotentParameterMismatch": errors.TokenMismatch,
    "InvalidAMIID.NotFound": errors.LaunchRefused,
    "InvalidAMIID.Malformed": errors.LaunchRefused,
    "InvalidAMIID.Unavailable": errors.LaunchRefused,
    "InvalidSubnetID.NotFound": errors.LaunchRefused,
    "InvalidGroup.NotFound": errors.LaunchRefused,
    "InvalidGroupId.Malformed": errors.LaunchRefused,
    "InvalidSecurityGroupID.NotFound": errors.LaunchRefused,
    "InvalidKeyPair.NotFound": errors.LaunchRefused,
    "InvalidInstanceType": errors.LaunchRefused,
    "InvalidInstanceType.NotFound": errors.LaunchRefused,
    "InvalidParameterValue": errors.LaunchRefused,
    "InvalidParameterCombination": errors.LaunchRefused,
}

_NOT_FOUND: Final = {"InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"}


@dataclass(frozen=True)
class Ec2Settings:
    """How EC2 is reached. Without an endpoint and keys: AWS itself, with boto's usual credentials."""

    endpoint_url: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None
    connect_timeout_seconds: float = 3.0
    read_timeout_seconds: float = 10.0
    page_size: int = 1000


class Ec2Provider:
    """Use as `async with`. Makes a client for each region on entry: that takes too long for later."""

    def __init__(self, settings: Ec2Settings, regions: Iterable[str]) -> None:
        self._settings = settings
        self._regions = tuple(regions)
        self._open_clients = AsyncExitStack()
        self._clients: dict[str, Any] = {}
        # Longer than one attempt inside botocore, so that its own timeouts speak first.
        self._call_timeout_seconds = settings.connect_timeout_seconds + settings.read_timeout_seconds + 1.0

    async def __aenter__(self) -> Self:
        session = get_session()
        for region in self._regions:
            client = session.create_client(
                "ec2",
                region_name=region,
                endpoint_url=self._settings.endpoint_url,
                aws_access_key_id=self._settings.access_key_id,
                aws_secret_access_key=self._settings.secret_access_key,
                config=AioConfig(
                    connect_timeout=self._settings.connect_timeout_seconds,
                    read_timeout=self._settings.read_timeout_seconds,
                    # Repeating is the reconciler's business: it looks again before it does.
                    retries={"mode": "standard", "total_max_attempts": 1},
                    max_pool_connections=50,
                ),
            )
            self._clients[region] = await self._open_clients.enter_async_context(client)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open_clients.aclose()

    async def list_instances(self, region: str) -> Sequence[Instance]:
        return await self._describe(
            region,
            Filters=[{"Name": f"tag:{DISCOVERY_TAG}", "Values": ["true"]}],
            MaxResults=self._settings.page_size,
        )

    async def describe_instance(self, region: str, instance_id: InstanceId) -> Instance | None:
        try:
            found = await self._describe(region, InstanceIds=[instance_id])
        except _UnknownInstance:
            return None
        return found[0] if found else None

    async def find_instances(self, region: str, worker_id: WorkerId) -> Sequence[Instance]:
        return await self._describe(region, Filters=[{"Name": f"tag:{WORKER_ID_TAG}", "Values": [worker_id]}])

    async def launch_instance(self, spec: LaunchSpec, client_token: str) -> Instance:
        tags = [{"Key": key, "Value": value} for key, value in sorted(spec.tags.items())]
        request: dict[str, Any] = {
            "ImageId": spec.image.id,
            "InstanceType": spec.instance_type,
            "SecurityGroupIds": list(spec.security_group_ids),
            "SubnetId": spec.subnet_id,
            "MinCount": 1,
            "MaxCount": 1,
            "ClientToken": client_token,
            "TagSpecifications": [
                {"ResourceType": "instance", "Tags": tags},
                {"ResourceType": "volume", "Tags": tags},
            ],
        }
        if spec.key_name is not None:
            request["KeyName"] = spec.key_name
        async with self._ec2(spec.region) as ec2:
            answer = await ec2.run_instances(**request)
        return _instance(answer["Instances"][0], spec.region)

    async def start_instance(self, region: str, instance_id: InstanceId) -> None:
        async with self._ec2(region) as ec2:
            await ec2.start_instances(InstanceIds=[instance_id])

    async def stop_instance(self, region: str, instance_id: InstanceId) -> None:
        async with self._ec2(region) as ec2:
            await ec2.stop_instances(InstanceIds=[instance_id])

    async def terminate_instance(self, region: str, instance_id: InstanceId) -> None:
        try:
            async with self._ec2(region) as ec2:
                await ec2.terminate_instances(InstanceIds=[instance_id])
        except _UnknownInstance:
            return  # gone is what was asked for

    async def resolve_ami(self, region: str, name_pattern: str) -> MachineImage:
        async with self._ec2(region) as ec2:
            answer = await ec2.describe_images(
                Owners=["self"], Filters=[{"Name": "name", "Values": [name_pattern]}]
            )
        if not answer["Images"]:
            raise errors.ImageNotFound(
                f"no image named {name_pattern!r} in {region}; share or copy your CML image to this account"
            )
        newest = max(answer["Images"], key=lambda image: (image.get("CreationDate", ""), image["Name"]))
        return MachineImage(
            id=newest["ImageId"],
            name=newest["Name"],
            description=newest.get("Description", ""),
            creation_date=newest.get("CreationDate", ""),
        )

    async def _describe(self, region: str, **request: Any) -> list[Instance]:
        """All pages or an error: a partial list never looks like a whole one."""
        found: list[Instance] = []
        while True:
            async with self._ec2(region) as ec2:
                answer = await ec2.describe_instances(**request)
            for reservation in answer["Reservations"]:
                found += [_instance(described, region) for described in reservation["Instances"]]
            if not answer.get("NextToken"):
                return found
            request["NextToken"] = answer["NextToken"]

    @asynccontextmanager
    async def _ec2(self, region: str) -> AsyncIterator[Any]:
        """The region's client, for one call: bounded in time, with errors in our words."""
        client = self._clients.get(region)
        if client is None:
            raise errors.RegionNotConfigured(f"region {region!r} is not in aws_region_configs; configure it")
        try:
            async with asyncio.timeout(self._call_timeout_seconds):
                yield client
        except ClientError as error:
            raise _translate(error) from error
        except (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError) as error:
            raise errors.CredentialsRefused(f"EC2 {region}: {error}") from error
        except (BotoCoreError, ResponseParserError, TimeoutError, OSError) as error:
            raise errors.Unreachable(f"EC2 {region}: {str(error) or type(error).__name__}") from error


class _UnknownInstance(errors.TransientError):
    """EC2 does not know the id, or not yet."""


def _translate(error: ClientError) -> errors.LcmError:
    code = error.response.get("Error", {}).get("Code", "")
    message = error.response.get("Error", {}).get("Message", "")
    if code in _NOT_FOUND:
        return _UnknownInstance(message)
    kind = _ERRORS.get(code)
    if kind is None:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
        is_our_fault = 400 <= status < 500 and error.operation_name == "RunInstances"
        kind = errors.LaunchRefused if is_our_fault else errors.Unreachable
    return kind(f"EC2 refused {error.operation_name}: {code}: {message}")


def _instance(described: Mapping[str, Any], region: str) -> Instance:
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
        tags={tag["Key"]: tag["Value"] for tag in described.get("Tags", [])},
    )
