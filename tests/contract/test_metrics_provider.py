"""What every source of instance metrics promises: the one in memory and CloudWatch's wire protocol alike."""

import random
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any, Protocol

import pytest
from aiobotocore.session import get_session
from moto.server import ThreadedMotoServer

from lcm.core.clock import SystemClock
from lcm.domain.errors import RegionNotConfigured, Unreachable
from lcm.domain.launch import InstanceId
from lcm.worker_controller.adapters.cloudwatch import CloudWatchMetrics
from lcm.worker_controller.adapters.ec2 import Ec2Settings
from lcm.worker_controller.ports import InstanceMetrics, MetricsProvider
from support.memory_live import MemoryMetrics

REGION = "eu-west-1"
ONE, OTHER = InstanceId("i-0000000000000001"), InstanceId("i-0000000000000002")


class Source(Protocol):
    provider: MetricsProvider

    async def measure(self, instance_id: InstanceId, metrics: InstanceMetrics) -> None: ...


class MemorySource:
    def __init__(self) -> None:
        self.memory = MemoryMetrics([REGION])
        self.provider: MetricsProvider = self.memory

    async def measure(self, instance_id: InstanceId, metrics: InstanceMetrics) -> None:
        self.memory.measured[instance_id] = metrics


class CloudWatchSource:
    """Puts data the way EC2 and the agent do: bytes per period, percentages as they are."""

    def __init__(self, provider: CloudWatchMetrics, client: Any) -> None:
        self.provider: MetricsProvider = provider
        self._client = client

    async def measure(self, instance_id: InstanceId, metrics: InstanceMetrics) -> None:
        await self._put(instance_id, "AWS/EC2", "CPUUtilization", metrics.cpu_utilization)
        await self._put(instance_id, "CWAgent", "mem_used_percent", metrics.memory_utilization)
        await self._put(instance_id, "CWAgent", "disk_used_percent", metrics.disk_utilization)
        for name, value in (
            ("NetworkIn", metrics.network_in_bytes),
            ("NetworkOut", metrics.network_out_bytes),
            ("EBSReadBytes", metrics.disk_read_bytes),
            ("DiskWriteBytes", metrics.disk_write_bytes),
        ):
            await self._put(instance_id, "AWS/EC2", name, value * 300 if value is not None else None)

    async def _put(self, instance_id: InstanceId, namespace: str, name: str, value: float | None) -> None:
        if value is None:
            return
        await self._client.put_metric_data(
            Namespace=namespace,
            MetricData=[
                {
                    "MetricName": name,
                    "Value": value,
                    "Timestamp": SystemClock().now() - timedelta(minutes=6),
                    "Dimensions": [{"Name": "InstanceId", "Value": instance_id}],
                }
            ],
        )


@pytest.fixture(scope="module")
def moto_url() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["memory", "cloudwatch"])
async def source(request: pytest.FixtureRequest) -> AsyncIterator[Source]:
    if request.param == "memory":
        yield MemorySource()
        return
    url = request.getfixturevalue("moto_url")
    settings = Ec2Settings(endpoint_url=url, access_key_id="x", secret_access_key="x")
    async with (
        CloudWatchMetrics(settings, [REGION], SystemClock(), random.Random(1)) as provider,
        get_session().create_client(
            "cloudwatch",
            region_name=REGION,
            endpoint_url=url,
            aws_access_key_id="x",
            aws_secret_access_key="x",
        ) as client,
    ):
        yield CloudWatchSource(provider, client)


async def test_what_was_measured_is_found_by_instance(source: Source) -> None:
    told = InstanceMetrics(
        cpu_utilization=12.5,
        memory_utilization=40.0,
        disk_utilization=55.0,
        network_in_bytes=1000.0,
        network_out_bytes=2000.0,
        disk_read_bytes=30.0,
        disk_write_bytes=40.0,
    )
    await source.measure(ONE, told)
    await source.measure(OTHER, InstanceMetrics(cpu_utilization=3.0))
    measured = await source.provider.get_instance_metrics(REGION, [ONE, OTHER])
    assert measured == {ONE: told, OTHER: InstanceMetrics(cpu_utilization=3.0)}


async def test_no_data_is_unknown_never_zero(source: Source) -> None:
    """E15: CloudWatch is empty or late."""
    nobody = InstanceId("i-00000000000000ff")
    assert await source.provider.get_instance_metrics(REGION, [nobody]) == {}
    assert await source.provider.get_instance_metrics(REGION, []) == {}


async def test_hundreds_of_instances_are_asked_for_in_batches(source: Source) -> None:
    instances = [InstanceId(f"i-1000000000000{n:03}") for n in range(120)]
    for instance_id in (instances[0], instances[-1]):
        await source.measure(instance_id, InstanceMetrics(cpu_utilization=9.0))
    measured = await source.provider.get_instance_metrics(REGION, instances)
    assert set(measured) == {instances[0], instances[-1]}


async def test_a_region_that_is_not_configured_is_refused(source: Source) -> None:
    with pytest.raises(RegionNotConfigured):
        await source.provider.get_instance_metrics("mars-north-1", [ONE])


async def test_nobody_there_is_unreachable() -> None:
    settings = Ec2Settings(endpoint_url="http://127.0.0.1:9", access_key_id="x", secret_access_key="x")
    async with CloudWatchMetrics(settings, [REGION], SystemClock(), random.Random(1)) as provider:
        with pytest.raises(Unreachable):
            await provider.get_instance_metrics(REGION, [ONE])
