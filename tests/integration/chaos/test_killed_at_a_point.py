"""kill -9 at a named point of a launch, a stop, a start and a termination at once; then LCM starts again.

All four are brought to the same point before the process dies: one crash shows what four would.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from support.api import Json
from support.chaos import Life, Site, all_of, frozen
from support.processes import eventually

HOLD_SECONDS = 100
"""Longer than any test: only healing ends a delay."""

ACTIONS = {"stop": "StopInstances", "start": "StartInstances", "delete": "TerminateInstances"}
GOALS = {"launch": "running", "stop": "stopped", "start": "running", "delete": "terminated"}


@dataclass(frozen=True)
class Scene:
    """A worker for each action, ready for it."""

    life: Life
    workers: dict[str, Json]

    async def disturb(self, **fault: Any) -> None:
        """The next call of each action is struck."""
        await self.life.disturb("RunInstances", **fault)
        for action, operation in ACTIONS.items():
            instance_id = self.workers[action]["ec2_instance_id"]
            await self.life.disturb(operation, instance_id=instance_id, **fault)

    async def ask(self, *actions: str) -> None:
        for action in actions or ("launch", *ACTIONS):
            if action == "launch":
                self.workers["launch"] = await self.life.create("launch")
            else:
                await self.life.act(self.workers[action], action)

    async def calls_are(self, outcome: str) -> None:
        """Each action has reached EC2, and this is how far it got there."""

        async def have_come() -> bool:
            calls = await self.life.calls()
            return len(calls) == 4 and all(call["outcome"] == outcome for call in calls)

        await eventually(have_come)

    async def effects_are_there(self) -> None:
        """At EC2, whatever the records say."""

        async def is_launched() -> bool:
            return await self.life.instance_of(self.workers["launch"]) is not None

        def has_come_to(action: str, states: set[str]) -> Callable[[], Awaitable[bool]]:
            async def check() -> bool:
                instance = await self.life.instance_of(self.workers[action])
                return instance is not None and instance.state in states

            return check

        await eventually(
            all_of(
                [
                    is_launched,
                    has_come_to("stop", {"stopping", "stopped"}),
                    has_come_to("start", {"pending", "running"}),
                    has_come_to("delete", {"shutting-down", "terminated"}),
                ]
            )
        )

    async def is_recorded(self, action: str) -> None:
        if action == "launch":

            async def has_instance() -> bool:
                return (await self.life.see(self.workers["launch"]))["ec2_instance_id"] is not None

            await eventually(has_instance)
        else:
            await self.life.api.until(self.workers[action], GOALS[action])

    def kill(self) -> None:
        self.life.site.kill()


Point = Callable[[Scene], Awaitable[None]]


async def after_the_answer(scene: Scene) -> None:
    """The wishes are acknowledged; who knows how far each has come."""
    await scene.ask()
    scene.kill()


async def before_the_effect(scene: Scene) -> None:
    """The intents are in the records; EC2 does nothing."""
    await scene.disturb(kind="hang", count=1)
    await scene.ask()
    await scene.calls_are("hung")
    scene.kill()
    await scene.life.heal()


async def before_the_effect_which_lands_after_death(scene: Scene) -> None:
    await scene.disturb(kind="delay", seconds=HOLD_SECONDS, count=1)
    await scene.ask()
    await scene.calls_are("in progress")
    scene.kill()
    await scene.life.heal()
    await scene.effects_are_there()


async def before_the_effect_which_lands_after_the_restart(scene: Scene) -> None:
    """The next process sees a world in which nothing happened, acts, and then the old calls land too."""
    await scene.disturb(kind="delay", seconds=HOLD_SECONDS, count=1)
    await scene.ask()
    await scene.calls_are("in progress")
    scene.kill()


async def after_the_effect_with_the_reply_lost(scene: Scene) -> None:
    await scene.disturb(kind="lose_reply", count=1)
    await scene.ask()
    await scene.calls_are("reply lost")
    scene.kill()


async def after_the_effect_before_the_record(scene: Scene) -> None:
    """The replies have arrived at a process that never runs again."""
    await scene.disturb(kind="delay", seconds=HOLD_SECONDS, count=1)
    await scene.ask()
    await scene.calls_are("in progress")
    with frozen(scene.life.lcm.process.pid):
        await scene.life.heal()
        await scene.calls_are("ok")
        await scene.effects_are_there()
        scene.kill()


async def after_the_record(scene: Scene) -> None:
    await scene.ask("stop", "start", "delete")
    for action in ACTIONS:
        await scene.is_recorded(action)
    await scene.ask("launch")
    await scene.is_recorded("launch")
    scene.kill()


@pytest.mark.parametrize(
    "point",
    [
        after_the_answer,
        before_the_effect,
        before_the_effect_which_lands_after_death,
        before_the_effect_which_lands_after_the_restart,
        after_the_effect_with_the_reply_lost,
        after_the_effect_before_the_record,
        after_the_record,
    ],
    ids=lambda point: point.__name__.replace("_", "-"),
)
async def test_what_kill_9_cuts_is_finished_by_the_next_process(point: Point, site: Site) -> None:
    """A1: every step of a launch. A2: every step of a start, stop and termination."""
    async with site.life() as life:
        await life.clear()
        stop, start, delete = await life.running("stop", "start", "delete")
        await life.act(start, "stop")
        start = await life.api.until(start, "stopped")
        await life.forget_calls()
        scene = Scene(life, {"stop": stop, "start": start, "delete": delete})
        await point(scene)
    async with site.life() as life:
        for action, goal in GOALS.items():
            await life.api.until(scene.workers[action], goal)
        await life.heal()
        state = await life.prove()
    used = {worker["id"] for worker in scene.workers.values()}
    for record in state.records:
        if record.id in used:
            assert (record.launch.generation, len(state.launched_for(record.id))) == (1, 1)
