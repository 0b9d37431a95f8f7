"""A deadline that passes between a decision and its effect: nothing is changed at EC2 or CML any more.

The process is stopped there, as by the operating system or a paused virtual machine. The next leadership,
which observes anew, does what is still due, once.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from lcm.control_plane.commands.license_worker import request_deregistration, request_license
from lcm.control_plane.commands.request_action import request_tags
from lcm.core.timeouts import timeout
from lcm.domain.errors import Unreachable
from lcm.domain.launch import WorkerId
from lcm.domain.lifecycle import RUNNING, STARTING, STOPPED, STOPPING, TERMINATED, TERMINATING, WorkerStatus
from lcm.domain.worker import Action, Worker
from support.fleet import Fleet, MemoryMonitors
from support.memory_cloud import Moment
from support.memory_licensing import TOKEN
from support.virtual_time import VirtualClock

LONGER_THAN_A_LEASE = 20.0


class StoppableClock(VirtualClock):
    """Of a process that can be stopped: time goes on, and nothing in it notices before it runs again."""

    def __init__(self) -> None:
        super().__init__()
        self._stopped_seconds = 0.0
        running = self.monotonic
        self.monotonic = lambda: running() + self._stopped_seconds

    def stop_process(self) -> None:
        self._stopped_seconds += LONGER_THAN_A_LEASE


class Measuring(MemoryMonitors):
    """Asked in every pass over a running worker, before its tags are put right."""

    def __init__(self, scene: "Scene") -> None:
        super().__init__()
        self._scene = scene

    def seconds_since_measurement(self, worker_id: WorkerId) -> float | None:
        self._scene.on_call("seconds_since_measurement")
        return super().seconds_since_measurement(worker_id)


class Scene:
    """A fleet whose controller is stopped once, right after the call that a test names."""

    def __init__(self) -> None:
        self.clock = StoppableClock()
        self.fleet = Fleet(clock=self.clock)
        self.fleet.monitors = Measuring(self)
        self.stopped = asyncio.Event()
        self.effects_before: list[str] = []
        self._awaited: tuple[str, WorkerStatus | None] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Scene"]:
        async with self.fleet.running():
            self.fleet.ports[0].after = self.on_call
            yield self

    def stop_after(self, call: str, status: WorkerStatus | None = None) -> None:
        """Once it is answered; if a status is given, once the record has it."""
        self._awaited = (call, status)
        self.effects_before = self.effects()

    def on_call(self, call: str) -> None:
        if self._awaited is None or call != self._awaited[0]:
            return
        if self._awaited[1] in (None, self.fleet.commits[-1].status):
            self._awaited = None
            self.clock.stop_process()
            self.stopped.set()

    def effects(self) -> list[str]:
        """Everything that changed something outside of LCM."""
        tagging = [call.operation for call in self.fleet.cloud.calls if "tag_" in call.operation]
        return [*self.fleet.effects(), *tagging, *(call.split()[0] for call in self.fleet.licensing.calls)]

    async def effects_of_the_old_lead(self) -> Sequence[str]:
        """Made after the stop, by who could not know yet that its time was over."""
        async with timeout(600):
            await self.stopped.wait()
            while self.fleet.controllers[0].election.is_leader:
                await self.clock.sleep(0.01)
        return self.effects()[len(self.effects_before) :]

    async def new_effects(self, seconds: float = 300) -> Sequence[str]:
        await self.clock.sleep(seconds)
        assert self.fleet.ports[0].epoch == 2
        return self.effects()[len(self.effects_before) :]

    async def stopped_worker(self) -> Worker:
        worker = await self.fleet.running_worker()
        await self.fleet.ask(worker, Action.STOP)
        return await self.fleet.until(worker, STOPPED)

    async def ready_worker(self) -> Worker:
        worker = await self.fleet.running_worker()
        await self.clock.sleep(60)
        return worker


async def test_nothing_is_launched_when_the_deadline_passes_after_the_launch_intent() -> None:
    async with Scene().running() as scene:
        scene.stop_after("record_launch_intent")
        worker = await scene.fleet.create()
        assert await scene.effects_of_the_old_lead() == []
        await scene.fleet.until(worker, RUNNING)
        assert await scene.new_effects() == ["launch_instance"]


async def test_a_launch_is_not_repeated_when_the_deadline_passes_after_the_verification() -> None:
    async with Scene().running() as scene:

        async def lose_it(moment: Moment, operation: str, subject: str) -> None:
            if (moment, operation) == ("before", "launch_instance"):
                scene.fleet.cloud.interfere = None
                scene.stop_after("verify")
                raise Unreachable("EC2: no answer")

        scene.fleet.cloud.interfere = lose_it
        worker = await scene.fleet.create()
        assert await scene.effects_of_the_old_lead() == []
        await scene.fleet.until(worker, RUNNING)
        assert await scene.new_effects() == ["launch_instance"]


async def test_nothing_is_started_when_the_deadline_passes_after_the_decision() -> None:
    async with Scene().running() as scene:
        worker = await scene.stopped_worker()
        scene.stop_after("update_status", STARTING)
        await scene.fleet.ask(worker, Action.START)
        assert await scene.effects_of_the_old_lead() == []
        await scene.fleet.until(worker, RUNNING)
        assert await scene.new_effects() == ["start_instance"]


@pytest.mark.parametrize(
    ("action", "decided", "done", "effect"),
    [
        (Action.STOP, STOPPING, STOPPED, "stop_instance"),
        (Action.DELETE, TERMINATING, TERMINATED, "terminate_instance"),
    ],
)
async def test_nothing_is_stopped_or_terminated_when_the_deadline_passes_after_the_decision(
    action: Action, decided: WorkerStatus, done: WorkerStatus, effect: str
) -> None:
    async with Scene().running() as scene:
        worker = await scene.ready_worker()
        scene.stop_after("update_status", decided)
        await scene.fleet.ask(worker, action)
        assert await scene.effects_of_the_old_lead() == []
        await scene.fleet.until(worker, done)
        assert await scene.new_effects() == [effect]


@pytest.mark.parametrize(
    ("before", "after", "effect"),
    [({}, {"team": "a"}, "tag_instance"), ({"team": "a"}, {}, "untag_instance")],
)
async def test_no_tag_is_changed_when_the_deadline_passes_before_it(
    before: dict[str, str], after: dict[str, str], effect: str
) -> None:
    async with Scene().running() as scene:
        worker = await scene.ready_worker()
        await request_tags(scene.fleet.plane.records, worker.id, before, by="ann")
        await scene.clock.sleep(60)
        scene.stop_after("seconds_since_measurement")
        await request_tags(scene.fleet.plane.records, worker.id, after, by="ann")
        assert await scene.effects_of_the_old_lead() == []
        assert await scene.new_effects() == [effect]


async def test_no_license_is_registered_when_the_deadline_passes_after_its_token_was_read() -> None:
    async with Scene().running() as scene:
        worker = await scene.ready_worker()
        scene.stop_after("get_license_token")
        await request_license(scene.fleet.plane.records, worker.id, TOKEN)
        assert await scene.effects_of_the_old_lead() == []
        assert await scene.new_effects(seconds=60) == ["register"]


async def test_no_license_is_deregistered_when_the_deadline_passes_after_the_decision() -> None:
    async with Scene().running() as scene:
        worker = await scene.ready_worker()
        await request_license(scene.fleet.plane.records, worker.id, TOKEN)
        await scene.clock.sleep(60)
        scene.stop_after("report_license")
        await request_deregistration(scene.fleet.plane.records, worker.id)
        assert await scene.effects_of_the_old_lead() == []
        assert await scene.new_effects(seconds=60) == ["deregister"]
