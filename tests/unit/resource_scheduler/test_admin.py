"""What an operator can see of a scheduler and do to it: on virtual time, without a socket."""

import json
import re
from dataclasses import replace as changed
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from lcm.core.tracing import add_what_is_done
from lcm.domain.capacity import Capacity
from lcm.domain.errors import Unreachable
from lcm.domain.lablet.states import PENDING, PENDING_SCHEDULING, SCHEDULED
from lcm.resource_scheduler.admin import scheduler_operations
from lcm.resource_scheduler.main import ResourceScheduler
from lcm.web.operations import KeyCheck, MetricsPage
from support.asgi import request
from support.control_plane import ONE_REGION
from support.scheduling import NEEDS, Classroom

KEY = "the-controllers-key"


async def ask(
    scheduler: ResourceScheduler, path: str, method: str = "GET", key: str = KEY
) -> tuple[int, Any]:
    service = scheduler.service
    operations = scheduler_operations(
        service,
        scheduler.reconciler,
        scheduler.stats,
        service.loop.health,
        MetricsPage(service.loop.telemetry, service.loop.clock),
        KeyCheck(KEY, service.loop.clock),
    )
    status, body = await request(operations.app(), method, path, {"X-API-Key": key}, None)
    return status, body.decode() if path == "/metrics" else json.loads(body)


async def metrics_of(scheduler: ResourceScheduler) -> dict[str, float]:
    _, text = await ask(scheduler, "/metrics")
    lines = re.findall(r"^([a-z_0-9]+(?:\{[^}]*\})?) ([0-9.e+-]+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in lines}


async def test_health_has_every_fact_of_the_contract() -> None:
    async with Classroom().running() as room:
        await room.add_session("s1", needs=Capacity(cpu=2, memory_gb=6, storage_gb=10, nodes=4))
        await room.clock.sleep(2)
        status, health = await ask(room.schedulers[0], "/health")
        assert (status, health["status"], health["is_leader"]) == (200, "healthy", True)
        assert (health["instance_id"], health["pending_instances"]) == ("scheduler-0", 1)
        assert health["last_reconciliation"] is not None
        assert await ask(room.schedulers[0], "/ready") == (200, {"ready": True, "frozen": []})
        _, info = await ask(room.schedulers[0], "/info")
        assert (info["service"], info["election_key"]) == (
            "resource-scheduler",
            "/lcm/resource-scheduler/leader",
        )


async def test_a_standby_is_ready_counts_nothing_and_refuses_what_only_a_leader_does() -> None:
    async with Classroom().running(schedulers=2) as room:
        await room.add_session("s1")
        await room.clock.sleep(2)
        [standby] = [each for each in room.schedulers if not each.service.election.is_leader]
        _, health = await ask(standby, "/health")
        assert (health["status"], health["is_leader"], health["pending_instances"]) == ("healthy", False, 0)
        assert (await ask(standby, "/ready"))[0] == 200
        for action in ("trigger-reconcile", "resign-leadership", "timeslots/scan"):
            status, problem = await ask(standby, f"/admin/{action}", "POST")
            assert (status, "scheduler-" in problem["detail"]) == (409, True)


@pytest.mark.parametrize(
    ("method", "page"),
    [
        ("GET", "stats"),
        ("GET", "leader-status"),
        ("GET", "operations"),
        ("GET", "timeslots/next"),
        ("POST", "trigger-reconcile"),
        ("POST", "resign-leadership"),
        ("POST", "timeslots/scan"),
    ],
)
async def test_every_admin_route_needs_the_controllers_key(method: str, page: str) -> None:
    async with Classroom().running() as room:
        scheduler = room.schedulers[0]
        assert (await ask(scheduler, f"/admin/{page}", method, key="a guess"))[0] == 401
        assert (await ask(scheduler, f"/admin/{page}", method))[0] in (200, 202)


async def test_stats_count_placements_and_requested_workers() -> None:
    async with Classroom().running() as room:
        await room.add_worker("w1", size=NEEDS)
        for name in ("s1", "s2"):
            await room.add_session(name)
        await room.clock.sleep(2)
        _, stats = await ask(room.schedulers[0], "/admin/stats")
        assert (stats["successful_placements"], stats["failed_placements"]) == (1, 0)
        assert (stats["scale_up_requests"], stats["pending_instances"]) == (1, 1)
        assert [worker.license.declared for worker in await room.workers() if worker.id != "w1"] == [True]
        assert stats["decisions"]["assign"] == 1


async def test_a_refused_placement_is_counted_with_its_filter_and_the_last_retry_too() -> None:
    async with Classroom(changed(ONE_REGION, max_retries=1)).running() as room:
        await room.add_worker("w1")
        room.ports[0].overtaking = lambda: room.plane.records.workers.change(
            "w1", lambda worker: replace(worker, declared_capacity=Capacity(cpu=1))
        )
        await room.add_session("s1")
        await room.clock.sleep(2)
        _, stats = await ask(room.schedulers[0], "/admin/stats")
        assert stats["failures"] == {"insufficient_capacity": 1}
        assert (stats["retries"], stats["max_retries"]) == (1, 1)


async def test_what_the_clock_changes_next_is_shown_in_its_order_and_a_scan_can_be_requested() -> None:
    async with Classroom().running() as room:
        await room.add_worker("w1")
        for name, minutes in (("later", 120), ("sooner", 60)):
            await room.add_session(name, timeslot=room.slot(in_minutes=minutes))
        scheduler = room.schedulers[0]
        assert (await ask(scheduler, "/admin/timeslots/scan", "POST"))[0] == 202
        await room.clock.sleep(1)
        _, shown = await ask(scheduler, "/admin/timeslots/next")
        assert [each["session_id"] for each in shown["upcoming"]] == ["sooner", "later"]
        assert shown["next_at"] == shown["upcoming"][0]["at"]
        assert shown["upcoming"][0]["status"] == PENDING
        await room.clock.sleep(26 * 60)
        _, shown = await ask(scheduler, "/admin/timeslots/next")
        assert (shown["approaching_count"], shown["expired_count"]) == (1, 0)
        assert (await room.session("sooner")).status is SCHEDULED


async def test_every_metric_of_the_contract_is_exported() -> None:
    async with Classroom().running() as room:
        await room.add_worker("w1")
        await room.add_session("s1")
        await room.add_session("missed", needs=Capacity(cpu=9_999), timeslot=room.slot(in_minutes=60))
        await room.add_session("s2", needs=Capacity(cpu=40, memory_gb=60, storage_gb=10, nodes=4))
        await room.clock.sleep(2)
        shown = await metrics_of(room.schedulers[0])
        assert {
            'lcm_scheduler_decisions_total{action="assign"}',
            "lcm_scheduler_successes_total",
            "lcm_scheduler_decision_duration_seconds_count",
            "lcm_scheduler_e2e_duration_seconds_count",
            "lcm_scheduling_latency_seconds_count",
            'lcm_scheduler_scale_up_requests_total{template="metal"}',
            "lcm_scheduler_retries_total",
            "lcm_scheduler_max_retries_total",
            "lcm_scheduler_etcd_capacity_fetches_total",
            "lcm_scheduler_pending_instances",
            "lcm_timeslots_approaching_total",
            "lcm_timeslots_expired_total",
        } <= shown.keys()
        assert shown["lcm_scheduler_successes_total"] == 1


async def test_a_booked_session_counts_its_wait_from_its_window_and_nothing_before_it_is_due() -> None:
    async with Classroom().running() as room:
        await room.add_session("s1", timeslot=room.slot(in_minutes=60))
        await room.clock.sleep(26 * 60)
        assert (await room.session("s1")).status is PENDING_SCHEDULING
        await room.clock.sleep(4 * 60)
        await room.add_worker("w1")
        await room.clock.sleep(31)
        assert (await room.session("s1")).status is SCHEDULED
        shown = await metrics_of(room.schedulers[0])
        assert shown["lcm_scheduler_e2e_duration_seconds_sum"] == 0
        assert 5 * 60 <= shown["lcm_scheduling_latency_seconds_sum"] < 6 * 60


async def test_a_line_about_a_placement_names_the_session_the_epoch_and_the_trace() -> None:
    with capture_logs(processors=[add_what_is_done]) as lines:
        async with Classroom().running() as room:
            await room.add_worker("w1")
            await room.add_session("s1")
            await room.clock.sleep(2)
    [placed] = [line for line in lines if line["event"] == "session placed"]
    assert (placed["session_id"], placed["worker_id"], placed["epoch"]) == ("s1", "w1", 1)
    assert re.fullmatch(r"[0-9a-f]{32}", placed["trace_id"])


async def test_a_control_plane_that_does_not_answer_leaves_the_scheduler_alive() -> None:
    async with Classroom().running() as room:

        def fail(call: str) -> None:
            raise Unreachable("no answer")

        room.ports[0].before = fail
        await room.clock.sleep(120)
        assert (await ask(room.schedulers[0], "/health"))[0] == 200
