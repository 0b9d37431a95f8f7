"""A worker that costs money because its idle check is overdue or its CML is silent raises an alarm."""

import pytest

from lcm.control_plane.api.services import ControlPlane
from lcm.control_plane.commands.claim_leadership import claim_leadership, fence_for
from lcm.control_plane.commands.detect_idle import detect_idle
from lcm.control_plane.queries.explain import explain_worker
from lcm.control_plane.settings import ControlPlaneSettings
from lcm.control_plane.store.port import Fence
from lcm.domain.idle import IdlePolicy
from lcm.domain.lifecycle import RUNNING
from lcm.domain.worker import Worker
from lcm.rest.schemas import IdleCheckRequest, LeadershipClaim
from support.core import a_worker

MINUTE = 60.0
POLICY = IdlePolicy()


@pytest.fixture
async def fence(plane: ControlPlane) -> Fence:
    claim = LeadershipClaim(service="worker-controller", cluster_id="c", revision=1, instance_id="a")
    return fence_for("worker-controller", (await claim_leadership(plane.records, claim)).epoch)


@pytest.fixture
async def worker(plane: ControlPlane) -> Worker:
    now = plane.records.clock.now()
    return await plane.records.workers.add(
        a_worker(status=RUNNING, cml_ready=True, created_at=now, state_history=())
    )


async def check(plane: ControlPlane, worker: Worker, fence: Fence, *, answered: bool) -> None:
    request = IdleCheckRequest(raw_telemetry_events=[] if answered else None)
    await detect_idle(plane.records, plane.caches, plane.policies, worker.id, request, fence=fence)


async def holding(plane: ControlPlane, worker: Worker) -> set[str]:
    explanation = explain_worker(
        plane.records, plane.caches, plane.policies, await plane.records.workers.get(worker.id)
    )
    return {reason.code for reason in explanation.holding}


def overdue(plane: ControlPlane) -> int:
    assert POLICY.alarm_after is not None
    return plane.caches.idle_checks.overdue(plane.records.clock.now(), POLICY.alarm_after)


def unconfirmed(plane: ControlPlane) -> int:
    return plane.caches.idle_checks.unconfirmed(plane.records.clock.now(), POLICY.timeout)


async def test_a_worker_whose_idle_check_is_overdue_raises_an_alarm(
    plane: ControlPlane, worker: Worker, fence: Fence
) -> None:
    assert overdue(plane) == 0
    await plane.records.clock.sleep(30 * MINUTE)
    assert overdue(plane) == 0
    await plane.records.clock.sleep(1)
    assert overdue(plane) == 1
    assert "not_checked" in await holding(plane, worker)
    await check(plane, worker, fence, answered=True)
    assert overdue(plane) == 0
    assert "not_checked" not in await holding(plane, worker)


@pytest.mark.parametrize("fields", [{"cml_ready": False}, {"is_idle_detection_enabled": False}])
async def test_a_worker_that_cannot_be_paused_needs_no_idle_check(
    plane: ControlPlane, fields: dict[str, bool]
) -> None:
    running = {"status": RUNNING, "cml_ready": True, "created_at": plane.records.clock.now()}
    await plane.records.workers.add(a_worker(**{**running, **fields}))
    assert overdue(plane) == 0
    await plane.records.clock.sleep(120 * MINUTE)
    assert overdue(plane) == 0


async def test_a_worker_that_runs_only_because_its_cml_is_silent_raises_an_alarm(
    plane: ControlPlane, worker: Worker, fence: Fence
) -> None:
    for _ in range(30):
        await plane.records.clock.sleep(5 * MINUTE)
        await check(plane, worker, fence, answered=False)
    assert unconfirmed(plane) == 1
    assert "unconfirmed" in await holding(plane, worker)
    await plane.records.clock.sleep(5 * MINUTE)
    await check(plane, worker, fence, answered=True)
    assert unconfirmed(plane) == 0
    assert "unconfirmed" not in await holding(plane, worker)


def test_the_idle_settings_have_the_names_and_defaults_of_the_contract() -> None:
    fields = ControlPlaneSettings.model_fields
    defaults = {
        "worker_idle_timeout_minutes": 60,
        "worker_auto_pause_enabled": True,
        "worker_auto_pause_snooze_minutes": 60,
        "worker_activity_detection_enabled": True,
        "worker_activity_detection_interval": 1800,
        "worker_activity_events_max_stored": 10,
    }
    assert {name: fields[name].default for name in defaults} == defaults
