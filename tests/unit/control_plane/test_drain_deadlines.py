"""How long a drain waits for people is what the worker's template says, or else the fleet's setting."""

from dataclasses import replace as with_fields
from datetime import timedelta

import pytest

from lcm.control_plane.api.services import ControlPlane
from lcm.control_plane.commands.claim_leadership import claim_leadership, fence_for
from lcm.control_plane.commands.detect_idle import detect_idle
from lcm.control_plane.commands.drain_worker import drain_worker, scale_down_worker
from lcm.domain.launch import WorkerId
from lcm.domain.lifecycle import RUNNING
from lcm.domain.worker import Worker
from lcm.rest.schemas import IdleCheckRequest, LeadershipClaim
from support.control_plane import ONE_REGION
from support.core import a_worker

HOURS: dict[str, float | None] = {"quick": 0.5, "patient": 9.0, "silent": None}
"""By template; another one is deleted. Where none says a time, the configuration decides."""
CONFIGURED = timedelta(hours=2)
NAMES = [*HOURS, "deleted"]


@pytest.fixture
async def plane(plane: ControlPlane) -> ControlPlane:
    size = {
        "description": "A handful of light nodes.",
        "instance_type": "t3.small",
        "cpu": 2,
        "memory_gb": 2,
        "disk_gb": 50,
        "max_nodes": 5,
        "usd_per_hour": 0.0208,
    }
    templates = [
        {**size, "name": name, **({} if hours is None else {"drain_timeout_hours": hours})}
        for name, hours in HOURS.items()
    ]
    assert await plane.records.templates.seed({"worker_templates": templates}) == 3
    now = plane.records.clock.now()
    for name in NAMES:
        worker = a_worker(id=WorkerId(name), name=name, template_name=name, status=RUNNING, created_at=now)
        await plane.records.workers.add(worker)
    return with_fields(plane, policies=with_fields(ONE_REGION, drain_timeout=CONFIGURED))


def waits(worker: Worker) -> timedelta:
    assert worker.pause.since is not None
    assert worker.pause.until is not None
    return worker.pause.until - worker.pause.since


EXPECTED = [timedelta(minutes=30), timedelta(hours=9), CONFIGURED, CONFIGURED]


async def test_a_drain_waits_as_long_as_the_template_says(plane: ControlPlane) -> None:
    drained = [
        await drain_worker(plane.records, plane.policies, name, by="ada", reason="drain requested")
        for name in NAMES
    ]
    assert [waits(worker) for worker in drained] == EXPECTED


async def test_a_scale_down_waits_as_long_as_the_template_says(plane: ControlPlane) -> None:
    claim = LeadershipClaim(service="worker-controller", cluster_id="c", revision=1, instance_id="a")
    fence = fence_for("worker-controller", (await claim_leadership(plane.records, claim)).epoch)
    idle = IdleCheckRequest(raw_telemetry_events=[], force_check=True, suppress_auto_pause=True)
    await plane.records.clock.sleep(61 * 60)
    for name in NAMES:
        await detect_idle(plane.records, plane.caches, plane.policies, name, idle, fence=fence)
    await plane.records.clock.sleep(15)
    for name in NAMES:
        await detect_idle(plane.records, plane.caches, plane.policies, name, idle, fence=fence)
    drained = [
        await scale_down_worker(
            plane.records, plane.caches, plane.policies, name, by="worker-controller", fence=fence
        )
        for name in NAMES
    ]
    assert [waits(worker) for worker in drained] == EXPECTED
