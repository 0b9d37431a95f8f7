"""Rows A7, A8, B1 to B5, H4 to H6 of the fault catalogue, on virtual time.

Groups A and E at EC2 are in test_ec2_faults.py, sweeps (H8, H9) in test_orphans.py, imports (H7) in
test_discovery.py; tests/architecture/test_fault_rows.py knows them all.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence

import msgspec
import pytest

from lcm.cml.sessions import CmlServer
from lcm.control_plane.commands.license_worker import list_debts, request_license
from lcm.core.kv.port import Change
from lcm.domain.errors import PlacementRefused, Unreachable
from lcm.domain.launch import InstanceId
from lcm.domain.license import LicenseStatus
from lcm.domain.lifecycle import RUNNING, STOPPED, STOPPING, TERMINATED, DesiredStatus
from lcm.domain.worker import Action, Instance, Worker
from lcm.rest.client import ControlPlaneClient
from lcm.worker_controller.running.license import ANSWER_LOST
from lcm.worker_controller.settings import WorkerControllerSettings
from support.claims import place_session
from support.core import a_worker
from support.fleet import Fleet
from support.memory_cloud import Delays, MemoryCloud, Moment
from support.memory_licensing import TOKEN

NOBODY_IS_PAUSED = WorkerControllerSettings(worker_activity_detection_enabled=False)


class TestA7DeregistrationIsCut:
    """A7: the controller dies between giving a license back and terminating; it is finished once."""

    @pytest.mark.parametrize(("moment", "debts"), [("before", []), ("after", [ANSWER_LOST])])
    async def test_a_license_is_deregistered_once_and_a_debt_if_the_answer_was_lost(
        self, moment: str, debts: list[str]
    ) -> None:
        async with Fleet().running(controllers=2) as fleet:
            worker = await fleet.running_worker()
            await fleet.clock.sleep(60)
            await request_license(fleet.plane.records, worker.id, TOKEN)
            await fleet.clock.sleep(30)
            deregister = fleet.licensing.deregister
            deaths: list[str] = []

            async def die(server: CmlServer, *, within_seconds: float) -> str:
                if deaths:
                    return await deregister(server, within_seconds=within_seconds)
                deaths.append(server.host)
                if moment == "after":
                    await deregister(server, within_seconds=within_seconds)
                fleet.ports[fleet.controllers.index(fleet.leader)].is_reachable = False
                fleet.leader.election.resign()
                raise Unreachable("the process is gone")

            fleet.licensing.deregister = die  # type: ignore[method-assign]
            await fleet.ask(worker, Action.DELETE)
            await fleet.until(worker, TERMINATED)
            assert deaths
            assert [call.split()[0] for call in fleet.licensing.calls] == ["register", "deregister"]
            assert [debt.reason for debt in await list_debts(fleet.plane.records)] == debts
            assert fleet.effects() == ["launch_instance", "terminate_instance"]

    async def test_after_a_confirmed_deregistration_only_the_termination_is_left(self) -> None:
        async with Fleet().running(controllers=2) as fleet:
            worker = await fleet.running_worker()
            await fleet.clock.sleep(60)
            await request_license(fleet.plane.records, worker.id, TOKEN)
            await fleet.clock.sleep(30)
            deaths: list[str] = []

            async def die(moment: Moment, operation: str, subject: str) -> None:
                if (operation, moment) == ("terminate_instance", "before") and not deaths:
                    deaths.append(subject)
                    fleet.leader.election.resign()
                    raise Unreachable("the process is gone")

            fleet.cloud.interfere = die
            await fleet.ask(worker, Action.DELETE)
            gone = await fleet.until(worker, TERMINATED)
            assert deaths
            assert gone.license.status is LicenseStatus.UNLICENSED
            assert fleet.licensing.held == set()
            assert [call.split()[0] for call in fleet.licensing.calls] == ["register", "deregister"]


class Silent:
    """Remembers what a client of the control plane sends, and answers with one record."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.sent: list[bytes] = []

    async def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, bytes]:
        self.sent.append(body or b"")
        return 200, self.answer


class TestA8RollingUpgrade:
    """A8: a controller is shut down in the middle; the next one leads at once and finishes what it began."""

    @pytest.mark.parametrize("call", ["launch_instance", "describe_instance", "resolve_ami"])
    async def test_a_launch_survives_the_shutdown_of_its_controller(self, call: str) -> None:
        async with Fleet().running() as fleet, asyncio.TaskGroup() as tasks:
            old = fleet.leader
            new = fleet.add_controller("controller-of-the-next-version")
            running = tasks.create_task(new.service.run())
            old.election.resign()
            while not new.election.is_leader:
                await fleet.clock.sleep(0.1)
            ended: list[float] = []

            async def shut_down(moment: Moment, operation: str, subject: str) -> None:
                if operation == call and not ended:
                    ended.append(fleet.clock.monotonic())
                    running.cancel()
                    await fleet.clock.sleep(0)

            fleet.cloud.interfere = shut_down
            worker = await fleet.create()
            while not (ended and old.election.is_leader):
                await fleet.clock.sleep(0.1)
            assert fleet.clock.monotonic() - ended[0] <= 2.0
            await fleet.until(worker, RUNNING)
            assert len(fleet.cloud.instances) == 1

    async def test_fields_of_a_later_version_are_passed_over_and_never_sent_back(self) -> None:
        worker = a_worker(status=RUNNING)
        record = {**msgspec.to_builtins(worker), "invented_later": "canary"}
        transport = Silent(msgspec.json.encode(record))
        client = ControlPlaneClient(transport, "key", "worker-controller", lambda: 1)
        read = await client.fetch_single_resource(worker.id)
        assert read == worker
        assert read is not None
        await client.update_status(read, STOPPING, "desired status is stopped")
        assert b"canary" not in b"".join(transport.sent)


class TestB1NotShownYet:
    """B1: EC2 does not show a new instance; that is unknown: wait, launch no other, forget nothing."""

    @pytest.mark.parametrize("seconds", [10, 100, 290])
    async def test_a_new_instance_is_waited_for(self, seconds: float) -> None:
        fleet = Fleet()
        fleet.cloud.delays = Delays(visibility=seconds)
        async with fleet.running():
            worker = await fleet.create()
            worker = await fleet.until(worker, RUNNING)
            assert (worker.launch.generation, len(fleet.cloud.instances)) == (1, 1)


class Wavering(MemoryCloud):
    """Every second answer is the one before it."""

    _last: Instance | None = None
    _is_old = False

    async def describe_instance(self, region: str, instance_id: InstanceId) -> Instance | None:
        now, before = await super().describe_instance(region, instance_id), self._last
        self._last, self._is_old = now, not self._is_old
        return before if self._is_old and before is not None else now

    async def list_instances(self, region: str, tags: Mapping[str, str] | None = None) -> Sequence[Instance]:
        return []


class TestB2OldAndNew:
    """B2: EC2 alternates between an old and a new state, and its lists are not complete."""

    async def test_a_life_under_wavering_answers_takes_no_step_twice(self) -> None:
        fleet = Fleet(NOBODY_IS_PAUSED)
        fleet.cloud = Wavering(fleet.clock)
        fleet.cml._cloud = fleet.cloud
        async with fleet.running():
            worker = await fleet.running_worker()
            await fleet.ask(worker, Action.STOP)
            await fleet.until(worker, STOPPED)
            await fleet.ask(worker, Action.START)
            await fleet.until(worker, RUNNING)
            await fleet.clock.sleep(600)
            moves = [machine.transitions for machine in fleet.cloud.instances.values()]
            assert moves == [["new to running", "running to stopped", "stopped to running"]]
            assert (await fleet.get(worker)).status is RUNNING

    async def test_an_instance_that_is_missing_in_a_list_is_described_by_its_id(self) -> None:
        async with Fleet(NOBODY_IS_PAUSED).running() as fleet:
            worker = await fleet.running_worker()
            fleet.cloud.unlisted.add(fleet.instance_id(worker))
            await fleet.clock.sleep(3_600)
            assert (await fleet.get(worker)).status is RUNNING
            assert fleet.effects() == ["launch_instance"]


class TestB3StaleRecord:
    """B3: the controller reads a record that is out of date; the compare-and-set refuses what follows."""

    async def test_an_outdated_request_leads_to_no_effect(self) -> None:
        async with Fleet(NOBODY_IS_PAUSED).running() as fleet:
            worker = await fleet.running_worker()
            await fleet.clock.sleep(60)
            fleet.ports[0].is_reachable = False
            stopped = await fleet.ask(worker, Action.STOP)
            await fleet.ask(worker, Action.START)
            fleet.ports[0].is_reachable = True
            fetch, stale = fleet.ports[0].fetch_single_resource, [stopped] * 3

            async def read(worker_id: str) -> Worker | None:
                return stale.pop() if stale else await fetch(worker_id)

            fleet.ports[0].fetch_single_resource = read  # type: ignore[method-assign]
            fleet.leader.loop.trigger(worker.id)
            await fleet.clock.sleep(300)
            assert stale == []
            assert fleet.effects() == ["launch_instance"]
            assert (await fleet.get(worker)).status is RUNNING


class TestB4WatchLies:
    """B4: changes are missed, repeated or out of order; the end is the same, by the next poll."""

    async def test_a_change_without_a_frame_is_found_by_the_next_poll(self) -> None:
        fleet = Fleet(NOBODY_IS_PAUSED)

        async def silence(prefix: str, start_revision: int) -> AsyncGenerator[Change, None]:
            await asyncio.Event().wait()
            yield  # type: ignore[misc]

        fleet.kv.watch_prefix = silence  # type: ignore[method-assign]
        async with fleet.running():
            worker = await fleet.running_worker()
            await fleet.ask(worker, Action.STOP)
            await fleet.until(worker, STOPPED, within_seconds=2 * fleet.settings.reconcile_interval)

    async def test_repeated_changes_of_the_past_change_nothing(self) -> None:
        async with Fleet(NOBODY_IS_PAUSED).running() as fleet:
            worker = await fleet.running_worker()
            await fleet.clock.sleep(60)
            for number in (3, 1, 2, 2):
                old = msgspec.json.encode({"desired_status": "stopped", "version": number})
                await fleet.kv.put(f"/lcm/workers/{worker.id}/desired_state", old)
                await fleet.clock.sleep(5)
            assert fleet.effects() == ["launch_instance"]


class TestB5FlippingWish:
    """B5: people change their minds inside one reconcile; the last request wins."""

    @pytest.mark.parametrize("flips", range(1, 5))
    async def test_the_last_request_wins_whenever_it_comes(self, flips: int) -> None:
        async with Fleet(NOBODY_IS_PAUSED).running() as fleet:
            worker = await fleet.running_worker()
            await fleet.clock.sleep(60)
            requests = [Action.STOP, Action.START] * 4

            async def flip(moment: Moment, operation: str, subject: str) -> None:
                if requests and moment == "before":
                    for _ in range(flips):
                        if requests:
                            await fleet.ask(worker, requests.pop(0))

            fleet.cloud.interfere = flip
            await fleet.clock.sleep(600)
            assert requests == []
            final = await fleet.get(worker)
            assert (final.desired_status, final.status) == (DesiredStatus.RUNNING, RUNNING)
            effects = fleet.effects()
            assert effects.count("stop_instance") == effects.count("start_instance")


class TestH4RestartAndIdleTime:
    """H4: a new controller neither resets nor inflates the time that a worker was unused."""

    async def test_a_worker_is_paused_after_an_hour_across_leaders(self) -> None:
        async with Fleet().running(controllers=2) as fleet:
            worker = await fleet.running_worker()
            for _ in range(5):
                await fleet.clock.sleep(600)
                fleet.leader.election.resign()
            assert (await fleet.get(worker)).status is RUNNING
            await fleet.until(worker, STOPPED, within_seconds=3_600)


class TestH5StartWhilePausing:
    """H5: a person starts a worker that is being paused; the newest request wins."""

    async def test_a_start_during_the_stop_ends_running(self) -> None:
        async with Fleet().running() as fleet:
            worker = await fleet.running_worker()
            await fleet.until(worker, STOPPING, within_seconds=3 * 3_600)
            await fleet.ask(worker, Action.START)
            await fleet.until(worker, RUNNING)
            await fleet.clock.sleep(600)
            assert (await fleet.get(worker)).status is RUNNING


class TestH6ScaleDownChoosesWell:
    """H6: scale-down never takes a busy, an imported, a protected or a just-assigned worker."""

    async def test_a_session_and_a_drain_share_one_compare_and_set(self) -> None:
        settings = WorkerControllerSettings(scale_down_enabled=True)
        async with Fleet(settings).running() as fleet:
            worker = await fleet.running_worker()
            port, placed = fleet.ports[0], 0
            drain = port.drain_worker

            async def place_first(chosen: Worker) -> Worker:
                nonlocal placed
                placed += 1
                await place_session(fleet.plane.records, chosen.id, "session-1")
                return await drain(chosen)

            port.drain_worker = place_first  # type: ignore[method-assign, assignment]
            await fleet.clock.sleep(3 * 3_600)
            assert placed
            assert (await fleet.get(worker)).sessions == ("session-1",)
            assert "stop_instance" not in fleet.effects()

    async def test_no_session_is_placed_on_a_worker_that_drains(self) -> None:
        settings = WorkerControllerSettings(scale_down_enabled=True)
        async with Fleet(settings).running() as fleet:
            worker = await fleet.running_worker()
            await fleet.until(worker, STOPPING, within_seconds=3 * 3_600)
            with pytest.raises(PlacementRefused):
                await place_session(fleet.plane.records, worker.id, "session-1")
