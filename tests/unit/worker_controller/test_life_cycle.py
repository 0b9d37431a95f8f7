"""A worker's whole life and what disturbs it, on virtual time with everything but the wire."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from lcm.control_plane.commands.accept_certificate import accept_certificate
from lcm.control_plane.commands.drain_worker import drain_worker
from lcm.domain.errors import (
    CapacityShortage,
    CredentialsRefused,
    LaunchRefused,
    LcmError,
    QuotaExceeded,
    RegionNotConfigured,
    Unreachable,
)
from lcm.domain.idle import IdlePolicy
from lcm.domain.lifecycle import (
    FAILED,
    PENDING,
    PROVISIONING,
    RUNNING,
    STARTING,
    STOPPED,
    STOPPING,
    TERMINATED,
    TERMINATING,
    WorkerStatus,
)
from lcm.domain.worker import Action, Worker
from lcm.worker_controller.settings import WorkerControllerSettings
from support.core import Link
from support.fleet import Fleet
from support.memory_cloud import Delays, Moment


async def test_a_worker_goes_through_its_whole_life() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        await fleet.ask(worker, Action.STOP)
        await fleet.until(worker, STOPPED)
        await fleet.ask(worker, Action.START)
        await fleet.until(worker, RUNNING)
        await fleet.ask(worker, Action.DELETE)
        await fleet.until(worker, TERMINATED)
        assert fleet.life_of(worker) == [
            *(PENDING, PROVISIONING, STARTING, RUNNING),
            *(STOPPING, STOPPED, STARTING, RUNNING),
            *(TERMINATING, TERMINATED),
        ]
        assert fleet.effects() == [
            "launch_instance",
            "stop_instance",
            "start_instance",
            "terminate_instance",
        ]
        counts = fleet.leader.stats.counts
        assert (counts["provisioned_count"], counts["started_count"]) == (1, 2)
        assert (counts["stopped_count"], counts["terminated_count"]) == (1, 1)


class TestAcceptanceExamples:
    """Seed 002 §5, row by row: what is desired, what EC2 shows, what is done."""

    async def test_desired_running_and_ec2_stopped_starts_it(self) -> None:
        async with Fleet().running() as fleet:
            worker = await fleet.running_worker()
            fleet.cloud.stop(fleet.instance_id(worker))
            await fleet.until(worker, STOPPED)
            await fleet.until(worker, RUNNING)
            assert fleet.effects() == ["launch_instance", "start_instance"]

    async def test_desired_running_and_cml_not_known_to_be_ready_finds_it_ready(self) -> None:
        async with Fleet().running() as fleet:
            worker = await fleet.running_worker()
            assert not worker.cml.is_ready
            await fleet.clock.sleep(60)
            worker = await fleet.get(worker)
            assert worker.cml.is_ready
            assert worker.cml.version == "2.9.1+build.7"

    async def test_desired_running_and_running_does_nothing(self) -> None:
        async with Fleet().running() as fleet:
            worker = await fleet.running_worker()
            await fleet.clock.sleep(120)
            settled = await fleet.get(worker)
            await fleet.clock.sleep(3_000)
            assert await fleet.get(worker) == settled
            assert fleet.effects() == ["launch_instance"]

    async def test_desired_stopped_and_ec2_running_stops_it(self) -> None:
        async with Fleet().running() as fleet:
            worker = await fleet.running_worker()
            await fleet.ask(worker, Action.STOP)
            await fleet.until(worker, STOPPED)
            assert fleet.effects() == ["launch_instance", "stop_instance"]

    async def test_desired_terminated_and_ec2_exists_terminates_it(self) -> None:
        async with Fleet().running() as fleet:
            worker = await fleet.running_worker()
            await fleet.ask(worker, Action.DELETE)
            await fleet.until(worker, TERMINATED)
            assert fleet.cloud.live_instances(worker.id) == []

    async def test_desired_running_and_ec2_missing_launches_it_anew(self) -> None:
        async with Fleet().running() as fleet:
            worker = await fleet.running_worker()
            gone = fleet.instance_id(worker)
            fleet.cloud.forget(gone)
            await fleet.until(worker, PENDING)
            worker = await fleet.until(worker, RUNNING)
            assert worker.instance.id != gone
            assert len(fleet.cloud.live_instances(worker.id)) == 1


async def test_a_click_reaches_ec2_before_the_debounce_window_is_over() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        await fleet.clock.sleep(100)  # the key is quiet
        clicked_at = fleet.clock.monotonic()
        await fleet.ask(worker, Action.STOP)
        await fleet.until(worker, STOPPED)
        [stop] = [call for call in fleet.cloud.calls if call.operation == "stop_instance"]
        assert stop.at == clicked_at


async def test_a_new_worker_is_launched_before_the_debounce_window_is_over() -> None:
    async with Fleet().running() as fleet:
        await fleet.clock.sleep(100)
        created_at = fleet.clock.monotonic()
        worker = await fleet.create()
        await fleet.until(worker, RUNNING)
        [launch] = [call for call in fleet.cloud.calls if call.operation == "launch_instance"]
        assert launch.at - created_at < 0.5


async def test_watch_and_poll_on_the_same_pending_worker_launch_one_instance() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.create()
        for _ in range(20):
            fleet.leader.loop.trigger(worker.id)
            await fleet.leader.loop.resync(everything=True)
            await fleet.clock.sleep(0.01)
        await fleet.until(worker, RUNNING)
        assert fleet.effects() == ["launch_instance"]
        assert len(fleet.cloud.instances) == 1


async def test_a_worker_whose_ec2_call_hangs_does_not_delay_another() -> None:
    fleet = Fleet()

    async def hang(moment: Moment, operation: str, subject: str) -> None:
        if operation == "stop_instance" and subject == stuck_instance:
            await asyncio.Event().wait()

    async with fleet.running():
        stuck, healthy = await fleet.running_worker("stuck"), await fleet.running_worker("healthy")
        stuck_instance = fleet.instance_id(stuck)
        fleet.cloud.interfere = hang
        await fleet.ask(stuck, Action.STOP)
        await fleet.clock.sleep(1)
        asked_at = fleet.clock.monotonic()
        await fleet.ask(healthy, Action.STOP)
        await fleet.until(healthy, STOPPED)
        assert fleet.cloud.calls[-1].at - asked_at <= fleet.cloud.delays.stop + fleet.settings.wait_seconds
        assert (await fleet.get(stuck)).status is STOPPING


async def test_a_lost_reply_to_a_launch_does_not_launch_twice() -> None:
    fleet = Fleet()
    lost: list[str] = []

    async def lose_first_reply(moment: Moment, operation: str, subject: str) -> None:
        if operation == "launch_instance" and moment == "after" and not lost:
            lost.append(subject)
            raise Unreachable("EC2 us-east-1: connection reset")

    fleet.cloud.interfere = lose_first_reply
    async with fleet.running():
        worker = await fleet.running_worker()
        assert lost
        assert len(fleet.cloud.instances) == 1
        assert worker.launch.generation == 1


async def test_a_new_instance_that_ec2_does_not_show_for_minutes_is_waited_for() -> None:
    fleet = Fleet()
    fleet.cloud.delays = Delays(visibility=280)
    async with fleet.running():
        worker = await fleet.running_worker()
        assert len(fleet.cloud.instances) == 1
        assert worker.launch.generation == 1


async def test_a_capacity_drought_keeps_the_worker_pending_with_the_reason() -> None:
    fleet = Fleet()
    drought = True

    async def no_capacity(moment: Moment, operation: str, subject: str) -> None:
        if operation == "launch_instance" and drought:
            raise CapacityShortage("EC2 refused RunInstances: InsufficientInstanceCapacity: none left")

    fleet.cloud.interfere = no_capacity
    async with fleet.running():
        worker = await fleet.create()
        await fleet.clock.sleep(10)
        worker = await fleet.get(worker)
        assert worker.status is PENDING
        assert "InsufficientInstanceCapacity" in worker.status_reason
        drought = False
        await fleet.until(worker, RUNNING)
        assert len(fleet.cloud.instances) == 1


@pytest.mark.parametrize("shortage", [CapacityShortage("none left"), QuotaExceeded("too many")])
async def test_a_worker_stopped_while_ec2_has_no_room_is_not_launched_when_it_has(shortage: LcmError) -> None:
    fleet = Fleet()
    is_short = True

    async def refuse(moment: Moment, operation: str, subject: str) -> None:
        if operation == "launch_instance" and moment == "before" and is_short:
            raise shortage

    fleet.cloud.interfere = refuse
    async with fleet.running():
        worker = await fleet.create()
        await fleet.clock.sleep(60)
        await fleet.ask(worker, Action.STOP)
        await fleet.clock.sleep(1_200)
        assert (await fleet.get(worker)).status is PENDING
        is_short = False
        await fleet.clock.sleep(1_200)
        assert fleet.cloud.live_instances(worker.id) == []
        await fleet.ask(worker, Action.START)
        await fleet.until(worker, RUNNING)


async def test_a_worker_that_does_not_run_in_time_fails_and_a_retry_uses_the_same_instance() -> None:
    fleet = Fleet(WorkerControllerSettings(provisioning_timeout_seconds=60))
    fleet.cloud.delays = Delays(launch=120)
    async with fleet.running():
        worker = await fleet.until(await fleet.create(template="small"), FAILED)
        assert "still exists and costs money" in worker.status_reason
        await fleet.ask(worker, Action.RETRY)
        await fleet.until(worker, PROVISIONING)
        worker = await fleet.until(worker, RUNNING)
        assert len(fleet.cloud.instances) == 1


async def test_the_template_says_how_long_a_launch_may_take() -> None:
    """R4: bare metal is given 40 minutes; a worker that fails before leaves an instance that costs money."""
    fleet = Fleet(WorkerControllerSettings(provisioning_timeout_seconds=60))
    fleet.cloud.delays = Delays(launch=30 * 60)
    async with fleet.running():
        slow, small = await fleet.create("slow"), await fleet.create("small", template="small")
        await fleet.until(small, FAILED)
        await fleet.until(slow, RUNNING, within_seconds=3_600)
        fleet.cloud.delays = Delays(launch=41 * 60)
        late = await fleet.until(await fleet.create("late"), FAILED, within_seconds=3_600)
        assert late.status_reason.startswith("not running after 40 minutes")


async def test_a_refused_launch_fails_the_worker_and_a_retry_asks_for_something_else() -> None:
    fleet = Fleet()
    refused = True

    async def refuse(moment: Moment, operation: str, subject: str) -> None:
        if operation == "launch_instance" and refused:
            raise LaunchRefused("EC2 refused RunInstances: InvalidSubnetID.NotFound: no such subnet")

    fleet.cloud.interfere = refuse
    async with fleet.running():
        worker = await fleet.until(await fleet.create(), FAILED)
        assert "InvalidSubnetID" in worker.status_reason
        assert worker.launch.intent is None
        refused = False
        await fleet.ask(worker, Action.RETRY)
        worker = await fleet.until(worker, RUNNING)
        assert worker.launch.generation == 2


async def test_where_ec2_cannot_be_read_nothing_is_launched() -> None:
    fleet = Fleet()
    denied = False

    async def deny(moment: Moment, operation: str, subject: str) -> None:
        if operation == "list_instances" and denied:
            raise CredentialsRefused("EC2 refused DescribeInstances: UnauthorizedOperation: no")

    fleet.cloud.interfere = deny
    async with fleet.running():
        await fleet.running_worker("first")
        denied = True
        await fleet.clock.sleep(40)
        second = await fleet.create("second")
        await fleet.clock.sleep(600)
        assert (await fleet.get(second)).status is PENDING
        assert fleet.effects() == ["launch_instance"]
        assert any("UnauthorizedOperation" in reason for reason in fleet.leader.loop.health.freeze_reasons)
        denied = False
        await fleet.until(second, RUNNING, within_seconds=120)


async def test_a_missing_template_fails_the_worker_and_says_what_to_do() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.create("odd", "small")
        # The record names a template that has been removed since.
        await fleet.store.delete("worker-template", "small", 1)
        failed = await fleet.until(worker, FAILED)
        assert "create it, then retry" in failed.status_reason
        assert fleet.effects() == []


@pytest.mark.parametrize("early", [0.0, 0.5, 5.0, 25.0])
async def test_deleting_a_worker_at_any_time_of_its_launch_leaves_nothing_behind(early: float) -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.create()
        await fleet.clock.sleep(early)
        await fleet.ask(worker, Action.DELETE)
        await fleet.until(worker, TERMINATED)
        assert fleet.cloud.live_instances(worker.id) == []


@pytest.mark.parametrize("early", [0.5, 5.0, 25.0])
async def test_stopping_a_worker_during_its_launch_ends_with_it_stopped(early: float) -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.create()
        await fleet.clock.sleep(early)
        await fleet.ask(worker, Action.STOP)
        await fleet.until(worker, STOPPED)


async def test_a_worker_stopped_before_its_launch_stays_pending_and_can_be_started_hours_later() -> None:
    async with Fleet().running(controllers=2) as fleet:
        worker = await fleet.create()
        await fleet.ask(worker, Action.STOP)
        await fleet.clock.sleep(3_600)
        fleet.leader.election.resign()  # the next one reconciles everything once
        await fleet.clock.sleep(3_600)
        resting = await fleet.get(worker)
        assert (resting.status, resting.desired_status, fleet.effects()) == (PENDING, "stopped", [])
        await fleet.ask(worker, Action.START)
        await fleet.until(worker, RUNNING)


async def test_a_worker_terminated_in_the_console_is_shown_as_terminated_and_not_resurrected() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        fleet.cloud.terminate(fleet.instance_id(worker))
        await fleet.until(worker, TERMINATED)
        await fleet.clock.sleep(3_600)
        assert fleet.effects() == ["launch_instance"]
        assert "shutting-down outside LCM" in [
            entry.reason for entry in (await fleet.get(worker)).state_history
        ]
        assert not fleet.leader.stats.drifts


async def test_a_stop_that_waits_for_configurations_is_reported_until_it_is_accepted() -> None:
    """Nobody extracts them here: it is carried out at the limit, by one call to EC2."""
    async with Fleet(idle=IdlePolicy(extract_within=timedelta(seconds=60))).running() as fleet:
        worker = await fleet.running_worker()
        await fleet.clock.sleep(60)
        await fleet.ask(worker, Action.STOP)
        began = fleet.clock.monotonic()
        await fleet.clock.sleep(59)
        assert (await fleet.get(worker)).status is RUNNING
        assert "stop_instance" not in fleet.effects()
        stopped = await fleet.until(worker, STOPPED)
        assert 60 <= fleet.clock.monotonic() - began < 90
        assert fleet.effects().count("stop_instance") == 1
        reasons = [line.reason for line in stopped.state_history]
        assert any("configurations were not extracted in time" in reason for reason in reasons)


@pytest.mark.parametrize(("start_seconds", "shown_as"), [(120, STARTING), (0, RUNNING)])
async def test_a_stopped_worker_started_in_the_console_is_seen_in_a_cycle_and_stopped_again(
    start_seconds: float, shown_as: WorkerStatus
) -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        await fleet.ask(worker, Action.STOP)
        await fleet.until(worker, STOPPED)
        fleet.cloud.delays = Delays(start=start_seconds)
        fleet.cloud.start(fleet.instance_id(worker))
        await fleet.until(worker, shown_as, within_seconds=31)
        await fleet.until(worker, STOPPED)
        assert fleet.effects() == ["launch_instance", "stop_instance", "stop_instance"]


@pytest.mark.parametrize("is_drained", [True, False])
async def test_a_paused_worker_started_in_the_console_is_stopped_again_and_was_paused_once(
    is_drained: bool,
) -> None:
    async with Fleet(WorkerControllerSettings(scale_down_enabled=is_drained)).running() as fleet:
        worker = await fleet.running_worker()
        paused = await fleet.until(worker, STOPPED, within_seconds=7_200)
        await fleet.clock.sleep(600)
        fleet.cloud.delays = Delays(start=0)
        fleet.cloud.start(fleet.instance_id(worker))
        await fleet.until(worker, RUNNING)
        await fleet.until(worker, STOPPED, within_seconds=120)
        again = await fleet.get(worker)
        assert again.pause.auto_pause_count == paused.pause.auto_pause_count
        assert [line.reason for line in again.state_history[-3:]] == [
            "running outside LCM",
            "idle",
            "EC2 reports stopped",
        ]


async def test_another_certificate_blocks_cml_but_never_fails_the_worker() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        await fleet.clock.sleep(120)
        await fleet.ask(worker, Action.STOP)
        await fleet.until(worker, STOPPED)
        fleet.cml.certificate = "b" * 64
        await fleet.ask(worker, Action.START)
        await fleet.until(worker, RUNNING)
        await fleet.clock.sleep(300)
        worker = await fleet.get(worker)
        assert (worker.status, worker.cml.is_ready) == (RUNNING, False)
        assert "another certificate" in worker.status_reason


async def test_a_certificate_that_a_person_accepts_gives_the_worker_back_as_it_is() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        await fleet.clock.sleep(120)
        await fleet.ask(worker, Action.STOP)
        await fleet.until(worker, STOPPED)
        pinned, fleet.cml.certificate = fleet.cml.certificate, "b" * 64
        await fleet.ask(worker, Action.START)
        await fleet.until(worker, RUNNING)
        await fleet.clock.sleep(120)
        refusing = await fleet.get(worker)
        assert (refusing.cml.certificate_sha256, refusing.cml.refused_certificate_sha256) == (
            pinned,
            "b" * 64,
        )
        await accept_certificate(fleet.plane.records, worker.id, "b" * 64, by="ann")
        await fleet.clock.sleep(60)
        worker = await fleet.get(worker)
        assert (worker.cml.is_ready, worker.instance.id) == (True, refusing.instance.id)
        assert "certificate" not in worker.status_reason
        (entry,) = [line for line in worker.state_history if line.by == "ann" and "accepted" in line.reason]
        assert pinned in entry.reason
        assert "b" * 64 in entry.reason


async def test_a_region_that_is_no_longer_configured_never_fails_a_running_worker() -> None:
    fleet = Fleet()

    async def not_configured(moment: Moment, operation: str, subject: str) -> None:
        raise RegionNotConfigured("region 'us-east-1' is not in aws_region_configs; configure it")

    async with fleet.running():
        worker = await fleet.running_worker()
        fleet.cloud.interfere = not_configured
        await fleet.clock.sleep(3_600)
        assert (await fleet.get(worker)).status is RUNNING
        assert any("EC2 us-east-1" in reason for reason in fleet.leader.loop.health.freeze_reasons)


async def test_a_worker_that_was_never_launched_is_deleted_though_its_region_cannot_be_listed() -> None:
    async with Fleet().running() as fleet:
        await fleet.running_worker("other")

        async def deny(moment: Moment, operation: str, subject: str) -> None:
            raise CredentialsRefused("UnauthorizedOperation")

        fleet.cloud.interfere = deny
        await fleet.clock.sleep(60)
        worker = await fleet.create("mistaken")
        await fleet.clock.sleep(60)
        assert (await fleet.get(worker)).status is PENDING
        await fleet.ask(worker, Action.DELETE)
        await fleet.until(worker, TERMINATED, within_seconds=5)
        assert fleet.effects() == ["launch_instance"]


async def test_the_address_follows_a_stop_and_start() -> None:
    async with Fleet().running() as fleet:
        before = await fleet.running_worker()
        await fleet.ask(before, Action.STOP)
        await fleet.until(before, STOPPED)
        await fleet.ask(before, Action.START)
        after = await fleet.until(before, RUNNING)
        assert after.instance.public_ip not in (None, before.instance.public_ip)


async def test_a_standby_takes_over_and_finishes_a_launch_without_a_second_instance() -> None:
    async with Fleet().running(controllers=2) as fleet:
        worker = await fleet.create()
        await fleet.until(worker, PROVISIONING)
        first = fleet.leader
        first.election.resign()
        worker = await fleet.until(worker, RUNNING)
        assert len(fleet.cloud.instances) == 1
        assert fleet.leader is not first or not first.election.is_leader


async def test_while_the_control_plane_is_down_nothing_is_touched_and_later_all_is_done() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        fleet.ports[0].is_reachable = False
        await fleet.ask(worker, Action.STOP)
        await fleet.clock.sleep(1_800)
        assert fleet.effects() == ["launch_instance"]
        assert fleet.leader.loop.health.freeze_reasons
        fleet.ports[0].is_reachable = True
        await fleet.until(worker, STOPPED, within_seconds=120)


@pytest.mark.parametrize("gone", [Link.cut, Link.freeze])
async def test_while_the_coordination_store_is_gone_for_an_hour_nothing_is_touched_and_soon_after_all_is_done(
    gone: Callable[[Link], None],
) -> None:
    async with Fleet().running(controllers=2) as fleet:
        worker = await fleet.running_worker()
        gone(fleet.link)
        await fleet.clock.sleep(60)
        await fleet.ask(worker, Action.STOP)
        await fleet.clock.sleep(3_600)
        assert fleet.effects() == ["launch_instance"]
        for controller in fleet.controllers:
            assert not controller.election.is_leader
            assert [reason.partition(":")[0] for reason in controller.loop.health.freeze_reasons] == [
                "coordination store"
            ]
        fleet.link.mend()
        await fleet.until(worker, STOPPING, within_seconds=30)
        later = await fleet.create("another")
        await fleet.until(later, PROVISIONING, within_seconds=30)


@pytest.mark.no_cover  # many times what is measured elsewhere
async def test_an_idle_day_changes_nothing_where_idle_workers_are_kept() -> None:
    async with Fleet(WorkerControllerSettings(worker_activity_detection_enabled=False)).running() as fleet:
        worker = await fleet.running_worker()
        await fleet.clock.sleep(120)
        version = (await fleet.get(worker)).version
        await fleet.clock.sleep(86_400)
        assert (await fleet.get(worker)).version == version
        assert fleet.effects() == ["launch_instance"]


def test_every_status_has_a_step() -> None:
    from lcm.worker_controller.reconciler import STEPS

    assert set(STEPS) == set(WorkerStatus)


async def test_a_launch_and_a_drain_are_in_the_audit_log() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        await drain_worker(fleet.plane.records, fleet.plane.policies, worker.id, by="ann", reason="enough")
        await fleet.until(worker, STOPPED)
        entries = await fleet.plane.records.audit.newest(worker_id=worker.id)
        assert [entry.event.value for entry in entries] == ["drained", "provisioned"]
        assert "EC2 accepted the launch of i-" in entries[-1].reason


async def test_a_failed_worker_is_skipped() -> None:
    fleet = Fleet()

    async def refuse(moment: Moment, operation: str, subject: str) -> None:
        if operation == "launch_instance":
            raise LaunchRefused("EC2 refused RunInstances: InvalidSubnetID.NotFound: no such subnet")

    fleet.cloud.interfere = refuse
    async with fleet.running():
        await fleet.until(await fleet.create(), FAILED)
        await fleet.clock.sleep(120)
        metrics = fleet.leader.loop.telemetry.render().decode()
    assert 'result="skip"' in metrics


class TestStopping:
    """A stop needs no observation of its own if the last one is recent: EC2 takes a stop at any time."""

    async def test_a_worker_seen_running_a_moment_ago_is_stopped_without_observing_it_again(self) -> None:
        async with Fleet().running() as fleet:
            worker = await fleet.running_worker()
            await fleet.clock.sleep(120)
            before = len(fleet.cloud.calls)
            await fleet.ask(worker, Action.STOP)
            await fleet.until(worker, STOPPING)
            await fleet.clock.sleep(0.1)
            asked = [call.operation for call in fleet.cloud.calls[before:]]
            assert asked == ["stop_instance"]
            await fleet.until(worker, STOPPED)

    async def test_a_worker_not_seen_for_longer_is_observed_before_it_is_stopped(self) -> None:
        async with Fleet(WorkerControllerSettings(reconcile_interval=3_600)).running() as fleet:
            worker = await fleet.running_worker()
            await fleet.clock.sleep(600)
            before = len(fleet.cloud.calls)
            await fleet.ask(worker, Action.STOP)
            await fleet.until(worker, STOPPING)
            await fleet.clock.sleep(0.1)
            asked = [call.operation for call in fleet.cloud.calls[before:]]
            assert asked == ["describe_instance", "stop_instance"]

    async def test_a_worker_stopped_outside_meanwhile_is_stopped_all_the_same(self) -> None:
        async with Fleet().running() as fleet:
            worker = await fleet.running_worker()
            await fleet.clock.sleep(120)
            fleet.cloud.stop(fleet.instance_id(worker))
            await fleet.ask(worker, Action.STOP)
            stopped = await fleet.until(worker, STOPPED)
            assert stopped.status_reason == "EC2 reports stopped"

    async def test_a_worker_terminated_outside_meanwhile_is_reported_as_it_is(self) -> None:
        async with Fleet().running() as fleet:
            worker = await fleet.running_worker()
            await fleet.clock.sleep(120)
            fleet.cloud.terminate(fleet.instance_id(worker))
            await fleet.ask(worker, Action.STOP)
            await fleet.until(worker, STOPPING)
            await fleet.clock.sleep(60)
            assert (await fleet.get(worker)).status is not STOPPING

    async def test_where_ec2_cannot_be_read_nothing_is_stopped(self) -> None:
        async def refuse(moment: Moment, operation: str, subject: str) -> None:
            if operation in ("list_instances", "describe_instance"):
                raise Unreachable("EC2: timed out")

        async with Fleet().running() as fleet:
            worker = await fleet.running_worker()
            await fleet.clock.sleep(120)
            fleet.cloud.interfere = refuse
            await fleet.clock.sleep(40)
            await fleet.ask(worker, Action.STOP)
            await fleet.clock.sleep(120)
            assert fleet.effects() == ["launch_instance"]
            fleet.cloud.interfere = None
            await fleet.until(worker, STOPPED)


async def _stopped_worker(fleet: Fleet) -> Worker:
    worker = await fleet.running_worker()
    await fleet.ask(worker, Action.STOP)
    return await fleet.until(worker, STOPPED)


class TestStarting:
    """A start needs no observation of its own either: starting a running instance succeeds."""

    async def test_a_worker_seen_stopped_a_moment_ago_is_started_without_observing_it_again(self) -> None:
        async with Fleet().running() as fleet:
            worker = await _stopped_worker(fleet)
            await fleet.clock.sleep(120)
            before = len(fleet.cloud.calls)
            await fleet.ask(worker, Action.START)
            await fleet.until(worker, STARTING)
            await fleet.clock.sleep(0.1)
            asked = [call.operation for call in fleet.cloud.calls[before:]]
            assert asked == ["start_instance"]
            await fleet.until(worker, RUNNING)

    async def test_a_worker_not_seen_for_longer_is_observed_before_it_is_started(self) -> None:
        async with Fleet(WorkerControllerSettings(reconcile_interval=3_600)).running() as fleet:
            worker = await _stopped_worker(fleet)
            await fleet.clock.sleep(600)
            before = len(fleet.cloud.calls)
            await fleet.ask(worker, Action.START)
            await fleet.until(worker, STARTING)
            await fleet.clock.sleep(0.1)
            asked = [call.operation for call in fleet.cloud.calls[before:]]
            assert asked == ["describe_instance", "start_instance"]

    async def test_a_worker_started_outside_meanwhile_is_running_all_the_same(self) -> None:
        async with Fleet().running() as fleet:
            worker = await _stopped_worker(fleet)
            await fleet.clock.sleep(120)
            fleet.cloud.start(fleet.instance_id(worker))
            await fleet.ask(worker, Action.START)
            await fleet.until(worker, RUNNING)

    async def test_a_worker_terminated_outside_meanwhile_is_reported_as_it_is(self) -> None:
        async with Fleet().running() as fleet:
            worker = await _stopped_worker(fleet)
            await fleet.clock.sleep(120)
            fleet.cloud.terminate(fleet.instance_id(worker))
            await fleet.ask(worker, Action.START)
            await fleet.until(worker, STARTING)
            failed = await fleet.until(worker, FAILED)
            assert failed.status_reason.startswith("the instance was terminated")

    async def test_where_ec2_cannot_be_read_nothing_is_started(self) -> None:
        async def refuse(moment: Moment, operation: str, subject: str) -> None:
            if operation in ("list_instances", "describe_instance"):
                raise Unreachable("EC2: timed out")

        async with Fleet().running() as fleet:
            worker = await _stopped_worker(fleet)
            await fleet.clock.sleep(120)
            before = fleet.effects()
            fleet.cloud.interfere = refuse
            await fleet.clock.sleep(40)
            await fleet.ask(worker, Action.START)
            await fleet.clock.sleep(120)
            assert fleet.effects() == before
            fleet.cloud.interfere = None
            await fleet.until(worker, RUNNING)


async def test_the_intent_of_a_first_launch_is_its_verification() -> None:
    async with Fleet().running() as fleet:
        called: list[str] = []
        fleet.ports[0].before = called.append
        await fleet.running_worker()
        assert called[:2] == ["record_launch_intent", "update_status"]
