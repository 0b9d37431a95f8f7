"""What the worker controller tells probes, Prometheus and operators."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from support.api import Api, Console
from support.canaries import watched_session
from support.processes import RunningLcm, eventually


@pytest.fixture
async def controller(lcm: RunningLcm) -> AsyncIterator[aiohttp.ClientSession]:
    async with watched_session(lcm.worker_controller_url) as session:
        yield session


@pytest.fixture
def key(lcm: RunningLcm) -> dict[str, str]:
    keys = json.loads((Path(lcm.ready.data_dir) / "keys.json").read_text())
    return {"X-API-Key": keys["controller"]}


async def test_health_says_who_leads_and_what_is_managed(controller: aiohttp.ClientSession, api: Api) -> None:
    await api.until(await api.create("healthy-one"), "running")
    async with controller.get("/health") as response:
        health = await response.json()
        assert response.status == 200
    assert health["status"] == "healthy"
    assert health["is_leader"] is True
    assert health["epoch"] >= 1
    assert health["workers_managed"] >= 1
    assert health["workers_with_drift"] == 0
    assert health["watching"] is True
    assert (health["frozen"], health["silent_loops"], health["coordination"]) == ([], [], "elected")
    assert set(health) >= {"instance_id", "last_reconciliation"}


async def test_a_controller_that_reaches_everything_is_ready(controller: aiohttp.ClientSession) -> None:
    async with controller.get("/ready") as response:
        assert (response.status, await response.json()) == (200, {"ready": True, "frozen": []})


async def test_info_names_the_service_and_its_election_key(controller: aiohttp.ClientSession) -> None:
    async with controller.get("/info") as response:
        info = await response.json()
    assert info["service"] == "worker-controller"
    assert info["election_key"] == "/lcm/worker-controller/leader"


async def test_stats_count_each_event_once(
    controller: aiohttp.ClientSession, key: dict[str, str], api: Api
) -> None:
    async def stats() -> dict[str, int]:
        async with controller.get("/admin/stats", headers=key) as response:
            assert response.status == 200
            answer: dict[str, int] = await response.json()
            return answer

    async def is_counted(before: dict[str, int], name: str) -> bool:
        return (await stats())[name] > before[name]

    before = await stats()
    worker = await api.until(await api.create("counted"), "running")
    await eventually(lambda: is_counted(before, "running_worker_count"))
    await api.act(worker, "stop")
    await api.until(worker, "stopped")
    await api.act(worker, "delete")
    await api.until(worker, "terminated")
    # The status is public as soon as the control plane has it; the controller counts when it hears so.
    await eventually(lambda: is_counted(before, "terminated_count"))
    after = await stats()
    counted = ("provisioned_count", "started_count", "stopped_count", "terminated_count")
    assert {name: after[name] - before[name] for name in counted} == dict.fromkeys(counted, 1)
    assert after["running_worker_count"] == before["running_worker_count"]


@pytest.mark.parametrize(("method", "path"), [("GET", "/admin/stats"), ("POST", "/admin/trigger-reconcile")])
async def test_levers_need_the_controllers_key(
    controller: aiohttp.ClientSession, method: str, path: str
) -> None:
    async with controller.request(method, path, headers={"X-API-Key": "guess"}) as response:
        assert response.status == 401
        assert "X-API-Key" in (await response.json())["detail"]


async def test_a_trigger_looks_at_one_worker_or_at_all(
    controller: aiohttp.ClientSession, key: dict[str, str], api: Api
) -> None:
    worker = await api.create("triggered")
    async with controller.post(
        "/admin/trigger-reconcile", params={"worker_id": worker["id"]}, headers=key
    ) as response:
        assert (response.status, await response.json()) == (202, {"queued": 1})
    async with controller.post("/admin/trigger-reconcile", headers=key) as response:
        assert (await response.json())["queued"] >= 1


async def test_metrics_show_the_machinery_the_fleet_and_the_loops_lag(
    controller: aiohttp.ClientSession, api: Api, console: Console
) -> None:
    worker = await api.until(await api.create("measured"), "running", cml_ready=True)

    async def metrics() -> str:
        async with controller.get("/metrics") as response:
            return await response.text()

    text = await metrics()
    for name in (
        'reconciliation_reconcile_total{result="success"}',
        "reconciliation_reconcile_duration_seconds_bucket",
        "reconciliation_active_reconciles",
        "reconciliation_resources_pending",
        'lcm_event_loop_lag_seconds{window="10s"}',
        "worker_controller_leader 1.0",
    ):
        assert name in text
    assert f'worker_ec2_state{{state="running",worker_id="{worker["id"]}"}} 1.0' in text
    assert "_total_total" not in text

    await api.act(worker, "delete")
    await api.until(worker, "terminated")

    async def series_have_ended() -> bool:
        return worker["id"] not in await metrics()

    await eventually(series_have_ended)
