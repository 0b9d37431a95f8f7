"""Requests to many workers at once, and the list of the fleet that a link leads to."""

import re
from datetime import timedelta

import pytest
from playwright.async_api import Locator, Page, expect

from lcm.core.clock import SystemClock
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


async def test_a_saved_view_brings_back_its_filter_order_columns_and_density(
    page: Page, plane: LonePlane
) -> None:
    await plane.admin.create("other")
    await open_fleet(page, plane)
    await page.get_by_role("button", name="View", exact=True).press("Enter")
    menu = page.get_by_role("region", name="View")
    await menu.get_by_label("Region").uncheck()
    await menu.get_by_label("Load").uncheck()
    await menu.get_by_label("Compact").check()
    await expect(page.get_by_role("columnheader", name="Region")).to_have_count(0)
    await expect(row(page, "live")).to_have_css("height", "40px")
    await page.get_by_role("searchbox").fill("live")
    shared = re.compile(r"#/\?q=live&columns=status%2Ctemplate%2Ccml%2Caddress%2Cage&density=compact$")
    await expect(page).to_have_url(shared)
    await page.get_by_role("button", name="View", exact=True).click()
    await menu.get_by_label("Name of this view").fill("<b>night</b>")
    await page.keyboard.press("Enter")
    await page.keyboard.press("Escape")
    chosen = page.get_by_role("button", name="View: <b>night</b>")
    await expect(chosen).to_be_focused()
    await expect(menu).to_be_hidden()

    await page.goto(f"{plane.url}/#/")
    await page.reload()
    await expect(row(page, "other")).to_be_visible()
    await expect(row(page, "live")).to_have_css("height", "60px")
    await page.keyboard.press("Control+k")
    await page.get_by_role("combobox", name="Command").fill("view night")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(shared)
    await expect(row(page, "other")).to_have_count(0)
    await chosen.click()
    await menu.get_by_role("button", name="Remove the view <b>night</b>").click()
    await expect(menu.get_by_role("link")).to_have_count(0)


@pytest.mark.provokes("409 POST")
async def test_what_was_done_last_can_be_undone_and_a_refusal_is_the_servers(
    page: Page, plane: LonePlane
) -> None:
    other = await plane.add_running("other")
    await open_fleet(page, plane)
    done = page.get_by_role("status").filter(has_text="requested")
    await row(page, "live").get_by_role("button", name="Stop live").click()
    await expect(done).to_contain_text("Stop requested: live")
    async with page.expect_response("**/start") as answer:
        await done.get_by_role("button", name="Undo").click()
    assert (await (await answer.value).json())["desired_status"] == "running"
    await expect(done).to_have_count(0)

    await page.get_by_label("Select all listed workers").check()
    await page.get_by_role("region", name="Selection").get_by_role("button", name="Drain…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Drain 2 workers").click()
    await expect(done).to_contain_text("Drain requested: 2 workers")
    await plane.admin.accepted("DELETE", f"/api/workers/{other}")
    async with page.expect_response(f"**/{plane.worker_id}/cancel-drain"):
        await page.keyboard.press("u")
    status, problem = await plane.admin.call("POST", f"/api/workers/{other}/cancel-drain")
    assert status == 409
    refusal = page.get_by_role("alert")
    await expect(refusal).to_contain_text("other: not undone")
    await expect(refusal).to_contain_text(problem["detail"])
    assert (await plane.admin.get(f"/api/workers/{plane.worker_id}"))["desired_status"] == "running"


async def test_a_hold_that_was_ended_comes_back_as_it_was(page: Page, plane: LonePlane) -> None:
    hold = {"until": (SystemClock().now() + timedelta(hours=3)).isoformat(), "reason": "exam"}
    path = f"/api/workers/{plane.worker_id}/hold"
    assert (await plane.admin.call("PUT", path, hold))[0] in (200, 202)
    before = (await plane.admin.get(f"/api/workers/{plane.worker_id}"))["hold"]
    await open_fleet(page, plane, f"#/workers/{plane.worker_id}")
    await page.get_by_role("button", name="End hold").click()
    done = page.get_by_role("status").filter(has_text="Hold ended: live")
    async with page.expect_response(lambda answer: answer.request.method == "PUT"):
        await done.get_by_role("button", name="Undo").click()
    after = (await plane.admin.get(f"/api/workers/{plane.worker_id}"))["hold"]
    assert (after["until"], after["reason"]) == (before["until"], "exam")
