"""Live monitoring as a whole."""

import asyncio
import random

from lcm.cml.session import Credentials
from lcm.cml.sessions import CmlSessions
from lcm.core.health import Health
from lcm.core.ids import RandomIds
from lcm.domain.launch import InstanceId
from lcm.domain.lifecycle import RUNNING
from lcm.domain.telemetry import SampleSource
from lcm.worker_controller.monitoring.config import MonitoringConfig
from lcm.worker_controller.monitoring.service import assemble_monitoring
from lcm.worker_controller.ports import InstanceMetrics
from support.core import a_worker
from support.live import CollectingControlPlane
from support.memory_live import MemoryLiveServers, MemoryMetrics
from support.virtual_time import VirtualClock


async def test_sources_without_a_websocket_feed_are_reported_every_minute() -> None:
    clock = VirtualClock()
    plane, cloud, servers = CollectingControlPlane(clock), MemoryMetrics(["eu-west-1"]), MemoryLiveServers({})
    plane.workers = [a_worker(status=RUNNING, ec2_instance_id=InstanceId("i-1"))]
    cloud.measured[InstanceId("i-1")] = InstanceMetrics(cpu_utilization=12.0)
    monitoring = assemble_monitoring(
        MonitoringConfig(),
        control_plane=plane,
        websockets=servers,
        sessions=CmlSessions(servers, Credentials("admin", "secret"), plane, clock),
        cloud_metrics=cloud,
        clock=clock,
        ids=RandomIds(random.Random(1)),
        chance=random.Random(1),
        health=Health(clock),
    )
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(monitoring.run())
        await clock.sleep(125)
        running.cancel()
    assert [sample.source for sample in plane.samples] == [SampleSource.CLOUDWATCH] * 2
    await clock.sleep(125)
    assert len(plane.samples) == 2
