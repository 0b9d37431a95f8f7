"""Requests to many workers at once, and the list of the fleet that a link leads to."""

import re

import pytest
from playwright.async_api import Locator, Page, expect

from support.lone_plane import LonePlane

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def open_fleet(page: Page, plane: LonePlane, place: str = "") -> None:
    await page.emulate_media(reduced_motion="reduce")
    await page.goto(f"{plane.url}/?token={plane.token}{place}")
    await page.wait_for_selector('[data-connection="live"]')


def row(page: Page, name: str) -> Locator:
    return page.locator(f'[data-worker-name="{name}"]')


async def test_many_workers_are_stopped_together_and_what_cannot_be_is_named(
    page: Page, plane: LonePlane
) -> None:
    for name in ("a-1", "a-2", "a-3"):
        await plane.admin.create(name)
    await open_fleet(page, plane)
    await row(page, "a-1").get_by_label("Select a-1").check()
    await row(page, "a-3").get_by_label("Select a-3").click(modifiers=["Shift"])
    bar = page.get_by_role("region", name="Selection")
    await expect(bar).to_contain_text("3 selected")
    await plane.admin.accepted("POST", f"/api/workers/{await id_of(plane, 'a-2')}/stop")
    await expect(row(page, "a-2")).to_contain_text("stop requested")
    await bar.get_by_role("button", name="Stop…").click()
    dialog = page.get_by_role("dialog", name="Stop 2 workers?")
    await expect(dialog.get_by_role("region", name="Stop", exact=True)).to_contain_text("a-1, a-3")
    left = dialog.get_by_role("region", name=re.compile("^Left as it is"))
    await expect(left).to_contain_text("a-2")
    await dialog.get_by_role("button", name="Stop 2 workers").click()
    await expect(dialog).to_have_count(0)
    await expect(bar).to_have_count(0)
    for name in ("a-1", "a-3"):
        worker = await plane.admin.get(f"/api/workers/{await id_of(plane, name)}")
        assert worker["desired_status"] == "stopped"
    live = await plane.admin.get(f"/api/workers/{plane.worker_id}")
    assert live["desired_status"] == "running"


async def id_of(plane: LonePlane, name: str) -> str:
    items = (await plane.admin.get("/api/workers"))["items"]
    found: str = next(worker["id"] for worker in items if worker["name"] == name)
    return found


async def test_a_selection_is_made_by_keys_and_held_together(page: Page, plane: LonePlane) -> None:
    await open_fleet(page, plane)
    await page.keyboard.press("j")
    await page.keyboard.press("x")
    bar = page.get_by_role("region", name="Selection")
    await bar.get_by_role("button", name="Hold…").click()
    dialog = page.get_by_role("dialog", name="Hold live")
    await dialog.get_by_role("button", name="Set hold").click()
    await expect(dialog).to_have_count(0)
    assert (await plane.admin.get(f"/api/workers/{plane.worker_id}"))["hold"] is not None
    await page.get_by_label("Select all listed workers").check()
    await page.keyboard.press("Escape")
    await expect(bar).to_have_count(0)


async def test_a_link_leads_to_the_same_list_and_closing_a_worker_back_to_it(
    page: Page, plane: LonePlane
) -> None:
    await plane.admin.create("other")
    await open_fleet(page, plane)
    await page.get_by_role("searchbox").fill("live")
    await expect(row(page, "other")).to_have_count(0)
    await expect(page).to_have_url(re.compile(r"#/\?q=live$"))
    await page.reload()
    await expect(row(page, "live")).to_be_visible()
    await expect(row(page, "other")).to_have_count(0)
    await row(page, "live").get_by_role("link", name="live").click()
    await expect(page.get_by_role("complementary", name="live")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page).to_have_url(re.compile(r"#/\?q=live$"))
    await expect(row(page, "other")).to_have_count(0)
