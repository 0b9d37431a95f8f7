"""The page of everything that happened: live without moving what is read, back in time, exported."""

import json
import re
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from e2e.test_accessibility import PHONE, SCHEMES, Scheme, open_page, violations
from e2e.test_pages import record
from support.lone_plane import LonePlane

pytestmark = pytest.mark.asyncio(loop_scope="module")

HTML = "<img src=x onerror=alert(1)>"


async def test_what_happened_is_found_by_kind_person_and_worker_and_the_filter_is_in_the_address(
    page: Page, plane: LonePlane
) -> None:
    await record(plane, "skipped_not_idle", HTML, plane.worker_id)
    await open_page(page, plane, "dark", "#/activity")
    entries = page.get_by_test_id("audit").get_by_role("listitem")
    await expect(entries.filter(has_text=HTML)).to_be_visible()  # text stays text
    await expect(entries.filter(has_text="POST /api/workers").first).to_contain_text("admin")
    await page.get_by_label("Show kinds").select_option("Workers")
    await expect(entries).to_have_count(4)  # created, provisioning, starting, running
    await expect(entries.first).to_contain_text("Running")
    assert page.url.endswith("#/activity?kind=worker")
    await page.get_by_label("Part of the name of a person or service").fill("ADMIN")
    await page.keyboard.press("Enter")
    await expect(entries).to_have_count(1)
    await page.reload()
    await expect(entries).to_have_count(1)
    await page.get_by_label("Part of the name of a worker, or of an id").fill("nothing")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Nothing matches")).to_be_visible()
    await page.get_by_label("Part of the name of a worker, or of an id").fill("live")
    await page.keyboard.press("Enter")
    await entries.get_by_role("link", name="live").click()
    await expect(page.get_by_role("complementary", name="live")).to_be_visible()


async def test_the_past_is_shown_between_two_moments_which_are_in_the_address(
    page: Page, plane: LonePlane
) -> None:
    await record(plane, "skipped_not_idle", "of today", plane.worker_id)
    await open_page(page, plane, "dark", "#/activity?kind=scaling")
    await expect(page.get_by_test_id("audit")).to_contain_text("of today")
    up_to = page.get_by_label("Up to")
    await up_to.fill("2026-01-01T06:00")
    await up_to.press("Enter")
    await expect(page.get_by_role("heading", name="Nothing matches")).to_be_visible()
    await page.reload()
    await expect(up_to).to_have_value("2026-01-01T06:00")
    await expect(page.get_by_role("link", name="CSV", exact=True)).to_have_attribute(
        "href", re.compile("until=20")
    )
    await up_to.fill("")
    await page.get_by_label("From").fill("2026-01-01T06:00")
    await page.get_by_label("From").press("Tab")
    await expect(page.get_by_test_id("audit")).to_contain_text("of today")


async def test_what_arrives_never_moves_what_somebody_points_at(page: Page, plane: LonePlane) -> None:
    await open_page(page, plane, "dark", "#/activity?kind=worker")
    entries = page.get_by_test_id("audit").get_by_role("listitem")
    first = entries.filter(has_text="Running")
    await first.hover()
    before = await first.bounding_box()
    await plane.admin.create("arrives")
    show = page.get_by_role("button", name="Show 1 new")
    await expect(show).to_be_visible()
    assert await first.bounding_box() == before
    await show.click()
    await expect(entries.first).to_contain_text("arrives")
    await page.mouse.move(5, 5)
    await plane.admin.create("arrives-too")
    await expect(entries.first).to_contain_text("arrives-too")  # nobody points at the list


async def test_activity_is_exported_as_filtered(page: Page, plane: LonePlane) -> None:
    await record(plane, "skipped_not_idle", "=1+1", plane.worker_id)
    await open_page(page, plane, "dark", "#/activity?kind=scaling")
    await expect(page.get_by_test_id("audit")).to_contain_text("=1+1")
    async with page.expect_download() as downloading:
        await page.get_by_role("link", name="CSV", exact=True).click()
    table = Path(await (await downloading.value).path()).read_text()
    assert table.startswith("id,at,kind,event,by,text")
    assert ",'=1+1," in table  # a spreadsheet does not run it
    async with page.expect_download() as downloading:
        await page.get_by_role("link", name="NDJSON", exact=True).click()
    lines = Path(await (await downloading.value).path()).read_text().splitlines()
    assert {json.loads(line)["kind"] for line in lines} == {"scaling"}


@SCHEMES
async def test_the_activity_page_is_accessible(page: Page, plane: LonePlane, scheme: Scheme) -> None:
    await record(plane, "scale_up_rejected", "too many", plane.worker_id)
    await open_page(page, plane, scheme, "#/activity")
    await expect(page.get_by_test_id("audit")).to_contain_text("too many")
    assert await violations(page) == []
    await page.set_viewport_size(PHONE)
    assert await violations(page) == []
