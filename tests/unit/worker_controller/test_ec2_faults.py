"""What EC2 can do to us, row by row of the fault catalogue (groups A and E), on virtual time.

The same rows over EC2's wire protocol: tests/integration/test_ec2_wire.py.
"""

import itertools

import pytest

from lcm.domain.errors import (
    CapacityShortage,
    CredentialsRefused,
    LaunchRefused,
    QuotaExceeded,
    Throttled,
    TokenMismatch,
    Unreachable,
    WrongInstanceState,
)
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
    DesiredStatus,
    WorkerStatus,
)
from lcm.domain.pause import PauseReason
from lcm.domain.template import RegionConfig
from lcm.domain.worker import Action
from lcm.worker_controller.settings import WorkerControllerSettings
from support.fleet import REGION, Fleet
from support.memory_cloud import Delays, Interference, Moment

TWO_SUBNETS = RegionConfig(
    region="us-east-1", security_group_ids=("sg-1",), subnet_id="subnet-a", subnet_ids=("subnet-b",)
)
THREE_SUBNETS = RegionConfig(
    region="us-east-1",
    security_group_ids=("sg-1",),
    subnet_id="subnet-a",
    subnet_ids=("subnet-b", "subnet-c", "subnet-a"),
)
EUROPE = RegionConfig(region="eu-west-1", security_group_ids=("sg-9",), subnet_id="subnet-9")


WITHOUT_KVM = {
    "worker_templates": [
        {
            "name": "plain",
            "description": "",
            "instance_type": "t3.large",
            "cpu": 2,
            "memory_gb": 8,
            "disk_gb": 50,
            "max_nodes": 5,
            "usd_per_hour": 0.1,
        }
    ]
}


class Disturbance:
    """An error that one operation meets, until it is over."""

    def __init__(self, operation: str, error: Exception, moment: Moment = "before") -> None:
        self.operation = operation
        self.error = error
        self.moment = moment
        self.is_on = True
        self.times: list[float] = []
        self.fleet: Fleet | None = None

    def on(self, fleet: Fleet) -> "Disturbance":
        self.fleet = fleet
        fleet.cloud.interfere = self
        return self

    async def __call__(self, moment: Moment, operation: str, subject: str) -> None:
        if self.is_on and (operation, moment) == (self.operation, self.moment):
            assert self.fleet is not None
            self.times.append(self.fleet.clock.monotonic())
            raise self.error

    def gaps(self) -> list[float]:
        return [round(b - a, 1) for a, b in itertools.pairwise(self.times)]


def subnet_of_newest_promise(fleet: Fleet) -> str:
    intents = [commit.launch.intent for commit in fleet.commits if commit.launch.intent is not None]
    return intents[-1].spec.subnet_id


def no_capacity_in(fleet: Fleet, *subnets: str) -> Interference:
    async def refuse(moment: Moment, operation: str, subject: str) -> None:
        is_launch = (operation, moment) == ("launch_instance", "before")
        if is_launch and subnet_of_newest_promise(fleet) in subnets:
            raise CapacityShortage("EC2 refused RunInstances: InsufficientInstanceCapacity: none")

    return refuse


class TestA1LaunchIsCut:
    """A1: the controller dies at a step of a launch; the next one resumes from the record."""

    @pytest.mark.parametrize("moment", ["before", "after"])
    @pytest.mark.parametrize("call", ["record_launch_intent", "launch_instance", "update_status"])
    async def test_a_launch_cut_at_any_call_ends_with_one_instance(self, call: str, moment: str) -> None:
        async with Fleet().running(controllers=2) as fleet:
            first = fleet.leader
            port = fleet.ports[fleet.controllers.index(first)]
            cut: list[str] = []

            def die(name: str) -> None:
                if name == call and not cut:
                    cut.append(name)
                    port.is_reachable = False
                    first.election.resign()
                    raise Unreachable("the process is gone")

            async def die_at_ec2(when: Moment, operation: str, subject: str) -> None:
                if when == moment:
                    die(operation)

            fleet.cloud.interfere = die_at_ec2
            setattr(port, moment, die)
            worker = await fleet.create()
            worker = await fleet.until(worker, RUNNING)
            assert cut
            assert len(fleet.cloud.instances) == 1
            assert worker.launch.generation == 1


class TestA2ActionIsCut:
    """A2: the controller dies at a step of a stop, start or terminate; the next one completes it."""

    @pytest.mark.parametrize("moment", ["before", "after"])
    @pytest.mark.parametrize(
        ("action", "call", "goal"),
        [
            (Action.STOP, "stop_instance", STOPPED),
            (Action.DELETE, "terminate_instance", TERMINATED),
        ],
    )
    async def test_an_action_cut_at_ec2_is_completed_once(
        self, action: Action, call: str, goal: WorkerStatus, moment: Moment
    ) -> None:
        async with Fleet().running(controllers=2) as fleet:
            worker = await fleet.running_worker()
            first = fleet.leader
            [instance] = fleet.cloud.live_instances(worker.id)

            async def die(when: Moment, operation: str, subject: str) -> None:
                if (when, operation) == (moment, call) and first.election.is_leader:
                    fleet.ports[fleet.controllers.index(first)].is_reachable = False
                    first.election.resign()
                    raise Unreachable("the process is gone")

            fleet.cloud.interfere = die
            await fleet.ask(worker, action)
            await fleet.until(worker, goal)
            assert len(instance.transitions) == 2  # launched, and moved once more


class TestA3LaunchReplyLost:
    """A3: RunInstances took effect and its answer was lost; the stored token brings the same instance."""

    async def test_many_lost_replies_still_make_one_instance(self) -> None:
        fleet = Fleet()
        disturbance = Disturbance("launch_instance", Unreachable("EC2: reset"), "after").on(fleet)
        fleet.cloud.delays = Delays(visibility=100)
        async with fleet.running():
            worker = await fleet.create()
            await fleet.clock.sleep(60)
            assert len(disturbance.times) > 2
            disturbance.is_on = False
            worker = await fleet.until(worker, RUNNING)
            assert len(fleet.cloud.instances) == 1
            assert worker.launch.generation == 1


class TestA4LaunchLandsLate:
    """A4: a launch takes effect after its caller gave up; no second token until it is resolved."""

    async def test_a_shortage_after_an_unanswered_launch_tries_no_other_subnet(self) -> None:
        fleet = Fleet(None, TWO_SUBNETS)
        errors = [Unreachable("EC2: no answer")]

        async def first_silent_then_short(moment: Moment, operation: str, subject: str) -> None:
            if (operation, moment) == ("launch_instance", "before"):
                raise errors.pop() if errors else CapacityShortage("InsufficientInstanceCapacity")

        fleet.cloud.interfere = first_silent_then_short
        async with fleet.running():
            worker = await fleet.create()
            await fleet.clock.sleep(300)
            intent = (await fleet.get(worker)).launch.intent
            assert intent is not None
            assert (intent.generation, intent.spec.subnet_id) == (1, "subnet-a")
            # The silent request lands now: it is found by its tag and token, and it is the only one.
            fleet.cloud.interfere = None
            await fleet.cloud.launch_instance(intent.spec, intent.client_token)
            await fleet.until(worker, RUNNING)
            assert len(fleet.cloud.instances) == 1

    async def test_a_refusal_after_an_unanswered_launch_keeps_the_launch_intent(self) -> None:
        fleet = Fleet()
        errors: list[Exception] = [LaunchRefused("InvalidSubnetID.NotFound"), Unreachable("EC2: no answer")]

        async def first_silent_then_refusing(moment: Moment, operation: str, subject: str) -> None:
            if (operation, moment) == ("launch_instance", "before") and errors:
                raise errors.pop()

        fleet.cloud.interfere = first_silent_then_refusing
        async with fleet.running():
            worker = await fleet.until(await fleet.create(), FAILED)
            assert worker.has_unresolved_launch
            await fleet.ask(worker, Action.RETRY)
            worker = await fleet.until(worker, RUNNING)
            assert worker.launch.generation == 1


class TestA5ActionReplyLost:
    """A5: a stop or terminate took effect and its answer was lost; observe, then repeat harmlessly."""

    @pytest.mark.parametrize(
        ("action", "call", "goal"),
        [(Action.STOP, "stop_instance", STOPPED), (Action.DELETE, "terminate_instance", TERMINATED)],
    )
    async def test_a_lost_reply_is_followed_by_an_observation_and_not_by_a_second_move(
        self, action: Action, call: str, goal: WorkerStatus
    ) -> None:
        async with Fleet().running() as fleet:
            worker = await fleet.running_worker()
            [instance] = fleet.cloud.live_instances(worker.id)
            disturbance = Disturbance(call, Unreachable("EC2: reset"), "after").on(fleet)
            await fleet.ask(worker, action)
            await fleet.until(worker, goal)
            assert len(instance.transitions) == 2
            assert len(disturbance.times) == 1


class TestA6WriteReplyLost:
    """A6: a write was committed and its answer was lost; reading again shows our own write."""

    async def test_a_launch_intent_whose_reply_was_lost_is_kept_and_not_recorded_again(self) -> None:
        async with Fleet().running() as fleet:
            lost: list[str] = []

            def lose(name: str) -> None:
                if name == "record_launch_intent" and not lost:
                    lost.append(name)
                    raise Unreachable("control plane: reset")

            fleet.ports[0].after = lose
            worker = await fleet.running_worker()
            assert lost
            assert worker.launch.generation == 1
            assert len(fleet.cloud.instances) == 1


class TestA9PoisonRecord:
    """A9: one record makes every pass fail; the others go on and it backs off to a minute."""

    async def test_a_worker_whose_pass_always_breaks_does_not_disturb_the_others(self) -> None:
        async with Fleet().running() as fleet:
            poisoned = await fleet.running_worker("poisoned")
            bad = fleet.instance_id(poisoned)
            seen: list[float] = []

            async def break_down(moment: Moment, operation: str, subject: str) -> None:
                if (operation, subject) == ("stop_instance", bad):
                    seen.append(fleet.clock.monotonic())
                    raise ZeroDivisionError("a bug")

            fleet.cloud.interfere = break_down
            await fleet.ask(poisoned, Action.STOP)
            healthy = await fleet.running_worker("healthy")
            await fleet.clock.sleep(600)
            assert (await fleet.get(healthy)).status is RUNNING
            assert (await fleet.get(poisoned)).status is STOPPING
            gaps = [b - a for a, b in itertools.pairwise(seen)]
            assert gaps == sorted(gaps)
            assert max(gaps) <= 61


class TestE1Throttling:
    """E1: RequestLimitExceeded or 503; wait, retry with growing gaps, say why, break nothing."""

    async def test_ten_minutes_of_throttling_delay_a_launch_and_nothing_else(self) -> None:
        fleet = Fleet()
        storm = Disturbance("launch_instance", Throttled("EC2 refused RunInstances: RequestLimitExceeded"))
        storm.on(fleet)
        async with fleet.running():
            await fleet.past_the_first_sweep()
            worker = await fleet.create()
            await fleet.clock.sleep(600)
            worker = await fleet.get(worker)
            assert (worker.status, worker.launch.generation) == (PENDING, 1)
            assert "RequestLimitExceeded" in worker.status_reason
            assert storm.gaps() == sorted(storm.gaps())
            assert len(storm.times) < 20
            storm.is_on = False
            await fleet.until(worker, RUNNING)
            assert len(fleet.cloud.instances) == 1

    async def test_observations_of_a_worker_in_transition_are_repeated_with_growing_gaps(self) -> None:
        async with Fleet().running() as fleet:
            worker = await fleet.running_worker()
            storm = Disturbance("describe_instance", Throttled("RequestLimitExceeded")).on(fleet)
            await fleet.ask(worker, Action.STOP)
            await fleet.clock.sleep(600)
            assert len(storm.times) < 20
            storm.is_on = False
            await fleet.until(worker, STOPPED)


class TestE2Capacity:
    """E2: no capacity; keep record and instance, say why, wait three minutes; another subnet
    only for a launch."""

    async def test_a_launch_goes_to_the_next_subnet_at_once(self) -> None:
        fleet = Fleet(None, TWO_SUBNETS)
        fleet.cloud.interfere = no_capacity_in(fleet, "subnet-a")
        async with fleet.running():
            worker = await fleet.running_worker()
            assert subnet_of_newest_promise(fleet) == "subnet-b"
            assert (worker.launch.generation, worker.launch.unattended) == (2, 1)
            assert len(fleet.cloud.instances) == 1

    async def test_every_subnet_is_tried_once_and_then_there_is_a_wait_of_three_minutes(self) -> None:
        fleet = Fleet(None, THREE_SUBNETS)
        fleet.cloud.interfere = no_capacity_in(fleet, "subnet-a", "subnet-b", "subnet-c")
        async with fleet.running():
            await fleet.past_the_first_sweep()
            worker = await fleet.create()
            await fleet.clock.sleep(1)
            asked = [call.at for call in fleet.cloud.calls if call.operation == "launch_instance"]
            assert len(asked) == 3
            await fleet.clock.sleep(170)
            assert fleet.effects() == ["launch_instance"] * 3
            assert "InsufficientInstanceCapacity" in (await fleet.get(worker)).status_reason
            # The round begins where the last one ended, so no subnet is favoured for ever.
            fleet.cloud.interfere = no_capacity_in(fleet, "subnet-c", "subnet-a")
            worker = await fleet.until(worker, RUNNING)
            assert subnet_of_newest_promise(fleet) == "subnet-b"
            assert len(fleet.cloud.instances) == 1

    async def test_a_drought_in_every_subnet_uses_up_no_launches(self) -> None:
        fleet = Fleet(None, THREE_SUBNETS)
        fleet.cloud.interfere = no_capacity_in(fleet, "subnet-a", "subnet-b", "subnet-c")
        async with fleet.running():
            worker = await fleet.create()
            await fleet.clock.sleep(800)
            worker = await fleet.get(worker)
            assert worker.status is PENDING
            assert worker.launch.generation > 3
            assert worker.launch.unattended == 1

    async def test_after_a_takeover_another_subnet_waits_until_nothing_can_land_any_more(self) -> None:
        fleet = Fleet(None, TWO_SUBNETS)
        shortage = no_capacity_in(fleet, "subnet-a", "subnet-b")
        fleet.cloud.interfere = shortage
        async with fleet.running(controllers=2):
            worker = await fleet.create()
            await fleet.clock.sleep(1)
            generation = (await fleet.get(worker)).launch.generation
            fleet.leader.election.resign()
            await fleet.clock.sleep(500)
            assert (await fleet.get(worker)).launch.generation == generation
            await fleet.clock.sleep(300)
            assert (await fleet.get(worker)).launch.generation > generation

    async def test_a_start_without_capacity_keeps_the_worker_and_its_instance(self) -> None:
        fleet = Fleet(None, TWO_SUBNETS)
        async with fleet.running():
            worker = await fleet.running_worker()
            await fleet.ask(worker, Action.STOP)
            await fleet.until(worker, STOPPED)
            drought = Disturbance("start_instance", CapacityShortage("InsufficientInstanceCapacity")).on(
                fleet
            )
            await fleet.ask(worker, Action.START)
            await fleet.clock.sleep(2_000)
            waiting = await fleet.get(worker)
            assert (waiting.status, waiting.instance.id) == (STARTING, worker.instance.id)
            assert "InsufficientInstanceCapacity" in waiting.status_reason
            assert min(drought.gaps()) >= 180
            drought.is_on = False
            await fleet.until(worker, RUNNING)
            assert len(fleet.cloud.instances) == 1

    async def test_a_start_without_capacity_says_so_and_raises_an_alarm_as_long_as_it_lasts(self) -> None:
        """R4: for bare metal that can be hours, in which people wait for the worker."""
        fleet = Fleet(None, TWO_SUBNETS)
        async with fleet.running():
            worker = await fleet.running_worker()
            await fleet.ask(worker, Action.STOP)
            await fleet.until(worker, STOPPED)
            drought = Disturbance("start_instance", CapacityShortage("InsufficientInstanceCapacity")).on(
                fleet
            )
            await fleet.ask(worker, Action.START)
            for _ in range(6):
                await fleet.clock.sleep(3_600)
                assert (await fleet.get(worker)).status_reason == (
                    "InsufficientInstanceCapacity; the start is repeated until EC2 has capacity"
                )
                assert fleet.leader.stats.stuck == {worker.id}
            drought.is_on = False
            await fleet.until(worker, RUNNING)
            assert fleet.leader.stats.stuck == set()


class TestE3Quota:
    """E3: an account limit; blocked with the reason, retry after a quarter of an hour, no churn."""

    async def test_a_quota_is_asked_again_only_after_a_quarter_of_an_hour(self) -> None:
        fleet = Fleet(None, TWO_SUBNETS)
        limit = Disturbance("launch_instance", QuotaExceeded("VcpuLimitExceeded: 64 vCPUs")).on(fleet)
        async with fleet.running():
            await fleet.past_the_first_sweep()
            worker = await fleet.create()
            await fleet.clock.sleep(890)
            worker = await fleet.get(worker)
            assert len(limit.times) == 1
            assert worker.launch.generation == 1
            assert "VcpuLimitExceeded" in worker.status_reason


class TestE4CredentialsLost:
    """E4: we may not ask any more; everything freezes and nothing is read as gone."""

    async def test_a_refused_describe_of_one_instance_freezes_the_whole_region(self) -> None:
        async with Fleet().running() as fleet:
            first, second = await fleet.running_worker("first"), await fleet.running_worker("second")
            await fleet.ask(first, Action.STOP)
            await fleet.until(first, STOPPING)
            denial = Disturbance("describe_instance", CredentialsRefused("ExpiredToken")).on(fleet)
            await fleet.clock.sleep(fleet.settings.wait_seconds + 0.1)
            assert any("ExpiredToken" in reason for reason in fleet.leader.loop.health.freeze_reasons)
            await fleet.ask(second, Action.STOP)
            await fleet.clock.sleep(0.1)
            assert fleet.effects() == ["launch_instance", "launch_instance", "stop_instance"]
            denial.is_on = False
            await fleet.until(second, STOPPED, within_seconds=120)

    async def test_a_region_is_readable_again_also_without_polling(self) -> None:
        async with Fleet(WorkerControllerSettings(reconcile_polling_enabled=False)).running() as fleet:
            worker = await fleet.running_worker()
            await fleet.past_the_first_sweep()
            expired = Disturbance("describe_instance", CredentialsRefused("EC2: ExpiredToken")).on(fleet)
            await fleet.ask(worker, Action.STOP)
            await fleet.clock.sleep(60)
            assert (await fleet.get(worker)).status is not STOPPED
            expired.is_on = False
            await fleet.until(worker, STOPPED, within_seconds=90)
            assert fleet.leader.loop.health.freeze_reasons == []

    async def test_hours_without_credentials_end_no_worker_and_launch_none(self) -> None:
        async with Fleet().running() as fleet:
            worker = await fleet.running_worker()

            async def deny(moment: Moment, operation: str, subject: str) -> None:
                raise CredentialsRefused("EC2 us-east-1: Unable to locate credentials")

            fleet.cloud.interfere = deny
            await fleet.clock.sleep(4 * 3_600)
            assert (await fleet.get(worker)).status is RUNNING
            assert fleet.effects() == ["launch_instance"]

    async def test_an_intended_launch_is_not_repeated_before_ec2_can_be_observed(self) -> None:
        async with Fleet().running() as fleet:
            worker = await fleet.create()
            lost = Disturbance("launch_instance", Unreachable("no answer"), "after").on(fleet)
            await fleet.clock.sleep(1)
            assert len(lost.times) == 1

            async def deny(moment: Moment, operation: str, subject: str) -> None:
                raise CredentialsRefused("ExpiredToken")

            fleet.cloud.interfere = deny
            await fleet.clock.sleep(800)
            assert fleet.effects() == ["launch_instance"]
            fleet.cloud.interfere = None
            await fleet.until(worker, RUNNING)
            assert len(fleet.cloud.instances) == 1


class TestE5TokenMismatch:
    """E5: the token was used with other parameters; keep it, for an instance may exist."""

    async def test_a_mismatch_fails_the_worker_and_keeps_its_launch_intent(self) -> None:
        fleet = Fleet(None, TWO_SUBNETS)
        Disturbance("launch_instance", TokenMismatch("IdempotentParameterMismatch")).on(fleet)
        async with fleet.running():
            worker = await fleet.until(await fleet.create(), FAILED)
            assert worker.has_unresolved_launch
            assert worker.launch.generation == 1


class TestE6GivenUpByEc2:
    """E6: pending, then terminated by EC2 itself; keep the reason, launch anew, three times at most."""

    async def test_an_instance_that_ec2_terminates_is_launched_again_and_the_reason_is_kept(self) -> None:
        async with Fleet().running() as fleet:
            worker = await fleet.create()
            await fleet.until(worker, PROVISIONING)
            fleet.cloud.terminate(fleet.instance_id(worker), "Server.InternalError")
            worker = await fleet.until(worker, RUNNING)
            assert worker.launch.generation == 2
            reasons = [entry.reason for entry in worker.state_history]
            assert any("Server.InternalError" in reason for reason in reasons)
            assert len(fleet.cloud.live_instances(worker.id)) == 1

    async def test_after_three_such_instances_the_worker_has_failed(self) -> None:
        async with Fleet().running() as fleet:
            worker = await fleet.create()
            for _ in range(3):
                await fleet.until(worker, PROVISIONING)
                fleet.cloud.terminate(fleet.instance_id(worker), "Client.VolumeLimitExceeded")
            worker = await fleet.until(worker, FAILED)
            assert "Client.VolumeLimitExceeded" in worker.status_reason
            assert len(fleet.cloud.instances) == 3

    async def test_an_instance_that_a_person_terminated_is_not_launched_again(self) -> None:
        async with Fleet().running() as fleet:
            worker = await fleet.create()
            await fleet.until(worker, PROVISIONING)
            fleet.cloud.terminate(fleet.instance_id(worker))
            await fleet.until(worker, FAILED)
            assert len(fleet.cloud.instances) == 1


class TestE7Stuck:
    """E7: stopping or shutting-down that does not end; an alarm after a time that depends on the type."""

    @pytest.mark.parametrize(
        ("template", "quiet_minutes", "alarm_minutes"), [("small", 14, 16), ("metal", 39, 41)]
    )
    @pytest.mark.parametrize(
        ("action", "status", "state"),
        [(Action.STOP, STOPPING, "stopping"), (Action.DELETE, TERMINATING, "shutting-down")],
    )
    async def test_an_instance_stuck_in_transition_raises_an_alarm_and_nothing_is_forced(
        self,
        template: str,
        quiet_minutes: int,
        alarm_minutes: int,
        action: Action,
        status: WorkerStatus,
        state: str,
    ) -> None:
        fleet = Fleet()
        fleet.cloud.delays = Delays(stop=100_000, terminate=100_000)
        async with fleet.running():
            worker = await fleet.until(await fleet.create("lab", template), RUNNING)
            await fleet.ask(worker, action)
            await fleet.clock.sleep(quiet_minutes * 60)
            assert not fleet.leader.stats.stuck
            await fleet.clock.sleep((alarm_minutes - quiet_minutes) * 60)
            stuck = await fleet.get(worker)
            assert fleet.leader.stats.stuck == {worker.id}
            assert stuck.status == status
            assert f"EC2 reports {state} for more than" in stuck.status_reason
            version, calls = stuck.version, len(fleet.effects())
            await fleet.clock.sleep(3_600)
            assert ((await fleet.get(worker)).version, len(fleet.effects())) == (version, calls)


class TestE8WrongState:
    """E8: IncorrectInstanceState; wait for a stable state, no error to the user."""

    async def test_a_start_while_it_is_still_stopping_waits_without_a_word(self) -> None:
        fleet = Fleet()
        async with fleet.running():
            worker = await fleet.running_worker()
            await fleet.ask(worker, Action.STOP)
            await fleet.until(worker, STOPPED)
            early = Disturbance("start_instance", WrongInstanceState("IncorrectInstanceState")).on(fleet)
            await fleet.ask(worker, Action.START)
            await fleet.clock.sleep(10)
            assert "IncorrectInstanceState" not in (await fleet.get(worker)).status_reason
            early.is_on = False
            await fleet.until(worker, RUNNING)


class TestE9ChangedOutside:
    """E9: ended or stopped by others; observed within a poll, desired status kept, a deletion completes."""

    async def test_deleting_a_worker_whose_instance_is_gone_already_completes(self) -> None:
        async with Fleet().running() as fleet:
            worker = await fleet.running_worker()
            await fleet.ask(worker, Action.STOP)
            await fleet.until(worker, STOPPED)
            fleet.cloud.forget(fleet.instance_id(worker))
            await fleet.ask(worker, Action.DELETE)
            await fleet.until(worker, TERMINATED, within_seconds=400)

    @pytest.mark.parametrize("stop_seconds", [1, 300])
    async def test_a_stop_in_the_console_is_an_external_pause_and_the_worker_comes_back_by_itself(
        self, stop_seconds: float
    ) -> None:
        """Whether EC2 shows `stopping` on the way or not."""
        fleet = Fleet()
        fleet.cloud.delays = Delays(stop=stop_seconds)
        async with fleet.running():
            worker = await fleet.running_worker()
            fleet.cloud.stop(fleet.instance_id(worker))
            stopped = await fleet.until(worker, STOPPED)
            assert (stopped.pause.reason, stopped.pause.last_paused_by) == (
                PauseReason.EXTERNAL,
                "worker-controller",
            )
            assert stopped.pause.manual_pause_count == stopped.pause.auto_pause_count == 0
            back = await fleet.until(worker, RUNNING)
            assert (back.pause.auto_resume_count, back.pause.manual_resume_count) == (1, 0)
            assert back.pause.last_resumed_at is not None
            assert back.desired_status is DesiredStatus.RUNNING

    async def test_a_start_in_the_console_of_a_worker_to_be_stopped_is_reported_and_undone(self) -> None:
        async with Fleet().running() as fleet:
            worker = await fleet.running_worker()
            await fleet.ask(worker, Action.STOP)
            await fleet.until(worker, STOPPED)
            fleet.cloud.start(fleet.instance_id(worker))
            await fleet.until(worker, STARTING)
            stopped = await fleet.until(worker, STOPPED)
            assert (stopped.pause.reason, stopped.pause.auto_resume_count) == (PauseReason.MANUAL, 0)

    async def test_a_retirement_by_ec2_of_a_running_instance_is_reported_and_not_undone(self) -> None:
        async with Fleet().running() as fleet:
            worker = await fleet.running_worker()
            fleet.cloud.terminate(fleet.instance_id(worker), "Server.ScheduledStop")
            await fleet.until(worker, TERMINATED, within_seconds=60)
            assert fleet.effects() == ["launch_instance"]


class TestE10NotFound:
    """E10: EC2 does not know an id that we know; three reads over five minutes before it is gone."""

    @pytest.mark.parametrize("blind_seconds", [60, 200, 290])
    async def test_an_instance_missing_for_less_than_five_minutes_is_not_gone(
        self, blind_seconds: float
    ) -> None:
        async with Fleet().running() as fleet:
            worker = await fleet.running_worker()
            await fleet.clock.sleep(60)
            hidden = fleet.cloud.instances.pop(fleet.instance_id(worker))
            await fleet.clock.sleep(blind_seconds)
            fleet.cloud.instances[hidden.id] = hidden
            await fleet.clock.sleep(600)
            assert fleet.life_of(worker) == ["pending", "provisioning", "starting", "running"]
            assert fleet.effects() == ["launch_instance"]


class TestE12AddressChanged:
    """E12: another address after a stop and start, or another worker at ours; the pin decides."""

    async def test_the_record_follows_the_address_of_the_instance(self) -> None:
        async with Fleet().running() as fleet:
            before = await fleet.running_worker()
            instance = fleet.cloud.instances[fleet.instance_id(before)]
            instance.public_ip = "203.0.113.9"
            await fleet.clock.sleep(60)
            assert (await fleet.get(before)).instance.public_ip == "203.0.113.9"

    async def test_a_server_with_another_certificate_at_our_address_is_not_talked_to(self) -> None:
        async with Fleet().running() as fleet:
            worker = await fleet.running_worker()
            await fleet.clock.sleep(120)
            assert (await fleet.get(worker)).cml.is_ready
            await fleet.ask(worker, Action.STOP)
            await fleet.until(worker, STOPPED)
            fleet.cml.certificate = "f" * 64
            await fleet.ask(worker, Action.START)
            await fleet.until(worker, RUNNING)
            await fleet.clock.sleep(600)
            worker = await fleet.get(worker)
            assert not worker.cml.is_ready
            assert "another certificate" in worker.status_reason


class TestE13Tags:
    """E13: tags copied to a foreign instance, or removed from ours; ownership is tag, record and token."""

    async def test_a_foreign_instance_with_a_copied_tag_is_not_taken_for_the_worker(self) -> None:
        fleet = Fleet()
        drought = Disturbance("launch_instance", CapacityShortage("InsufficientInstanceCapacity")).on(fleet)
        async with fleet.running():
            worker = await fleet.create()
            await fleet.clock.sleep(1)
            drought.is_on = False
            intent = (await fleet.get(worker)).launch.intent
            assert intent is not None
            foreign = await fleet.cloud.launch_instance(intent.spec, "somebody-elses-token")
            worker = await fleet.until(worker, RUNNING)
            assert worker.instance.id != foreign.id

    async def test_an_instance_whose_tags_were_removed_is_still_found_by_its_id(self) -> None:
        async with Fleet().running() as fleet:
            worker = await fleet.running_worker()
            fleet.cloud.retag(fleet.instance_id(worker), {})
            await fleet.clock.sleep(1_800)
            assert fleet.life_of(worker)[-1] == "running"
            assert fleet.effects() == ["launch_instance"]


class TestE14Hanging:
    """E14: calls that take a minute; the lease is kept and other workers are served."""

    async def test_calls_that_hang_cost_neither_the_lease_nor_the_others(self) -> None:
        fleet = Fleet()
        async with fleet.running(controllers=2):
            slow = await fleet.running_worker("slow")
            stuck, leader = fleet.instance_id(slow), fleet.leader

            async def hang(moment: Moment, operation: str, subject: str) -> None:
                if subject == stuck and operation == "stop_instance" and moment == "before":
                    await fleet.clock.sleep(14)
                    raise Unreachable("EC2 us-east-1: no answer")

            fleet.cloud.interfere = hang
            await fleet.ask(slow, Action.STOP)
            other = await fleet.running_worker("other")
            await fleet.clock.sleep(300)
            assert (await fleet.get(other)).status is RUNNING
            assert fleet.leader is leader


class TestSeveralRegions:
    """One client per region: a region that fails says nothing about another."""

    async def test_a_region_that_cannot_be_listed_does_not_stop_another_one(self) -> None:
        fleet = Fleet(None, REGION, EUROPE)

        async def blind_in_europe(moment: Moment, operation: str, subject: str) -> None:
            if (operation, subject) == ("list_instances", "eu-west-1"):
                raise Unreachable("EC2 eu-west-1: no answer")

        async with fleet.running():
            european = await fleet.until(await fleet.create("europe", region="eu-west-1"), RUNNING)
            fleet.cloud.interfere = blind_in_europe
            await fleet.clock.sleep(60)
            await fleet.ask(european, Action.STOP)
            await fleet.running_worker("america")
            await fleet.clock.sleep(300)
            assert (await fleet.get(european)).status in (RUNNING, STOPPING)
            assert "stop_instance" not in fleet.effects()

    @pytest.mark.parametrize("blind_seconds", [130, 160, 190])
    async def test_workers_that_waited_for_a_region_are_reconciled_with_the_first_list_that_succeeds(
        self, blind_seconds: float
    ) -> None:
        fleet = Fleet()

        async def unreadable(moment: Moment, operation: str, subject: str) -> None:
            if operation == "list_instances":
                raise Throttled("EC2 refused DescribeInstances: RequestLimitExceeded")

        async with fleet.running():
            worker = await fleet.running_worker()
            fleet.cloud.interfere = unreadable
            await fleet.clock.sleep(fleet.settings.reconcile_interval)
            await fleet.ask(worker, Action.STOP)
            await fleet.clock.sleep(blind_seconds)
            assert fleet.effects() == ["launch_instance"]
            fleet.cloud.interfere = None
            await fleet.clock.sleep(fleet.settings.reconcile_interval + 1)
            assert fleet.effects() == ["launch_instance", "stop_instance"]

    async def test_a_worker_without_a_region_goes_to_the_default_one(self) -> None:
        async with Fleet(None, EUROPE, REGION).running() as fleet:
            worker = await fleet.running_worker()
            assert worker.aws_region == "eu-west-1"
            assert [instance.spec.region for instance in fleet.cloud.instances.values()] == ["eu-west-1"]

    async def test_a_worker_whose_region_is_not_configured_fails_and_says_what_to_do(self) -> None:
        fleet = Fleet(None, REGION, EUROPE)
        async with fleet.running():
            fleet.regions.pop("eu-west-1")
            worker = await fleet.until(await fleet.create("europe", region="eu-west-1"), FAILED)
            assert "configure it, then retry" in worker.status_reason
            assert fleet.leader.loop.states[worker.id].retry_count > 0  # RETRY, so a repaired file is noticed
            assert fleet.effects() == []

    async def test_a_type_without_kvm_is_refused_before_anything_is_launched(self) -> None:
        fleet = Fleet()
        async with fleet.running():
            await fleet.templates.seed(WITHOUT_KVM)
            worker = await fleet.until(await fleet.create(template="plain"), FAILED)
            assert "t3.large runs no virtual machines of CML" in worker.status_reason
            assert worker.launch.intent is None
            assert fleet.effects() == []

    async def test_a_worker_without_an_image_in_its_region_fails_and_says_what_to_do(self) -> None:
        fleet = Fleet()
        fleet.cloud.images = ()
        async with fleet.running():
            worker = await fleet.until(await fleet.create(), FAILED)
            assert "no AMI named 'CML-*'" in worker.status_reason

    async def test_workers_are_launched_into_the_network_of_their_region(self) -> None:
        async with Fleet(None, REGION, EUROPE).running() as fleet:
            await fleet.until(await fleet.create("europe", region="eu-west-1"), RUNNING)
            [instance] = fleet.cloud.instances.values()
            assert (instance.spec.region, instance.spec.subnet_id) == ("eu-west-1", "subnet-9")
            assert instance.spec.tags["cml-region"] == "eu-west-1"
