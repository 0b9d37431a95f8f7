"""The cost of a month: of the present one so far, and of those before."""

from datetime import timedelta

from msgspec.structs import replace

from lcm.control_plane.api.services import ControlPlane
from lcm.control_plane.queries.cost import CSV_COLUMNS, cost_report, cost_table
from lcm.core.configuration import read_yaml
from lcm.domain.cost import MonthlyUse
from lcm.domain.launch import WorkerId
from lcm.domain.lifecycle import RUNNING
from lcm.domain.worker import new_worker
from support.fleet import TEMPLATES
from support.virtual_time import VirtualClock

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
    present = await cost_report(plane.records)
    assert (present.month, present.months) == ("2026-01", ["2026-01", "2025-11"])
    assert round(present.total.usd_this_month, 4) == present.total.usd_per_hour == 3.9641
    past = await cost_report(plane.records, "2025-11")
    assert (past.month, past.total.usd_per_hour) == ("2025-11", 0.0)
    assert round(past.total.usd_this_month, 4) == 2 * 3.9641
    assert past.total.usd_saved_this_month == 3.9641
    assert (await cost_report(plane.records, "2025-12")).by_worker == []


async def test_the_table_of_a_month_has_a_row_for_each_worker_that_ran(plane: ControlPlane) -> None:
    await add_worker(plane)
    [row] = await cost_table(plane.records, "2025-11")
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
    }
    assert await cost_table(plane.records, "2025-12") == []
