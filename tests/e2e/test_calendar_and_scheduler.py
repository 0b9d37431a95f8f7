"""What is booked, and what the scheduler does, as users see them; the test acts as the scheduler."""

import re
from datetime import datetime, timedelta

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from lcm.core.clock import SystemClock
from support.lablet_desk import Json, LabletDesk
from support.lone_plane import LonePlane

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def desk(plane: LonePlane) -> LabletDesk:
    desk = await LabletDesk(plane).start()
    await desk.give_address("192.0.2.7")
    return desk


async def open_page(page: Page, plane: LonePlane, place: str) -> None:
    await page.emulate_media(reduced_motion="reduce")
    await page.goto(f"{plane.url}/?token={plane.token}{place}")
    await page.wait_for_selector('[data-connection="live"]')


def in_three_days() -> datetime:
    """At noon, so that no zone moves it to another day."""
    day = SystemClock().now() + timedelta(days=3)
    return day.replace(hour=12, minute=0, second=0, microsecond=0)


def slot_at(start: datetime) -> Json:
    return {"start": start.isoformat(), "end": (start + timedelta(minutes=60)).isoformat(), "zone": "UTC"}


async def test_a_booked_class_is_a_block_of_its_day_that_leads_to_its_sessions(
    page: Page, plane: LonePlane, desk: LabletDesk
) -> None:
    start = in_three_days()
    batch = await desk.create_class(await desk.define(), "ada", "grace", timeslot=slot_at(start))
    await open_page(page, plane, "#/calendar")
    await expect(page.get_by_text("Nothing is booked here.")).to_be_visible()
    await page.goto(f"{plane.url}/#/calendar?date={start:%Y-%m-%d}")
    block = page.locator(f'[data-entry-id="{batch["id"]}"]')
    await expect(block).to_contain_text("2 seats")
    await page.get_by_role("button", name="Week").click()
    await expect(page).to_have_url(re.compile("view=week"))
    await expect(block).to_be_visible()
    await page.get_by_role("button", name="Next week").click()
    await expect(block).to_have_count(0)
    await page.get_by_role("button", name="Previous week").click()
    await block.get_by_role("link").click()
    await expect(page.get_by_role("row")).to_have_count(1 + 2)


async def test_the_demand_is_told_for_each_resource(page: Page, plane: LonePlane, desk: LabletDesk) -> None:
    start = in_three_days()
    await desk.create(await desk.define(), timeslot=slot_at(start))
    await open_page(page, plane, f"#/calendar?date={start:%Y-%m-%d}")
    await expect(page.get_by_test_id("peak")).to_contain_text("GB of")
    await page.get_by_label("Demand of").select_option("nodes")
    await expect(page.get_by_test_id("peak")).to_contain_text("At most 1 nodes of")


async def test_what_waits_is_queued_with_its_reason_and_what_is_placed_fills_a_worker(
    page: Page, plane: LonePlane, desk: LabletDesk
) -> None:
    definition = await desk.define()
    placed, waiting = await desk.create(definition), await desk.create(definition)
    await open_page(page, plane, "#/scheduler")
    queue = page.get_by_role("region", name="Queue").get_by_role("listitem")
    await expect(queue).to_have_count(2)
    await desk.place(placed)
    await expect(queue).to_have_count(1)
    await expect(queue).to_have_attribute("data-session-id", waiting["id"])
    bin_of_worker = page.locator(f'[data-worker-id="{plane.worker_id}"]')
    await expect(bin_of_worker).to_contain_text("1 session")
    await expect(bin_of_worker.get_by_role("img", name="CPU: 1 of")).to_be_visible()
    await expect(queue).to_contain_text(re.compile("expected (at|within)"))
    await queue.get_by_role("link", name="basics 1.0.0").click()
    await expect(page.get_by_role("region", name="Why and when")).to_be_visible()
