"""The command palette and the keyboard sheet."""

import pytest
from playwright.async_api import Page, expect

from e2e.test_accessibility import PHONE, SCHEMES, Scheme, open_page, violations
from support.lone_plane import LonePlane

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_palette_finds_and_runs_a_command_by_keys_alone(page: Page, plane: LonePlane) -> None:
    await open_page(page, plane, "dark")
    await page.get_by_role("searchbox").focus()
    await page.keyboard.press("Control+k")  # from a field, too
    options = page.get_by_role("dialog").get_by_role("option")
    await page.keyboard.type("cost")
    await expect(options).to_have_count(1)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Cost", level=1)).to_be_visible()
    await page.keyboard.press("Control+k")
    await page.keyboard.type("live")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("ArrowUp")
    await page.get_by_label("Command", exact=True).fill("stop live")
    await expect(options.first).to_have_text("Stop liveworker")
    await page.keyboard.press("Enter")
    worker = await plane.admin.get(f"/api/workers/{plane.worker_id}")
    while worker["desired_status"] != "stopped":
        worker = await plane.admin.get(f"/api/workers/{plane.worker_id}")
    await expect(page.get_by_role("dialog")).to_have_count(0)


TYPE_AND_ENTER = """
field => {
  field.value = "go to cost";
  field.dispatchEvent(new Event("input", { bubbles: true }));
  field.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
}
"""


async def test_enter_runs_what_was_typed_though_a_slow_browser_has_not_drawn_it(
    page: Page, plane: LonePlane
) -> None:
    await open_page(page, plane, "dark")
    await page.keyboard.press("Control+k")
    await page.get_by_label("Command", exact=True).evaluate(TYPE_AND_ENTER)
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(page.get_by_role("heading", name="Cost", level=1)).to_be_visible()


async def test_an_action_is_copied_as_a_command_without_a_token(page: Page, plane: LonePlane) -> None:
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await open_page(page, plane, "dark")
    await page.keyboard.press("Control+k")
    await page.keyboard.type("copy curl live")
    await page.get_by_label("Command", exact=True).fill("copy lcm stop live")
    await page.keyboard.press("Enter")
    assert await page.evaluate("navigator.clipboard.readText()") == "lcm stop live"


@SCHEMES
async def test_palette_and_keyboard_sheet_are_accessible(
    page: Page, plane: LonePlane, scheme: Scheme
) -> None:
    await open_page(page, plane, scheme)
    await page.keyboard.press("?")
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("next, previous row")
    assert await violations(page) == []
    await page.keyboard.press("Escape")
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("dialog").get_by_role("option").first).to_be_visible()
    assert await violations(page) == []
    await page.set_viewport_size(PHONE)
    assert await violations(page) == []
