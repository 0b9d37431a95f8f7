"""What Prometheus learns of the fleet: workers, cost, and how long people wait."""

import pytest
from msgspec.structs import replace

from lcm.control_plane.queries.cost import cost_report
from lcm.core.configuration import read_yaml
from lcm.domain.cost import MonthlyUse, month_of
from lcm.domain.launch import WorkerId
from lcm.domain.lifecycle import PENDING, PROVISIONING, RUNNING, STARTING, TERMINATED, WorkerStatus
from lcm.domain.worker import Worker, new_worker
from support.asgi import request
from support.fleet import TEMPLATES
from unit.control_plane.test_operations import VIEWER, Plane


async def metrics(plane: Plane) -> dict[str, float]:
    """Every sample by its name and labels, as a scrape has it."""
    await plane.clock.sleep(2)  # they are rendered once a second
    status, body = await request(plane.parts.app, "GET", "/metrics", {}, None)
    assert status == 200
    lines = [line for line in body.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def add_worker(plane: Plane, name: str) -> Worker:
    worker = new_worker(
        worker_id=WorkerId(f"id-of-{name}"),
        name=name,
        template_name="metal",
        aws_region="us-east-1",
        tags={},
        by="ann",
        now=plane.clock.now(),
    )
    await plane.parts.plane.records.workers.add(worker)
    return worker


async def commit(plane: Plane, worker: Worker, status: WorkerStatus) -> Worker:
    """The worker comes to this status now."""
    last = worker.state_history[-1]
    arrival = replace(last, source=worker.status, target=status, at=plane.clock.now())
    after = replace(worker, status=status, state_history=(*worker.state_history, arrival))
    plane.parts.plane.caches.boot_times.on_worker_commit(worker, after)
    plane.parts.plane.caches.worker_cache.learn(after)
    return after


async def test_workers_are_counted_by_status_template_and_region() -> None:
    plane = Plane()
    await add_worker(plane, "ada")
    await commit(plane, await add_worker(plane, "bob"), RUNNING)
    found = await metrics(plane)
    assert found['lcm_workers{region="us-east-1",status="running",template="metal"}'] == 1
    assert found['lcm_workers{region="us-east-1",status="pending",template="metal"}'] == 1


async def test_the_way_up_is_measured_from_the_request_until_running_and_until_ready() -> None:
    plane = Plane()
    worker = await add_worker(plane, "ada")
    assert worker.status is PENDING
    for status in (PROVISIONING, STARTING):
        worker = await commit(plane, worker, status)
    await plane.clock.sleep(200)
    worker = await commit(plane, worker, RUNNING)
    await plane.clock.sleep(300)
    ready = replace(worker, cml=replace(worker.cml, is_ready=True))
    times = plane.parts.plane.caches.boot_times
    times.on_worker_commit(worker, ready)
    times.on_worker_commit(worker, ready)  # CML started anew: no way up
    found = await metrics(plane)
    assert found['lcm_worker_running_seconds_sum{template="metal"}'] == 200
    assert found['lcm_worker_ready_seconds_sum{template="metal"}'] == 500
    assert found['lcm_worker_ready_seconds_count{template="metal"}'] == 1


async def test_the_cost_is_that_of_the_cost_report() -> None:
    plane = Plane()
    records = plane.parts.plane.records
    await records.templates.seed(read_yaml(TEMPLATES))
    worker = await add_worker(plane, "ada")
    history = tuple(replace(line, target=RUNNING) for line in worker.state_history)
    await records.workers.add(
        replace(worker, id=WorkerId("other"), name="bob", status=RUNNING, state_history=history)
    )
    await plane.clock.sleep(3600)
    await plane.parts.cost_figures.compute()
    report = await cost_report(records, plane.parts.plane.policies)
    found = await metrics(plane)
    of = '{region="us-east-1",template="metal"}'
    assert found[f"lcm_fleet_usd_per_hour{of}"] == report.total.usd_per_hour > 0
    assert found[f"lcm_fleet_month_usd{of}"] == report.total.usd_this_month == report.total.usd_per_hour
    assert found[f"lcm_fleet_month_saved_usd{of}"] == 0.0


@pytest.mark.parametrize("was_seen_live", [True, False])
async def test_what_a_terminated_worker_cost_counts_until_the_end_of_its_month(was_seen_live: bool) -> None:
    """Without reading all terminated workers each minute: after a year there are very many."""
    plane = Plane()
    records, figures = plane.parts.plane.records, plane.parts.cost_figures
    await records.templates.seed(read_yaml(TEMPLATES))
    worker = await add_worker(plane, "ada")
    started = tuple(replace(line, target=RUNNING) for line in worker.state_history)
    await records.workers.change(worker.id, lambda w: replace(w, status=RUNNING, state_history=started))
    if was_seen_live:
        await figures.compute()
    await plane.clock.sleep(3600)
    cost = (await cost_report(records, plane.parts.plane.policies)).total.usd_per_hour
    assert cost > 0
    use = (MonthlyUse(month=month_of(plane.clock.now()), running_seconds=3600),)
    await records.workers.change(worker.id, lambda w: replace(w, status=TERMINATED, use=use))
    month_usd = 'lcm_fleet_month_usd{region="us-east-1",template="metal"}'
    for _ in range(2):
        await figures.compute()
        assert (await metrics(plane))[month_usd] == cost


async def test_requests_are_timed_by_operation_and_refused_ones_are_not() -> None:
    plane = Plane()
    for method, headers in (("GET", VIEWER), ("GET", VIEWER), ("GET", {}), ("PROPFIND", VIEWER)):
        await request(plane.parts.app, method, "/api/workers/nobody", headers, None)
    found = await metrics(plane)
    counted = {
        name: value for name, value in found.items() if name.startswith("lcm_api_request_seconds_count")
    }
    assert counted == {'lcm_api_request_seconds_count{operation="GET /api/workers/{worker_id}"}': 2}
