"""Live updates of load, connection, labs and nodes."""

import re
from typing import Any

import pytest
from playwright.async_api import Locator, Page, expect

from lcm.core.clock import SystemClock
from support.lablet_desk import LabletDesk
from support.lone_plane import LonePlane

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def open_dashboard(page: Page, plane: LonePlane) -> Locator:
    await page.goto(f"{plane.url}/?token={plane.token}")
    await page.wait_for_selector('[data-connection="live"]')
    return page.locator('[data-worker-name="live"]')


async def feed(plane: LonePlane, seconds: list[float], cpu: float) -> None:
    now = SystemClock().now()
    load: dict[str, Any] = {"cpu_utilization": cpu, "memory_utilization": 43.6, "disk_utilization": 61}
    samples = [plane.sample(second, since=now, **load) for second in seconds]
    await plane.accepted("/metrics", {"samples": samples})


def lab_change(element_type: str, element_id: str, event: str, **data: str) -> dict[str, Any]:
    return {
        "event": event,
        "element_type": element_type,
        "element_id": element_id,
        "lab_id": "lab-1",
        "data": data,
    }


async def test_load_and_connection_of_a_worker_change_as_it_happens(page: Page, plane: LonePlane) -> None:
    row = await open_dashboard(page, plane)
    link = row.locator("[data-link]")
    await expect(link).to_have_attribute("data-link", "polling")
    await expect(link).to_have_text("Polling")

    await feed(plane, [-30, -20, -10, 0], cpu=12.4)
    cpu = row.locator('[data-measure="cpu"] .load-number')
    await expect(cpu).to_have_text("12%")
    await expect(row.locator('[data-measure="memory"] .load-number')).to_have_text("44%")
    await expect(row.locator('[data-measure="disk"] .load-number')).to_have_text("61%")
    await expect(row.locator(".live-badge")).to_have_text("Live")
    await expect(row.locator(".sparkline-line")).to_have_attribute("d", re.compile("^M.*L.*L.*L"))

    await plane.accepted("/{id}/ws-status", {"connected": True, "status": "connected"})
    await expect(link).to_have_attribute("data-link", "websocket")
    await feed(plane, [1], cpu=95)
    await expect(cpu).to_have_text("95%")


async def test_labs_and_nodes_change_state_live(page: Page, plane: LonePlane) -> None:
    await plane.accepted("/{id}/lab-state-change", lab_change("lab", "lab-1", "created", title="BGP"))
    await plane.accepted("/{id}/lab-state-change", lab_change("node", "n1", "QUEUED", label="R1"))
    row = await open_dashboard(page, plane)
    await row.click()
    labs = page.get_by_role("region", name="Labs")
    node = labs.locator('[data-node-id="n1"]')
    await expect(node).to_contain_text("R1")
    for state in ("STARTED", "BOOTED", "STOPPED"):
        await plane.accepted("/{id}/lab-state-change", lab_change("node", "n1", state))
        await expect(node).to_have_attribute("data-state", state)
    await plane.accepted("/{id}/lab-state-change", lab_change("lab", "lab-1", "STARTED"))
    await expect(labs.locator('[data-lab-id="lab-1"]')).to_have_attribute("data-state", "STARTED")
    await plane.accepted("/{id}/lab-state-change", lab_change("lab", "lab-1", "deleted"))
    await expect(labs).to_have_count(0)


async def test_a_chart_shows_the_load_before_the_page_was_opened(page: Page, plane: LonePlane) -> None:
    await feed(plane, [-50, -40, -30, -20, -10], cpu=30)
    row = await open_dashboard(page, plane)
    await expect(row.locator(".sparkline-line")).to_have_attribute("d", re.compile("(L[^L]*){4}"))
    await row.click()
    chart = page.get_by_role("img", name=re.compile("^CPU: 30% now"))
    await expect(chart).to_be_visible()


async def test_a_worker_that_stops_shows_no_load(page: Page, plane: LonePlane) -> None:
    row = await open_dashboard(page, plane)
    await feed(plane, [0], cpu=30)
    await expect(row.locator(".live-badge")).to_be_visible()
    worker = await plane.admin.get(f"/api/workers/{plane.worker_id}")
    report = {"status": "stopping", "reason": "asked", "expected_version": worker["version"]}
    await plane.accepted("/{id}/status", report)
    await expect(row.locator(".live-badge")).to_have_count(0)
    await expect(row.locator(".cell-load")).to_have_text("—")


async def test_cml_is_opened_from_the_panel_once_it_is_ready(page: Page, plane: LonePlane) -> None:
    desk = LabletDesk(plane)
    await page.goto(f"{plane.url}/?token={plane.token}#/workers/{plane.worker_id}")
    panel = page.get_by_role("complementary", name="live")
    closed = panel.get_by_role("button", name="Open CML")
    await expect(closed).to_be_disabled()
    await expect(closed).to_have_attribute("title", "CML is not ready yet.")
    await desk.give_address("192.0.2.7")
    await plane.accepted("/{id}/cml-data", {"ready": True, "version": "2.9.0"})
    await expect(panel.get_by_role("link", name="Open CML")).to_have_attribute("href", "https://192.0.2.7/")
    console = panel.get_by_role("link", name="AWS console")
    await expect(console).to_have_attribute(
        "href", re.compile("us-east-1.console.aws.amazon.com.*instanceId=i-1")
    )
