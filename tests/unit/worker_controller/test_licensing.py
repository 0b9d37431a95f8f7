"""A license is taken when people ask for it, and given back before the machine goes."""

from msgspec.structs import replace

from lcm.control_plane.commands.license_worker import list_debts, request_deregistration, request_license
from lcm.domain.errors import Unreachable
from lcm.domain.license import LicenseStatus
from lcm.domain.lifecycle import TERMINATED
from lcm.domain.worker import Action, Worker
from lcm.simulator.memory_licensing import TOKEN
from support.fleet import Fleet


async def licensed(fleet: Fleet) -> Worker:
    worker = await fleet.running_worker()
    await fleet.clock.sleep(60)
    await request_license(fleet.plane, worker.id, TOKEN)
    await fleet.clock.sleep(30)
    worker = await fleet.get(worker)
    assert worker.license.status is LicenseStatus.REGISTERED
    return worker


async def test_a_wished_license_is_registered_soon() -> None:
    async with Fleet().running() as fleet:
        worker = await licensed(fleet)
        assert (worker.license.tier, worker.license.pending_operation) == ("CML_Enterprise", None)
        assert fleet.leader.counts["license_registered_count"] == 1
        assert [call.split()[0] for call in fleet.licensing.calls] == ["register"]


async def test_a_license_wished_before_cml_is_ready_waits_for_it() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.create()
        await request_license(fleet.plane, worker.id, TOKEN)
        await fleet.clock.sleep(300)
        assert (await fleet.get(worker)).license.status is LicenseStatus.REGISTERED


async def test_a_token_nobody_knows_fails_five_times_and_is_given_up() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        await request_license(fleet.plane, worker.id, "a-token-of-another-account")
        await fleet.clock.sleep(600)
        license = (await fleet.get(worker)).license
        assert (license.status, license.pending_operation) == (LicenseStatus.FAILED, None)
        assert license.last_error == "'…' is not valid"
        assert len(fleet.licensing.calls) == 5


async def test_an_exhausted_pool_is_tried_again_and_then_has_room() -> None:
    async with Fleet().running() as fleet:
        fleet.licensing.pool = 0
        worker = await fleet.running_worker()
        await fleet.clock.sleep(60)
        await request_license(fleet.plane, worker.id, TOKEN)
        await fleet.clock.sleep(12)
        assert (await fleet.get(worker)).license.last_error == "no license is left"
        fleet.licensing.pool = 1
        await fleet.clock.sleep(60)
        assert (await fleet.get(worker)).license.status is LicenseStatus.REGISTERED


async def test_a_license_is_given_back_on_request() -> None:
    async with Fleet().running() as fleet:
        worker = await licensed(fleet)
        await request_deregistration(fleet.plane, worker.id)
        await fleet.clock.sleep(30)
        assert (await fleet.get(worker)).license.status is LicenseStatus.DEREGISTERED
        assert fleet.licensing.registered == set()


async def test_a_deleted_worker_gives_its_license_back_before_it_is_terminated() -> None:
    async with Fleet().running() as fleet:
        worker = await licensed(fleet)
        await fleet.ask(worker, Action.DELETE)
        await fleet.until(worker, TERMINATED)
        assert fleet.licensing.registered == set()
        assert await list_debts(fleet.plane) == []
        assert fleet.effects() == ["launch_instance", "terminate_instance"]


async def test_a_license_that_cannot_be_given_back_is_owed_and_the_machine_goes_after_two_minutes() -> None:
    async with Fleet().running() as fleet:
        worker = await licensed(fleet)
        fleet.licensing.unreachable = Unreachable("no route")
        await fleet.ask(worker, Action.DELETE)
        await fleet.clock.sleep(100)
        assert fleet.effects() == ["launch_instance"]
        await fleet.until(worker, TERMINATED)
        (debt,) = await list_debts(fleet.plane)
        assert debt.worker_id == worker.id


async def test_a_worker_without_a_license_is_terminated_at_once() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        await fleet.ask(worker, Action.DELETE)
        await fleet.until(worker, TERMINATED, within_seconds=60)
        assert fleet.licensing.calls == []


async def test_a_new_leader_finishes_what_the_old_one_began() -> None:
    async with Fleet().running(controllers=2) as fleet:
        worker = await fleet.running_worker()
        await fleet.clock.sleep(60)
        fleet.licensing.unreachable = Unreachable("no route")
        await request_license(fleet.plane, worker.id, TOKEN)
        await fleet.clock.sleep(5)
        fleet.leader.resign()
        fleet.licensing.unreachable = None
        await fleet.clock.sleep(120)
        license = (await fleet.get(worker)).license
        assert replace(license, changed_at=None).status is LicenseStatus.REGISTERED
