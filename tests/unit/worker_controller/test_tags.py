"""A running worker's instance carries the tags that people want, whatever comes in between."""

from collections.abc import Mapping

from lcm.control_plane.commands.request_action import request_tags
from lcm.domain.errors import CredentialsRefused, Throttled
from lcm.domain.lifecycle import RUNNING, STOPPED
from lcm.domain.worker import Action, Worker
from support.fleet import Fleet


async def tagged(fleet: Fleet, worker: Worker, tags: Mapping[str, str]) -> None:
    await request_tags(fleet.plane.records, worker.id, tags, by="ann")
    await fleet.clock.sleep(5)


def on_instance(fleet: Fleet, worker: Worker) -> dict[str, str]:
    [instance] = fleet.cloud.live_instances(worker.id)
    return instance.tags


def tag_calls(fleet: Fleet) -> int:
    return sum(call.operation.endswith("tag_instance") for call in fleet.cloud.calls)


async def test_changed_tags_reach_the_instance_within_seconds_and_then_nothing_is_done() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        before = on_instance(fleet, worker).copy()
        await tagged(fleet, worker, {"team": "a", "Name": "exam"})
        assert on_instance(fleet, worker) == {**before, "team": "a", "Name": "exam"}
        await tagged(fleet, worker, {"course": "ccna"})
        assert on_instance(fleet, worker) == {**before, "course": "ccna"}
        calls = tag_calls(fleet)
        await fleet.clock.sleep(600)
        assert tag_calls(fleet) == calls


async def test_tags_of_a_stopped_worker_are_put_right_when_it_runs_again() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        await fleet.ask(worker, Action.STOP)
        await fleet.until(worker, STOPPED)
        await tagged(fleet, worker, {"team": "a"})
        assert tag_calls(fleet) == 0
        await fleet.ask(worker, Action.START)
        await fleet.until(worker, RUNNING)
        await fleet.clock.sleep(5)
        assert on_instance(fleet, worker)["team"] == "a"


async def test_a_tag_changed_in_the_console_is_put_back_though_the_record_says_nothing_new() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        await tagged(fleet, worker, {"team": "a"})
        await fleet.clock.sleep(120)
        on_instance(fleet, worker)["team"] = "b"
        await fleet.clock.sleep(60)
        assert on_instance(fleet, worker)["team"] == "a"


async def tagged_at_the_fourth_try(fleet: Fleet, worker: Worker) -> None:
    refusals = 3

    async def throttle(moment: str, operation: str, _: str) -> None:
        nonlocal refusals
        if operation == "tag_instance" and moment == "before" and refusals:
            refusals -= 1
            raise Throttled("slow down")

    fleet.cloud.interfere = throttle
    await tagged(fleet, worker, {"team": "a"})
    await fleet.clock.sleep(60)


async def test_a_tag_that_ec2_refuses_for_now_is_tried_again() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        await tagged_at_the_fourth_try(fleet, worker)
        assert on_instance(fleet, worker)["team"] == "a"


async def test_a_worker_is_not_blamed_any_longer_for_what_has_passed() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        await tagged_at_the_fourth_try(fleet, worker)
        assert "slow down" in {commit.status_reason for commit in fleet.commits}
        assert (await fleet.get(worker)).status_reason == worker.status_reason


async def test_a_controller_that_may_not_tag_reports_it_and_continues() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()

        async def forbid(_: str, operation: str, __: str) -> None:
            if operation == "tag_instance":
                raise CredentialsRefused("UnauthorizedOperation: ec2:CreateTags")

        fleet.cloud.interfere = forbid
        await tagged(fleet, worker, {"team": "a"})
        assert "ec2:CreateTags" in (await fleet.get(worker)).status_reason
        await fleet.ask(worker, Action.STOP)
        await fleet.until(worker, STOPPED)
