"""The fleet grows within its bounds, and the audit log says why it did or did not."""

import pytest
import yaml
from msgspec.structs import replace

from lcm.control_plane.api.services import ControlPlane
from lcm.control_plane.commands.scale_up import scale_up
from lcm.control_plane.records.audit import AuditLog
from lcm.defaults import BUILT_IN
from lcm.domain.errors import Conflict, UnknownReference
from lcm.domain.lifecycle import PENDING
from lcm.domain.scaling import AuditEvent
from lcm.rest.schemas import ScaleUpRequest

TEMPLATES = BUILT_IN / "worker_templates.yaml"
MORE = ScaleUpRequest(template="small", reason="no room for lablet-7")


@pytest.fixture(autouse=True)
async def templates(plane: ControlPlane) -> None:
    await plane.records.templates.seed(yaml.safe_load(TEMPLATES.read_text()))


async def logged(plane: ControlPlane) -> list[str]:
    return [entry.event for entry in await plane.records.audit.newest()]


async def test_a_scale_up_is_a_pending_worker_and_a_line_in_the_audit_log(plane: ControlPlane) -> None:
    (worker,) = await scale_up(plane.records, plane.policies, MORE, by="resource-scheduler")
    assert (worker.status, worker.template_name, worker.created_by) == (
        PENDING,
        "small",
        "resource-scheduler",
    )
    (entry,) = await plane.records.audit.newest()
    assert (entry.event, entry.worker_id, entry.reason) == ("scale_up_accepted", worker.id, MORE.reason)


async def test_a_second_scale_up_waits_for_the_cooldown(plane: ControlPlane) -> None:
    await scale_up(plane.records, plane.policies, MORE, by="resource-scheduler")
    await plane.records.clock.sleep(299)
    with pytest.raises(Conflict, match="repeat in 1 s"):
        await scale_up(plane.records, plane.policies, MORE, by="resource-scheduler")
    await plane.records.clock.sleep(1)
    await scale_up(plane.records, plane.policies, MORE, by="resource-scheduler")
    assert await logged(plane) == ["scale_up_accepted", "scale_up_rejected", "scale_up_accepted"]


async def test_workers_that_are_requested_together_are_added_together_or_not_at_all(
    plane: ControlPlane,
) -> None:
    six = replace(MORE, count=6)
    added = await scale_up(plane.records, plane.policies, six, by="resource-scheduler")
    assert len({worker.name for worker in added}) == 6
    await plane.records.clock.sleep(300)
    with pytest.raises(Conflict, match="6 more would exceed the limit of 10"):
        await scale_up(plane.records, plane.policies, six, by="resource-scheduler")
    assert len(await plane.records.workers.list_all()) == 6


async def test_a_scale_up_that_is_repeated_with_its_key_adds_its_workers_once(plane: ControlPlane) -> None:
    three = replace(MORE, count=3, key="su-1")
    added = await scale_up(plane.records, plane.policies, three, by="resource-scheduler")
    again = await scale_up(plane.records, plane.policies, three, by="resource-scheduler")
    assert [worker.id for worker in again] == [worker.id for worker in added]
    assert len(await plane.records.workers.list_all()) == 3
    with pytest.raises(Conflict, match="repeat in"):
        await scale_up(plane.records, plane.policies, replace(three, key="su-2"), by="resource-scheduler")


async def test_a_full_region_takes_no_more_workers(plane: ControlPlane) -> None:
    for _ in range(10):
        await scale_up(plane.records, plane.policies, MORE, by="resource-scheduler")
        await plane.records.clock.sleep(300)
    with pytest.raises(Conflict, match="raise MAX_WORKERS_PER_REGION or delete one"):
        await scale_up(plane.records, plane.policies, MORE, by="resource-scheduler")


async def test_an_unknown_template_is_refused_by_name(plane: ControlPlane) -> None:
    with pytest.raises(UnknownReference, match="there is no template 'huge'"):
        await scale_up(
            plane.records, plane.policies, ScaleUpRequest(template="huge", reason=""), by="resource-scheduler"
        )


async def test_the_audit_log_is_newest_first_and_can_be_asked_for_one_kind_or_one_worker(
    plane: ControlPlane,
) -> None:
    for event, worker_id in [("provisioned", "a"), ("drained", "a"), ("provisioned", "b")]:
        await plane.records.audit.record(AuditEvent(event), by="c", reason="", worker_id=worker_id)
        await plane.records.clock.sleep(1)
    assert await logged(plane) == ["provisioned", "drained", "provisioned"]
    assert [e.worker_id for e in await plane.records.audit.newest(event=AuditEvent.PROVISIONED)] == ["b", "a"]
    assert [e.event for e in await plane.records.audit.newest(worker_id="a")] == ["drained", "provisioned"]


async def test_the_audit_log_forgets_its_oldest_entries(plane: ControlPlane) -> None:
    log = AuditLog(plane.records.store, plane.records.clock, plane.records.ids, max_entries=20)
    for number in range(30):
        await log.record(AuditEvent.PROVISIONED, by="c", reason=str(number))
        await plane.records.clock.sleep(1)
    kept = await log.newest()
    assert len(kept) <= 20
    assert kept[0].reason == "29"
