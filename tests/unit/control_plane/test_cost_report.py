"""The cost of a month and of its days: of the present one so far, and of those before."""

import dataclasses
from datetime import timedelta
from urllib.parse import quote

import pytest
from msgspec.structs import replace

from lcm.control_plane.api.services import ControlPlane
from lcm.control_plane.policies import Policies
from lcm.control_plane.queries.cost import (
    CSV_COLUMNS,
    DAY_CSV_COLUMNS,
    cost_days_table,
    cost_report,
    cost_table,
)
from lcm.core.configuration import read_yaml
from lcm.domain.capacity import Capacity
from lcm.domain.cost import MonthlyUse
from lcm.domain.launch import InstanceId, WorkerId
from lcm.domain.lifecycle import (
    PROVISIONING,
    RUNNING,
    STARTING,
    STOPPED,
    STOPPING,
    TERMINATED,
    TERMINATING,
)
from lcm.domain.transitions import move
from lcm.domain.worker import Worker, WorkerInstance, new_worker
from support.asgi import request
from support.fleet import TEMPLATES
from support.virtual_time import VirtualClock
from unit.control_plane.test_operations import VIEWER, Plane

HOUR = 3600.0


async def add_worker(plane: ControlPlane) -> None:
    await plane.records.templates.seed(read_yaml(TEMPLATES))
    worker = new_worker(
        worker_id=WorkerId("id-of-ada"),
        name="ada",
        template_name="metal",
        aws_region="us-east-1",
        tags={},
        by="ann",
        now=plane.records.clock.now() - timedelta(days=60),
    )
    use = (MonthlyUse(month="2025-11", running_seconds=2 * HOUR, paused_seconds=HOUR),)
    history = tuple(
        replace(line, target=RUNNING, at=plane.records.clock.now()) for line in worker.state_history
    )
    await plane.records.workers.add(replace(worker, status=RUNNING, use=use, state_history=history))


async def test_a_past_month_costs_what_was_used_in_it_and_nothing_now(plane: ControlPlane) -> None:
    await add_worker(plane)
    await VirtualClock().sleep(HOUR)
    present = await cost_report(plane.records, plane.policies)
    assert (present.month, present.months) == ("2026-01", ["2026-01", "2025-11"])
    assert round(present.total.usd_this_month, 4) == present.total.usd_per_hour == 3.9641
    past = await cost_report(plane.records, plane.policies, "2025-11")
    assert (past.month, past.total.usd_per_hour) == ("2025-11", 0.0)
    assert round(past.total.usd_this_month, 4) == 2 * 3.9641
    assert past.total.usd_saved_this_month == 3.9641
    assert (await cost_report(plane.records, plane.policies, "2025-12")).by_worker == []


@pytest.mark.parametrize("form", ["json", "csv"])
@pytest.mark.parametrize(
    ("month", "expected"),
    [("2000-01", 200), ("2999-12", 200), ("0000-01", 422), ("9999-12", 422), ("٢٠٢٦-01", 422)],
)
async def test_a_month_that_no_calendar_has_is_refused(form: str, month: str, expected: int) -> None:
    path = f"/api/cost?month={quote(month)}&format={form}"
    status, _ = await request(Plane().parts.app, "GET", path, VIEWER, None)
    assert status == expected


async def test_the_table_of_a_month_has_a_row_for_each_worker_that_ran(plane: ControlPlane) -> None:
    await add_worker(plane)
    [row] = await cost_table(plane.records, plane.policies, "2025-11")
    assert dict(zip(CSV_COLUMNS, row, strict=True)) == {
        "month": "2025-11",
        "worker_id": "id-of-ada",
        "name": "ada",
        "template": "metal",
        "region": "us-east-1",
        "running_hours": 2.0,
        "usd": 7.9282,
        "paused_hours": 1.0,
        "usd_saved": 3.9641,
        "disk_gb": "",
        "disk_hours": 0.0,
        "usd_disk": 0.0,
    }
    assert await cost_table(plane.records, plane.policies, "2025-12") == []


DISK = {"us-east-1": 0.1}


async def add_stopped(plane: ControlPlane, name: str = "bo", *, region: str = "us-east-1") -> Worker:
    """A worker with a disk of 1,000 GB that was started at the beginning and stopped after ten hours."""
    await plane.records.templates.seed(read_yaml(TEMPLATES))
    began = plane.records.clock.now()
    worker = new_worker(
        worker_id=WorkerId(f"id-of-{name}"),
        name=name,
        template_name="metal",
        aws_region=region,
        tags={},
        by="ann",
        now=began,
        declared_capacity=Capacity(cpu=48, memory_gb=192, storage_gb=1_000, nodes=200),
    )
    worker = replace(worker, instance=WorkerInstance(id=InstanceId(f"i-{name}")))
    for status, hours in ((PROVISIONING, 0), (STARTING, 0), (RUNNING, 0), (STOPPING, 10), (STOPPED, 10)):
        worker = move(worker, status, by="c", reason="", now=began + timedelta(hours=hours))
    await plane.records.workers.add(worker)
    return worker


def with_disk_price(plane: ControlPlane) -> Policies:
    return dataclasses.replace(plane.policies, disk_usd_per_gb_month=DISK)


async def test_a_stopped_worker_costs_its_disk_and_nothing_else(plane: ControlPlane) -> None:
    await add_stopped(plane)
    await VirtualClock().sleep(48 * HOUR)
    [line] = (await cost_report(plane.records, with_disk_price(plane))).by_worker
    disk = 1_000 * 0.1 * 2 / 31
    assert line.usd_per_hour == 0.0
    assert line.usd_disk_this_month == pytest.approx(disk)
    assert line.usd_this_month == pytest.approx(10 * 3.9641 + disk)
    assert (line.disk_hours_this_month, line.unknown_disks) == (48.0, 0)


async def test_the_days_of_the_present_month_are_those_up_to_today_and_add_up_to_it(
    plane: ControlPlane,
) -> None:
    await add_stopped(plane)
    await VirtualClock().sleep(48 * HOUR + 60)
    report = await cost_report(plane.records, with_disk_price(plane))
    assert [day.day for day in report.days] == ["2026-01-01", "2026-01-02", "2026-01-03"]
    a_day = 1_000 * 0.1 / 31
    assert report.days[0].usd == pytest.approx(10 * 3.9641 + a_day)
    assert report.days[1].usd == report.days[1].usd_disk == pytest.approx(a_day)
    assert sum(day.usd for day in report.days) == pytest.approx(report.total.usd_this_month)
    assert report.usd_of_unknown_day == 0.0


async def test_a_worker_that_was_terminated_stays_in_its_days(plane: ControlPlane) -> None:
    worker = await add_stopped(plane)
    await VirtualClock().sleep(24 * HOUR)
    now = plane.records.clock.now()

    def terminate(current: Worker) -> Worker:
        current = move(current, TERMINATING, by="c", reason="", now=now)
        return move(current, TERMINATED, by="c", reason="", now=now)

    await plane.records.workers.change(worker.id, terminate)
    await VirtualClock().sleep(72 * HOUR)
    report = await cost_report(plane.records, with_disk_price(plane))
    assert [day.usd > 0 for day in report.days] == [True, False, False, False]
    assert report.total.disk_hours_this_month == 24.0


async def test_a_disk_without_a_price_is_shown_as_unknown_and_not_as_free(plane: ControlPlane) -> None:
    await add_stopped(plane)
    await add_stopped(plane, "cy", region="eu-west-1")
    await VirtualClock().sleep(31 * 24 * HOUR - 1)
    report = await cost_report(plane.records, with_disk_price(plane))
    regions = {line.key: line for line in report.by_region}
    assert (regions["eu-west-1"].usd_disk_this_month, regions["eu-west-1"].unknown_disks) == (None, 1)
    assert regions["us-east-1"].usd_disk_this_month == pytest.approx(100, rel=1e-4)
    assert report.total.usd_disk_this_month == regions["us-east-1"].usd_disk_this_month
    assert report.total.unknown_disks == 1
    table = await cost_table(plane.records, plane.policies)
    rows = [dict(zip(CSV_COLUMNS, row, strict=True)) for row in table]
    assert {(row["disk_gb"], row["usd_disk"]) for row in rows} == {(1_000.0, "")}


async def test_the_disk_of_an_imported_instance_is_of_unknown_size(plane: ControlPlane) -> None:
    worker = await add_stopped(plane)
    await plane.records.workers.change(worker.id, lambda current: replace(current, imported=True))
    await VirtualClock().sleep(HOUR)
    total = (await cost_report(plane.records, with_disk_price(plane))).total
    assert (total.usd_disk_this_month, total.unknown_disks) == (None, 1)


async def test_what_was_used_before_days_were_kept_is_named_apart(plane: ControlPlane) -> None:
    await add_worker(plane)
    report = await cost_report(plane.records, plane.policies, "2025-11")
    assert len(report.days) == 30
    assert sum(day.usd for day in report.days) == 0.0
    assert report.usd_of_unknown_day == report.total.usd_this_month == 2 * 3.9641


async def test_a_month_to_come_has_no_days(plane: ControlPlane) -> None:
    await add_stopped(plane)
    report = await cost_report(plane.records, with_disk_price(plane), "2026-02")
    assert (report.days, report.total.usd_this_month) == ([], 0.0)


async def test_the_table_of_the_days_has_a_row_for_each(plane: ControlPlane) -> None:
    await add_stopped(plane)
    await VirtualClock().sleep(30 * HOUR)
    rows = await cost_days_table(plane.records, with_disk_price(plane))
    assert [dict(zip(DAY_CSV_COLUMNS, row, strict=True)) for row in rows] == [
        {"day": "2026-01-01", "usd": 42.8668, "usd_disk": 3.2258, "usd_saved": 0.0},
        {"day": "2026-01-02", "usd": 0.8065, "usd_disk": 0.8065, "usd_saved": 0.0},
    ]
