"""The idle pipeline: busy until the opposite is proven twice."""

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from lcm.control_plane.api.services import ControlPlane
from lcm.control_plane.commands.claim_leadership import claim_leadership, fence_for
from lcm.control_plane.commands.detect_idle import detect_idle
from lcm.control_plane.commands.drain_worker import drain_worker, scale_down_worker
from lcm.control_plane.commands.hold_worker import hold_worker, release_hold, toggle_idle_detection
from lcm.control_plane.commands.report_status import report_status
from lcm.control_plane.commands.request_action import request_action
from lcm.control_plane.queries.idle import idle_status
from lcm.control_plane.records.preconditions import Preconditions
from lcm.control_plane.store.port import Fence
from lcm.domain.errors import Conflict, Fenced, MomentPassed, PlacementRefused
from lcm.domain.idempotency import KeyedRequest
from lcm.domain.idle import IdlePolicy
from lcm.domain.lablet.admission import nominate_worker
from lcm.domain.launch import WorkerId
from lcm.domain.license import License
from lcm.domain.lifecycle import (
    DRAINING,
    FAILED,
    PENDING,
    PROVISIONING,
    RUNNING,
    STARTING,
    STOPPED,
    STOPPING,
    TERMINATED,
    DesiredStatus,
    WorkerStatus,
)
from lcm.domain.pause import DECIDED
from lcm.domain.telemetry import Sample, SampleSource
from lcm.domain.transitions import move
from lcm.domain.worker import Action, Worker
from lcm.rest.schemas import IdleCheck, IdleCheckRequest, LeadershipClaim, StatusReport, TelemetryEvent
from support.claims import place_session, remove_session
from support.control_plane import ONE_REGION
from support.core import a_worker, with_fields

MINUTE = 60.0
NO_NEWS: list[TelemetryEvent] = []


class Desk:
    """The worker controller's side of the conversation."""

    def __init__(self, plane: ControlPlane, fence: Fence) -> None:
        self.plane = plane
        self.fence = fence

    async def add(self, name: str = "lab") -> Worker:
        now = self.plane.records.clock.now()
        worker = a_worker(id=WorkerId(f"id-{name}"), name=name, status=RUNNING, created_at=now)
        return await self.plane.records.workers.add(worker)

    async def check(
        self, worker: Worker, telemetry: list[TelemetryEvent] | None = NO_NEWS, **options: Any
    ) -> IdleCheck:
        request = IdleCheckRequest(raw_telemetry_events=telemetry, **options)
        return await detect_idle(
            self.plane.records, self.plane.caches, self.plane.policies, worker.id, request, fence=self.fence
        )

    async def look_twice(
        self, worker: Worker, telemetry: list[TelemetryEvent] | None = NO_NEWS, **options: Any
    ) -> IdleCheck:
        """Decide, and confirm a moment later."""
        await self.check(worker, telemetry, **options)
        await self.plane.records.clock.sleep(15)
        return await self.check(worker, telemetry, force_check=True, **options)

    def event(self, category: str, minutes_ago: float = 0) -> TelemetryEvent:
        at = self.plane.records.clock.now() - timedelta(minutes=minutes_ago)
        return TelemetryEvent(category=category, timestamp=at.replace(tzinfo=None))

    async def passes(self, minutes: float) -> None:
        await self.plane.records.clock.sleep(minutes * MINUTE)


async def reported(desk: Desk, worker: Worker, *statuses: WorkerStatus) -> Worker:
    """EC2 is seen to bring the worker there, one after the other."""
    for status in statuses:
        version = (await desk.plane.records.workers.get(worker.id)).version
        report = StatusReport(status=status, reason="EC2 says so", expected_version=version)
        worker = await report_status(
            desk.plane.records, desk.plane.policies, worker.id, report, by="controller", fence=desk.fence
        )
    return worker


@pytest.fixture
async def desk(plane: ControlPlane) -> Desk:
    claim = LeadershipClaim(service="worker-controller", cluster_id="c", revision=1, instance_id="a")
    grant = await claim_leadership(plane.records, claim)
    return Desk(plane, fence_for("worker-controller", grant.epoch))


async def test_sixty_one_idle_minutes_pause_a_worker_at_the_second_idle_check(desk: Desk) -> None:
    worker = await desk.add()
    await desk.passes(61)
    first = await desk.check(worker)
    assert (first.is_idle, first.eligible_for_pause, first.auto_pause_triggered) == (True, True, False)
    assert first.guard == "second_look"
    await desk.plane.records.clock.sleep(15)
    second = await desk.check(worker)
    assert second.auto_pause_triggered
    paused = await desk.plane.records.workers.get(worker.id)
    assert paused.desired_status is DesiredStatus.STOPPED
    assert (paused.pause.reason, paused.pause.auto_pause_count) == ("idle_timeout", 1)
    assert paused.pause.last_paused_by == "idle detection"


async def test_a_second_idle_check_that_comes_too_soon_pauses_nothing(desk: Desk) -> None:
    worker = await desk.add()
    await desk.passes(61)
    await desk.check(worker)
    await desk.plane.records.clock.sleep(14)
    assert not (await desk.check(worker, force_check=True)).auto_pause_triggered


async def test_a_pause_decision_that_was_not_confirmed_in_time_is_made_anew(desk: Desk) -> None:
    worker = await desk.add()
    await desk.passes(61)
    await desk.check(worker)
    await desk.passes(16)
    assert not (await desk.check(worker)).auto_pause_triggered
    await desk.plane.records.clock.sleep(15)
    assert (await desk.check(worker)).auto_pause_triggered


async def test_empty_answers_for_an_hour_do_not_move_the_last_activity(desk: Desk) -> None:
    worker = await desk.add()
    await desk.check(worker, [desk.event("start_lab")])
    used_at = (await desk.plane.records.workers.get(worker.id)).activity.last_at
    for _ in range(12):
        await desk.passes(5)
        await desk.check(worker)
    assert (await desk.plane.records.workers.get(worker.id)).activity.last_at == used_at


@pytest.mark.parametrize(
    "category", ["start_lab", "queue_node", "user_activity", "import_lab", "packet_capture", "wipe_node"]
)
async def test_actions_of_people_are_activity(desk: Desk, category: str) -> None:
    worker = await desk.add()
    await desk.passes(61)
    result = await desk.check(worker, [desk.event(category)])
    assert (result.activity_updated, result.is_idle) == (True, False)


async def test_automatic_events_are_not_activity(desk: Desk) -> None:
    worker = await desk.add()
    await desk.passes(61)
    result = await desk.check(worker, [desk.event("system_stats"), desk.event("license_info")])
    assert (result.activity_updated, result.is_idle) == (False, True)


async def test_old_events_of_the_full_list_change_nothing(desk: Desk) -> None:
    worker = await desk.add()
    await desk.check(worker, [desk.event("start_lab")])
    await desk.passes(30)
    result = await desk.check(worker, [desk.event("start_lab", minutes_ago=30.0), desk.event("stop_lab", 40)])
    assert not result.activity_updated


async def test_a_server_whose_clock_is_ahead_does_not_stay_in_use_for_ever(desk: Desk) -> None:
    worker = await desk.add()
    await desk.check(worker, [desk.event("start_lab", minutes_ago=-600)])
    seen = await desk.plane.records.workers.get(worker.id)
    assert seen.activity.last_at == desk.plane.records.clock.now()


async def test_activity_between_the_two_idle_checks_cancels_the_decision(desk: Desk) -> None:
    """H1: activity between the verdict and the stop."""
    worker = await desk.add()
    await desk.passes(61)
    await desk.check(worker)
    await desk.plane.records.clock.sleep(15)
    result = await desk.check(worker, [desk.event("start_node")])
    assert (result.auto_pause_triggered, result.guard) == (False, "active")
    assert (await desk.plane.records.workers.get(worker.id)).pause.decided_at is None


async def test_use_after_the_pause_and_before_the_stop_cancels_it(desk: Desk) -> None:
    worker = await desk.add()
    await desk.passes(61)
    assert (await desk.look_twice(worker)).auto_pause_triggered
    await desk.check(worker, [desk.event("start_lab")], force_check=True)
    seen = await desk.plane.records.workers.get(worker.id)
    assert (seen.desired_status, seen.pause.reason) == (DesiredStatus.RUNNING, None)


async def test_a_stop_request_overrides_a_pause_in_progress(desk: Desk) -> None:
    worker = await desk.add()
    await desk.passes(61)
    assert (await desk.look_twice(worker)).auto_pause_triggered
    await request_action(desk.plane.records, worker.id, Action.STOP, by="ada")
    await desk.check(worker, [desk.event("start_lab")], force_check=True)
    await desk.passes(2)
    stopping = await reported(desk, worker, STOPPING)
    assert (stopping.status, stopping.desired_status) == (STOPPING, DesiredStatus.STOPPED)
    assert (stopping.pause.reason, stopping.pause.last_paused_by) == ("manual", "ada")
    assert (stopping.pause.auto_pause_count, stopping.pause.manual_pause_count) == (0, 1)


async def test_a_drain_request_overrides_a_scale_down_in_progress(desk: Desk) -> None:
    worker = await desk.add()
    await desk.passes(61)
    await desk.look_twice(worker, suppress_auto_pause=True)
    await scaled_down(desk, worker)
    await drain_worker(desk.plane.records, desk.plane.policies, worker.id, by="ada", reason="drain requested")
    await desk.check(worker, [desk.event("start_lab")], force_check=True)
    drained = await desk.plane.records.workers.get(worker.id)
    assert (drained.status, drained.desired_status) == (DRAINING, DesiredStatus.STOPPED)
    assert (drained.pause.reason, drained.pause.last_paused_by) == ("manual", "ada")
    again = await drain_worker(
        desk.plane.records, desk.plane.policies, worker.id, by="bob", reason="drain requested"
    )
    assert again == drained


async def test_a_server_that_cannot_be_asked_counts_as_used(desk: Desk) -> None:
    worker = await desk.add()
    await desk.passes(600)
    result = await desk.look_twice(worker, telemetry=None)
    assert (result.auto_pause_triggered, result.guard) == (False, "unconfirmed")


async def test_a_worker_is_evaluated_at_most_once_per_interval_unless_forced(desk: Desk) -> None:
    worker = await desk.add()
    assert (await desk.check(worker)).idle_check_performed
    await desk.passes(4)
    assert not (await desk.check(worker)).idle_check_performed
    assert (await desk.check(worker, force_check=True)).idle_check_performed


async def test_events_that_come_between_evaluations_still_count(desk: Desk) -> None:
    worker = await desk.add()
    await desk.check(worker)
    await desk.passes(1)
    result = await desk.check(worker, [desk.event("start_lab")])
    assert (result.idle_check_performed, result.activity_updated) == (False, True)


async def test_scale_down_owns_the_stop_if_it_says_so(desk: Desk) -> None:
    worker = await desk.add()
    await desk.passes(61)
    result = await desk.look_twice(worker, suppress_auto_pause=True)
    assert (result.auto_pause_triggered, result.guard) == (False, "suppressed")
    assert result.eligible_for_pause


async def test_a_worker_on_which_a_waiting_session_counts_is_not_paused(desk: Desk) -> None:
    worker = await desk.add()
    await desk.passes(61)
    soon = desk.plane.records.clock.now() + timedelta(minutes=20)
    await desk.plane.records.workers.change(
        worker.id, lambda current: nominate_worker(current, {"lablet-1": soon}, frozenset())
    )
    assert (await desk.look_twice(worker)).guard == "nominated"
    await desk.plane.records.workers.change(
        worker.id, lambda current: nominate_worker(current, {}, frozenset({"lablet-1"}))
    )
    await desk.passes(5)
    assert (await desk.look_twice(worker)).auto_pause_triggered


async def test_a_worker_with_a_session_is_not_paused(desk: Desk) -> None:
    worker = await desk.add()
    await desk.passes(61)
    await place_session(desk.plane.records, worker.id, "lablet-1")
    assert (await desk.look_twice(worker)).guard == "active_sessions"
    await remove_session(desk.plane.records, worker.id, "lablet-1")
    await desk.passes(5)
    assert (await desk.look_twice(worker)).auto_pause_triggered


@pytest.mark.parametrize(("load", "guard"), [(95.0, "busy"), (30.0, None), (None, None)])
async def test_h3_a_worker_with_high_load_is_not_paused_without_activity(
    desk: Desk, load: float | None, guard: str | None
) -> None:
    worker = await desk.add()
    await desk.passes(61)
    now = desk.plane.records.clock.now()
    desk.plane.caches.metrics.take_sample(
        Sample(worker_id=worker.id, collected_at=now, source=SampleSource.REST, cpu_utilization=load)
    )
    assert (await desk.look_twice(worker)).guard == guard


async def test_h3_load_measured_long_ago_does_not_prevent_a_pause(desk: Desk) -> None:
    worker = await desk.add()
    now = desk.plane.records.clock.now()
    desk.plane.caches.metrics.take_sample(
        Sample(worker_id=worker.id, collected_at=now, source=SampleSource.REST, cpu_utilization=99.0)
    )
    await desk.passes(61)
    assert (await desk.look_twice(worker)).auto_pause_triggered


async def test_h3_a_license_that_is_being_registered_is_not_cut_off(desk: Desk) -> None:
    worker = await desk.add()
    await desk.plane.records.workers.change(
        worker.id, lambda w: with_fields(w, license=License(operation_in_progress=True))
    )
    await desk.passes(61)
    assert (await desk.look_twice(worker)).guard == "busy"


async def test_a_session_placed_between_the_idle_checks_cancels_the_decision(desk: Desk) -> None:
    worker = await desk.add()
    await desk.passes(61)
    await desk.check(worker)
    await place_session(desk.plane.records, worker.id, "lablet-1")
    await desk.plane.records.clock.sleep(15)
    assert not (await desk.check(worker)).auto_pause_triggered


async def test_no_session_is_placed_on_a_worker_that_is_being_paused(desk: Desk) -> None:
    worker = await desk.add()
    await desk.passes(61)
    await desk.look_twice(worker)
    with pytest.raises(PlacementRefused, match="does not take the session"):
        await place_session(desk.plane.records, worker.id, "lablet-1")


async def test_the_fleet_is_not_paused_below_its_minimum(plane: ControlPlane, desk: Desk) -> None:
    desk.plane = dataclasses.replace(
        plane, policies=dataclasses.replace(ONE_REGION, idle=IdlePolicy(min_workers=2))
    )
    workers = [await desk.add(name) for name in ("a", "b", "c")]
    await desk.passes(61)
    for worker in workers:
        await desk.check(worker)
    await desk.plane.records.clock.sleep(15)
    results = [await desk.check(worker) for worker in workers]
    assert [result.auto_pause_triggered for result in results] == [True, False, False]
    assert [result.guard for result in results[1:]] == ["min_workers", "min_workers"]


async def test_a_resumed_worker_is_not_paused_for_an_hour(desk: Desk) -> None:
    worker = await desk.add()
    await desk.passes(61)
    await desk.look_twice(worker)
    await request_action(desk.plane.records, worker.id, Action.START, by="ada")
    now = desk.plane.records.clock.now()
    await desk.plane.records.workers.change(
        worker.id, lambda w: with_fields(w, last_resumed_at=now, last_activity_at=None)
    )
    await desk.passes(59)
    assert (await desk.look_twice(worker)).auto_pause_triggered is False
    await desk.passes(5)
    assert (await desk.look_twice(worker)).auto_pause_triggered


async def test_a_worker_that_is_retried_is_not_paused_for_an_hour(desk: Desk) -> None:
    worker = await desk.plane.records.workers.add(
        a_worker(status=FAILED, created_at=desk.plane.records.clock.now())
    )
    await desk.passes(90)
    await request_action(desk.plane.records, worker.id, Action.RETRY, by="ada")
    await reported(desk, worker, PROVISIONING, STARTING, RUNNING)
    await is_left_alone_for_an_hour(desk, worker)


async def test_a_worker_whose_launch_was_waited_for_is_not_paused_for_an_hour(desk: Desk) -> None:
    """There was no capacity: the request still holds."""
    worker = await desk.plane.records.workers.add(
        a_worker(status=PENDING, created_at=desk.plane.records.clock.now())
    )
    await desk.passes(180)
    await reported(desk, worker, PROVISIONING, STARTING, RUNNING)
    await is_left_alone_for_an_hour(desk, worker)


async def test_a_worker_that_was_imported_stopped_is_not_paused_for_an_hour_after_its_start(
    desk: Desk,
) -> None:
    found = a_worker(
        status=STOPPED,
        desired_status=DesiredStatus.STOPPED,
        imported=True,
        created_at=desk.plane.records.clock.now(),
    )
    worker = await desk.plane.records.workers.add(found)
    await desk.passes(90)
    await request_action(desk.plane.records, worker.id, Action.START, by="ada")
    await reported(desk, worker, STARTING, RUNNING)
    await is_left_alone_for_an_hour(desk, worker)


async def is_left_alone_for_an_hour(desk: Desk, worker: Worker) -> None:
    await desk.passes(54)
    assert (await desk.look_twice(worker)).guard == "snoozed"
    await desk.passes(6)
    assert (await desk.look_twice(worker)).auto_pause_triggered


async def test_a_hold_keeps_an_idle_worker_until_it_ends(desk: Desk) -> None:
    worker = await desk.add()
    await desk.passes(61)
    until = desk.plane.records.clock.now() + timedelta(hours=2)
    await hold_worker(
        desk.plane.records, desk.plane.policies, worker.id, until=until, reason="exam", by="ada"
    )
    assert (await desk.look_twice(worker)).guard == "held"
    await desk.passes(121)
    assert (await desk.look_twice(worker)).auto_pause_triggered


async def test_a_hold_that_is_over_already_is_refused_and_changes_nothing(desk: Desk) -> None:
    worker = await desk.add()
    for until in (desk.plane.records.clock.now(), desk.plane.records.clock.now() - timedelta(hours=1)):
        with pytest.raises(MomentPassed, match="send a later moment, or DELETE the hold"):
            await hold_worker(
                desk.plane.records, desk.plane.policies, worker.id, until=until, reason="", by="ada"
            )
    assert (await desk.plane.records.workers.get(worker.id)).hold is None


async def test_a_hold_that_was_in_time_is_acknowledged_again_when_it_is_over(desk: Desk) -> None:
    worker = await desk.add()
    request = Preconditions(request=KeyedRequest(key="k", content="f"))
    until = desk.plane.records.clock.now() + timedelta(minutes=1)
    await hold_worker(
        desk.plane.records,
        desk.plane.policies,
        worker.id,
        until=until,
        reason="",
        by="ada",
        preconditions=request,
    )
    await desk.passes(2)
    again = await hold_worker(
        desk.plane.records,
        desk.plane.policies,
        worker.id,
        until=until,
        reason="",
        by="ada",
        preconditions=request,
    )
    assert again.hold is not None
    assert again.hold.until == until


async def test_a_hold_cancels_a_pause_that_is_not_carried_out_yet(desk: Desk) -> None:
    worker = await desk.add()
    await desk.passes(61)
    await desk.look_twice(worker)
    until = desk.plane.records.clock.now() + timedelta(hours=2)
    held = await hold_worker(
        desk.plane.records, desk.plane.policies, worker.id, until=until, reason="", by="ada"
    )
    assert held.desired_status is DesiredStatus.RUNNING
    assert held.pause.due_at == until


async def test_a_released_hold_brings_the_countdown_back(desk: Desk) -> None:
    worker = await desk.add()
    until = desk.plane.records.clock.now() + timedelta(hours=9)
    await hold_worker(desk.plane.records, desk.plane.policies, worker.id, until=until, reason="", by="ada")
    released = await release_hold(desk.plane.records, desk.plane.policies, worker.id)
    assert released.pause.due_at == worker.created_at + timedelta(hours=1)


async def test_the_next_check_is_reported_with_the_last(desk: Desk) -> None:
    worker = await desk.add()
    assert (
        idle_status(desk.plane.records, desk.plane.caches, desk.plane.policies, worker).next_idle_check_at
        is None
    )
    await desk.passes(10)
    await desk.check(worker)
    checked_at = desk.plane.records.clock.now()
    status = idle_status(
        desk.plane.records,
        desk.plane.caches,
        desk.plane.policies,
        await desk.plane.records.workers.get(worker.id),
    )
    assert status.last_activity_check_at == checked_at
    assert status.next_idle_check_at == checked_at + timedelta(minutes=5)


async def test_a_worker_without_idle_detection_runs_until_an_operator_stops_it(desk: Desk) -> None:
    worker = await desk.add()
    await toggle_idle_detection(desk.plane.records, desk.plane.policies, worker.id, enabled=False, by="ada")
    await desk.passes(6_000)
    assert (await desk.look_twice(worker)).guard == "detection_disabled"


async def test_an_idle_check_with_stale_telemetry_pauses_no_worker(desk: Desk) -> None:
    worker = await desk.add()
    await desk.passes(61)
    asked_at = desk.plane.records.clock.now()
    await desk.check(worker, asked_at=asked_at)
    await desk.plane.records.clock.sleep(31)
    result = await desk.check(worker, asked_at=asked_at)
    assert (result.auto_pause_triggered, result.guard) == (False, "unconfirmed")
    assert result.error is not None


@pytest.mark.parametrize("minutes", [-60, -5, 5, 60])
async def test_no_worker_is_paused_while_the_clocks_differ(desk: Desk, minutes: float) -> None:
    worker = await desk.add()
    await desk.passes(61)
    for _ in range(3):
        asked_at = desk.plane.records.clock.now() + timedelta(minutes=minutes)
        result = await desk.check(worker, asked_at=asked_at, force_check=True)
        await desk.plane.records.clock.sleep(15)
        assert (result.auto_pause_triggered, result.guard) == (False, "unconfirmed")


async def stopping(desk: Desk, worker: Worker) -> Worker:
    """The controller begins to carry out a stop."""
    current = await desk.plane.records.workers.get(worker.id)
    report = StatusReport(status=STOPPING, reason="idle", expected_version=current.version)
    return await report_status(
        desk.plane.records, desk.plane.policies, worker.id, report, by="worker-controller", fence=desk.fence
    )


async def test_a_pause_is_carried_out_within_a_minute_or_taken_back(desk: Desk) -> None:
    """A leader that comes later has not seen what people did meanwhile."""
    worker = await desk.add()
    await desk.passes(61)
    assert (await desk.look_twice(worker)).auto_pause_triggered
    await desk.plane.records.clock.sleep(61)
    kept = await stopping(desk, worker)
    assert (kept.status, kept.desired_status) == (RUNNING, DesiredStatus.RUNNING)
    assert kept.pause.due_at is not None
    await desk.passes(5)
    assert (await desk.look_twice(worker)).auto_pause_triggered
    assert (await stopping(desk, worker)).status is STOPPING


async def test_the_countdown_begins_when_the_worker_runs(desk: Desk) -> None:
    worker = await desk.plane.records.workers.add(
        a_worker(status=STARTING, created_at=desk.plane.records.clock.now())
    )
    report = StatusReport(status=RUNNING, reason="runs", expected_version=worker.version)
    running = await report_status(
        desk.plane.records, desk.plane.policies, worker.id, report, by="c", fence=desk.fence
    )
    assert running.pause.due_at == worker.created_at + timedelta(hours=1)


async def scaled_down(desk: Desk, worker: Worker) -> Worker:
    return await scale_down_worker(
        desk.plane.records,
        desk.plane.caches,
        desk.plane.policies,
        worker.id,
        by="worker-controller",
        fence=desk.fence,
    )


async def test_scale_down_drains_a_worker_that_two_idle_checks_found_idle(desk: Desk) -> None:
    worker = await desk.add()
    await desk.passes(61)
    await desk.check(worker, suppress_auto_pause=True)
    with pytest.raises(Conflict, match="second_look"):
        await scaled_down(desk, worker)
    await desk.plane.records.clock.sleep(15)
    await desk.check(worker, suppress_auto_pause=True)
    assert (await scaled_down(desk, worker)).status is DRAINING
    assert (await scaled_down(desk, worker)).status is DRAINING


async def test_scale_down_drains_no_worker_on_an_old_idle_check(desk: Desk) -> None:
    worker = await desk.add()
    await desk.passes(61)
    await desk.look_twice(worker, suppress_auto_pause=True)
    await desk.plane.records.clock.sleep(31)
    with pytest.raises(Conflict, match="unconfirmed"):
        await scaled_down(desk, worker)


async def test_activity_before_the_drain_keeps_the_worker(desk: Desk) -> None:
    worker = await desk.add()
    await desk.passes(61)
    await desk.look_twice(worker, suppress_auto_pause=True)
    until = desk.plane.records.clock.now() + timedelta(hours=2)
    await hold_worker(desk.plane.records, desk.plane.policies, worker.id, until=until, reason="", by="ada")
    with pytest.raises(Conflict, match="held"):
        await scaled_down(desk, worker)


async def test_activity_before_the_drained_worker_stops_keeps_it(desk: Desk) -> None:
    worker = await desk.add()
    await desk.passes(61)
    await desk.look_twice(worker, suppress_auto_pause=True)
    await scaled_down(desk, worker)
    until = desk.plane.records.clock.now() + timedelta(hours=2)
    held = await hold_worker(
        desk.plane.records, desk.plane.policies, worker.id, until=until, reason="", by="ada"
    )
    assert held.desired_status is DesiredStatus.RUNNING


async def test_scale_down_leaves_the_minimum(plane: ControlPlane, desk: Desk) -> None:
    desk.plane = dataclasses.replace(
        plane, policies=dataclasses.replace(ONE_REGION, idle=IdlePolicy(min_workers=1))
    )
    workers = [await desk.add(name) for name in ("a", "b")]
    await desk.passes(61)
    for worker in workers:
        await desk.check(worker, suppress_auto_pause=True)
    await desk.plane.records.clock.sleep(15)
    for worker in workers:
        await desk.check(worker, suppress_auto_pause=True)
    await scaled_down(desk, workers[0])
    with pytest.raises(Conflict, match="min_workers"):
        await scaled_down(desk, workers[1])


async def test_nothing_is_changed_about_a_terminated_worker(desk: Desk) -> None:
    worker = await desk.plane.records.workers.add(a_worker(status=TERMINATED))
    until = desk.plane.records.clock.now() + timedelta(hours=2)
    with pytest.raises(Conflict, match="is terminated"):
        await hold_worker(
            desk.plane.records, desk.plane.policies, worker.id, until=until, reason="", by="ada"
        )
    with pytest.raises(Conflict, match="is terminated"):
        await toggle_idle_detection(
            desk.plane.records, desk.plane.policies, worker.id, enabled=False, by="ada"
        )
    assert await desk.plane.records.workers.get(worker.id) == worker


async def test_a_former_leader_pauses_no_worker(desk: Desk) -> None:
    worker = await desk.add()
    await desk.passes(61)
    await desk.check(worker)
    claim = LeadershipClaim(service="worker-controller", cluster_id="c", revision=2, instance_id="b")
    await claim_leadership(desk.plane.records, claim)
    await desk.plane.records.clock.sleep(15)
    with pytest.raises(Fenced):
        await desk.check(worker)
    assert (await desk.plane.records.workers.get(worker.id)).desired_status is DesiredStatus.RUNNING


async def test_a_worker_that_moved_on_is_not_paused(desk: Desk) -> None:
    worker = await desk.add()
    await desk.passes(61)
    await desk.check(worker)
    await request_action(desk.plane.records, worker.id, Action.STOP, by="ada")
    await desk.plane.records.clock.sleep(15)
    result = await desk.check(worker)
    assert result.guard == "stop_requested"
    assert (await desk.plane.records.workers.get(worker.id)).pause.reason == "manual"


def test_what_is_decided_ends_when_the_worker_leaves_running() -> None:
    worker = a_worker(status=RUNNING)
    at = worker.created_at
    worker = with_fields(worker, pause_state=DECIDED, pause_since=at, target_pause_at=at)
    stopping = move(worker, STOPPING, by="c", reason="", now=at)
    assert (stopping.pause.decided_at, stopping.pause.due_at) == (None, None)


async def test_an_idle_check_that_changes_nothing_writes_nothing(desk: Desk) -> None:
    worker = await desk.add()
    await desk.check(worker)
    version = (await desk.plane.records.workers.get(worker.id)).version
    for _ in range(5):
        await desk.passes(5)
        await desk.check(worker)
    assert (await desk.plane.records.workers.get(worker.id)).version == version
