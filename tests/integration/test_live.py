"""Live reports over real HTTP, from a controller's request to a browser's event."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from lcm.core.timeouts import timeout
from support.lone_plane import T0, LonePlane, lone_plane
from support.patience import PATIENCE_SECONDS


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[LonePlane]:
    async with lone_plane(tmp_path) as plane:
        yield plane


async def test_a_batch_reaches_the_chart_and_the_stream(plane: LonePlane) -> None:
    async with plane.admin.stream() as stream:
        await stream.until("worker.snapshot")
        samples = [plane.sample(n, cpu_utilization=n, memory_utilization=40.5) for n in range(3)]
        assert await plane.accepted("/metrics", {"samples": samples}) == {"accepted": 3, "dropped": 0}
        batch = (await stream.until_batch("worker.metrics.updated"))["data"]
        assert (batch["count"], batch["events"][2]["cpu_utilization"]) == (3, 2)
    resources = await plane.admin.get(f"/api/workers/{plane.worker_id}/resources")
    assert resources["samples"][0]["collected_at"] == "2026-01-01T00:00:02Z"
    start = T0.timestamp()
    assert resources["points"] == [[start + n, float(n), 40.5, None] for n in range(3)]


async def test_a_node_that_starts_reaches_the_record_and_the_stream(plane: LonePlane) -> None:
    async with plane.admin.stream() as stream:
        await stream.until("worker.snapshot")
        change = {
            "event": "STARTED",
            "element_type": "node",
            "element_id": "n1",
            "lab_id": "lab-1",
            "data": {"label": "R1"},
        }
        await plane.accepted("/{id}/lab-state-change", change)
        event = await stream.until("worker.lab.state_change")
        assert event["data"] == {**change, "worker_id": plane.worker_id}
    labs = await plane.admin.get(f"/api/workers/{plane.worker_id}/labs")
    assert labs["items"][0]["nodes"]["n1"]["label"] == "R1"
    assert labs["items"][0]["discovery_wanted"] is True


async def test_signs_of_people_are_kept_and_told(plane: LonePlane) -> None:
    found = {"activity_events": [{"category": "start_lab", "at": T0.isoformat()}], "source": "rest"}
    async with plane.admin.stream() as stream:
        await stream.until("worker.snapshot")
        await plane.accepted("/{id}/activity-events", found)
        assert (await stream.until("worker.activity.updated"))["data"]["worker_id"] == plane.worker_id
    activity = await plane.admin.get(f"/api/workers/{plane.worker_id}/activity")
    assert activity["last_activity_at"] == "2026-01-01T00:00:00Z"
    assert activity["recent_activity_events"][0]["category"] == "start_lab"
    view = await plane.admin.get(f"/api/workers/{plane.worker_id}")
    assert view["last_activity_at"] == "2026-01-01T00:00:00Z"


async def test_the_connection_is_told_once(plane: LonePlane) -> None:
    async with plane.admin.stream() as stream:
        await stream.until("worker.snapshot")
        for status in ("connected", "reconnecting", "connected", "failed", "connecting", "failed"):
            body = {"connected": status == "connected", "status": status, "reason": status}
            assert (await plane.accepted("/{id}/ws-status", body))["connection"]["status"] == status
        heard = []
        while "worker.ws.disconnected" not in heard:
            heard.append((await stream.next())["event"])
        assert heard.count("worker.ws.connected") == 1
    view = await plane.admin.get(f"/api/workers/{plane.worker_id}")
    assert (view["ws_connected"], view["ws_status"]) == (False, "failed")


async def test_the_load_of_a_lab_is_passed_on(plane: LonePlane) -> None:
    stats = {"nodes": {"n1": {"cpu_usage": 3.5}}, "links": {}, "collected_at": T0.isoformat()}
    async with plane.admin.stream() as stream:
        await stream.until("worker.snapshot")
        await plane.accepted("/{id}/labs/lab-1/stats", stats)
        batch = (await stream.until_batch("worker.lab.stats_updated"))["data"]
    expected = {"worker_id": plane.worker_id, "lab_id": "lab-1", "nodes": stats["nodes"], "links": {}}
    assert batch["events"] == [expected]


async def test_what_cml_says_about_itself_is_kept(plane: LonePlane) -> None:
    report = {
        "ready": True,
        "version": "2.9.1+build.7",
        "system_info": {"version": "2.9.1+build.7", "ready": True, "oui": None},
        "health": {"valid": False, "is_licensed": True, "failing": ["cml-controller: libvirt"]},
        "license": {"registration_status": "COMPLETED", "product_license": "CML_Enterprise"},
    }
    await plane.accepted("/{id}/cml-data", report)
    worker = await plane.accepted("/{id}/cml-data", {"ready": True})
    assert worker["cml"]["health"]["failing"] == ["cml-controller: libvirt"]
    assert worker["cml"]["license"]["product_license"] == "CML_Enterprise"
    assert worker["cml"]["system_info"]["oui"] is None


async def test_the_load_of_an_unknown_lab_is_told_as_a_lab_to_look_at(plane: LonePlane) -> None:
    async with plane.admin.stream() as stream:
        await stream.until("worker.snapshot")
        body = {"nodes": {}, "links": {}, "collected_at": "2026-01-01T00:00:00Z"}
        status, _ = await plane.report("/{id}/labs/never-heard-of/stats", body)
        assert status == 200
        event = await stream.until("lab.status.updated")
    assert (event["data"]["lab_id"], event["data"]["status"]) == ("never-heard-of", None)
    assert event["data"]["lab"]["discovery_wanted"] is True


async def test_a_look_at_all_labs_is_accepted_and_told(plane: LonePlane) -> None:
    async with plane.admin.stream() as stream:
        await stream.until("worker.snapshot")
        status, _ = await plane.report("/{id}/trigger-lab-discovery", None)
        assert status == 202
        event = await stream.until("worker.labs.updated")
        assert event["data"]["lab_discovery_requested_at"] is not None


async def test_an_old_leaders_batch_is_fenced(plane: LonePlane) -> None:
    for epoch in (0, 2):
        status, problem = await plane.report("/metrics", {"samples": [plane.sample()]}, epoch)
        assert (status, problem["type"]) == (409, "urn:lcm:problem:fenced")
    resources = await plane.admin.get(f"/api/workers/{plane.worker_id}/resources")
    assert resources["samples"] == []


@pytest.mark.parametrize(
    "body",
    [
        {"samples": [{"worker_id": "x"}]},
        {"samples": [{"worker_id": "x", "collected_at": "2026-01-01T00:00:00", "source": "rest"}]},
        {"surprises": []},
        [],
    ],
)
async def test_a_malformed_batch_is_refused_with_its_field(plane: LonePlane, body: Any) -> None:
    status, problem = await plane.report("/metrics", body)
    assert (status, problem["type"]) == (422, "urn:lcm:problem:invalid")


async def test_the_stream_is_filtered_by_the_server(plane: LonePlane) -> None:
    query = f"worker_ids={plane.worker_id}&event_types=worker.metrics,lab.&include_system=false"
    async with plane.admin.session.get(f"/api/events/stream?{query}") as response:
        await plane.accepted("/{id}/ws-status", {"connected": True, "status": "connected"})
        await plane.accepted("/metrics", {"samples": [plane.sample(cpu_utilization=1)]})
        text = b""
        async with timeout(PATIENCE_SECONDS):
            while b"metrics.updated" not in text:
                text += await response.content.readany()
    assert text.count(b"event: ") == 2  # connected, and the load


async def test_metrics_count_what_came_in_and_what_went_out(plane: LonePlane) -> None:
    body = {"samples": [plane.sample(), {**plane.sample(), "worker_id": "nobody"}]}
    async with plane.admin.stream() as stream:
        await plane.accepted("/metrics", body)
        await stream.until_batch("worker.metrics.updated")
    async with plane.admin.session.get("/metrics") as response:
        text = await response.text()
    assert 'lcm_live_reports_total{kind="sample",outcome="accepted"} 1.0' in text
    assert 'lcm_live_reports_total{kind="sample",outcome="dropped"} 1.0' in text
    assert "lcm_live_workers 1.0" in text
    assert 'lcm_sse_events_total{event_type="worker.metrics.updated"} 1.0' in text


async def test_a_browser_that_stops_reading_is_told_reset_and_does_not_hold_up_another(
    plane: LonePlane,
) -> None:
    address = urlsplit(plane.url)
    stalled = socket.socket()
    stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    stalled.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(stalled, (address.hostname, address.port))
    token = plane.admin.session.headers["Authorization"]
    request = f"GET /api/events/stream HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: {token}\r\n\r\n"
    await loop.sock_sendall(stalled, request.encode())
    assert b"200 OK" in await loop.sock_recv(stalled, 1024)

    change = {"event": "STARTED", "element_type": "node", "lab_id": "lab-1", "data": {"note": "x" * 20_000}}
    async with plane.admin.stream() as quick:
        await quick.until("worker.snapshot")
        for number in range(150):
            await plane.accepted("/{id}/lab-state-change", {**change, "element_id": f"n{number}"})
            assert (await quick.until("worker.lab.state_change"))["data"]["element_id"] == f"n{number}"
    with stalled:
        received = b""
        async with timeout(PATIENCE_SECONDS):
            while b"event: reset" not in received:
                received += await loop.sock_recv(stalled, 65536)
        assert len(received) < 512 * 1024
