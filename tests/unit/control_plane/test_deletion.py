"""A deleted worker keeps its record or loses it too, but never before its instance is gone."""

import dataclasses

import pytest

from lcm.control_plane.access.sealing import SecretBox
from lcm.control_plane.access.secrets import SecretStore
from lcm.control_plane.api.services import ControlPlane
from lcm.control_plane.commands.change_login import set_login
from lcm.control_plane.commands.claim_leadership import claim_leadership, fence_for
from lcm.control_plane.commands.clean_up import clean_up
from lcm.control_plane.commands.delete_worker import delete_worker
from lcm.control_plane.commands.license_worker import request_license
from lcm.control_plane.commands.report_status import report_status
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import Document, StoreUnavailable
from lcm.domain.errors import NotFound
from lcm.domain.launch import InstanceId
from lcm.domain.lifecycle import RUNNING, TERMINATED, TERMINATING, DesiredStatus, WorkerStatus
from lcm.domain.worker import Worker
from lcm.rest.fleet import Cleanup
from lcm.rest.schemas import LeadershipClaim, StatusReport
from support.core import a_worker

DAY = 24 * 3600.0


async def reported(plane: ControlPlane, worker: Worker, status: WorkerStatus) -> Worker:
    claim = LeadershipClaim(service="worker-controller", cluster_id="c", revision=1, instance_id="a")
    fence = fence_for("worker-controller", (await claim_leadership(plane.records, claim)).epoch)
    report = StatusReport(status=status, reason="EC2 says so", expected_version=worker.version)
    return await report_status(
        plane.records, plane.policies, worker.id, report, by="worker-controller", fence=fence
    )


async def test_a_delete_keeps_the_record(plane: ControlPlane) -> None:
    worker = await plane.records.workers.add(a_worker(status=TERMINATED))
    await delete_worker(plane.records, worker.id, force=False, by="ada")
    assert (await plane.records.workers.get(worker.id)).status is TERMINATED


async def test_a_forced_delete_purges_the_record_with_the_instance_and_not_before(
    plane: ControlPlane,
) -> None:
    worker = await plane.records.workers.add(a_worker(status=RUNNING, ec2_instance_id=InstanceId("i-1")))
    await delete_worker(plane.records, worker.id, force=True, by="ada")
    worker = await plane.records.workers.get(worker.id)
    assert worker.desired_status is DesiredStatus.TERMINATED
    worker = await reported(plane, worker, TERMINATING)
    assert (await plane.records.workers.get(worker.id)).instance.id == "i-1"
    gone = await reported(plane, worker, TERMINATED)
    assert gone.status is TERMINATED
    with pytest.raises(NotFound):
        await plane.records.workers.get(worker.id)


async def test_a_forced_delete_of_a_terminated_worker_purges_it_at_once(plane: ControlPlane) -> None:
    worker = await plane.records.workers.add(a_worker(status=RUNNING))
    await request_license(plane.records, worker.id, "a-token")
    await plane.records.workers.change(worker.id, lambda w: a_worker(status=TERMINATED, license=w.license))
    await delete_worker(plane.records, worker.id, force=True, by="ada")
    assert await plane.records.store.list_all("worker") == []
    assert await plane.records.store.list_all("secret") == []


async def test_a_record_is_kept_for_thirty_days_from_the_termination_however_old_the_worker_was(
    plane: ControlPlane,
) -> None:
    worker = await plane.records.workers.add(
        a_worker(status=TERMINATING, created_at=plane.records.clock.now())
    )
    await plane.records.clock.sleep(60 * DAY)
    await reported(plane, worker, TERMINATED)
    for _ in range(30):
        assert (await clean_up(plane.records, Cleanup(retention_days=30))).worker_ids == []
        await plane.records.clock.sleep(DAY)
    assert (await plane.records.workers.get(worker.id)).status is TERMINATED
    await plane.records.clock.sleep(1)
    assert (await clean_up(plane.records, Cleanup(retention_days=30))).worker_ids == [worker.id]
    assert await plane.records.store.list_all("worker") == []


async def test_a_purge_that_was_cut_off_is_made_up_for(plane: ControlPlane) -> None:
    worker = await plane.records.workers.add(a_worker(status=TERMINATED, purge_when_terminated=True))
    assert (await clean_up(plane.records, Cleanup())).worker_ids == [worker.id]
    assert await plane.records.store.list_all("worker") == []


async def test_a_purge_that_was_cut_off_leaves_no_secret_behind(plane: ControlPlane) -> None:
    worker = await plane.records.workers.add(a_worker(status=RUNNING))
    worker = await set_login(plane.records, worker.id, "lcm", "a-password", by="ada")
    await plane.records.workers.change(
        worker.id, lambda w: a_worker(status=TERMINATED, cml_login=w.cml.login)
    )

    class Away(MemoryStore):
        """Cannot be reached."""

        async def get(self, kind: str, document_id: str) -> Document | None:
            raise StoreUnavailable("disk full")

    cut_off = dataclasses.replace(plane.records, secrets=SecretStore(Away(), SecretBox.of(bytes(32))))
    with pytest.raises(StoreUnavailable):
        await delete_worker(cut_off, worker.id, force=True, by="ada")
    await delete_worker(plane.records, worker.id, force=True, by="ada")
    assert await plane.records.store.list_all("worker") == []
    assert await plane.records.store.list_all("secret") == []
