"""Machines that EC2 gives up or never gets on with: the real reconciler over EC2's own wire protocol.

Only the wall clock is set forward, by which records and deadlines are reckoned: nobody waits forty minutes.
"""

import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import aiohttp
import pytest

from lcm.core.clock import SystemClock
from lcm.core.ids import RandomIds
from lcm.domain.lifecycle import (
    FAILED,
    PROVISIONING,
    RUNNING,
    STOPPED,
    STOPPING,
    TERMINATED,
    TERMINATING,
    WorkerStatus,
)
from lcm.domain.worker import Action
from lcm.worker_controller.adapters.ec2 import Ec2Provider, Ec2Settings
from lcm.worker_controller.ports import CmlSystemInformation
from lcm.worker_controller.settings import WorkerControllerSettings
from support.fleet import Fleet, MemoryCml
from support.patience import PATIENCE_SECONDS
from support.processes import RunningSimulator, eventually, running_simulator

LOOKS = 3
"""So many more are enough to see that a look changed nothing."""


@dataclass
class ClockSetForward(SystemClock):
    """Runs as every clock does, but shows a later time."""

    by: timedelta = field(default_factory=timedelta)

    def now(self) -> datetime:
        return super().now() + self.by


class ReadyCml(MemoryCml):
    """Whatever runs is ready."""

    async def get_system_information(self, host: str, pinned_sha256: str | None) -> CmlSystemInformation:
        return CmlSystemInformation(self.version, True, self.certificate, {})


class Scene:
    """A fleet whose EC2 is the simulator's, behind its wire."""

    def __init__(self, fleet: Fleet, clock: ClockSetForward, url: str, http: aiohttp.ClientSession) -> None:
        self.fleet = fleet
        self._clock = clock
        self._url = url
        self._http = http

    async def disturb(self, operation: str, kind: str, **fault: Any) -> None:
        await self._http.post(f"{self._url}/faults", json={"operation": operation, "kind": kind, **fault})

    async def heal(self) -> None:
        await self._http.delete(f"{self._url}/faults")

    async def forget_calls(self) -> None:
        await self._http.delete(f"{self._url}/calls")

    async def calls(self, operation: str) -> int:
        async with self._http.get(f"{self._url}/calls") as response:
            return sum(call["operation"] == operation for call in await response.json())

    def set_forward(self, minutes: float) -> None:
        self._clock.by += timedelta(minutes=minutes)

    async def pass_minutes(self, minutes: float) -> None:
        """And let the controller look a few times after that, as long as it has something to look at."""
        self.set_forward(minutes)
        before = await self.calls("DescribeInstances")

        async def has_looked() -> bool:
            return await self.calls("DescribeInstances") >= before + LOOKS

        await eventually(has_looked)


@pytest.fixture(scope="module")
def simulator() -> Iterator[RunningSimulator]:
    with running_simulator() as running:
        yield running


@pytest.fixture
async def scene(simulator: RunningSimulator) -> AsyncIterator[Scene]:
    async with begun(simulator) as scene:
        yield scene


@asynccontextmanager
async def begun(simulator: RunningSimulator) -> AsyncIterator[Scene]:
    region, endpoint, clock = simulator.info.regions[0], simulator.info.aws_endpoint, ClockSetForward()
    reached = Ec2Settings(endpoint_url=endpoint, access_key_id="x", secret_access_key="x")
    settings = WorkerControllerSettings(wait_seconds=0.05, worker_discovery_enabled=False)
    fleet = Fleet(settings, region, clock=clock, ids=RandomIds())
    fleet.cml = ReadyCml(fleet.cloud)
    async with (
        aiohttp.ClientSession(raise_for_status=True) as http,
        Ec2Provider(reached, [region.region], clock=clock, chance=random.Random(1)) as fleet.provider,
        fleet.running(),
    ):
        scene = Scene(fleet, clock, f"{endpoint}/_lcm", http)
        await scene.forget_calls()
        yield scene
        await scene.heal()


@pytest.mark.parametrize("reason", ["Server.InternalError", "Client.VolumeLimitExceeded"])
async def test_e6_a_machine_that_ec2_gives_up_is_launched_anew_and_the_reason_is_kept(
    scene: Scene, reason: str
) -> None:
    """E6: pending, then terminated."""
    await scene.disturb("RunInstances", "give_up", code=reason)
    worker = await scene.fleet.until(await scene.fleet.create(), RUNNING, PATIENCE_SECONDS)
    assert worker.launch.generation == 2
    assert any(reason in entry.reason for entry in worker.state_history)
    assert await scene.calls("RunInstances") == 2


async def test_e6_after_three_such_machines_the_worker_has_failed(scene: Scene) -> None:
    """E6: bound 3, then failed."""
    await scene.disturb("RunInstances", "give_up", code="Client.VolumeLimitExceeded", count=None)
    worker = await scene.fleet.until(await scene.fleet.create(), FAILED, PATIENCE_SECONDS)
    assert "Client.VolumeLimitExceeded" in worker.status_reason
    assert await scene.calls("RunInstances") == 3


@pytest.mark.parametrize(
    ("template", "quiet_minutes", "alarm_minutes"), [("small", 14, 16), ("metal", 39, 41)]
)
@pytest.mark.parametrize(
    ("action", "operation", "status", "state", "end"),
    [
        (Action.STOP, "StopInstances", STOPPING, "stopping", STOPPED),
        (Action.DELETE, "TerminateInstances", TERMINATING, "shutting-down", TERMINATED),
    ],
)
async def test_e7_a_machine_that_does_not_get_on_raises_an_alarm_in_time_and_nothing_is_forced(
    scene: Scene,
    template: str,
    quiet_minutes: int,
    alarm_minutes: int,
    action: Action,
    operation: str,
    status: WorkerStatus,
    state: str,
    end: WorkerStatus,
) -> None:
    """E7: per-type deadline, then alarm."""
    fleet = scene.fleet
    worker = await fleet.until(await fleet.create("lab", template), RUNNING, PATIENCE_SECONDS)
    await scene.disturb(operation, "stall")
    await fleet.ask(worker, action)
    await fleet.until(worker, status, PATIENCE_SECONDS)
    await scene.pass_minutes(quiet_minutes)
    assert not fleet.leader.stats.stuck
    await scene.pass_minutes(alarm_minutes - quiet_minutes)

    async def is_told() -> bool:
        return fleet.leader.stats.stuck == {worker.id}

    await eventually(is_told)
    stuck = await fleet.get(worker)
    assert stuck.status is status
    assert f"EC2 reports {state} for more than" in stuck.status_reason
    await scene.pass_minutes(60)
    assert (await fleet.get(worker)).version == stuck.version
    assert await scene.calls(operation) == 1
    await scene.heal()
    await fleet.until(worker, end, PATIENCE_SECONDS)


async def test_e7_a_machine_that_stays_pending_is_called_failed_in_time_and_nothing_is_forced(
    scene: Scene,
) -> None:
    """E7: stuck pending; the template sets no time of its own."""
    fleet = scene.fleet
    await scene.disturb("RunInstances", "stall")
    worker = await fleet.until(await fleet.create("lab", "small"), PROVISIONING, PATIENCE_SECONDS)
    minutes = fleet.settings.provisioning_timeout_seconds / 60
    await scene.pass_minutes(minutes - 1)
    assert (await fleet.get(worker)).status is PROVISIONING
    scene.set_forward(2)
    failed = await fleet.until(worker, FAILED, PATIENCE_SECONDS)
    assert f"{failed.instance.id} still exists and costs money" in failed.status_reason
    assert (await scene.calls("RunInstances"), await scene.calls("TerminateInstances")) == (1, 0)
