"""The dashboard shows the newest status, in the right color."""

import asyncio
import re

import pytest
from playwright.async_api import Locator, Page, Route, expect

from support.api import admin_of
from support.lone_plane import LonePlane
from support.processes import RunningLcm

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def open_dashboard(page: Page, plane: LonePlane) -> Locator:
    await page.goto(f"{plane.url}/?token={plane.token}")
    await page.wait_for_selector('[data-connection="live"]')
    return page.locator('[data-worker-name="live"]')


async def report_status(plane: LonePlane, worker_id: str, status: str, *, observed: bool = False) -> None:
    worker = await plane.admin.get(f"/api/workers/{worker_id}")
    report = {
        "status": status,
        "reason": "test",
        "expected_version": worker["version"],
        "observed": observed,
    }
    await plane.accepted(f"/{worker_id}/status", report)


async def test_every_status_has_its_colour(page: Page, plane: LonePlane) -> None:
    await open_dashboard(page, plane)
    await page.get_by_label("Show terminated").check()
    worker_id = (await plane.admin.create("colours"))["id"]
    row = page.locator('[data-worker-name="colours"]')

    async def shows(status: str, color: str) -> None:
        await expect(row).to_have_attribute("data-status", status)
        await expect(row.locator(".badge")).to_have_attribute("data-color", color)

    await shows("pending", "orange")
    for status, color in (("provisioning", "orange"), ("starting", "orange"), ("running", "green")):
        await report_status(plane, worker_id, status)
        await shows(status, color)
    await plane.admin.accepted("POST", f"/api/workers/{worker_id}/drain")
    await shows("draining", "blue")
    for status, color in (
        ("running", "green"),
        ("failed", "red"),
        ("terminating", "red"),
        ("terminated", "grey"),
    ):
        await report_status(plane, worker_id, status)
        await shows(status, color)
    live = page.locator('[data-worker-name="live"]')
    for status in ("stopping", "stopped"):
        await report_status(plane, plane.worker_id, status)
    await expect(live.locator(".badge")).to_have_attribute("data-color", "grey")


async def test_an_answer_that_comes_late_undoes_nothing(page: Page, plane: LonePlane) -> None:
    is_update_shown = asyncio.Event()

    async def answer_late(route: Route) -> None:
        old = await route.fetch()
        await is_update_shown.wait()
        await route.fulfill(response=old)

    await page.route("**/api/workers?limit=500", answer_late)
    async with page.expect_response("**/api/workers?limit=500") as late:
        row = await open_dashboard(page, plane)
        await expect(row).to_have_attribute("data-status", "running")
        await report_status(plane, plane.worker_id, "stopping")
        await expect(row).to_have_attribute("data-status", "stopping")
        is_update_shown.set()
    answer = await (await late.value).json()
    assert answer["items"][0]["status"] == "running"
    await page.evaluate("new Promise(requestAnimationFrame)")
    await expect(row).to_have_attribute("data-status", "stopping")


async def test_a_late_list_of_labs_undoes_nothing(page: Page, plane: LonePlane) -> None:
    def change(event: str) -> dict[str, object]:
        return {"event": event, "element_type": "lab", "element_id": "lab-1", "lab_id": "lab-1"}

    await plane.accepted("/{id}/lab-state-change", change("created"))
    is_update_shown = asyncio.Event()

    async def answer_late(route: Route) -> None:
        old = await route.fetch()
        await is_update_shown.wait()
        await route.fulfill(response=old)

    await page.route("**/labs", answer_late)
    row = await open_dashboard(page, plane)
    lab = page.get_by_role("region", name="Labs").locator('[data-lab-id="lab-1"]')
    async with page.expect_response("**/labs") as late, page.expect_request("**/labs") as requested:
        await row.click()
        await requested.value
        await plane.accepted("/{id}/lab-state-change", change("STARTED"))
        await expect(lab).to_have_attribute("data-state", "STARTED")
        is_update_shown.set()
    await (await late.value).finished()
    await page.evaluate("new Promise(requestAnimationFrame)")
    await expect(lab).to_have_attribute("data-state", "STARTED")


async def test_the_address_and_the_connection_follow_a_stop_and_start(page: Page, lcm: RunningLcm) -> None:
    async with admin_of(lcm) as api:
        worker = await api.until(await api.create("moving"), "running", ws_connected=True)
        await page.goto(lcm.ready.url)
        row = page.locator('[data-worker-name="moving"]')
        await expect(row).to_contain_text(worker["public_ip"])
        await expect(row.locator("[data-link]")).to_have_attribute("data-link", "websocket")
        await api.act(worker, "stop")
        await expect(row).to_have_attribute("data-status", "stopped")
        await expect(row).not_to_contain_text(worker["public_ip"])
        await api.act(worker, "start")
        again = await api.until(worker, "running", ws_connected=True)
        assert again["public_ip"] != worker["public_ip"]
        await expect(row).to_contain_text(again["public_ip"])
        await expect(row.locator("[data-link]")).to_have_attribute("data-link", "websocket")


COUNT_LOST_STREAMS = """
let lost = 0;
window.EventSource = class extends EventSource {
  constructor(url) {
    super(url);
    this.addEventListener("error", () => document.documentElement.dataset.lostStreams = ++lost);
  }
};
"""


@pytest.mark.provokes("503 GET /api/events/stream")
async def test_a_lost_stream_is_tried_again_within_half_a_minute_and_everything_is_fetched_anew(
    page: Page, plane: LonePlane
) -> None:
    async def reject(route: Route) -> None:
        await route.fulfill(status=503)

    await page.clock.install()
    await page.add_init_script(COUNT_LOST_STREAMS)
    await page.route("**/api/events/stream?*", reject)
    await page.goto(f"{plane.url}/?token={plane.token}")
    html = page.locator("html")
    await expect(html).to_have_attribute("data-lost-streams", re.compile(r"\d"))
    for _ in range(8):
        lost = await html.get_attribute("data-lost-streams")
        assert lost is not None
        await page.clock.run_for(30_000)
        await expect(html).not_to_have_attribute("data-lost-streams", lost)
    await expect(page.locator("[data-connection]")).to_have_attribute("data-connection", "offline")

    await page.unroute("**/api/events/stream?*")
    async with page.expect_response("**/api/workers?limit=500"):
        while await page.locator('[data-connection="live"]').count() == 0:
            await page.clock.run_for(1_000)
