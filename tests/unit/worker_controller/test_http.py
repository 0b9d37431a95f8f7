"""The admin API of the worker controller and its access: on virtual time, without a socket."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from lcm.control_plane.commands.drain_worker import drain_worker
from lcm.core.telemetry import Telemetry
from lcm.domain.errors import CapacityShortage, Unreachable
from lcm.domain.lifecycle import DRAINING, FAILED, RUNNING, STOPPED, TERMINATED
from lcm.domain.worker import Action
from lcm.rest.schemas import PROBLEM_TYPE_PREFIX
from lcm.web.operations import KeyCheck, MetricsPage
from lcm.worker_controller.admin.http import worker_operations
from lcm.worker_controller.admin.metrics import register_metrics
from lcm.worker_controller.main import WorkerController
from support.asgi import request
from support.claims import place_session
from support.fleet import REGION, Fleet
from support.memory_cloud import Interference, Moment
from unit.worker_controller.test_ec2_faults import EUROPE

KEY = "the-controllers-key"


def app_of(controller: WorkerController, key: str = KEY) -> Starlette:
    operations = worker_operations(
        controller.service,
        controller.reconciler,
        controller.loop.health,
        MetricsPage(controller.loop.telemetry, controller.loop.clock),
        KeyCheck(key, controller.loop.clock),
        metrics_collected=lambda: 7,
        scale_down_enabled=False,
    )
    return operations.app()


async def ask(
    controller: WorkerController, path: str, method: str = "GET", key: str = KEY
) -> tuple[int, Any]:
    status, body = await request(app_of(controller), method, path, {"X-API-Key": key}, None)
    return status, json.loads(body)


@asynccontextmanager
async def a_leader_and_a_standby() -> AsyncIterator[tuple[Fleet, WorkerController, WorkerController]]:
    async with Fleet().running(controllers=2) as fleet:
        [standby] = [controller for controller in fleet.controllers if not controller.election.is_leader]
        yield fleet, fleet.leader, standby


def no_answer_from(region: str) -> Interference:
    async def refuse(moment: Moment, operation: str, subject: str) -> None:
        if (operation, subject) == ("list_instances", region):
            raise Unreachable(f"EC2 {region}: timed out")

    return refuse


def admin_routes() -> list[tuple[str, str]]:
    """Every route under /admin, read from the application itself."""
    routes = [route for route in app_of(Fleet().add_controller("one")).routes if isinstance(route, Route)]
    return [
        (method, route.path)
        for route in routes
        for method in sorted((route.methods or set()) - {"HEAD"})
        if route.path.startswith("/admin/")
    ]


class TestWhoMay:
    @pytest.mark.parametrize("key", ["", "a guess"])
    async def test_every_admin_route_needs_the_controllers_key(self, key: str) -> None:
        fleet = Fleet()
        controller = fleet.add_controller("one")
        for method, path in admin_routes():
            status, body = await ask(controller, path, method, key)
            assert (status, "X-API-Key" in body["detail"]) == (401, True), path

    async def test_without_a_configured_key_all_requests_are_refused(self) -> None:
        controller = Fleet().add_controller("one")
        status, _ = await request(app_of(controller, key=""), "GET", "/admin/stats", {"X-API-Key": ""}, None)
        assert status == 401

    async def test_what_only_a_leader_does_is_refused_by_a_standby_which_names_the_leader(self) -> None:
        async with a_leader_and_a_standby() as (_, leader, standby):
            levers = [path for method, path in admin_routes() if method == "POST"]
            assert len(levers) == 3
            for path in levers:
                status, body = await ask(standby, path, "POST")
                assert (status, body["type"].removeprefix(PROBLEM_TYPE_PREFIX)) == (409, "not-leader"), path
                assert leader.election.config.instance_id in body["detail"]

    async def test_a_standby_is_healthy_and_ready(self) -> None:
        async with a_leader_and_a_standby() as (_, _, standby):
            assert (await ask(standby, "/health"))[0] == 200
            assert await ask(standby, "/ready") == (200, {"ready": True, "frozen": []})


class TestStats:
    async def test_every_counter_of_the_contract_is_there(self) -> None:
        async with Fleet().running() as fleet:
            status, body = await ask(fleet.leader, "/admin/stats")
        assert status == 200
        assert set(body) == {
            "provisioned_count",
            "started_count",
            "stopped_count",
            "terminated_count",
            "metrics_collected_count",
            "idle_detection_count",
            "auto_pause_count",
            "license_registered_count",
            "license_deregistered_count",
            "scale_down_drain_count",
            "running_worker_count",
            "scale_down_enabled",
        }
        assert (body["metrics_collected_count"], body["scale_down_enabled"]) == (7, False)

    async def test_each_event_counts_once(self) -> None:
        async with Fleet().running() as fleet:
            worker = await fleet.running_worker()
            await fleet.clock.sleep(400)
            _, body = await ask(fleet.leader, "/admin/stats")
            assert (body["provisioned_count"], body["started_count"], body["stopped_count"]) == (1, 1, 0)
            assert (body["running_worker_count"], body["idle_detection_count"]) == (1, 2)
            await fleet.ask(worker, Action.STOP)
            await fleet.until(worker, STOPPED)
            _, body = await ask(fleet.leader, "/admin/stats")
            assert (body["stopped_count"], body["running_worker_count"]) == (1, 0)

    async def test_a_cancelled_drain_and_a_stop_without_an_instance_are_no_events(self) -> None:
        """Reality, section 3: both were counted, though EC2 started and stopped nothing."""
        async with Fleet().running() as fleet:
            worker = await fleet.running_worker("drained")
            await place_session(fleet.plane.records, worker.id, "lablet-1")
            await drain_worker(
                fleet.plane.records, fleet.plane.policies, worker.id, by="ada", reason="maintenance"
            )
            await fleet.until(worker, DRAINING)
            await fleet.ask(worker, Action.CANCEL_DRAIN)
            await fleet.until(worker, RUNNING)
            await fleet.ask(worker, Action.STOP)
            fleet.cloud.forget(fleet.instance_id(worker))
            await fleet.until(worker, STOPPED)
            _, body = await ask(fleet.leader, "/admin/stats")
            assert (body["started_count"], body["stopped_count"]) == (1, 0)


class TestFleet:
    async def test_a_worker_is_shown_with_what_ec2_said_and_where_the_loop_stands(self) -> None:
        async with Fleet().running() as fleet:
            worker = await fleet.running_worker()
            await fleet.clock.sleep(60)
            _, body = await ask(fleet.leader, "/admin/fleet")
        assert (body["is_leader"], body["by_status"]) == (True, {"running": 1})
        [shown] = body["workers"]
        assert (shown["worker_id"], shown["status"], shown["ec2_state"]) == (worker.id, "running", "running")
        assert (shown["reconcile_status"], shown["reason"], shown["retry_count"]) == ("success", "", 0)
        assert (shown["has_drift"], shown["is_stuck"]) == (False, False)
        assert shown["last_reconciled_at"] is not None

    async def test_a_former_leader_manages_no_worker(self) -> None:
        async with a_leader_and_a_standby() as (fleet, leader, standby):
            await fleet.running_worker()
            await fleet.clock.sleep(60)
            leader.election.resign()
            await fleet.clock.sleep(60)
            assert standby.election.is_leader
            _, body = await ask(leader, "/admin/fleet")
            assert (body["is_leader"], body["workers"]) == (False, [])
            assert (await ask(leader, "/health"))[1]["workers_managed"] == 0
            assert (await ask(standby, "/health"))[1]["workers_managed"] == 1


class TestOperations:
    async def test_what_goes_on_and_for_how_long(self) -> None:
        async with Fleet().running() as fleet:

            async def take_long(moment: Moment, operation: str, _: str) -> None:
                if (moment, operation) == ("before", "launch_instance"):
                    await fleet.clock.sleep(9)

            fleet.cloud.interfere = take_long
            worker = await fleet.create()
            await fleet.clock.sleep(5)
            _, body = await ask(fleet.leader, "/admin/operations")
            [going_on] = body["in_progress"]
            assert (going_on["worker_id"], going_on["is_parked"]) == (worker.id, False)
            assert 4 < going_on["seconds"] <= 5
            assert (body["max_concurrent"], body["retrying"], body["frozen"]) == (10, [], [])

    async def test_what_is_tried_again_when_and_why(self) -> None:
        async with Fleet().running() as fleet:

            async def refuse(moment: Moment, operation: str, _: str) -> None:
                if (moment, operation) == ("before", "launch_instance"):
                    raise CapacityShortage("InsufficientInstanceCapacity")

            fleet.cloud.interfere = refuse
            await fleet.past_the_first_sweep()
            worker = await fleet.create()
            await fleet.clock.sleep(5)
            _, body = await ask(fleet.leader, "/admin/operations")
            [retry] = body["retrying"]
            assert (retry["worker_id"], retry["retry_count"]) == (worker.id, 1)
            assert (retry["reason"], retry["next_retry_at"] is None) == (
                "InsufficientInstanceCapacity",
                False,
            )
            assert body["scheduled"] == 1


class TestLeadership:
    async def test_leader_and_standby_agree_on_who_leads(self) -> None:
        async with a_leader_and_a_standby() as (fleet, leader, standby):
            await fleet.clock.sleep(20)
            _, body = await ask(leader, "/admin/leader-status")
            assert (body["is_leader"], body["leader_id"]) == (True, leader.election.config.instance_id)
            assert (body["epoch"], body["coordination"], body["lease_ttl_seconds"]) == (1, "elected", 15)
            assert 0 < body["seconds_left"] <= 10.5
            assert body["revision"] >= 1
            _, body = await ask(standby, "/admin/leader-status")
            assert (body["is_leader"], body["leader_id"]) == (False, leader.election.config.instance_id)
            assert (body["epoch"], body["seconds_left"]) == (None, None)

    async def test_a_leader_that_resigns_hands_over_at_once(self) -> None:
        async with a_leader_and_a_standby() as (fleet, leader, standby):
            status, body = await ask(leader, "/admin/resign-leadership", "POST")
            assert (status, body) == (202, {"resigned": leader.election.config.instance_id})
            await fleet.clock.sleep(0.5)
            assert (leader.election.is_leader, standby.election.is_leader) == (False, True)
            await fleet.running_worker()  # and the new one works

    async def test_a_scan_that_needs_an_absent_control_plane_is_answered_try_later(self) -> None:
        async with Fleet().running() as fleet:
            fleet.ports[0].is_reachable = False
            status, body = await ask(fleet.leader, "/admin/trigger-reconcile", "POST")
            assert (status, body["type"].removeprefix(PROBLEM_TYPE_PREFIX)) == (503, "unavailable")


class TestReadiness:
    async def test_a_leader_that_was_replaced_does_not_keep_missing_what_it_could_not_see(self) -> None:
        async with a_leader_and_a_standby() as (fleet, leader, _):
            await fleet.running_worker()
            fleet.cloud.interfere = no_answer_from("us-east-1")
            await fleet.clock.sleep(60)
            assert (await ask(leader, "/ready"))[0] == 503
            leader.election.resign()
            await fleet.clock.sleep(60)
            assert (await ask(leader, "/ready")) == (200, {"ready": True, "frozen": []})

    async def test_a_region_failure_is_cleared_once_no_worker_is_in_the_region(self) -> None:
        async with Fleet(None, REGION, EUROPE).running() as fleet:
            fleet.cloud.images = ()  # it fails before it is launched
            worker = await fleet.create(region=EUROPE.region)
            await fleet.until(worker, FAILED)
            fleet.cloud.interfere = no_answer_from(EUROPE.region)
            await fleet.clock.sleep(60)
            assert (await ask(fleet.leader, "/ready"))[0] == 503
            await fleet.ask(worker, Action.DELETE)
            await fleet.until(worker, TERMINATED)
            await fleet.clock.sleep(60)
            assert (await ask(fleet.leader, "/ready"))[0] == 200


class TestMetrics:
    async def test_every_metric_of_the_reconciler_is_exported_and_ends_with_the_worker(self) -> None:
        async with Fleet().running() as fleet:
            telemetry = fleet.leader.loop.telemetry
            register_metrics(
                telemetry, fleet.leader.service, fleet.leader.reconciler, metrics_collected=lambda: 7
            )
            worker = await fleet.running_worker()
            fleet.cloud.stop(fleet.instance_id(worker))
            await fleet.until(worker, STOPPED)
            await fleet.until(worker, RUNNING)
            await fleet.clock.sleep(1)
            text = telemetry.render().decode()
            for name in (
                f'worker_reconciliation_duration_seconds_bucket{{le="0.01",worker_id="{worker.id}"}}',
                f'worker_reconciliation_duration_seconds_count{{worker_id="{worker.id}"}}',
                f'worker_drift_detected_total{{drift_type="instance_stopping",worker_id="{worker.id}"}} 1.0',
                f'worker_ec2_state{{state="running",worker_id="{worker.id}"}} 1.0',
                'reconciliation_reconcile_total{result="requeue"}',
                "reconciliation_reconcile_duration_seconds_bucket",
                "reconciliation_active_reconciles",
                "reconciliation_resources_pending",
                'worker_operations_total{operation="started"} 2.0',
            ):
                assert name in text, name
            assert "_total_total" not in text
            await fleet.ask(worker, Action.DELETE)
            await fleet.until(worker, TERMINATED)
            await fleet.clock.sleep(1)
            assert worker.id not in telemetry.render().decode()

    async def test_every_counter_of_the_stats_is_exported_from_the_start_with_its_type(self) -> None:
        """Reality, section 2: counters appeared only once they had happened, and two of them never."""
        async with Fleet().running() as fleet:
            telemetry = fleet.leader.loop.telemetry
            register_metrics(
                telemetry, fleet.leader.service, fleet.leader.reconciler, metrics_collected=lambda: 7
            )
            _, body = await ask(fleet.leader, "/admin/stats")
            counted = {
                name.removesuffix("_count")
                for name in body
                if name.endswith("_count") and name != "running_worker_count"
            }
            text = telemetry.render().decode()
        shown = set(re.findall(r'^worker_operations_total\{operation="(\w+)"\} [\d.]+$', text, re.MULTILINE))
        assert shown == counted
        assert "# TYPE worker_operations_total counter" in text
        assert "# TYPE worker_running_workers gauge\nworker_running_workers 0.0" in text

    async def test_a_worker_that_ends_while_the_fleet_is_listed_leaves_no_series_behind(self) -> None:
        async with Fleet().running() as fleet:
            register_metrics(
                fleet.leader.loop.telemetry,
                fleet.leader.service,
                fleet.leader.reconciler,
                metrics_collected=lambda: 7,
            )
            worker = await fleet.running_worker()
            await fleet.clock.sleep(60)

            is_listing, is_over = asyncio.Event(), asyncio.Event()

            async def slowly(moment: Moment, operation: str, subject: str) -> None:
                if operation == "list_instances":
                    is_listing.set()
                    await is_over.wait()

            fleet.cloud.interfere = slowly
            await is_listing.wait()  # the records are listed already
            await fleet.ask(worker, Action.DELETE)
            await fleet.until(worker, TERMINATED)
            is_over.set()
            await fleet.clock.sleep(120)
            assert worker.id not in fleet.leader.loop.telemetry.render().decode()
            assert worker.id not in fleet.leader.loop.states

    async def test_a_worker_that_ended_long_ago_has_no_series_though_its_keys_are_written_again(self) -> None:
        async with Fleet().running() as fleet:
            register_metrics(
                fleet.leader.loop.telemetry,
                fleet.leader.service,
                fleet.leader.reconciler,
                metrics_collected=lambda: 7,
            )
            worker = await fleet.running_worker()
            await fleet.ask(worker, Action.DELETE)
            await fleet.until(worker, TERMINATED)
            await fleet.clock.sleep(60)
            await fleet.kv.put(f"/lcm/workers/{worker.id}/desired_state", b"{}")
            await fleet.clock.sleep(60)
            assert worker.id not in fleet.leader.loop.telemetry.render().decode()
            assert worker.id not in fleet.leader.loop.states

    async def test_the_machinerys_metrics_are_created_on_first_use(self) -> None:
        fleet = Fleet()
        controller = fleet.add_controller("one")
        assert "reconciliation_reconcile_total" not in controller.loop.telemetry.render().decode()

    async def test_a_standby_shows_no_worker(self) -> None:
        async with a_leader_and_a_standby() as (fleet, leader, _):
            worker = await fleet.running_worker()
            register_metrics(
                leader.loop.telemetry, leader.service, leader.reconciler, metrics_collected=lambda: 7
            )
            leader.election.resign()
            await fleet.clock.sleep(30)
            assert worker.id not in leader.loop.telemetry.render().decode()


def test_durations_by_a_label_are_a_histogram_for_each_value() -> None:
    telemetry = Telemetry()
    durations = telemetry.durations_by("worker_id", "look_seconds", "Looks.")
    durations.record("a", 0.05)
    durations.record("a", 5.0)
    durations.record("b", 100.0)
    text = telemetry.render().decode()
    assert 'look_seconds_bucket{le="0.1",worker_id="a"} 1.0' in text
    assert 'look_seconds_bucket{le="+Inf",worker_id="a"} 2.0' in text
    assert 'look_seconds_bucket{le="60.0",worker_id="b"} 0.0' in text
    assert 'look_seconds_sum{worker_id="b"} 100.0' in text
    durations.forget("a")
    assert 'worker_id="a"' not in telemetry.render().decode()
