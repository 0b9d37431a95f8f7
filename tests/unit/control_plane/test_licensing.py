"""A license is wished, tried and reported; its token is never in a record, and a debt is never forgotten."""

import msgspec
import pytest

from lcm.control_plane.commands.claim_leadership import claim_leadership, fence_for
from lcm.control_plane.commands.license_worker import (
    license_token,
    list_debts,
    report_license,
    request_deregistration,
    request_license,
    settle_debt,
)
from lcm.control_plane.context import ControlPlane
from lcm.control_plane.store.port import Fence
from lcm.domain.errors import Conflict, NotFound
from lcm.domain.license import LicenseOperation, LicenseStatus
from lcm.domain.lifecycle import RUNNING
from lcm.domain.worker import Worker
from lcm.rest.schemas import LeadershipClaim, LicenseReport
from support.core import a_worker

REGISTER, DEREGISTER = LicenseOperation.REGISTER, LicenseOperation.DEREGISTER
SECRET = "canary-token-of-a-smart-account"


@pytest.fixture
async def fence(plane: ControlPlane) -> Fence:
    claim = LeadershipClaim(service="worker-controller", cluster_id="c", revision=1, instance_id="a")
    return fence_for("worker-controller", (await claim_leadership(plane, claim)).epoch)


@pytest.fixture
async def worker(plane: ControlPlane) -> Worker:
    return await plane.workers.add(a_worker(status=RUNNING))


async def reported(
    plane: ControlPlane,
    worker: Worker,
    step: str,
    operation: LicenseOperation,
    fence: Fence,
    **report: object,
) -> Worker:
    return await report_license(
        plane, worker.id, step, operation, msgspec.convert(report, LicenseReport), fence=fence
    )


async def kept_secrets(plane: ControlPlane) -> int:
    return len(await plane.store.list_all("secret"))


async def test_a_wish_waits_with_its_token_for_the_controller(plane: ControlPlane, worker: Worker) -> None:
    wished = await request_license(plane, worker.id, SECRET)
    assert wished.license.pending_operation is REGISTER
    assert await license_token(plane, worker.id) == SECRET
    assert SECRET not in repr(wished)
    assert SECRET.encode() not in msgspec.json.encode(wished)


async def test_a_completed_registration_throws_the_token_away(
    plane: ControlPlane, worker: Worker, fence: Fence
) -> None:
    await request_license(plane, worker.id, SECRET)
    await reported(plane, worker, "start", REGISTER, fence)
    done = await reported(plane, worker, "complete", REGISTER, fence, tier="CML_Enterprise")
    assert (done.license.status, done.license.tier) == (LicenseStatus.REGISTERED, "CML_Enterprise")
    assert await kept_secrets(plane) == 0
    with pytest.raises(NotFound, match="ask for a license again"):
        await license_token(plane, worker.id)


async def test_a_failed_attempt_keeps_the_token_for_the_next(
    plane: ControlPlane, worker: Worker, fence: Fence
) -> None:
    await request_license(plane, worker.id, SECRET)
    await reported(plane, worker, "start", REGISTER, fence)
    failed = await reported(plane, worker, "fail", REGISTER, fence, reason="the pool is empty")
    assert failed.license.last_error == "the pool is empty"
    assert await license_token(plane, worker.id) == SECRET


async def test_five_failures_give_the_wish_up(plane: ControlPlane, worker: Worker, fence: Fence) -> None:
    await request_license(plane, worker.id, SECRET)
    for _ in range(5):
        await reported(plane, worker, "start", REGISTER, fence)
        given_up = await reported(plane, worker, "fail", REGISTER, fence, reason="no")
    assert (given_up.license.status, given_up.license.pending_operation) == (LicenseStatus.FAILED, None)
    assert await kept_secrets(plane) == 0


async def test_a_new_token_replaces_the_one_that_waits(plane: ControlPlane, worker: Worker) -> None:
    await request_license(plane, worker.id, "an-older-token")
    await request_license(plane, worker.id, SECRET)
    assert await license_token(plane, worker.id) == SECRET
    assert await kept_secrets(plane) == 1


async def test_a_report_sent_twice_counts_once(plane: ControlPlane, worker: Worker, fence: Fence) -> None:
    await request_license(plane, worker.id, SECRET)
    await reported(plane, worker, "start", REGISTER, fence)
    once = await reported(plane, worker, "complete", REGISTER, fence)
    assert await reported(plane, worker, "complete", REGISTER, fence) == once


async def test_a_report_nobody_wished_for_is_refused(
    plane: ControlPlane, worker: Worker, fence: Fence
) -> None:
    with pytest.raises(Conflict, match="no register is pending"):
        await reported(plane, worker, "start", REGISTER, fence)


async def test_a_license_that_could_not_be_given_back_is_a_debt_until_somebody_settles_it(
    plane: ControlPlane, worker: Worker, fence: Fence
) -> None:
    await request_license(plane, worker.id, SECRET)
    await reported(plane, worker, "start", REGISTER, fence)
    await reported(plane, worker, "complete", REGISTER, fence)
    await request_deregistration(plane, worker.id)
    await reported(plane, worker, "start", DEREGISTER, fence)
    for _ in range(2):
        await reported(plane, worker, "fail", DEREGISTER, fence, reason="unreachable", is_debt=True)
    (debt,) = await list_debts(plane)
    assert (debt.worker_id, debt.reason, debt.settled_by) == (worker.id, "unreachable", None)
    await settle_debt(plane, worker.id, by="ada")
    (debt,) = await list_debts(plane)
    assert debt.settled_by == "ada"


async def test_there_is_nothing_to_give_back_without_a_license(plane: ControlPlane, worker: Worker) -> None:
    assert (await request_deregistration(plane, worker.id)).license.pending_operation is None
