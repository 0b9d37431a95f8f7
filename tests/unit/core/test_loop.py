"""The reconcile loop: when a resource is looked at, how many at once, and what failures cost."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest
from structlog.typing import EventDict

from lcm.core.loop import ReconciliationConfig, ResourceStatus
from lcm.core.results import ReconciliationResult, Requeue, Retry, Skip, Success
from lcm.core.timeouts import timeout
from support.core import (
    AT_ONCE,
    NEVER_POLLS,
    Polling,
    ResourceReconciler,
    Resources,
    Thing,
    first_error,
    running,
)
from support.virtual_time import BEGINNING, VirtualClock

clock = VirtualClock()


def test_the_defaults_are_those_of_the_contract() -> None:
    config = ReconciliationConfig()
    assert (config.interval_seconds, config.initial_delay, config.polling_enabled) == (30.0, 5.0, True)
    assert config.max_concurrent == 10
    assert (config.backoff_base, config.backoff_multiplier, config.max_backoff) == (1.0, 2.0, 60.0)
    assert config.metric_prefix == "reconciliation"


# When a resource is looked at.


async def test_the_first_poll_waits_for_the_initial_delay_and_then_comes_every_interval() -> None:
    world = Resources(clock, "a")
    async with running(Polling(world, ReconciliationConfig())):
        await clock.sleep(70)
    assert world.starts("a") == [5.0, 35.0, 65.0]


@pytest.mark.parametrize(
    ("result", "looks"),
    [
        (Success(), [0, 30, 60, 90]),
        (Skip("nothing to do"), [0, 30, 60, 90]),
        (Requeue("later"), [0, 30, 60, 90]),
        (Requeue("soon", after_seconds=40), [0, 40, 80]),
        (Requeue("soon", after_seconds=25), [0, 25, 50, 75, 100]),
        (Retry("broken"), [0, 1, 3, 7, 15, 31, 63]),
        (Retry("no capacity", at_least_seconds=45), [0, 45, 90]),
        (Retry("asked to wait a little", at_least_seconds=3), [0, 3, 6, 10, 18, 34, 66]),
    ],
)
async def test_a_result_decides_the_next_look(result: ReconciliationResult, looks: list[float]) -> None:
    world = Resources(clock, "a")
    world.always(result)
    async with running(Polling(world)):
        await clock.sleep(101)
    assert world.starts("a") == looks


async def test_failures_wait_1_2_4_8_16_32_60_60_seconds_whatever_the_poll_says() -> None:
    world = Resources(clock, "a")
    world.always(Retry("broken"))
    async with running(Polling(world)):
        await clock.sleep(244)
    starts = world.starts("a")
    assert [b - a for a, b in pairwise(starts)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]


async def test_an_exception_is_a_retry_with_backoff_and_does_not_kill_the_loop() -> None:
    world = Resources(clock, "a", "b")

    async def act(thing: Thing) -> ReconciliationResult:
        if thing.id == "a":
            raise RuntimeError("a bug")
        return Success()

    world.act = act
    service = Polling(world)
    async with running(service):
        await clock.sleep(31.5)
        assert service.loop.states["a"].status is ResourceStatus.FAILED
        assert service.loop.states["a"].retry_count == 6
    assert world.starts("a") == [0, 1, 3, 7, 15, 31]
    assert world.starts("b") == [0, 30]


async def test_a_failing_fetch_is_a_retry_too() -> None:
    class Forgetful(ResourceReconciler):
        async def fetch_single_resource(self, resource_id: str) -> Thing | None:
            if clock.monotonic() < 3:
                raise ConnectionError("no answer")
            return await super().fetch_single_resource(resource_id)

    world = Resources(clock, "a")
    service = Polling(world, NEVER_POLLS, Forgetful)
    async with running(service):
        service.loop.trigger("a")
        await clock.sleep(10)
    assert world.starts("a") == [3.0]  # after tries at 0 and 1


@pytest.mark.parametrize("forgiving", [Success(), Skip("fine")])
async def test_to_converge_forgives_past_failures(forgiving: ReconciliationResult) -> None:
    world = Resources(clock, "a")
    world.script(Retry("1"), Retry("2"), Retry("3"), forgiving, Retry("again"))
    service = Polling(world, NEVER_POLLS)
    async with running(service):
        service.loop.trigger("a")
        await clock.sleep(8)
        assert service.loop.states["a"].retry_count == 0
        service.loop.trigger("a")
        await clock.sleep(2)
    assert world.starts("a")[:4] == [0, 1, 3, 7]
    assert world.starts("a")[4:6] == [8, 9]


async def test_to_wait_forgives_no_failure_of_the_last_minute() -> None:
    """I18: who is answered every second time only asks less and less often."""
    world = Resources(clock, "a")
    answers: list[ReconciliationResult] = [Retry("no answer"), Requeue("not yet", after_seconds=1)]
    world.script(*answers * 5)
    service = Polling(world, NEVER_POLLS)
    async with running(service):
        service.loop.trigger("a")
        await clock.sleep(60)
    assert world.starts("a") == [0, 1, 2, 4, 5, 9, 10, 18, 19, 35, 36]


async def test_a_minute_of_waiting_without_a_failure_forgives_past_failures() -> None:
    world = Resources(clock, "a")
    world.script(Retry("1"), Retry("2"), *[Requeue("not yet", after_seconds=10)] * 7, Retry("again"))
    service = Polling(world, NEVER_POLLS)
    async with running(service):
        service.loop.trigger("a")
        await clock.sleep(75)
    assert world.starts("a")[-3:] == [63, 73, 74]


async def test_a_resources_state_tells_where_the_loop_stands() -> None:
    world = Resources(clock, "a")
    world.script(Retry("1"), Retry("2"))
    service = Polling(world)
    async with running(service):
        await clock.sleep(2)
        failed = service.loop.states["a"]
        assert (failed.status, failed.retry_count) == (ResourceStatus.FAILED, 2)
        assert failed.next_retry_at is not None
        assert (failed.next_retry_at - BEGINNING).total_seconds() == 3
        world.last_for(5)
        await clock.sleep(2)
        assert service.loop.states["a"].status is ResourceStatus.IN_PROGRESS
        await clock.sleep(5)
        done = service.loop.states["a"]
        assert (done.status, done.retry_count, done.next_retry_at) == (ResourceStatus.SUCCESS, 0, None)
        assert done.last_reconciled_at is not None
        assert (done.last_reconciled_at - BEGINNING).total_seconds() == 8
    assert service.loop.last_reconciliation == BEGINNING


async def test_a_poll_leaves_alone_what_is_in_progress() -> None:
    world = Resources(clock, "a")
    world.last_for(45)
    async with running(Polling(world)):
        await clock.sleep(100)
    assert world.starts("a") == [0, 60]


async def test_without_polling_nothing_is_listed() -> None:
    world = Resources(clock, "a")
    async with running(Polling(world, NEVER_POLLS)):
        await clock.sleep(100)
    assert world.lists == []


async def test_a_full_queue_leaves_nobody_out_for_ever() -> None:
    world = Resources(clock, "a", "b", "c")
    async with running(Polling(world, replace(AT_ONCE, queue_capacity=1))):
        await clock.sleep(100)
    assert [len(world.starts(name)) for name in "abc"] == [2, 1, 1]


async def test_who_found_the_queue_full_is_looked_for_even_without_polling() -> None:
    world = Resources(clock, "a", "b")
    service = Polling(world, replace(NEVER_POLLS, queue_capacity=1))
    async with running(service):
        service.loop.trigger("a")
        service.loop.trigger("b")
        assert service.loop.queue.dropped == 1
        await clock.sleep(100)
    assert world.starts("b") != []


# Triggers.


async def test_a_trigger_runs_at_once_whatever_the_backoff_says() -> None:
    world = Resources(clock, "a")
    world.always(Retry("broken"))
    service = Polling(world)
    async with running(service):
        await clock.sleep(20)
        service.loop.trigger("a")
        await clock.sleep(1)
    assert world.starts("a") == [0, 1, 3, 7, 15, 20]


async def test_a_trigger_during_a_run_causes_one_more_run_with_the_newest_version() -> None:
    world = Resources(clock, "a")
    world.last_for(2)
    service = Polling(world)
    async with running(service):
        await clock.sleep(1)
        for _ in range(3):
            world.change("a")
            service.loop.trigger("a")
        await clock.sleep(10)
    assert world.starts("a") == [0, 2]
    assert world.versions("a") == [1, 4]


async def test_a_triggered_resource_that_is_gone_is_forgotten() -> None:
    world = Resources(clock, "a")
    service = Polling(world, NEVER_POLLS)
    async with running(service):
        service.loop.trigger("a")
        service.loop.trigger("never there")
        await clock.sleep(1)
        assert set(service.loop.states) == {"a"}
        del world.things["a"]
        service.loop.trigger("a")
        await clock.sleep(1)
        assert service.loop.states == {}
    assert world.starts() == [0.0]


# Settled resources.


async def test_a_poll_skips_a_settled_resource_until_it_changes() -> None:
    world = Resources(clock, "a")
    world.change("a", marker="rests at 2")
    async with running(Polling(world)):
        await clock.sleep(65)
        assert world.starts("a") == [0]
        world.change("a", marker="rests at 3")
        await clock.sleep(90)
    assert world.starts("a") == [0, 90]


async def test_what_changes_during_a_look_is_looked_at_again() -> None:
    """The look may have begun before the change: what it found says nothing about it."""
    world = Resources(clock, "a")
    world.change("a", marker="as it was")

    async def act(_: Thing) -> ReconciliationResult:
        if clock.monotonic() == 0:
            world.change("a", marker="as it is now")
        return Success()

    world.act = act
    async with running(Polling(world)):
        await clock.sleep(100)
    assert world.starts("a") == [0, 30]


async def test_a_settled_resource_is_looked_at_when_its_time_has_come() -> None:
    class Punctual(ResourceReconciler):
        def is_due(self, resource: Thing) -> bool:
            return clock.monotonic() == 60

    world = Resources(clock, "a")
    world.change("a", marker="rests")
    async with running(Polling(world, reconciler=Punctual)):
        await clock.sleep(100)
    assert world.starts("a") == [0, 60]


async def test_a_look_at_everything_includes_the_settled_and_the_backed_off() -> None:
    world = Resources(clock, "settled", "failing")
    world.change("settled", marker="rests")

    async def act(thing: Thing) -> ReconciliationResult:
        return Success() if thing.id == "settled" else Retry("broken")

    world.act = act
    service = Polling(world)
    async with running(service):
        await clock.sleep(20)
        assert await service.loop.resync() == 0
        assert await service.loop.resync(everything=True) == 2
        await clock.sleep(1)
    assert world.starts("settled") == [0, 20]
    assert world.starts("failing") == [0, 1, 3, 7, 15, 20]


@pytest.mark.parametrize("result", [Retry("broken", at_least_seconds=29), Requeue("not yet")])
async def test_a_resource_that_did_not_converge_is_not_settled(result: ReconciliationResult) -> None:
    world = Resources(clock, "a")
    world.change("a", marker="rests")
    world.script(result)
    async with running(Polling(world)):
        await clock.sleep(31)
    assert len(world.starts("a")) == 2


# Copies from a list may be old.


async def test_a_run_asked_for_during_a_sweep_sees_the_newest_version() -> None:
    world = Resources(clock, "a")
    service = Polling(world, NEVER_POLLS)
    async with running(service):
        world.last_for(2)
        service.loop.trigger("a")
        await clock.sleep(1)
        world.list_seconds = 0.5
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(service.loop.resync(everything=True))  # lists version 1
            await clock.sleep(0.25)
            world.change("a")
            service.loop.trigger("a")
        await clock.sleep(10)
    assert world.versions("a")[-1] == 2


@pytest.mark.parametrize("everything", [True, False])
async def test_a_copy_older_than_the_last_look_is_not_used(everything: bool) -> None:
    world = Resources(clock, "a")
    service = Polling(world, NEVER_POLLS)
    async with running(service):
        world.list_seconds = 2
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(service.loop.resync(everything=everything))  # lists version 1
            await clock.sleep(1)
            world.change("a")
            service.loop.trigger("a")  # looks at version 2, and is done with it
        await clock.sleep(10)
    assert set(world.versions("a")) == {2}


@pytest.mark.parametrize("everything", [True, False])
async def test_a_copy_from_before_the_end_of_the_last_look_is_not_used(everything: bool) -> None:
    world = Resources(clock, "a")
    service = Polling(world, NEVER_POLLS)

    async def change_it(_: Thing) -> ReconciliationResult:
        await clock.sleep(2)
        world.change("a")
        world.always(Success())
        return Success()

    world.act = change_it
    async with running(service):
        service.loop.trigger("a")
        await clock.sleep(1)
        world.list_seconds = 2
        await service.loop.resync(everything=everything)  # lists version 1
        await clock.sleep(10)
    assert world.versions("a") == [1, 2]


@pytest.mark.parametrize("everything", [True, False])
async def test_what_was_forgotten_since_the_list_was_asked_for_is_not_looked_at_again(
    everything: bool,
) -> None:
    world = Resources(clock, "a")
    service = Polling(world, NEVER_POLLS)
    async with running(service):
        world.list_seconds = 2
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(service.loop.resync(everything=everything))
            await clock.sleep(1)
            service.loop.forget("a")
        await clock.sleep(10)
        assert (world.runs, service.loop.states) == ([], {})
        await service.loop.resync(everything=everything)  # and if it is still there, it is found again
        await clock.sleep(10)
    assert len(world.runs) == 1


# How many at once.


@pytest.mark.parametrize("seconds", [0.001, 0.003, 0.004])
async def test_quick_reconciles_never_exceed_max_concurrent(seconds: float) -> None:
    world = Resources(clock, *(f"t{n}" for n in range(200)))
    world.last_for(seconds)
    async with running(Polling(world)):
        await clock.sleep(1)
    assert world.most_at_once == 10
    assert len(world.runs) == 200
    assert world.starts()[-1] == pytest.approx(19 * seconds)


@pytest.mark.parametrize("max_concurrent", [1, 10])
async def test_one_hanging_resource_does_not_delay_another(max_concurrent: int) -> None:
    world = Resources(clock, "hanging", "other")
    world.last_for(lambda thing: 1_000 if thing.id == "hanging" else 0)
    config = ReconciliationConfig(initial_delay=0, max_concurrent=max_concurrent)
    async with running(Polling(world, config)):
        await clock.sleep(65)
    assert world.starts("hanging") == [0]
    assert [start // 30 for start in world.starts("other")] == [0, 1, 2]
    assert all(start % 30 <= 0.010 for start in world.starts("other"))


@pytest.mark.parametrize("moment", [0.05, 0.5, 1.9])
async def test_fifty_hanging_resources_of_a_thousand_do_not_delay_a_hot_one(moment: float) -> None:
    hot = "t0001"
    world = Resources(clock, *(f"t{n:04}" for n in range(1_000)))
    world.last_for(lambda thing: 2 if int(thing.id[1:]) % 20 == 0 else 0)
    service = Polling(world)
    async with running(service):
        await clock.sleep(moment)
        assert len(world.busy) == 50
        service.loop.trigger(hot)
        await clock.sleep(0.010)
    assert len(world.starts(hot)) == 2
    assert world.starts(hot)[-1] - moment <= 0.010


async def test_a_backlog_with_fifty_hanging_resources_is_worked_off_in_fifty_milliseconds() -> None:
    world = Resources(clock, *(f"t{n:04}" for n in range(1_000)))
    world.last_for(lambda thing: 2 if int(thing.id[1:]) < 50 else 0)  # all of them ahead of the rest
    async with running(Polling(world)):
        await clock.sleep(1)
    assert len(world.runs) == 1_000
    assert world.starts()[-1] <= 0.050


async def test_no_more_than_max_parked_wait_beside_the_slots() -> None:
    world = Resources(clock, *(f"t{n}" for n in range(30)))
    world.last_for(1)
    config = ReconciliationConfig(initial_delay=0, max_concurrent=2, max_parked=5)
    async with running(Polling(world, config)):
        await clock.sleep(20)
    assert world.most_at_once == 7
    assert len(world.runs) == 30


async def test_nobody_looks_at_the_clock_while_every_slot_is_busy_and_no_key_waits() -> None:
    class CountingClock(VirtualClock):
        sleeps = 0

        async def sleep(self, seconds: float) -> None:
            self.sleeps += 1
            await super().sleep(seconds)

    counting = CountingClock()
    world = Resources(counting, "a")
    world.last_for(20)
    async with running(Polling(world, ReconciliationConfig(initial_delay=0, max_concurrent=1))):
        await clock.sleep(1)
        before = counting.sleeps
        await clock.sleep(10)
        assert world.busy == {"a"}
        assert counting.sleeps == before


async def test_slots_given_away_are_not_gained() -> None:
    world = Resources(clock, *(f"t{n}" for n in range(100)))
    world.last_for(1)
    service = Polling(world)
    async with running(service):
        await clock.sleep(25)  # all of them were parked
        assert len(world.runs) == 100
        world.most_at_once = 0
        world.last_for(0.001)
        await clock.sleep(10)
    assert len(world.runs) == 200
    assert world.most_at_once == 10


# Faults.


async def test_a_fatal_error_ends_the_service() -> None:
    class Fragile(ResourceReconciler):
        fatal = (KeyError,)

    world = Resources(clock, "a")
    world.script(KeyError("a newer leader"))
    assert isinstance(await first_error(Polling(world, reconciler=Fragile).run()), KeyError)


async def test_a_fatal_error_inside_a_group_ends_the_service_too() -> None:
    class Fragile(ResourceReconciler):
        fatal = (KeyError,)

    async def act(_: Thing) -> ReconciliationResult:
        raise ExceptionGroup("of a task group", [KeyError("a newer leader")])

    world = Resources(clock, "a")
    world.act = act
    service = Polling(world, reconciler=Fragile)
    async with timeout(10):
        assert isinstance(await first_error(service.run()), KeyError)


async def test_an_error_that_passes_by_itself_is_retried_without_a_stack_trace(logs: list[EventDict]) -> None:
    class Patient(ResourceReconciler):
        passing = (ConnectionError,)

    world = Resources(clock, "a")
    world.script(ConnectionError("away for a moment"), KeyError("a bug"))
    async with running(Polling(world, reconciler=Patient)):
        await clock.sleep(0.5)
        assert [entry["event"] for entry in logs] == ["will retry"]
        await clock.sleep(3)
    assert [entry["event"] for entry in logs] == ["will retry", "reconcile failed", "will retry"]
    assert world.starts("a") == [0, 1, 3]


async def test_a_failing_list_is_tried_again_with_backoff_and_shown() -> None:
    world = Resources(clock, "a")
    world.list_error = ConnectionError("control plane away")
    service = Polling(world)
    async with running(service):
        await clock.sleep(10)
        assert service.loop.health.freeze_reasons == ["resource list: control plane away"]
        world.list_error = None
        await clock.sleep(6)
        assert service.loop.health.freeze_reasons == []
    assert world.lists == [0, 1, 3, 7, 15]
    assert world.starts("a") == [15]


async def test_after_a_long_time_without_records_everything_is_looked_at_within_fifteen_seconds() -> None:
    world = Resources(clock, "a")
    world.always(Retry("control plane away"))
    service = Polling(world)
    async with running(service):
        world.list_error = ConnectionError("control plane away")
        await clock.sleep(1800)  # by now the next try is a minute away
        world.runs.clear()
        world.list_error = None
        await clock.sleep(15)
        assert world.starts("a") != []


async def test_a_list_that_never_ends_makes_the_loop_silent() -> None:
    world = Resources(clock, "a")
    world.list_seconds = 10_000
    service = Polling(world)
    async with running(service):
        await clock.sleep(90)
        assert service.loop.health.silent_loops == []
        await clock.sleep(1)
        assert service.loop.health.silent_loops == ["poll"]


async def test_a_poll_that_ended_with_its_service_is_not_silent() -> None:
    world = Resources(clock, "a")
    service = Polling(world)
    async with running(service):
        await clock.sleep(10)
    await clock.sleep(1_000)
    assert service.loop.health.silent_loops == []


async def test_a_service_that_runs_again_starts_afresh() -> None:
    world = Resources(clock, "a")
    world.always(Retry("broken"))
    service = Polling(world)
    async with running(service):
        await clock.sleep(20)
    async with running(service):
        await clock.sleep(2)
        assert service.loop.states["a"].retry_count == 2
    assert world.starts("a") == [0, 1, 3, 7, 15, 20, 21]


# Metrics.


async def test_reconciles_are_counted_by_result() -> None:
    world = Resources(clock, "a")
    world.script(Retry("1"), Retry("2"), Requeue("3", after_seconds=1), Skip("4"), Success())
    service = Polling(world, AT_ONCE)
    async with running(service):
        await clock.sleep(31)
        metrics = service.loop.telemetry.render().decode()
    assert 'reconciliation_reconcile_total{result="retry"} 2.0' in metrics
    assert 'reconciliation_reconcile_total{result="requeue"} 1.0' in metrics
    assert 'reconciliation_reconcile_total{result="skip"} 1.0' in metrics
    assert 'reconciliation_reconcile_total{result="success"} 1.0' in metrics
    assert "reconciliation_reconcile_duration_seconds_count 5.0" in metrics
    assert "reconciliation_active_reconciles 0.0" in metrics
    assert "reconciliation_resources_pending 0.0" in metrics
