"""A lab in use is watched over: what people do is theirs, what a restart of the worker did is undone."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from lcm.domain.lablet.lab import LabStep, StepStatus
from lcm.domain.lablet.states import INSTANTIATING, READY, RUNNING, TERMINATED
from lcm.domain.lifecycle import RUNNING as WORKER_RUNNING
from lcm.domain.lifecycle import STARTING
from lcm.domain.worker import HistoryEntry
from lcm.simulator.cml.lab_faults import RefuseLab
from support.lablet_bench import LabletBench
from support.people import Answer


class Desk(LabletBench):
    """A session in use, whose lab others stop."""

    async def running(self) -> "Desk":
        await self.open()
        await self.drive(RUNNING)
        return self

    def states(self) -> set[str]:
        [lab] = self.cml.labs.all()
        self.cml.labs.advance(self.clock.now().timestamp())
        return {str(node.state) for node in lab.nodes.values()}

    async def stop_outside(self) -> None:
        [lab] = self.cml.labs.all()
        self.cml.labs.stop(lab, self.clock.now().timestamp(), "x")
        await self.clock.sleep(30)
        assert self.states() == {"STOPPED"}

    async def lose_power(self) -> None:
        """The instance is stopped and started outside LCM; CML keeps its labs."""
        await self.clock.sleep(10)
        self.cml.labs.lose_power(self.clock.now().timestamp())
        now = self.clock.now()
        came_up = HistoryEntry(source=STARTING, target=WORKER_RUNNING, by="controller", reason="up", at=now)
        await self.change_worker(
            lambda worker: replace(worker, state_history=(*worker.state_history, came_up))
        )

    async def steps(self, count: int) -> None:
        for _ in range(count):
            await self.step()

    async def restart_lab(self) -> Answer:
        return await self.operator.post(f"/api/lablet-sessions/{self.session_id}/restart-lab")

    async def run_step(self) -> tuple[StepStatus, str]:
        step = (await self.session()).steps[LabStep.RUN]
        return step.status, step.detail


@pytest.fixture
async def desk() -> Desk:
    return await Desk().running()


async def test_a_lab_that_people_stop_is_shown_as_stopped_and_left_alone(desk: Desk) -> None:
    await desk.stop_outside()
    await desk.steps(4)
    status, detail = await desk.run_step()
    assert (status, detail.startswith("lab_stopped_outside")) == (StepStatus.FAILED, True)
    assert ((await desk.session()).status, desk.states()) == (RUNNING, {"STOPPED"})
    explained = await desk.operator.get(f"/api/lablet-sessions/{desk.session_id}/explain")
    assert "lab_stopped_outside" in explained.text.decode()


async def test_people_have_a_stopped_lab_started_again(desk: Desk) -> None:
    await desk.stop_outside()
    await desk.steps(2)
    first, second = await desk.restart_lab(), await desk.restart_lab()
    assert (first.status, second.status) == (202, 202)
    assert first.body["generation"] == second.body["generation"]
    await desk.steps(3)
    await desk.clock.sleep(30)
    assert (desk.states(), desk.calls.count("start_lab")) == ({"BOOTED"}, 2)
    assert await desk.run_step() == (StepStatus.COMPLETED, "")
    audit = (await desk.operator.get(f"/api/lablet-audit?session_id={desk.session_id}")).body["items"]
    assert [line["event"] for line in audit].count("lab_action_requested") == 1


async def test_a_lab_that_people_start_again_themselves_is_shown_as_running(desk: Desk) -> None:
    await desk.stop_outside()
    await desk.steps(2)
    [lab] = desk.cml.labs.all()
    desk.cml.labs.start(lab, desk.clock.now().timestamp(), "x")
    await desk.steps(2)
    assert await desk.run_step() == (StepStatus.COMPLETED, "")
    assert desk.calls.count("start_lab") == 1


async def test_a_node_that_is_off_is_started_on_request(desk: Desk) -> None:
    [lab] = desk.cml.labs.all()
    [pc] = [node for node in lab.nodes.values() if node.label == "pc1"]
    desk.cml.labs.stop_node(pc, desk.clock.now().timestamp(), "x")
    await desk.clock.sleep(30)
    await desk.restart_lab()
    await desk.steps(2)
    await desk.clock.sleep(30)
    assert desk.states() == {"BOOTED"}


async def test_a_restart_that_cml_refuses_says_why_and_may_be_requested_again(desk: Desk) -> None:
    await desk.stop_outside()
    desk.cml.labs.faults.add(RefuseLab(action="start", reason="resources", count=1))
    await desk.restart_lab()
    await desk.steps(3)
    assert "no compute host has enough" in (await desk.run_step())[1]
    assert desk.calls.count("start_lab") == 2
    await desk.restart_lab()
    await desk.steps(2)
    assert await desk.run_step() == (StepStatus.COMPLETED, "")


async def test_a_controller_that_dies_after_a_restart_starts_the_lab_at_most_twice(desk: Desk) -> None:
    await desk.stop_outside()
    await desk.restart_lab()
    died = desk.die_once_after("start_lab")
    await desk.steps(4)
    assert (died, await desk.run_step()) == (["start_lab"], (StepStatus.COMPLETED, ""))
    assert desk.calls.count("start_lab") == 3


async def test_a_stopped_lab_is_started_again_by_itself_once_if_that_is_set(desk: Desk) -> None:
    desk.reconciler.restarts_stopped_labs = True
    await desk.stop_outside()
    await desk.steps(3)
    await desk.clock.sleep(60)
    assert (desk.states(), desk.calls.count("start_lab")) == ({"BOOTED"}, 2)
    await desk.stop_outside()
    await desk.steps(4)
    assert (desk.states(), desk.calls.count("start_lab")) == ({"STOPPED"}, 2)
    assert (await desk.run_step())[0] is StepStatus.FAILED


async def test_a_lab_is_started_again_when_its_worker_was_restarted(desk: Desk) -> None:
    before = (await desk.session()).lab
    await desk.lose_power()
    assert desk.states() == {"STOPPED"}
    await desk.steps(3)
    await desk.clock.sleep(30)
    after = (await desk.session()).lab
    assert (desk.states(), before is not None and after is not None) == ({"BOOTED"}, True)
    assert (desk.calls.count("import_lab"), desk.calls.count("start_lab")) == (1, 2)
    await desk.stop_outside()
    await desk.steps(3)
    assert (await desk.run_step())[0] is StepStatus.FAILED, "this time it was a person"


async def test_a_lab_that_boots_while_its_worker_is_restarted_is_started_again() -> None:
    desk = Desk()
    await desk.open()
    await desk.drive(INSTANTIATING)
    await desk.steps(1)
    await desk.lose_power()
    before = desk.clock.now()
    await desk.drive(RUNNING)
    assert (desk.states(), desk.calls.count("import_lab")) == ({"BOOTED"}, 1)
    assert (desk.clock.now() - before).total_seconds() < 120


async def test_a_ready_lab_whose_worker_was_restarted_is_started_before_its_timeslot() -> None:
    desk = Desk()
    await desk.open(timeslot=desk.slot(in_minutes=20))
    session = await desk.drive(READY)
    await desk.lose_power()
    await desk.steps(2)
    await desk.clock.sleep(30)
    assert session.timeslot is not None
    assert desk.clock.now() < session.timeslot.start - timedelta(minutes=1)
    assert ((await desk.session()).status, desk.states()) == (READY, {"BOOTED"})
    await desk.drive(RUNNING)
    assert (desk.calls.count("import_lab"), desk.calls.count("start_lab")) == (1, 2)


async def test_only_a_lab_in_use_is_started_again(desk: Desk) -> None:
    await desk.end()
    refused = await desk.restart_lab()
    assert (refused.status, refused.kind) == (409, "conflict")
    await desk.drive(TERMINATED)
    assert (await desk.restart_lab()).status == 409
