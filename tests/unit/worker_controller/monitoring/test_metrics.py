"""Sources without a WebSocket feed: three that fail on their own."""

import asyncio

import pytest

from lcm.cml.session import CmlSession, Credentials, always
from lcm.core.health import Health
from lcm.domain.errors import CredentialsRefused
from lcm.domain.launch import InstanceId
from lcm.domain.lifecycle import RUNNING, STOPPED
from lcm.domain.telemetry import Sample, SampleSource
from lcm.domain.worker import CmlHealth, CmlLicense
from lcm.worker_controller.monitoring.metrics import MetricsLoop
from lcm.worker_controller.ports import InstanceMetrics
from support.core import a_worker
from support.live import CollectingControlPlane
from support.memory_live import MemoryLiveServer, MemoryLiveServers, MemoryMetrics
from support.virtual_time import VirtualClock

I1 = InstanceId("i-1")


class Collected:
    """A loop with its three sources, and what came out of it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.plane = CollectingControlPlane(self.clock)
        self.plane.workers = [a_worker(status=RUNNING, cml_ready=True, ec2_instance_id=I1)]
        self.cloud = MemoryMetrics(["eu-west-1"])
        self.cloud.measured[I1] = InstanceMetrics(cpu_utilization=12.0, network_in_bytes=5.0)
        self.cml = MemoryLiveServer(self.clock)
        self.transport = transport = MemoryLiveServers({"h": self.cml})
        self.session = CmlSession(transport, always(Credentials("admin", "secret")), "h", None, self.clock)
        self.samples: list[Sample] = []
        self.health = Health(self.clock)
        self.loop = MetricsLoop(
            self.plane,
            self.cloud,
            lambda _: self.session,
            self.samples.append,
            interval_seconds=60.0,
            clock=self.clock,
            health=self.health,
        )


@pytest.fixture
def collected() -> Collected:
    return Collected()


HEALTH = CmlHealth(valid=True, is_licensed=True, is_enterprise=True)
LICENSE = CmlLicense(
    registration_status="COMPLETED", authorization_status="IN_COMPLIANCE", product_license="CML_Enterprise"
)


async def test_all_three_are_asked_every_minute(collected: Collected) -> None:
    async with asyncio.TaskGroup() as tasks:
        life = tasks.create_task(collected.loop.run())
        await collected.clock.sleep(185)
        life.cancel()
    assert len(collected.samples) == 3
    [sample, *_] = collected.samples
    assert (sample.source, sample.cpu_utilization, sample.network_in_bytes) == (
        SampleSource.CLOUDWATCH,
        12,
        5,
    )
    assert sample.memory_utilization is None
    [(_, health, license_), *_] = collected.plane.reported_health
    assert (health, license_) == (HEALTH, LICENSE)
    assert "/api/v0/system_stats" not in [path for _, path in collected.cml.requests]


async def test_unchanged_facts_are_not_reported(collected: Collected) -> None:
    collected.plane.workers = [
        a_worker(status=RUNNING, cml_ready=True, cml_health=HEALTH, cml_license=LICENSE)
    ]
    await collected.loop.collect()
    assert collected.plane.reported_health == []
    unhealthy = b'{"valid": false, "computes": {"c": {"hostname": "cml", "libvirt": false}}}'
    collected.transport.bodies["/api/v0/system_health"] = unhealthy
    await collected.loop.collect()
    [(_, told, license_)] = collected.plane.reported_health
    assert (told, license_) == (CmlHealth(valid=False, failing=("cml: libvirt",)), None)


async def test_cloudwatch_may_fail_alone(collected: Collected) -> None:
    """E15: no data is unknown, and stops nothing else."""
    collected.cloud.error = CredentialsRefused("no")
    await collected.loop.collect()
    assert collected.samples == []
    assert len(collected.plane.reported_health) == 1


@pytest.mark.parametrize("failing", ["/api/v0/system_health", "/api/v0/licensing"])
async def test_each_of_cmls_answers_may_fail_alone(collected: Collected, failing: str) -> None:
    collected.cml.failing = {failing: 500}
    await collected.loop.collect()
    assert len(collected.samples) == 1
    [(_, health, license_)] = collected.plane.reported_health
    assert (health is None, license_ is None) == (
        failing.endswith("health"),
        failing.endswith("licensing"),
    )


async def test_only_running_workers_are_asked_about(collected: Collected) -> None:
    collected.plane.workers = [a_worker(status=STOPPED, ec2_instance_id=I1, cml_ready=True)]
    await collected.loop.collect()
    assert (collected.samples, collected.plane.reported_health, collected.cml.requests) == ([], [], [])


async def test_one_that_cannot_wait_is_asked_about_at_once_and_alone(collected: Collected) -> None:
    [first] = collected.plane.workers
    collected.plane.workers = [first, a_worker(id="w-2", status=RUNNING, ec2_instance_id=InstanceId("i-2"))]
    collected.cloud.measured[InstanceId("i-2")] = InstanceMetrics(cpu_utilization=1.0)
    async with asyncio.TaskGroup() as tasks:
        life = tasks.create_task(collected.loop.run())
        await collected.clock.sleep(5)
        assert collected.loop.seconds_since(first.id) is None
        collected.loop.request_measurement(first.id)
        await collected.clock.sleep(1)
        assert [sample.worker_id for sample in collected.samples] == [first.id]
        assert collected.loop.seconds_since(first.id) == 1
        await collected.clock.sleep(55)  # the round comes at its time all the same
        life.cancel()
    assert len(collected.samples) == 3
