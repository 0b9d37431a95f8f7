"""A license is registered on request, and deregistered before the instance is terminated."""

import asyncio
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from lcm.cml.sessions import CmlServer
from lcm.control_plane.commands.auto_license import AutoLicense
from lcm.control_plane.commands.create_worker import create_worker
from lcm.control_plane.commands.license_worker import (
    list_debts,
    remove_fleet_token,
    request_deregistration,
    request_license,
    set_fleet_token,
    settle_debt,
)
from lcm.control_plane.commands.report_details import report_cml
from lcm.core.health import Health
from lcm.core.timeouts import timeout
from lcm.domain.errors import Throttled, Unreachable
from lcm.domain.license import License, LicenseStatus, LicenseTerms, lose_instance
from lcm.domain.lifecycle import PENDING, RUNNING, STOPPED, TERMINATED
from lcm.domain.scaling import AuditEvent
from lcm.domain.worker import Action, CmlLicense, Worker
from lcm.rest.schemas import CmlReport, LicenseToken
from lcm.worker_controller.ports import POOL_NOT_NOTIFIED, LicenseState
from lcm.worker_controller.running.license import ANSWER_LOST
from support.core import NOON
from support.fleet import Fleet, MemoryMonitors
from support.memory_licensing import TOKEN, MemoryLicensing
from support.virtual_time import VirtualClock

INVALID = "Response error: The token '…' is not valid"


class SlowLicensing(MemoryLicensing):
    """Registrations go on until the test finishes them."""

    async def register(self, server: CmlServer, token: str, *, again: bool = False) -> str:
        self.begin(server.host, token)
        return ""


class DoesNotAnswerAtFirst(MemoryLicensing):
    """The first request of this kind does not arrive."""

    def __init__(self, request: str) -> None:
        super().__init__()
        self._lost = request

    async def prepare(self, server: CmlServer, terms: LicenseTerms, state: LicenseState) -> str:
        self._lose("prepare")
        return await super().prepare(server, terms, state)

    async def register(self, server: CmlServer, token: str, *, again: bool = False) -> str:
        self._lose("register")
        return await super().register(server, token, again=again)

    def _lose(self, request: str) -> None:
        if request == self._lost:
            self._lost = ""
            raise Unreachable("no answer")


class AnswersOfDeregistrationsGetLost(MemoryLicensing):
    """It deregisters, and the answer whether Cisco was notified is lost."""

    async def deregister(self, server: CmlServer, *, within_seconds: float) -> str:
        await super().deregister(server, within_seconds=within_seconds)
        raise Unreachable("no answer")


class DeregistersTwice(MemoryLicensing):
    """An HTTP client sends a DELETE again if it is cut off: the second answer hides the first."""

    async def deregister(self, server: CmlServer, *, within_seconds: float) -> str:
        await super().deregister(server, within_seconds=within_seconds)
        return await super().deregister(server, within_seconds=within_seconds)


class LosesTheControlPlane(MemoryLicensing):
    """The control plane is away from the moment at which a license is deregistered."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__()
        self._fleet = fleet

    async def deregister(self, server: CmlServer, *, within_seconds: float) -> str:
        (port,) = self._fleet.ports
        port.is_reachable = False
        return await super().deregister(server, within_seconds=within_seconds)


async def licensed(fleet: Fleet) -> Worker:
    worker = await fleet.running_worker()
    await fleet.clock.sleep(60)
    await request_license(fleet.plane.records, worker.id, TOKEN)
    await fleet.clock.sleep(30)
    worker = await fleet.get(worker)
    assert worker.license.status is LicenseStatus.REGISTERED
    return worker


async def test_a_requested_license_is_registered_soon() -> None:
    async with Fleet().running() as fleet:
        worker = await licensed(fleet)
        assert (worker.license.tier, worker.license.pending_operation) == ("CML_Enterprise", None)
        assert fleet.leader.stats.counts["license_registered_count"] == 1
        assert [call.split()[0] for call in fleet.licensing.calls] == ["register"]


@pytest.mark.parametrize("request_", ["prepare", "register"])
async def test_a_request_that_did_not_arrive_is_repeated_soon(request_: str) -> None:
    fleet = Fleet()
    fleet.licensing = DoesNotAnswerAtFirst(request_)
    async with fleet.running():
        await licensed(fleet)
        assert [call.split()[0] for call in fleet.licensing.calls] == ["register"]


async def test_a_license_requested_before_cml_is_ready_waits_for_it() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.create()
        await request_license(fleet.plane.records, worker.id, TOKEN)
        await fleet.clock.sleep(300)
        assert (await fleet.get(worker)).license.status is LicenseStatus.REGISTERED


async def test_an_unknown_token_fails_five_times_and_is_not_tried_again() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        await request_license(fleet.plane.records, worker.id, "a-token-of-another-account")
        await fleet.clock.sleep(600)
        license = (await fleet.get(worker)).license
        assert (license.status, license.pending_operation) == (LicenseStatus.FAILED, None)
        assert license.last_error == INVALID
        assert len(fleet.licensing.calls) == 5


@pytest.mark.parametrize("refusal", ["", "the token is malformed"], ids=["refused-later", "refused-at-once"])
@pytest.mark.parametrize("attempts", [1, 2, 5])
async def test_a_corrected_token_is_asked_for_at_once_and_only_once(attempts: int, refusal: str) -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        await fleet.clock.sleep(60)
        fleet.licensing.refusal = refusal
        await request_license(fleet.plane.records, worker.id, "a-token-of-another-account")
        while (
            len(fleet.licensing.calls) < attempts or (await fleet.get(worker)).license.operation_in_progress
        ):
            await fleet.clock.sleep(0.1)
        fleet.licensing.refusal = ""
        await request_license(fleet.plane.records, worker.id, TOKEN)
        await fleet.clock.sleep(5)
        assert (await fleet.get(worker)).license.status is LicenseStatus.REGISTERED
        assert len(fleet.licensing.calls) == attempts + 1


async def test_a_corrected_fleet_token_is_tried_at_once_when_it_is_requested_again() -> None:
    async with Fleet().running() as fleet:
        worker = await asked_with_a_wrong_fleet_token(fleet)
        while len(fleet.licensing.calls) < 4 or (await fleet.get(worker)).license.operation_in_progress:
            await fleet.clock.sleep(0.1)
        await set_fleet_token(fleet.plane.records, TOKEN)
        await request_license(fleet.plane.records, worker.id)
        await fleet.clock.sleep(5)
        assert (await fleet.get(worker)).license.status is LicenseStatus.REGISTERED


async def asked_with_a_wrong_fleet_token(fleet: Fleet) -> Worker:
    worker = await fleet.running_worker()
    await fleet.clock.sleep(60)
    await set_fleet_token(fleet.plane.records, "a-token-of-another-account")
    await request_license(fleet.plane.records, worker.id)
    while not fleet.licensing.calls:
        await fleet.clock.sleep(0.1)
    return worker


async def test_a_wrong_fleet_token_that_is_taken_back_while_cml_tries_it_ends_the_attempt() -> None:
    async with Fleet().running() as fleet:
        worker = await asked_with_a_wrong_fleet_token(fleet)
        await remove_fleet_token(fleet.plane.records)
        await fleet.clock.sleep(10)
        license = (await fleet.get(worker)).license
        assert (license.operation_in_progress, license.attempts) != (True, 1)
        assert INVALID in [commit.license.last_error for commit in fleet.commits]


async def test_a_token_that_was_replaced_while_cml_tries_it_is_never_shown() -> None:
    async with Fleet().running() as fleet:
        await asked_with_a_wrong_fleet_token(fleet)
        await set_fleet_token(fleet.plane.records, TOKEN)
        await fleet.clock.sleep(10)
        errors = {commit.license.last_error for commit in fleet.commits}
        assert errors == {"", INVALID}


async def test_a_registration_without_a_token_says_so_and_is_given_up_soon() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.create()
        await set_fleet_token(fleet.plane.records, TOKEN)
        await request_license(fleet.plane.records, worker.id)
        await remove_fleet_token(fleet.plane.records)
        await fleet.until(worker, RUNNING)
        await fleet.clock.sleep(120)
        license = (await fleet.get(worker)).license
        assert (license.status, fleet.licensing.calls) == (LicenseStatus.FAILED, [])
        assert "no license token is kept" in license.last_error


async def test_a_token_that_cannot_be_had_for_a_moment_is_asked_for_again_soon() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        await fleet.clock.sleep(60)
        (port,) = fleet.ports
        hand_out = port.get_license_token

        async def lose_the_answer(worker: Worker) -> LicenseToken:
            port.get_license_token = hand_out  # type: ignore[method-assign]
            raise Unreachable("no answer")

        port.get_license_token = lose_the_answer  # type: ignore[method-assign]
        await request_license(fleet.plane.records, worker.id, TOKEN)
        await fleet.clock.sleep(10)
        assert (await fleet.get(worker)).license.status is LicenseStatus.REGISTERED


class WrongClock(VirtualClock):
    """Its wall time differs from that of all others."""

    def __init__(self, ahead: timedelta) -> None:
        super().__init__()
        self._ahead = ahead

    def now(self) -> datetime:
        return super().now() + self._ahead


@pytest.mark.parametrize("minutes", [-5, 5])
async def test_a_registration_takes_its_time_though_the_controllers_clock_is_wrong(minutes: int) -> None:
    fleet = Fleet()
    fleet.licensing = SlowLicensing()
    fleet.clock = WrongClock(timedelta(minutes=minutes))
    async with fleet.running():
        worker = await fleet.running_worker()
        await fleet.clock.sleep(60)
        await request_license(fleet.plane.records, worker.id, TOKEN)
        await fleet.clock.sleep(90)
        (call,) = fleet.licensing.calls
        fleet.licensing.finish(call.removeprefix("register "))
        await fleet.clock.sleep(5)
        assert (await fleet.get(worker)).license.status is LicenseStatus.REGISTERED


async def test_an_exhausted_pool_is_tried_again_and_then_has_room() -> None:
    async with Fleet().running() as fleet:
        fleet.licensing.pool.size = 0
        worker = await fleet.running_worker()
        await fleet.clock.sleep(60)
        await request_license(fleet.plane.records, worker.id, TOKEN)
        await fleet.clock.sleep(12)
        assert (
            await fleet.get(worker)
        ).license.last_error == "Response error: The token has been used the maximum number of times"
        fleet.licensing.pool.size = 1
        await fleet.clock.sleep(60)
        assert (await fleet.get(worker)).license.status is LicenseStatus.REGISTERED


async def test_a_license_is_deregistered_on_request() -> None:
    async with Fleet().running() as fleet:
        worker = await licensed(fleet)
        await request_deregistration(fleet.plane.records, worker.id)
        await fleet.clock.sleep(30)
        assert (await fleet.get(worker)).license.status is LicenseStatus.DEREGISTERED
        assert fleet.licensing.registered == set()


async def test_a_deleted_worker_gives_its_license_back_before_it_is_terminated() -> None:
    async with Fleet().running() as fleet:
        worker = await licensed(fleet)
        await fleet.ask(worker, Action.DELETE)
        await fleet.until(worker, TERMINATED)
        assert fleet.licensing.registered == set()
        assert await list_debts(fleet.plane.records) == []
        assert fleet.effects() == ["launch_instance", "terminate_instance"]
        (entry,) = await fleet.plane.records.audit.newest(event=AuditEvent.LICENSE_DEREGISTERED)
        assert (entry.worker_id, entry.by) == (worker.id, "worker-controller")


async def test_a_license_that_cannot_be_deregistered_is_a_debt_and_the_instance_goes_after_two_minutes() -> (
    None
):
    async with Fleet().running() as fleet:
        worker = await licensed(fleet)
        fleet.licensing.unreachable = Unreachable("no route")
        await fleet.ask(worker, Action.DELETE)
        await fleet.clock.sleep(100)
        assert fleet.effects() == ["launch_instance"]
        await fleet.until(worker, TERMINATED)
        (debt,) = await list_debts(fleet.plane.records)
        assert debt.worker_id == worker.id
        (entry,) = await fleet.plane.records.audit.newest(event=AuditEvent.LICENSE_DEBT_RECORDED)
        assert (entry.worker_id, entry.reason) == (worker.id, debt.reason)


async def test_a_stopped_instance_is_not_waited_for_to_give_its_license_back() -> None:
    async with Fleet().running() as fleet:
        worker = await licensed(fleet)
        await fleet.ask(worker, Action.STOP)
        await fleet.until(worker, STOPPED)
        await fleet.ask(worker, Action.DELETE)
        await fleet.until(worker, TERMINATED, within_seconds=60)
        (debt,) = await list_debts(fleet.plane.records)
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
        await request_license(fleet.plane.records, worker.id, TOKEN)
        await fleet.clock.sleep(5)
        fleet.leader.election.resign()
        fleet.licensing.unreachable = None
        await fleet.clock.sleep(120)
        license = (await fleet.get(worker)).license
        assert replace(license, changed_at=None).status is LicenseStatus.REGISTERED


async def test_a_license_request_goes_through_backoff_once() -> None:
    tries: list[float] = []

    async def refuse(moment: str, operation: str, subject: str) -> None:
        if (moment, operation) == ("before", "stop_instance"):
            tries.append(fleet.clock.monotonic())
            raise Throttled("slow down")

    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        fleet.cloud.interfere = refuse
        await fleet.ask(worker, Action.STOP)
        await fleet.clock.sleep(300)
        before = len(tries) + 1
        async with timeout(120):
            while len(tries) < before:
                await fleet.clock.sleep(0.1)
        await fleet.clock.sleep(5)
        assert len(tries) == before, "it waits for its next try"
        await request_license(fleet.plane.records, worker.id, TOKEN)
        await fleet.clock.sleep(5)
        assert len(tries) == before + 1


async def test_a_licensed_worker_that_runs_is_measured_and_nothing_else() -> None:
    fleet = Fleet()
    fleet.monitors = monitors = MemoryMonitors()
    async with fleet.running():
        worker = await licensed(fleet)
        await fleet.clock.sleep(120)
        settled, asked = await fleet.get(worker), len(monitors.asked)
        await fleet.clock.sleep(3_000)
        assert len(monitors.asked) > asked
        assert await fleet.get(worker) == settled
        assert fleet.effects() == ["launch_instance"]
        assert [call.split()[0] for call in fleet.licensing.calls] == ["register"]


async def test_an_unlicensed_worker_that_should_be_licensed_is_registered_by_itself() -> None:
    async with Fleet().running() as fleet, asyncio.TaskGroup() as tasks:
        licensing = tasks.create_task(
            AutoLicense(fleet.plane.records, fleet.plane.caches, Health(fleet.clock)).run()
        )
        await set_fleet_token(fleet.plane.records, TOKEN)
        worker = await create_worker(
            fleet.plane.records,
            fleet.plane.policies,
            name="a",
            template_name="small",
            aws_region=None,
            tags={},
            licensed=True,
            by="ann",
        )
        await fleet.clock.sleep(300)
        assert (await fleet.get(worker)).license.status is LicenseStatus.REGISTERED
        assert [call.split()[0] for call in fleet.licensing.calls] == ["register"]
        licensing.cancel()


async def test_a_worker_deleted_while_it_registers_is_deregistered() -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        await fleet.clock.sleep(60)
        slow = fleet.licensing.finish
        fleet.licensing.finish = lambda host: None  # type: ignore[method-assign]
        await request_license(fleet.plane.records, worker.id, TOKEN)
        await fleet.clock.sleep(5)
        (host,) = fleet.licensing.agents
        assert not fleet.licensing.state_of(host).is_free
        await fleet.ask(worker, Action.DELETE)
        await fleet.clock.sleep(30)
        assert fleet.effects() == ["launch_instance"]
        slow(host)
        await fleet.until(worker, TERMINATED, within_seconds=60)
        assert fleet.licensing.held == set()
        assert await list_debts(fleet.plane.records) == []


async def test_a_deregistration_of_which_the_pool_was_not_notified_is_a_debt_at_once() -> None:
    async with Fleet().running() as fleet:
        worker = await licensed(fleet)
        fleet.licensing.pool.loses_deregistrations = True
        await fleet.ask(worker, Action.DELETE)
        await fleet.until(worker, TERMINATED, within_seconds=60)
        (debt,) = await list_debts(fleet.plane.records)
        assert (debt.worker_id, debt.reason) == (worker.id, POOL_NOT_NOTIFIED)


async def test_a_license_whose_deregistration_was_not_answered_is_a_debt() -> None:
    fleet = Fleet()
    fleet.licensing = AnswersOfDeregistrationsGetLost()
    async with fleet.running():
        worker = await licensed(fleet)
        await fleet.ask(worker, Action.DELETE)
        await fleet.until(worker, TERMINATED, within_seconds=60)
        (debt,) = await list_debts(fleet.plane.records)
        assert (debt.worker_id, debt.reason) == (worker.id, ANSWER_LOST)


async def test_a_deregistration_that_was_sent_twice_is_a_debt() -> None:
    async with Fleet().running() as fleet:
        fleet.licensing = DeregistersTwice()
        fleet.leader.reconciler.licenses.cml = fleet.licensing
        worker = await licensed(fleet)
        await request_deregistration(fleet.plane.records, worker.id)
        await fleet.clock.sleep(30)
        (debt,) = await list_debts(fleet.plane.records)
        assert debt.reason == ANSWER_LOST


async def test_a_worker_deleted_after_an_unanswered_deregistration_owes_its_license() -> None:
    fleet = Fleet()
    fleet.licensing = AnswersOfDeregistrationsGetLost()
    async with fleet.running():
        worker = await licensed(fleet)
        await request_deregistration(fleet.plane.records, worker.id)
        while not fleet.licensing.calls[-1].startswith("deregister"):
            await fleet.clock.sleep(0.1)
        await fleet.ask(worker, Action.DELETE)
        await fleet.until(worker, TERMINATED, within_seconds=60)
        (debt,) = await list_debts(fleet.plane.records)
        assert (debt.worker_id, debt.reason) == (worker.id, ANSWER_LOST)


async def test_a_new_leader_that_did_not_hear_the_answer_to_a_deregistration_owes_the_license() -> None:
    fleet = Fleet()
    fleet.licensing = AnswersOfDeregistrationsGetLost()
    async with fleet.running(controllers=2):
        worker = await licensed(fleet)
        await request_deregistration(fleet.plane.records, worker.id)
        while not fleet.licensing.calls[-1].startswith("deregister"):
            await fleet.clock.sleep(0.1)
        fleet.leader.election.resign()
        await fleet.clock.sleep(60)
        (debt,) = await list_debts(fleet.plane.records)
        assert (debt.worker_id, debt.reason) == (worker.id, ANSWER_LOST)


async def test_a_confirmed_deregistration_is_no_debt_though_its_report_was_lost() -> None:
    fleet = Fleet()
    fleet.licensing = LosesTheControlPlane(fleet)
    async with fleet.running():
        worker = await licensed(fleet)
        await request_deregistration(fleet.plane.records, worker.id)
        await fleet.clock.sleep(60)
        assert (await fleet.get(worker)).license.operation_in_progress
        (port,) = fleet.ports
        port.is_reachable = True
        await fleet.clock.sleep(120)
        assert (await fleet.get(worker)).license.status is LicenseStatus.DEREGISTERED
        assert await list_debts(fleet.plane.records) == []


class LeadersAreCutOff(MemoryLicensing):
    """The leader that deregisters loses the control plane and the lease; the next one lacks the answer."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__()
        self._fleet = fleet

    async def deregister(self, server: CmlServer, *, within_seconds: float) -> str:
        answer = await super().deregister(server, within_seconds=within_seconds)
        leader = self._fleet.leader
        port = self._fleet.ports[self._fleet.controllers.index(leader)]
        port.is_reachable = False
        leader.election.resign()
        if sum(call.startswith("deregister") for call in self.calls) == 2:
            raise Unreachable("no answer")
        return answer


async def test_an_earlier_answer_proves_nothing_about_a_later_deregistration() -> None:
    fleet = Fleet()
    fleet.licensing = LeadersAreCutOff(fleet)
    async with fleet.running(controllers=2):
        worker = await licensed(fleet)
        for count in (1, 2):
            await request_deregistration(fleet.plane.records, worker.id)
            await fleet.clock.sleep(120)
            (debt,) = await list_debts(fleet.plane.records)
            assert (debt.reason, debt.settled_by) == (ANSWER_LOST, None), count
            await settle_debt(fleet.plane.records, worker.id, by="ada")
            for port in fleet.ports:
                port.is_reachable = True
            await request_license(fleet.plane.records, worker.id, TOKEN)
            await fleet.clock.sleep(60)
            assert (await fleet.get(worker)).license.status is LicenseStatus.REGISTERED


async def test_a_license_that_is_free_before_any_request_is_no_debt() -> None:
    async with Fleet().running() as fleet:
        worker = await licensed(fleet)
        (agent,) = fleet.licensing.agents.values()
        agent.deregister(now=0.0)
        await request_deregistration(fleet.plane.records, worker.id)
        await fleet.clock.sleep(60)
        assert (await fleet.get(worker)).license.status is LicenseStatus.DEREGISTERED
        assert await list_debts(fleet.plane.records) == []


async def test_a_license_that_five_attempts_did_not_free_is_a_debt() -> None:
    async with Fleet().running() as fleet:
        worker = await licensed(fleet)

        async def refuse(server: CmlServer, *, within_seconds: float) -> str:
            return "another operation is under way"

        fleet.licensing.deregister = refuse  # type: ignore[method-assign]
        await fleet.ask(worker, Action.DELETE)
        await fleet.until(worker, TERMINATED, within_seconds=110)
        (debt,) = await list_debts(fleet.plane.records)
        assert debt.reason == "another operation is under way"


async def test_a_license_lost_with_its_instance_is_a_debt_and_the_next_instance_has_none() -> None:
    async with Fleet().running() as fleet:
        worker = await licensed(fleet)
        fleet.cloud.forget(fleet.instance_id(worker))
        worker = await fleet.until(worker, PENDING)
        assert worker.license.status is LicenseStatus.UNLICENSED
        (debt,) = await list_debts(fleet.plane.records)
        assert debt.worker_id == worker.id


async def test_a_worker_that_was_refused_a_license_holds_none_and_is_terminated_at_once() -> None:
    async with Fleet().running() as fleet:
        fleet.licensing.pool.size = 0
        worker = await fleet.running_worker()
        await fleet.clock.sleep(60)
        await request_license(fleet.plane.records, worker.id, TOKEN)
        await fleet.clock.sleep(600)
        assert (await fleet.get(worker)).license.status is LicenseStatus.FAILED
        fleet.licensing.unreachable = Unreachable("no route")
        await fleet.ask(worker, Action.DELETE)
        await fleet.until(worker, TERMINATED, within_seconds=60)
        assert await list_debts(fleet.plane.records) == []


# What CML reports of a license that LCM knows nothing of (A1, D-23).


def register_outside(fleet: Fleet, worker: Worker) -> None:
    """A person registers the server in CML's own pages."""
    host = worker.instance.public_ip or ""
    assert fleet.licensing.begin(host, TOKEN) == ""
    fleet.licensing.finish(host)


async def report_polled(fleet: Fleet, worker: Worker) -> None:
    """What the poll of every minute reports of CML's license."""
    (port,) = fleet.ports
    state = fleet.licensing.agents[worker.instance.public_ip or ""].status(now=0.0)
    polled = CmlLicense(
        registration_status=state["registration"]["status"],
        authorization_status=state["authorization"]["status"],
        product_license=state["product_license"]["active"],
    )
    changed_at = (await fleet.get(worker)).license.changed_at
    await report_cml(
        fleet.plane.records,
        fleet.plane.policies,
        worker.id,
        CmlReport(ready=True, license=polled, license_changed_at=changed_at),
        fence=port._fence(),
    )


async def ready(fleet: Fleet) -> Worker:
    worker = await fleet.running_worker()
    await fleet.clock.sleep(60)
    return await fleet.get(worker)


async def test_a_license_registered_outside_lcm_is_deregistered_before_the_instance_is_terminated() -> None:
    """Even if it was registered since the last report."""
    async with Fleet().running() as fleet:
        worker = await ready(fleet)
        register_outside(fleet, worker)
        await fleet.ask(worker, Action.DELETE)
        await fleet.until(worker, TERMINATED)
        assert fleet.licensing.held == set()
        assert await list_debts(fleet.plane.records) == []
        events = [entry.event for entry in await fleet.plane.records.audit.newest()]
        assert AuditEvent.LICENSE_DEREGISTERED in events


async def test_a_license_registered_outside_lcm_is_shown_and_deregistered_on_request() -> None:
    async with Fleet().running() as fleet:
        worker = await ready(fleet)
        register_outside(fleet, worker)
        await report_polled(fleet, worker)
        await fleet.clock.sleep(60)
        shown = (await fleet.get(worker)).license
        assert (shown.status, shown.tier) == (LicenseStatus.REGISTERED, "CML_Enterprise")
        await request_deregistration(fleet.plane.records, worker.id)
        await fleet.clock.sleep(30)
        assert fleet.licensing.held == set()
        assert (await fleet.get(worker)).license.status is LicenseStatus.DEREGISTERED


async def test_a_license_that_was_only_reported_is_deregistered_on_request() -> None:
    """Before the controller has followed the report."""
    async with Fleet().running() as fleet:
        worker = await ready(fleet)
        register_outside(fleet, worker)
        await report_polled(fleet, worker)
        await request_deregistration(fleet.plane.records, worker.id)
        await fleet.clock.sleep(30)
        assert fleet.licensing.held == set()


async def test_a_license_registered_outside_lcm_that_cannot_be_deregistered_is_a_debt() -> None:
    async with Fleet().running() as fleet:
        worker = await ready(fleet)
        register_outside(fleet, worker)
        await report_polled(fleet, worker)
        fleet.licensing.unreachable = Unreachable("no route to CML")
        await fleet.ask(worker, Action.DELETE)
        await fleet.until(worker, TERMINATED, within_seconds=300)
        (debt,) = await list_debts(fleet.plane.records)
        assert debt.worker_id == worker.id


async def test_a_license_registered_outside_lcm_of_an_instance_that_is_gone_is_a_debt() -> None:
    async with Fleet().running() as fleet:
        worker = await ready(fleet)
        register_outside(fleet, worker)
        await report_polled(fleet, worker)
        fleet.cloud.terminate(fleet.instance_id(worker))
        await fleet.clock.sleep(900)
        assert [debt.worker_id for debt in await list_debts(fleet.plane.records)] == [worker.id]


async def test_a_cml_that_reported_no_license_and_does_not_answer_does_not_keep_its_instance() -> None:
    async with Fleet().running() as fleet:
        worker = await ready(fleet)
        fleet.licensing.state_of(worker.instance.public_ip or "")
        await report_polled(fleet, worker)
        fleet.licensing.unreachable = Unreachable("no route to CML")
        await fleet.ask(worker, Action.DELETE)
        await fleet.until(worker, TERMINATED, within_seconds=60)
        assert await list_debts(fleet.plane.records) == []
        events = [entry.event for entry in await fleet.plane.records.audit.newest()]
        assert {AuditEvent.LICENSE_DEREGISTERED, AuditEvent.LICENSE_DEBT_RECORDED}.isdisjoint(events)


async def test_the_deletion_of_a_worker_that_never_had_a_license_counts_and_audits_none() -> None:
    async with Fleet().running() as fleet:
        worker = await ready(fleet)
        await fleet.ask(worker, Action.DELETE)
        await fleet.until(worker, TERMINATED, within_seconds=60)
        assert fleet.leader.stats.counts["license_deregistered_count"] == 0
        events = [entry.event for entry in await fleet.plane.records.audit.newest()]
        assert AuditEvent.LICENSE_DEREGISTERED not in events
        assert LicenseStatus.DEREGISTERED not in [commit.license.status for commit in fleet.commits]


async def test_a_lost_registration_is_drift_and_a_declared_license_is_registered_again() -> None:
    """A person deregistered it in CML, or it expired (D-12)."""
    async with Fleet().running() as fleet, asyncio.TaskGroup() as tasks:
        licensing = tasks.create_task(
            AutoLicense(fleet.plane.records, fleet.plane.caches, Health(fleet.clock)).run()
        )
        worker = await licensed(fleet)
        await set_fleet_token(fleet.plane.records, TOKEN)
        fleet.licensing.give_back(worker.instance.public_ip or "")
        await report_polled(fleet, worker)
        await fleet.clock.sleep(90)
        licensing.cancel()
        again = (await fleet.get(worker)).license
        assert again.status is LicenseStatus.REGISTERED
        assert fleet.leader.stats.drifts[worker.id, "license_lost"] == 1
        assert LicenseStatus.UNLICENSED in [commit.license.status for commit in fleet.commits]
        assert len(fleet.licensing.held) == 1


async def test_an_old_report_does_not_take_a_license_for_lost() -> None:
    async with Fleet().running() as fleet:
        worker = await ready(fleet)
        fleet.licensing.state_of(worker.instance.public_ip or "")
        await request_license(fleet.plane.records, worker.id, TOKEN)
        await fleet.clock.sleep(30)
        before, asked = CmlLicense(registration_status="NOT_REGISTERED"), await fleet.get(worker)
        await report_cml(
            fleet.plane.records,
            fleet.plane.policies,
            worker.id,
            CmlReport(ready=True, license=before, license_changed_at=asked.license.changed_at),
            fence=fleet.ports[0]._fence(),
        )
        await fleet.clock.sleep(120)
        assert (await fleet.get(worker)).license.status is LicenseStatus.REGISTERED
        assert fleet.leader.stats.drifts.total() == 0


async def test_a_confirmed_deregistration_settles_an_earlier_debt_of_the_same_server() -> None:
    """A lost answer is a debt until CML or an operator says otherwise (A4)."""
    async with Fleet().running() as fleet:
        fleet.licensing.pool.loses_deregistrations = True
        worker = await licensed(fleet)
        await request_deregistration(fleet.plane.records, worker.id)
        await fleet.clock.sleep(30)
        (debt,) = await list_debts(fleet.plane.records)
        assert debt.settled_by is None
        fleet.licensing.pool.loses_deregistrations = False
        await request_license(fleet.plane.records, worker.id, TOKEN)
        await fleet.clock.sleep(30)
        await request_deregistration(fleet.plane.records, worker.id)
        await fleet.clock.sleep(30)
        (debt,) = await list_debts(fleet.plane.records)
        assert debt.settled_by == "CML"


class CiscoIsSlow(MemoryLicensing):
    """It answers a deregistration as late as it may."""

    def __init__(self, fleet: Fleet, seconds: float) -> None:
        super().__init__()
        self._clock, self._seconds = fleet.clock, seconds
        self.limits: list[float] = []

    async def deregister(self, server: CmlServer, *, within_seconds: float) -> str:
        self.limits.append(within_seconds)
        await self._clock.sleep(min(self._seconds, within_seconds))
        if self._seconds >= within_seconds:
            raise Unreachable("timed out")
        return await super().deregister(server, within_seconds=within_seconds)


@pytest.mark.parametrize("seconds", [90.0, 115.0])
async def test_a_deregistration_may_take_as_long_as_cml_waits_for_cisco(seconds: float) -> None:
    fleet = Fleet()
    fleet.licensing = CiscoIsSlow(fleet, seconds)
    fleet.licensing.pool.loses_deregistrations = True
    async with fleet.running():
        worker = await licensed(fleet)
        await request_deregistration(fleet.plane.records, worker.id)
        await fleet.clock.sleep(seconds + 10)
        (debt,) = await list_debts(fleet.plane.records)
        assert (debt.reason, fleet.licensing.limits) == (POOL_NOT_NOTIFIED, [120.0])


async def test_a_deletion_waits_for_a_slow_deregistration_no_longer_than_two_minutes() -> None:
    fleet = Fleet()
    fleet.licensing = CiscoIsSlow(fleet, 1e6)
    async with fleet.running():
        worker = await licensed(fleet)
        await fleet.ask(worker, Action.DELETE)
        await fleet.until(worker, TERMINATED, within_seconds=180)
        assert len(await list_debts(fleet.plane.records)) == 1
        assert max(fleet.licensing.limits) <= 120.0


# Product and nodes (A7).

NODES = LicenseTerms(product_license="CML_Education", node_count=20)


async def requested(fleet: Fleet, terms: LicenseTerms) -> Worker:
    worker = await ready(fleet)
    await request_license(fleet.plane.records, worker.id, TOKEN, terms=terms)
    await fleet.clock.sleep(30)
    return await fleet.get(worker)


async def test_product_registration_and_nodes_are_set_in_the_order_of_ciscos_tools() -> None:
    async with Fleet().running() as fleet:
        worker = await requested(fleet, NODES)
        assert (worker.license.status, worker.license.tier) == (LicenseStatus.REGISTERED, "CML_Education")
        assert [call.split()[0] for call in fleet.licensing.calls] == ["product", "register", "nodes"]
        assert fleet.licensing.state_of(worker.instance.public_ip or "").node_count == 20


async def test_what_a_server_has_already_is_not_set_again() -> None:
    async with Fleet().running() as fleet:
        worker = await requested(fleet, LicenseTerms(product_license="CML_Enterprise", node_count=0))
        assert worker.license.status is LicenseStatus.REGISTERED
        assert [call.split()[0] for call in fleet.licensing.calls] == ["register"]


async def test_a_server_that_is_registered_for_another_product_is_not_taken_for_licensed() -> None:
    async with Fleet().running() as fleet:
        worker = await ready(fleet)
        register_outside(fleet, worker)
        await request_license(fleet.plane.records, worker.id, TOKEN, terms=NODES)
        await fleet.clock.sleep(120)
        license = (await fleet.get(worker)).license
        assert license.last_error == (
            "it is registered as CML_Enterprise; release that license before CML_Education"
        )
        assert len(fleet.licensing.held) == 1


async def test_nodes_that_are_not_granted_fail_the_registration_and_say_so() -> None:
    async with Fleet().running() as fleet:
        worker = await requested(fleet, LicenseTerms(node_count=9_000))
        assert "out of range" in worker.license.last_error


async def test_the_terms_of_the_fleet_hold_where_a_request_names_none() -> None:
    async with Fleet().running() as fleet:
        await set_fleet_token(fleet.plane.records, TOKEN, LicenseTerms(product_license="CML_Education"))
        worker = await ready(fleet)
        await request_license(fleet.plane.records, worker.id, terms=LicenseTerms(node_count=5))
        await fleet.clock.sleep(30)
        assert (await fleet.get(worker)).license.tier == "CML_Education"
        assert [call.split()[0] for call in fleet.licensing.calls] == ["product", "register", "nodes"]


def test_the_terms_of_a_request_hold_for_the_next_instance() -> None:
    now = NOON
    known = License(declared=True, terms=NODES, status=LicenseStatus.REGISTERED, asked_for=True)
    lost = lose_instance(known, is_final=False, now=now)
    assert (lost.status, lost.terms) == (LicenseStatus.UNLICENSED, NODES)
    assert lose_instance(License(terms=NODES), is_final=False, now=now) == License(terms=NODES)
