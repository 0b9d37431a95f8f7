"""Reacting to changes: what wakes a resource, and what happens while nobody watches."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from lcm.core.key_watch import WatchConfig
from lcm.core.kv.memory import MemoryKv
from lcm.core.loop import ReconciliationConfig
from lcm.core.results import ReconciliationResult, Requeue, Retry, Success
from support.core import (
    AT_ONCE,
    NEVER_POLLS,
    PREFIX,
    Link,
    Resources,
    Thing,
    Watcher,
    memory_kv,
    running,
)
from support.virtual_time import VirtualClock

clock = VirtualClock()


@dataclass
class Scene:
    kv: MemoryKv
    link: Link
    world: Resources
    service: Watcher

    async def change(self, thing_id: str = "a", what: str = "desired_state") -> None:
        """Somebody changes a thing, and the store hears of it."""
        self.world.change(thing_id)
        await self.kv.put(f"{PREFIX}{thing_id}/{what}", b"")

    def lose_watch(self, *also: str) -> None:
        """The watch breaks, and there is no new one until the link is mended."""
        self.link.broken = {"watch_prefix", *also}
        self.link.break_watches()


@asynccontextmanager
async def watching(*ids: str, config: ReconciliationConfig = NEVER_POLLS) -> AsyncIterator[Scene]:
    """A leader that has watched for ten quiet seconds; the diary starts there."""
    kv, world = memory_kv(clock), Resources(clock, *ids)
    link = Link(kv, clock)
    service = Watcher(world, link, config)
    async with running(kv, service):
        await clock.sleep(10)
        world.runs.clear()
        world.lists.clear()
        yield Scene(kv, link, world, service)


def test_the_defaults_are_those_of_the_contract() -> None:
    watch = WatchConfig()
    assert (watch.enabled, watch.prefix) == (True, "")
    assert (watch.reconnect_delay, watch.max_reconnect_attempts, watch.debounce_seconds) == (1.0, 10, 0.5)


# What wakes a resource.


async def test_a_change_wakes_exactly_one_resource_at_once() -> None:
    async with watching("a", "b", "c") as scene:
        await scene.change("b")
        await clock.sleep(20)
        assert scene.world.starts() == [10.0]
        assert scene.world.versions("b") == [2]


async def test_a_burst_of_changes_costs_two_runs_and_the_last_sees_the_newest() -> None:
    async with watching("a") as scene:
        for _ in range(20):
            await scene.change()
            await clock.sleep(0.01)
        await clock.sleep(20)
        assert scene.world.starts() == [10.0, 10.5]
        assert scene.world.versions("a") == [2, 21]


async def test_a_steady_stream_of_changes_costs_one_run_a_window() -> None:
    async with watching("a") as scene:
        for _ in range(50):
            await scene.change()
            await clock.sleep(0.1)
        assert len(scene.world.runs) <= 12


async def test_a_change_breaks_through_backoff() -> None:
    async with watching("a") as scene:
        scene.world.always(Retry("broken", at_least_seconds=900))
        await scene.change()
        await clock.sleep(100)
        await scene.change()
        await clock.sleep(1)
        assert scene.world.starts() == [10.0, 110.0]


async def test_a_change_during_a_run_causes_one_more_run() -> None:
    async with watching("a") as scene:
        scene.world.last_for(3)
        await scene.change()
        await clock.sleep(1)
        await scene.change()
        await scene.change()
        await clock.sleep(20)
        assert scene.world.starts() == [10.0, 13.0]
        assert scene.world.versions("a") == [2, 4]


def operator_triggers(scene: Scene) -> None:
    scene.service.loop.trigger("a")


def requeued_soon(scene: Scene) -> None:
    scene.service.loop.queue.add_after("a", 0.0)


@pytest.mark.parametrize("take_the_place", [operator_triggers, requeued_soon])
async def test_a_change_after_the_merged_run_was_brought_forward_is_not_lost(
    take_the_place: Callable[[Scene], None],
) -> None:
    async with watching("a") as scene:
        await scene.change()  # runs at once
        await clock.sleep(0.1)
        await scene.change()  # is due at the end of the window
        await clock.sleep(0.1)
        take_the_place(scene)  # runs now, instead of then
        await clock.sleep(0.1)
        await scene.change()
        await clock.sleep(20)
        assert scene.world.versions("a")[-1] == 4


async def test_a_change_after_an_early_second_look_is_not_lost() -> None:
    async with watching("a") as scene:
        scene.world.script(Requeue("look again soon", after_seconds=0.2), Success())
        await scene.change()
        await clock.sleep(0.1)
        await scene.change()  # the second look comes before the end of the window
        await clock.sleep(0.2)
        await scene.change()
        await clock.sleep(20)
        assert scene.world.versions("a")[-1] == 4


async def test_changes_that_say_nothing_new_wake_nobody() -> None:
    async with watching("a") as scene:
        scene.service.ignored = {"status"}
        await scene.change(what="status")
        await clock.sleep(20)
        assert scene.world.runs == []
        await scene.change(what="desired_state")
        await clock.sleep(1)
        assert scene.world.starts() == [30.0]


async def test_changes_elsewhere_wake_nobody() -> None:
    async with watching("a") as scene:
        await scene.kv.put("/elsewhere/a", b"")
        await scene.kv.put("/things-of-others/a", b"")
        await clock.sleep(20)
        assert scene.world.runs == []


@pytest.mark.parametrize(
    ("key", "resource_id"),
    [
        ("/things/a", "a"),
        ("/things/a/desired_state", "a"),
        ("/things/a/b/c", "a"),
        ("/things/", None),
        ("/things//desired_state", None),
        ("/elsewhere/a", None),
    ],
)
async def test_a_key_names_its_resource_right_after_the_prefix(key: str, resource_id: str | None) -> None:
    service = Watcher(Resources(clock), None)
    assert service.watch.parse_watch_key(key) == resource_id


async def test_a_deleted_resource_is_forgotten() -> None:
    async with watching("a", "b") as scene:
        scene.world.always(Retry("broken"))
        await scene.change("a")
        await scene.change("b")
        await clock.sleep(1)
        assert set(scene.service.loop.states) == {"a", "b"}
        del scene.world.things["a"]
        await scene.kv.delete(f"{PREFIX}a/desired_state")
        await clock.sleep(10)
        assert set(scene.service.loop.states) == {"b"}


async def test_a_deletion_forgives_the_failures_of_what_may_come_under_the_same_name() -> None:
    async with watching("a") as scene:
        scene.world.always(Retry("broken"))
        await scene.change("a")
        await clock.sleep(20)
        assert scene.service.loop.states["a"].retry_count == 5
        await scene.kv.delete(f"{PREFIX}a/desired_state")
        await clock.sleep(0.5)
        assert scene.service.loop.states["a"].retry_count == 1


async def test_a_resource_deleted_during_its_run_is_forgotten_afterwards() -> None:
    async with watching("a") as scene:

        async def act(_: Thing) -> ReconciliationResult:
            await clock.sleep(2)
            return Retry("it slipped away")

        scene.world.act = act
        await scene.change("a")
        await clock.sleep(1)
        del scene.world.things["a"]
        await scene.kv.delete(f"{PREFIX}a/desired_state")
        await clock.sleep(100)
        assert scene.service.loop.states == {}
        assert scene.world.starts() == [10.0]


# Polling beside the watch.


async def test_while_the_watch_holds_a_disabled_poll_stays_off() -> None:
    async with watching("a") as scene:
        await clock.sleep(300)
        assert scene.service.watch.is_watching
        assert scene.world.lists == []


async def test_while_the_watch_holds_an_enabled_poll_goes_on() -> None:
    async with watching("a", config=AT_ONCE) as scene:
        await clock.sleep(60)
        assert scene.world.lists == [30.0, 60.0]


@pytest.mark.parametrize("has_store", [True, False])
async def test_without_a_watch_polling_cannot_be_switched_off(has_store: bool) -> None:
    world, kv = Resources(clock, "a"), memory_kv(clock)
    watch = WatchConfig(prefix=PREFIX, enabled=not has_store)
    service = Watcher(world, kv if has_store else None, watch=watch)
    async with running(kv, service):
        await clock.sleep(61)
    assert world.lists == [0.0, 2.0, 30.0, 60.0]


async def test_while_the_watch_is_lost_polling_is_forced_on() -> None:
    async with watching("a") as scene:
        scene.lose_watch("list_prefix")
        await clock.sleep(85)
        assert not scene.service.watch.is_watching
        assert scene.world.lists == [30.0, 60.0, 90.0]


# Winning the watch back.


RECONNECTS = [11, 13, 16, 20, 25, 31, 38, 46, 55, 65, 125, 185, 245]
"""Lost at 10; then after 1, 2, ... 10 seconds, then once a minute."""


async def test_a_lost_watch_is_tried_again_after_1_to_10_seconds_then_once_a_minute() -> None:
    async with watching("a") as scene:
        scene.lose_watch("list_prefix")
        await clock.sleep(240)
        assert scene.link.times_of("list_prefix", since=10) == RECONNECTS


async def test_a_watch_that_breaks_as_soon_as_it_stands_is_tried_again_with_the_same_patience() -> None:
    async with watching("a") as scene:
        scene.lose_watch()  # the list still answers
        await clock.sleep(240)
        assert scene.link.times_of("watch_prefix", since=10) == RECONNECTS


async def test_a_hanging_store_does_not_hold_up_the_next_try() -> None:
    async with watching("a") as scene:
        scene.link.hanging = {"list_prefix"}
        scene.link.break_watches()
        await clock.sleep(11)
        assert scene.link.times_of("list_prefix", since=10) == [11, 11 + 2 + 2, 15 + 2 + 3]


async def test_after_a_new_watch_the_delays_start_over() -> None:
    async with watching("a") as scene:
        scene.lose_watch("list_prefix")
        await clock.sleep(20)
        scene.link.mend()
        await clock.sleep(100)
        assert scene.service.watch.is_watching
        scene.lose_watch("list_prefix")
        await clock.sleep(5)
        assert scene.link.times_of("list_prefix", since=130) == [131, 133]


async def test_after_a_new_watch_everything_is_looked_at_once() -> None:
    async with watching("a", "settled") as scene:
        scene.world.change("settled", marker="rests")
        await scene.change("settled")
        await clock.sleep(1)
        scene.world.runs.clear()
        scene.lose_watch("list_prefix")
        await clock.sleep(1.5)  # lost at 11, tried at 12
        await scene.change("a")  # nobody hears
        scene.link.mend()
        await clock.sleep(10)  # tried at 14
        assert scene.world.starts("a") == scene.world.starts("settled") == [14.0]
        assert scene.world.versions("a") == [2]
        await clock.sleep(100)
        assert scene.world.lists == [14.0]


async def test_a_new_watch_hears_changes_again() -> None:
    async with watching("a") as scene:
        scene.link.break_watches()
        await clock.sleep(5)
        scene.world.runs.clear()
        await scene.change()
        await clock.sleep(1)
        assert scene.world.starts() == [15.0]


async def test_a_new_watch_goes_on_where_the_last_one_broke() -> None:
    async with watching("a", "b") as scene:
        await scene.change("b")
        await clock.sleep(1)
        scene.lose_watch()
        del scene.world.things["b"]
        await scene.kv.delete(f"{PREFIX}b/desired_state")  # while nobody watches
        await clock.sleep(1)
        assert "b" in scene.service.loop.states
        scene.link.mend()
        await clock.sleep(10)
        assert "b" not in scene.service.loop.states


async def test_a_change_while_everything_is_looked_at_again_is_not_missed() -> None:
    async with watching("a") as scene:
        scene.world.list_seconds = 2
        scene.link.break_watches()
        await clock.sleep(2)  # lost at 10, listing from 11 to 13
        await scene.change()
        await clock.sleep(20)
        assert scene.world.versions("a")[-1] == 2


async def test_a_look_at_everything_that_fails_is_repeated() -> None:
    async with watching("a") as scene:
        scene.world.list_error = ConnectionError("control plane away")
        scene.link.break_watches()
        await clock.sleep(3)
        scene.world.list_error = None
        await clock.sleep(60)
        assert len(scene.world.starts("a")) == 1
        assert scene.service.watch.is_watching


async def test_changes_lost_to_compaction_are_found_by_a_list_and_a_new_watch() -> None:
    async with watching("a", "b") as scene:
        await scene.change("a")
        scene.kv.compact(await scene.kv.put("/elsewhere", b""))  # before the watch could show it
        await clock.sleep(5)
        assert scene.world.starts("a") == scene.world.starts("b") == [11.0]
        assert scene.world.versions("a") == [2]
        assert scene.link.times_of("list_prefix", since=10) == [11]
        await scene.change("b")
        await clock.sleep(1)
        assert scene.world.starts("b") == [11.0, 15.0]


async def test_a_store_whose_revisions_begin_lower_than_before_is_watched_from_where_it_is() -> None:
    async with watching("a", "b") as scene:
        for _ in range(20):
            await scene.change("a")
        await clock.sleep(2)
        newest = (await scene.kv.list_prefix(PREFIX)).revision
        scene.world.runs.clear()
        scene.link.restored = restored = memory_kv(clock)
        scene.link.break_watches()  # at 12, watched again at 13
        await clock.sleep(8)
        assert scene.world.starts("a") == scene.world.starts("b") == [13.0]
        scene.world.change("b")
        assert await restored.put(f"{PREFIX}b/desired_state", b"") < newest
        await clock.sleep(1)
        assert scene.world.starts("b") == [13.0, 20.0]
        assert len(scene.service.office.epochs) == 1


async def test_a_store_that_was_restored_again_and_again_is_watched_each_time() -> None:
    async with watching("a") as scene:
        for lost_at in (10, 90, 170):
            scene.world.runs.clear()
            scene.link.restored = restored = memory_kv(clock)
            scene.link.break_watches()
            await clock.sleep(70)
            for _ in range(3):
                scene.world.change("a")
                await restored.put(f"{PREFIX}a/desired_state", b"")
                await clock.sleep(1)
            assert scene.world.starts("a") == [lost_at + n for n in (1, 70, 71, 72)]
            await clock.sleep(7)


async def test_a_lost_watch_does_not_cost_the_leadership() -> None:
    async with watching("a") as scene:
        scene.lose_watch("list_prefix")
        await clock.sleep(600)
        assert scene.service.election.is_leader
        assert len(scene.service.office.epochs) == 1


async def test_a_leader_that_resigns_stops_watching() -> None:
    async with watching("a") as scene:
        scene.service.election.resign()
        await clock.sleep(0.5)
        assert not scene.service.watch.is_watching
        await scene.change()
        await clock.sleep(0.4)
        assert scene.world.runs == []
