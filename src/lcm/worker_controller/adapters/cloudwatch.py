"""CloudWatch by aiobotocore: metrics of EC2 and of its agent, for many instances in one call."""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from lcm.core.clock import Clock
from lcm.core.rate_limit import Rate, Saturated, TokenBucket
from lcm.core.timeouts import timeout
from lcm.domain import errors
from lcm.domain.launch import InstanceId
from lcm.worker_controller.adapters.ec2 import Ec2Settings
from lcm.worker_controller.ports import InstanceMetrics

PERIOD_SECONDS: Final = 300
LOOK_BACK: Final = timedelta(minutes=20)
"""Values of a five-minute period come two to three minutes late."""
QUERIES_PER_CALL: Final = 500
LIMIT: Final = Rate(per_second=20, burst=50)
"""Less than half of the GetMetricData quota of an account and region: other clients share it."""
PERMIT_WITHIN_SECONDS: Final = 30.0


class _Metric(NamedTuple):
    field: str
    namespace: str
    name: str
    is_sum: bool
    """Bytes in the whole period rather than a percentage."""


_METRICS: Final = (
    _Metric("cpu_utilization", "AWS/EC2", "CPUUtilization", False),
    # From the CloudWatch agent, if the image has one and it aggregates by instance.
    _Metric("memory_utilization", "CWAgent", "mem_used_percent", False),
    _Metric("disk_utilization", "CWAgent", "disk_used_percent", False),
    _Metric("network_in_bytes", "AWS/EC2", "NetworkIn", True),
    _Metric("network_out_bytes", "AWS/EC2", "NetworkOut", True),
    # Which of the two exists depends on the instance type; the first that has data counts.
    _Metric("disk_read_bytes", "AWS/EC2", "EBSReadBytes", True),
    _Metric("disk_read_bytes", "AWS/EC2", "DiskReadBytes", True),
    _Metric("disk_write_bytes", "AWS/EC2", "EBSWriteBytes", True),
    _Metric("disk_write_bytes", "AWS/EC2", "DiskWriteBytes", True),
)
_INSTANCES_PER_CALL: Final = QUERIES_PER_CALL // len(_METRICS)

_REFUSED: Final = {
    "AccessDenied",
    "AccessDeniedException",
    "AuthFailure",
    "ExpiredToken",
    "InvalidClientTokenId",
    "OptInRequired",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "UnauthorizedOperation",
}
_THROTTLED: Final = {"RequestLimitExceeded", "Throttling", "ThrottlingException"}


class CloudWatchMetrics:
    """Use as `async with`. Creates a client for each region on entry."""

    def __init__(
        self, settings: Ec2Settings, regions: Iterable[str], clock: Clock, chance: random.Random
    ) -> None:
        self._settings = settings
        self._regions = tuple(regions)
        self._clock = clock
        self._open_clients = AsyncExitStack()
        self._clients: dict[str, Any] = {}
        self._buckets = {region: TokenBucket(LIMIT, clock, chance) for region in self._regions}
        self._call_timeout_seconds = settings.connect_timeout_seconds + settings.read_timeout_seconds + 1.0

    async def __aenter__(self) -> Self:
        session = get_session()
        for region in self._regions:
            client = session.create_client(
                "cloudwatch",
                region_name=region,
                endpoint_url=self._settings.endpoint_url,
                aws_access_key_id=self._settings.access_key_id,
                aws_secret_access_key=self._settings.secret_access_key,
                config=AioConfig(
                    connect_timeout=self._settings.connect_timeout_seconds,
                    read_timeout=self._settings.read_timeout_seconds,
                    retries={"mode": "standard", "total_max_attempts": 1},
                ),
            )
            self._clients[region] = await self._open_clients.enter_async_context(client)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open_clients.aclose()

    async def get_instance_metrics(
        self, region: str, instance_ids: Sequence[InstanceId]
    ) -> Mapping[InstanceId, InstanceMetrics]:
        if region not in self._clients:
            raise errors.RegionNotConfigured(f"region {region!r} is not in aws_region_configs; configure it")
        measured: dict[InstanceId, InstanceMetrics] = {}
        for start in range(0, len(instance_ids), _INSTANCES_PER_CALL):
            measured |= await self._measure(region, instance_ids[start : start + _INSTANCES_PER_CALL])
        return measured

    async def _measure(
        self, region: str, instance_ids: Sequence[InstanceId]
    ) -> dict[InstanceId, InstanceMetrics]:
        now = self._clock.now()
        request: dict[str, Any] = {
            "MetricDataQueries": [
                _query(f"m{position}_{number}", metric, instance_id)
                for position, instance_id in enumerate(instance_ids)
                for number, metric in enumerate(_METRICS)
            ],
            "StartTime": now - LOOK_BACK,
            "EndTime": now,
            "ScanBy": "TimestampDescending",
        }
        newest: dict[str, float] = {}
        while True:
            answer = await self._call(region, request)
            for result in answer["MetricDataResults"]:
                values = [value for value in result["Values"] if math.isfinite(value)]
                if values:
                    newest.setdefault(result["Id"], values[0])
            if not answer.get("NextToken"):
                break
            request["NextToken"] = answer["NextToken"]
        measured = {}
        for position, instance_id in enumerate(instance_ids):
            fields: dict[str, float] = {}
            for number, metric in enumerate(_METRICS):
                value = newest.get(f"m{position}_{number}")
                if value is not None:
                    fields.setdefault(metric.field, value / PERIOD_SECONDS if metric.is_sum else value)
            if fields:
                measured[instance_id] = InstanceMetrics(**fields)
        return measured

    async def _call(self, region: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        cloudwatch, bucket = self._clients[region], self._buckets[region]
        try:
            await bucket.take(urgent=False, within_seconds=PERMIT_WITHIN_SECONDS)
        except Saturated as full:
            raise errors.Throttled(f"CloudWatch {region} got no permit: {full}") from None
        try:
            async with timeout(self._call_timeout_seconds):
                answer: Mapping[str, Any] = await cloudwatch.get_metric_data(**request)
            bucket.accepted()
            return answer
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            kind: type[errors.LcmError] = errors.Unreachable
            if code in _REFUSED:
                kind = errors.CredentialsRefused
            elif code in _THROTTLED:
                kind = errors.Throttled
                bucket.refused(code)
            raise kind(f"CloudWatch {region}: {code or error}") from error
        except (BotoCoreError, ResponseParserError, TimeoutError, OSError) as error:
            raise errors.Unreachable(f"CloudWatch {region}: {str(error) or type(error).__name__}") from error


def _query(query_id: str, metric: _Metric, instance_id: InstanceId) -> dict[str, Any]:
    return {
        "Id": query_id,
        "MetricStat": {
            "Metric": {
                "Namespace": metric.namespace,
                "MetricName": metric.name,
                "Dimensions": [{"Name": "InstanceId", "Value": instance_id}],
            },
            "Period": PERIOD_SECONDS,
            "Stat": "Sum" if metric.is_sum else "Average",
        },
    }
