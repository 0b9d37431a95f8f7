"""Idle workers are paused, or drained if the fleet may shrink; used ones are left alone."""

from collections import Counter
from datetime import timedelta

import pytest

from lcm.control_plane.commands.drain_worker import drain_worker
from lcm.control_plane.commands.hold_worker import hold_worker
from lcm.control_plane.commands.report_live import report_live
from lcm.domain.lablet.admission import nominate_worker
from lcm.domain.lifecycle import DRAINING, RUNNING, STOPPED, STOPPING, DesiredStatus
from lcm.domain.telemetry import ActivityEvent, Sample, SampleSource
from lcm.domain.worker import Action, Worker
from lcm.rest.schemas import ActivityReport, LiveReports, TelemetryEvent
from lcm.worker_controller.settings import WorkerControllerSettings
from support.claims import place_session, remove_session
from support.fleet import Fleet

HOUR = 3600.0
SCALES_DOWN = WorkerControllerSettings(scale_down_enabled=True, min_workers=2)


async def use(fleet: Fleet, worker: Worker) -> None:
    """What a monitor reports when a person starts a lab."""
    event = ActivityEvent(category="start_lab", at=fleet.clock.now())
    activity = ActivityReport(
        worker_id=worker.id,
        activity_events=[event],
        source=SampleSource.WEBSOCKET,
        stream=str(fleet.clock.monotonic()),
        last_sequence=1,
    )
    await report_live(
        fleet.plane.records,
        fleet.plane.caches,
        fleet.plane.policies,
        LiveReports(activity=[activity]),
        fence=fleet.ports[0]._fence(),
    )


async def running(fleet: Fleet, workers: list[Worker]) -> int:
    return [(await fleet.get(worker)).status for worker in workers].count(RUNNING)


async def audited(fleet: Fleet) -> Counter[str]:
    return Counter(str(entry.event) for entry in await fleet.plane.records.audit.newest())


async def test_an_unused_worker_is_paused_after_an_hour_and_not_before() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        born = (await fleet.get(worker)).created_at
        stopped = await fleet.until(worker, STOPPED, within_seconds=2 * HOUR)
        assert stopped.pause.reason == "idle_timeout"
        assert stopped.pause.last_paused_at is not None
        assert timedelta(minutes=60) < stopped.pause.last_paused_at - born < timedelta(minutes=68)
        assert fleet.leader.stats.counts["auto_pause_count"] == 1


async def test_a_used_worker_is_never_paused() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        for _ in range(12):
            await fleet.clock.sleep(HOUR / 2)
            await use(fleet, worker)
        assert (await fleet.get(worker)).status is RUNNING


async def test_use_that_only_the_telemetry_knows_keeps_the_worker() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        await fleet.clock.sleep(0.9 * HOUR)
        at = fleet.clock.now()
        fleet.monitors.telemetry[worker.id] = [TelemetryEvent(category="start_node", timestamp=at)]
        await fleet.clock.sleep(0.5 * HOUR)
        seen = await fleet.get(worker)
        assert (seen.status, seen.activity.last_at) == (RUNNING, at)


async def test_a_server_that_cannot_be_asked_is_never_paused() -> None:
    """H2: the path of activity is dead for longer than the timeout."""
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        fleet.monitors.telemetry[worker.id] = None
        await fleet.clock.sleep(10 * HOUR)
        assert (await fleet.get(worker)).status is RUNNING


async def test_telemetry_is_only_asked_for_when_a_pause_is_near() -> None:
    async with Fleet().running() as fleet:
        await fleet.running_worker()
        await fleet.clock.sleep(0.9 * HOUR)
        assert fleet.monitors.looks == 0


async def test_a_resumed_worker_runs_for_another_hour_at_least() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        await fleet.until(worker, STOPPED, within_seconds=2 * HOUR)
        await fleet.ask(worker, Action.START)
        resumed = await fleet.until(worker, RUNNING)
        again = await fleet.until(worker, STOPPED, within_seconds=2 * HOUR)
        assert resumed.pause.last_resumed_at is not None
        assert again.pause.last_paused_at is not None
        assert again.pause.last_paused_at - resumed.pause.last_resumed_at >= timedelta(minutes=60)


async def test_a_held_worker_runs_until_the_hold_ends() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        until = fleet.clock.now() + timedelta(hours=5)
        await hold_worker(
            fleet.plane.records, fleet.plane.policies, worker.id, until=until, reason="exam", by="ada"
        )
        stopped = await fleet.until(worker, STOPPED, within_seconds=6 * HOUR)
        assert stopped.pause.last_paused_at is not None
        assert stopped.pause.last_paused_at >= until


async def test_no_idle_check_is_made_where_detection_is_off() -> None:
    settings = WorkerControllerSettings(worker_activity_detection_enabled=False)
    async with Fleet(settings).running() as fleet:
        worker = await fleet.running_worker()
        await fleet.clock.sleep(5 * HOUR)
        assert (await fleet.get(worker)).status is RUNNING


@pytest.mark.no_cover  # many times what is measured elsewhere
async def test_people_who_never_stop_a_worker_leave_it_idle_for_at_least_30_percent_less() -> None:
    undetected = WorkerControllerSettings(worker_activity_detection_enabled=False)
    assert await idle_hours(WorkerControllerSettings()) <= 0.7 * await idle_hours(undetected)


async def idle_hours(settings: WorkerControllerSettings) -> float:
    """Of a day with classes from nine to noon and from two to five; people start a paused worker."""
    idle_quarters = 0
    async with Fleet(settings).running() as fleet:
        worker = await fleet.running_worker()
        for quarter in range(24 * 4):
            hour = quarter / 4
            status = (await fleet.get(worker)).status
            if 9 <= hour < 12 or 14 <= hour < 17:
                if status is STOPPED:
                    await fleet.ask(worker, Action.START)
                    await fleet.until(worker, RUNNING)
                await use(fleet, worker)
            elif status is RUNNING:
                idle_quarters += 1
            await fleet.clock.sleep(HOUR / 4)
    return idle_quarters / 4


# Scale-down


async def test_three_idle_workers_and_a_minimum_of_two_lose_one() -> None:
    async with Fleet(SCALES_DOWN).running() as fleet:
        workers = [await fleet.running_worker(name) for name in ("a", "b", "c")]
        await fleet.clock.sleep(5 * HOUR)
        statuses = Counter([(await fleet.get(worker)).status for worker in workers])
        assert statuses == {RUNNING: 2, STOPPED: 1}
        assert fleet.leader.stats.counts["scale_down_drain_count"] == 1
        log = await audited(fleet)
        assert log["scale_down_initiated"] == 1
        assert log["skipped_min_workers"] >= 1


async def test_the_second_drain_waits_for_the_cooldown() -> None:
    settings = WorkerControllerSettings(scale_down_enabled=True, scale_down_cooldown_seconds=2 * HOUR)
    async with Fleet(settings).running() as fleet:
        workers = [await fleet.running_worker(name) for name in ("a", "b")]
        await fleet.clock.sleep(1.5 * HOUR)
        assert await running(fleet, workers) == 1
        assert (await audited(fleet))["skipped_cooldown"] == 1
        await fleet.clock.sleep(2 * HOUR)
        assert await running(fleet, workers) == 0


async def test_the_next_leader_waits_for_the_cooldown_too() -> None:
    settings = WorkerControllerSettings(scale_down_enabled=True, scale_down_cooldown_seconds=2 * HOUR)
    async with Fleet(settings).running(controllers=2) as fleet:
        workers = [await fleet.running_worker(name) for name in ("a", "b")]
        await fleet.clock.sleep(1.5 * HOUR)
        assert await running(fleet, workers) == 1
        fleet.leader.election.resign()
        await fleet.clock.sleep(HOUR)
        assert await running(fleet, workers) == 1
        await fleet.clock.sleep(HOUR)
        assert await running(fleet, workers) == 0


async def test_workers_that_are_unused_at_once_are_drained_one_after_the_other() -> None:
    """They are judged side by side; one of them must not take the other's turn."""
    async with Fleet(WorkerControllerSettings(scale_down_enabled=True)).running() as fleet:
        workers = [await fleet.create(name) for name in ("a", "b", "c")]
        for worker in workers:
            await fleet.until(worker, RUNNING)
        await fleet.clock.sleep(HOUR + 400)
        assert await running(fleet, workers) == 2


async def test_scale_down_drains_and_does_not_pause() -> None:
    async with Fleet(SCALES_DOWN).running() as fleet:
        workers = [await fleet.running_worker(name) for name in ("a", "b", "c")]
        await fleet.clock.sleep(5 * HOUR)
        gone = [w for w in [await fleet.get(worker) for worker in workers] if w.status is STOPPED]
        assert [worker.pause.auto_pause_count for worker in gone] == [0]
        assert DRAINING in fleet.life_of(gone[0])


async def test_a_busy_worker_is_no_failed_scale_down() -> None:
    async with Fleet(WorkerControllerSettings(scale_down_enabled=True)).running() as fleet:
        worker = await fleet.running_worker()
        for _ in range(100):
            await fleet.clock.sleep(60)
            sample = Sample(
                worker_id=worker.id,
                collected_at=fleet.clock.now(),
                source=SampleSource.WEBSOCKET,
                cpu_utilization=95.0,
            )
            await report_live(
                fleet.plane.records,
                fleet.plane.caches,
                fleet.plane.policies,
                LiveReports(samples=[sample]),
                fence=fleet.ports[0]._fence(),
            )
        assert (await fleet.get(worker)).status is RUNNING
        log = await audited(fleet)
        assert (log["scale_down_failed"], log["skipped_not_eligible"]) == (0, 1)


async def test_a_worker_that_sessions_need_is_neither_paused_nor_drained_and_that_is_no_failure() -> None:
    async with Fleet(WorkerControllerSettings(scale_down_enabled=True)).running() as fleet:
        claimed, nominated = [await fleet.running_worker(name) for name in ("a", "b")]
        await place_session(fleet.plane.records, claimed.id, "lablet-1")
        soon = fleet.clock.now() + timedelta(minutes=30)
        await fleet.plane.records.workers.change(
            nominated.id, lambda worker: nominate_worker(worker, {"lablet-2": soon}, frozenset())
        )
        await fleet.clock.sleep(3 * HOUR)
        assert await running(fleet, [claimed, nominated]) == 2
        log = await audited(fleet)
        assert (log["scale_down_initiated"], log["scale_down_failed"]) == (0, 0)


# Drain


async def test_a_drain_waits_for_sessions_and_then_stops() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        await place_session(fleet.plane.records, worker.id, "lablet-1")
        await drain_worker(
            fleet.plane.records, fleet.plane.policies, worker.id, by="ada", reason="maintenance"
        )
        await fleet.clock.sleep(HOUR)
        assert (await fleet.get(worker)).status is DRAINING
        assert worker.id in fleet.monitors.watched
        await remove_session(fleet.plane.records, worker.id, "lablet-1")
        await fleet.until(worker, STOPPED)


async def test_a_drained_worker_is_stopped_as_soon_as_its_last_session_is_over() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        await fleet.clock.sleep(120)
        await place_session(fleet.plane.records, worker.id, "lablet-1")
        await drain_worker(
            fleet.plane.records, fleet.plane.policies, worker.id, by="ada", reason="maintenance"
        )
        await fleet.clock.sleep(65)
        await remove_session(fleet.plane.records, worker.id, "lablet-1")
        await fleet.until(worker, STOPPING, within_seconds=1)


async def test_a_drain_that_takes_too_long_ends_with_a_stop_that_says_so() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        await place_session(fleet.plane.records, worker.id, "lablet-1")
        drained = await drain_worker(
            fleet.plane.records, fleet.plane.policies, worker.id, by="ada", reason="maintenance"
        )
        assert drained.pause.since is not None
        assert drained.pause.until == drained.pause.since + timedelta(hours=4)  # by its template
        await fleet.clock.sleep(4 * HOUR - 1)
        assert (await fleet.get(worker)).status is DRAINING
        stopped = await fleet.until(worker, STOPPED, within_seconds=300)
        reasons = [e.reason for e in stopped.state_history if e.target is STOPPING]
        assert reasons == ["drain deadline passed; sessions cut off: 1"]


async def test_a_cancelled_drain_leaves_the_worker_running() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        await place_session(fleet.plane.records, worker.id, "lablet-1")
        await drain_worker(
            fleet.plane.records, fleet.plane.policies, worker.id, by="ada", reason="maintenance"
        )
        await fleet.ask(worker, Action.CANCEL_DRAIN)
        await fleet.until(worker, RUNNING)
        assert fleet.effects() == ["launch_instance"]


@pytest.mark.parametrize("action", [Action.STOP, Action.DELETE])
async def test_a_drain_can_be_cut_short(action: Action) -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        await place_session(fleet.plane.records, worker.id, "lablet-1")
        await drain_worker(
            fleet.plane.records, fleet.plane.policies, worker.id, by="ada", reason="maintenance"
        )
        asked = await fleet.ask(worker, action)
        await fleet.clock.sleep(120)
        assert (await fleet.get(worker)).status in (STOPPED, "terminated")
        assert asked.desired_status is not DesiredStatus.RUNNING


async def test_a_launch_and_the_end_of_a_drain_are_lines_of_the_audit_log() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        await drain_worker(
            fleet.plane.records, fleet.plane.policies, worker.id, by="ada", reason="maintenance"
        )
        await fleet.until(worker, STOPPED)
        await fleet.ask(worker, Action.START)
        await fleet.clock.sleep(HOUR)
        logged = await fleet.plane.records.audit.newest(worker_id=worker.id)
        assert [(entry.event, entry.by) for entry in reversed(logged)] == [
            ("provisioned", "worker-controller"),
            ("drained", "worker-controller"),
        ]
