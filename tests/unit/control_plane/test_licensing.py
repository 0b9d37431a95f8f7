"""A license is requested, tried and reported; its token is in no record, and a debt is never lost."""

import asyncio
import dataclasses
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from lcm.control_plane.api.services import ControlPlane
from lcm.control_plane.commands.claim_leadership import claim_leadership, fence_for
from lcm.control_plane.commands.license_worker import (
    license_token,
    list_debts,
    queue_due_licenses,
    remove_fleet_token,
    report_license,
    request_deregistration,
    request_license,
    set_fleet_token,
    settle_debt,
)
from lcm.control_plane.commands.report_details import report_cml
from lcm.control_plane.commands.report_status import report_status
from lcm.control_plane.commands.request_action import request_action
from lcm.control_plane.records.fleet_token import has_fleet_token
from lcm.control_plane.records.preconditions import Preconditions
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import Document, Fence, StoreUnavailable
from lcm.core.ids import RandomIds
from lcm.domain.errors import Conflict, Fenced, NotFound, UnknownReference
from lcm.domain.idempotency import KeyedRequest
from lcm.domain.lablet.admission import view_of
from lcm.domain.launch import InstanceId
from lcm.domain.license import License, LicenseOperation, LicenseStatus
from lcm.domain.lifecycle import PENDING, RUNNING, STOPPED, TERMINATED, DesiredStatus, WorkerStatus
from lcm.domain.worker import Action, CmlHealth, CmlLicense, Worker
from lcm.rest.schemas import CmlReport, LeadershipClaim, LicenseReport, StatusReport
from support.control_plane import control_plane_over
from support.core import a_worker, with_fields
from support.people import PublicDesk
from support.virtual_time import VirtualClock

REGISTER, DEREGISTER = LicenseOperation.REGISTER, LicenseOperation.DEREGISTER
SECRET = "canary-token-of-a-smart-account"


@pytest.fixture
async def fence(plane: ControlPlane) -> Fence:
    claim = LeadershipClaim(service="worker-controller", cluster_id="c", revision=1, instance_id="a")
    return fence_for("worker-controller", (await claim_leadership(plane.records, claim)).epoch)


@pytest.fixture
async def worker(plane: ControlPlane) -> Worker:
    return await plane.records.workers.add(a_worker(status=RUNNING))


async def reported(
    plane: ControlPlane,
    worker: Worker,
    step: str,
    operation: LicenseOperation,
    fence: Fence,
    **report: object,
) -> Worker:
    return await report_license(
        plane.records, worker.id, step, operation, msgspec.convert(report, LicenseReport), fence=fence
    )


async def kept_secrets(plane: ControlPlane) -> int:
    return len(await plane.records.store.list_all("secret"))


async def test_a_license_request_waits_with_its_token_for_the_controller(
    plane: ControlPlane, worker: Worker
) -> None:
    requested = await request_license(plane.records, worker.id, SECRET)
    assert requested.license.pending_operation is REGISTER
    assert (await license_token(plane.records, worker.id)).token == SECRET
    assert SECRET not in repr(requested)
    assert SECRET.encode() not in msgspec.json.encode(requested)


async def test_a_completed_registration_throws_the_token_away(
    plane: ControlPlane, worker: Worker, fence: Fence
) -> None:
    await request_license(plane.records, worker.id, SECRET)
    await reported(plane, worker, "start", REGISTER, fence)
    done = await reported(plane, worker, "complete", REGISTER, fence, tier="CML_Enterprise")
    assert (done.license.status, done.license.tier) == (LicenseStatus.REGISTERED, "CML_Enterprise")
    assert await kept_secrets(plane) == 0
    with pytest.raises(NotFound, match="ask for a license again"):
        await license_token(plane.records, worker.id)


async def test_after_a_registration_what_cml_said_of_the_license_before_counts_no_more(
    plane: ControlPlane, worker: Worker, fence: Fence
) -> None:
    """Until its health is read again, a session would be refused as on a worker without a license."""
    unlicensed = CmlHealth(valid=True, is_licensed=False)
    await plane.records.workers.change(
        worker.id, lambda current: replace(current, cml=replace(current.cml, health=unlicensed))
    )
    await request_license(plane.records, worker.id, SECRET)
    await reported(plane, worker, "start", REGISTER, fence)
    done = await reported(plane, worker, "complete", REGISTER, fence, tier="CML_Enterprise")
    assert done.cml.health == CmlHealth(valid=True)
    assert view_of(done).is_licensed is None


async def test_what_cml_said_of_its_license_before_a_registration_is_not_stored_after_it(
    plane: ControlPlane, worker: Worker, fence: Fence
) -> None:
    """The poll of every minute was answered before, and its report comes after."""
    await request_license(plane.records, worker.id, SECRET)
    before = await reported(plane, worker, "start", REGISTER, fence)
    old = CmlReport(
        ready=True,
        health=CmlHealth(valid=True, is_licensed=False),
        license=CmlLicense(registration_status="NOT_REGISTERED"),
        license_changed_at=before.license.changed_at,
    )
    await plane.records.clock.sleep(5)
    done = await reported(plane, worker, "complete", REGISTER, fence, tier="CML_Enterprise")
    after = await report_cml(plane.records, plane.policies, worker.id, old, fence=fence)
    assert (after.cml.health, after.cml.license) == (CmlHealth(valid=True), None)
    assert view_of(after).is_licensed is None
    new = replace(
        old, health=CmlHealth(valid=True, is_licensed=True), license_changed_at=done.license.changed_at
    )
    assert view_of(await report_cml(plane.records, plane.policies, worker.id, new, fence=fence)).is_licensed


async def test_a_failed_attempt_keeps_the_token_for_the_next(
    plane: ControlPlane, worker: Worker, fence: Fence
) -> None:
    await request_license(plane.records, worker.id, SECRET)
    await reported(plane, worker, "start", REGISTER, fence)
    failed = await reported(plane, worker, "fail", REGISTER, fence, reason="the pool is empty")
    assert failed.license.last_error == "the pool is empty"
    assert (await license_token(plane.records, worker.id)).token == SECRET


async def test_five_failures_end_the_license_request(
    plane: ControlPlane, worker: Worker, fence: Fence
) -> None:
    await request_license(plane.records, worker.id, SECRET)
    for _ in range(5):
        await reported(plane, worker, "start", REGISTER, fence)
        given_up = await reported(plane, worker, "fail", REGISTER, fence, reason="no")
    assert (given_up.license.status, given_up.license.pending_operation) == (LicenseStatus.FAILED, None)
    assert await kept_secrets(plane) == 0


async def test_a_new_token_replaces_the_one_that_waits(plane: ControlPlane, worker: Worker) -> None:
    await request_license(plane.records, worker.id, "an-older-token")
    await request_license(plane.records, worker.id, SECRET)
    assert (await license_token(plane.records, worker.id)).token == SECRET
    assert await kept_secrets(plane) == 1


async def test_a_report_sent_twice_counts_once(plane: ControlPlane, worker: Worker, fence: Fence) -> None:
    await request_license(plane.records, worker.id, SECRET)
    await reported(plane, worker, "start", REGISTER, fence)
    once = await reported(plane, worker, "complete", REGISTER, fence)
    assert await reported(plane, worker, "complete", REGISTER, fence) == once


async def test_a_report_without_a_request_is_refused(
    plane: ControlPlane, worker: Worker, fence: Fence
) -> None:
    with pytest.raises(Conflict, match="no register is pending"):
        await reported(plane, worker, "start", REGISTER, fence)


async def test_a_license_that_could_not_be_released_is_a_debt_until_an_operator_settles_it(
    plane: ControlPlane, worker: Worker, fence: Fence
) -> None:
    await request_license(plane.records, worker.id, SECRET)
    await reported(plane, worker, "start", REGISTER, fence)
    await reported(plane, worker, "complete", REGISTER, fence)
    await request_deregistration(plane.records, worker.id)
    await reported(plane, worker, "start", DEREGISTER, fence)
    for _ in range(2):
        await reported(plane, worker, "fail", DEREGISTER, fence, reason="unreachable", is_debt=True)
    (debt,) = await list_debts(plane.records)
    assert (debt.worker_id, debt.reason, debt.settled_by) == (worker.id, "unreachable", None)
    await settle_debt(plane.records, worker.id, by="ada")
    (debt,) = await list_debts(plane.records)
    assert debt.settled_by == "ada"


async def test_there_is_nothing_to_give_back_without_a_license(plane: ControlPlane, worker: Worker) -> None:
    assert (await request_deregistration(plane.records, worker.id)).license.pending_operation is None


class TestDeclaredLicenses:
    """D-12: a worker that should have a license and has none gets one without being asked."""

    @pytest.fixture
    async def declared(self, plane: ControlPlane) -> Worker:
        license = License(declared=True)
        return await plane.records.workers.add(a_worker(status=RUNNING, cml_ready=True, license=license))

    async def test_a_declared_license_is_queued_once_a_token_is_known(
        self, plane: ControlPlane, declared: Worker
    ) -> None:
        assert await queue_due_licenses(plane.records, plane.caches) == 0
        await set_fleet_token(plane.records, SECRET)
        assert await queue_due_licenses(plane.records, plane.caches) == 1
        worker = await plane.records.workers.get(declared.id)
        assert worker.license.pending_operation is REGISTER
        assert (await license_token(plane.records, worker.id)).token == SECRET
        assert await queue_due_licenses(plane.records, plane.caches) == 0

    async def test_the_fleets_token_outlives_the_registration(
        self, plane: ControlPlane, declared: Worker, fence: Fence
    ) -> None:
        await set_fleet_token(plane.records, SECRET)
        await queue_due_licenses(plane.records, plane.caches)
        await reported(plane, declared, "start", REGISTER, fence)
        await reported(plane, declared, "complete", REGISTER, fence)
        assert await has_fleet_token(plane.records)
        await remove_fleet_token(plane.records)
        assert await kept_secrets(plane) == 0

    @pytest.mark.parametrize(
        "fields",
        [
            {"license": License()},
            {"license": License(declared=True, status=LicenseStatus.FAILED)},
            {"license": License(declared=True, status=LicenseStatus.REGISTERED)},
            {"license": License(declared=True, pending_operation=REGISTER)},
            {"cml_ready": False},
            {"status": STOPPED},
            {"desired_status": DesiredStatus.STOPPED},
        ],
    )
    async def test_nothing_is_queued_for_a_worker_that_needs_none_or_cannot_be_asked(
        self, plane: ControlPlane, fields: dict[str, Any]
    ) -> None:
        declared = {"status": RUNNING, "cml_ready": True, "license": License(declared=True)}
        await plane.records.workers.add(a_worker(**{**declared, **fields}))
        await set_fleet_token(plane.records, SECRET)
        assert await queue_due_licenses(plane.records, plane.caches) == 0

    async def test_who_asks_for_a_license_declares_it_and_who_gives_it_back_takes_that_back(
        self, plane: ControlPlane, worker: Worker
    ) -> None:
        with pytest.raises(UnknownReference, match="send one"):
            await request_license(plane.records, worker.id)
        await set_fleet_token(plane.records, SECRET)
        assert (await request_license(plane.records, worker.id)).license.declared
        assert not (await request_deregistration(plane.records, worker.id)).license.declared
        assert await has_fleet_token(plane.records)

    async def test_an_instance_terminated_outside_lcm_leaves_a_debt_and_its_successor_is_licensed(
        self, plane: ControlPlane, fence: Fence
    ) -> None:
        license = License(declared=True, status=LicenseStatus.REGISTERED)
        worker = await plane.records.workers.add(
            a_worker(status=RUNNING, license=license, ec2_instance_id=InstanceId("i-1"))
        )
        gone = StatusReport(status=PENDING, reason="the instance is gone", expected_version=worker.version)
        worker = await report_status(
            plane.records, plane.policies, worker.id, gone, by="worker-controller", fence=fence
        )
        assert (worker.license.declared, worker.license.status) == (True, LicenseStatus.UNLICENSED)
        [debt] = await list_debts(plane.records)
        assert debt.worker_id == worker.id
        await settle_debt(plane.records, worker.id, by="ada")
        await plane.records.workers.change(
            worker.id,
            lambda w: with_fields(w, status=RUNNING, license=license, ec2_instance_id=InstanceId("i-2")),
        )
        again = msgspec.structs.replace(gone, expected_version=worker.version + 1)
        await report_status(
            plane.records, plane.policies, worker.id, again, by="worker-controller", fence=fence
        )
        [debt] = await list_debts(plane.records)
        assert debt.settled_by is None


async def test_a_worker_on_its_way_out_takes_no_license(plane: ControlPlane, worker: Worker) -> None:
    await request_action(plane.records, worker.id, Action.DELETE, by="ann")
    with pytest.raises(Conflict, match="is being deleted"):
        await request_license(plane.records, worker.id, SECRET)


async def test_a_refused_request_leaves_no_token(plane: ControlPlane, worker: Worker) -> None:
    await request_action(plane.records, worker.id, Action.DELETE, by="ada")
    with pytest.raises(Conflict, match="is being deleted"):
        await request_license(plane.records, worker.id, SECRET)
    assert await kept_secrets(plane) == 0


async def test_a_request_that_is_sent_again_leaves_one_token(plane: ControlPlane, worker: Worker) -> None:
    given = Preconditions(KeyedRequest(key="k", content="c"))
    for _ in range(2):
        await request_license(plane.records, worker.id, SECRET, preconditions=given)
    assert await kept_secrets(plane) == 1
    assert (await license_token(plane.records, worker.id)).token == SECRET


async def test_a_token_that_was_never_used_goes_with_its_worker(
    plane: ControlPlane, worker: Worker, fence: Fence
) -> None:
    await request_license(plane.records, worker.id, SECRET)
    gone = await plane.records.workers.get(worker.id)
    report = StatusReport(status=TERMINATED, reason="gone", expected_version=gone.version, observed=True)
    await report_status(plane.records, plane.policies, worker.id, report, by="c", fence=fence)
    assert await kept_secrets(plane) == 0
    assert await list_debts(plane.records) == []


async def test_a_debt_that_two_settle_at_once_is_settled_by_the_first(
    plane: ControlPlane, worker: Worker, fence: Fence
) -> None:
    await request_license(plane.records, worker.id, SECRET)
    await reported(plane, worker, "start", REGISTER, fence)
    await reported(plane, worker, "fail", REGISTER, fence, reason="gone", is_debt=True)

    class SlowStore(MemoryStore):
        """Others get between a read and what follows from it."""

        async def get(self, kind: str, document_id: str) -> Document | None:
            document = await plane.records.store.get(kind, document_id)
            await plane.records.clock.sleep(0.1)
            return document

        async def replace(self, document: Document, fence: Fence | None = None) -> None:
            await plane.records.store.replace(document, fence)

    slow = dataclasses.replace(plane.records, store=SlowStore())
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(settle_debt(slow, worker.id, by="ada"))
        second = tasks.create_task(settle_debt(slow, worker.id, by="bob"))
    assert first.result().settled_by == second.result().settled_by == "ada"


async def test_a_license_becomes_a_debt_again_after_a_settled_debt(
    plane: ControlPlane, worker: Worker, fence: Fence
) -> None:
    for _ in range(2):
        await request_license(plane.records, worker.id, SECRET)
        await reported(plane, worker, "start", REGISTER, fence)
        await reported(plane, worker, "fail", DEREGISTER, fence, reason="no route", is_debt=True)
        (debt,) = await list_debts(plane.records)
        assert debt.settled_by is None
        await settle_debt(plane.records, worker.id, by="ann")


async def test_a_late_report_changes_no_record_that_is_closed_and_makes_no_debt(
    plane: ControlPlane, worker: Worker, fence: Fence
) -> None:
    report = StatusReport(status=TERMINATED, reason="gone", expected_version=worker.version, observed=True)
    closed = await report_status(plane.records, plane.policies, worker.id, report, by="c", fence=fence)
    assert await reported(plane, worker, "fail", DEREGISTER, fence, reason="late", is_debt=True) == closed
    assert await list_debts(plane.records) == []


class StoreWithoutRoomForDebts(MemoryStore):
    """The process ends where the debt would be written."""

    async def insert(self, document: Document, fence: Fence | None = None) -> None:
        raise StoreUnavailable("no room")


async def registered(plane: ControlPlane) -> Worker:
    license = License(status=LicenseStatus.REGISTERED)
    return await plane.records.workers.add(
        a_worker(status=RUNNING, license=license, ec2_instance_id=InstanceId("i-1"))
    )


def with_store(plane: ControlPlane, store: MemoryStore) -> ControlPlane:
    return dataclasses.replace(plane, records=dataclasses.replace(plane.records, store=store))


async def test_a_license_is_not_given_up_before_its_debt_is_recorded(
    plane: ControlPlane, fence: Fence
) -> None:
    worker = await registered(plane)
    dying = with_store(plane, StoreWithoutRoomForDebts())
    with pytest.raises(StoreUnavailable):
        await reported(dying, worker, "fail", DEREGISTER, fence, reason="no route", is_debt=True)
    assert await plane.records.workers.get(worker.id) == worker


class Killed(Exception):
    """The process ends here."""


class KilledStore(MemoryStore):
    """Ends the process instead of its nth replacement from here on."""

    kill_at = 0

    async def replace(self, document: Document, fence: Fence | None = None) -> None:
        self.kill_at -= 1
        if self.kill_at == 0:
            raise Killed
        await super().replace(document, fence)


@pytest.mark.parametrize("kill_at", [1, 2])
async def test_a_debt_that_cml_settles_is_settled_wherever_its_report_is_cut_off(kill_at: int) -> None:
    store = KilledStore()
    plane = control_plane_over(store, clock=VirtualClock(), ids=RandomIds(Random(1)))
    claim = LeadershipClaim(service="worker-controller", cluster_id="c", revision=1, instance_id="a")
    fence = fence_for("worker-controller", (await claim_leadership(plane.records, claim)).epoch)
    worker = await registered(plane)
    await reported(plane, worker, "fail", DEREGISTER, fence, reason="no route", is_debt=True)
    await request_license(plane.records, worker.id, SECRET)
    await reported(plane, worker, "complete", REGISTER, fence)
    await request_deregistration(plane.records, worker.id)
    store.kill_at = kill_at
    with pytest.raises(Killed):
        await reported(plane, worker, "complete", DEREGISTER, fence)
    # The controller reports again only what is pending still.
    if (await plane.records.workers.get(worker.id)).license.pending_operation is DEREGISTER:
        await reported(plane, worker, "complete", DEREGISTER, fence)
    [debt] = await list_debts(plane.records)
    assert debt.settled_by == "CML"


async def test_a_deregistration_that_is_refused_settles_no_debt(plane: ControlPlane, fence: Fence) -> None:
    worker = await registered(plane)
    await reported(plane, worker, "fail", DEREGISTER, fence, reason="no route", is_debt=True)
    with pytest.raises(Conflict):
        await reported(plane, worker, "complete", DEREGISTER, fence)
    older = dataclasses.replace(fence, version=fence.version - 1)
    await request_license(plane.records, worker.id, SECRET)
    await reported(plane, worker, "complete", REGISTER, fence)
    await request_deregistration(plane.records, worker.id)
    with pytest.raises(Fenced):
        await reported(plane, worker, "complete", DEREGISTER, older)
    [debt] = await list_debts(plane.records)
    assert debt.settled_by is None


@pytest.mark.parametrize("status", [PENDING, TERMINATED])
async def test_a_worker_is_not_without_its_instance_before_the_debt_of_its_license_is_recorded(
    plane: ControlPlane, fence: Fence, status: WorkerStatus
) -> None:
    worker = await registered(plane)
    dying = with_store(plane, StoreWithoutRoomForDebts())
    gone = StatusReport(status=status, reason="gone", expected_version=worker.version, observed=True)
    with pytest.raises(StoreUnavailable):
        await report_status(
            dying.records, dying.policies, worker.id, gone, by="worker-controller", fence=fence
        )
    assert await plane.records.workers.get(worker.id) == worker


async def test_terms_of_a_license_stay_until_a_request_names_any() -> None:
    desk = PublicDesk()
    await desk.open()

    async def request(**terms: object) -> dict[str, object]:
        answer = await desk.admin.post("/api/workers/w1/license", {"token": "a-token", **terms})
        assert answer.status == 202, answer.text
        return dict(answer.body["license"]["terms"])

    assert await request(product_license="CML_Education", node_count=40) == {
        "product_license": "CML_Education",
        "node_count": 40,
    }
    assert (await request())["node_count"] == 40
    assert await request(product_license=None, node_count=None) == {}
