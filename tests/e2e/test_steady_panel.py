"""A press acts on the control that was pressed, whatever updates arrive meanwhile."""

import pytest
from playwright.async_api import Locator, Page, ViewportSize, expect

from lcm.core.clock import SystemClock
from support.lone_plane import LonePlane

pytestmark = pytest.mark.asyncio(loop_scope="module")

LARGE: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 844}
SCREENS = pytest.mark.parametrize("screen", [LARGE, PHONE], ids=["large", "phone"])

PLACES = """
group => [...group.querySelectorAll("button, input")].flatMap((control) => {
  const { x, y, width, height } = control.getBoundingClientRect();
  return [x, y, width, height];
})
"""


async def have_stayed(controls: Locator, places: list[float]) -> bool:
    """Whether no control has moved; a browser rounds scroll positions to pixels, so less than one is none."""
    return bool(await controls.evaluate(PLACES) == pytest.approx(places, abs=0.99))


async def open_panel(page: Page, plane: LonePlane, screen: ViewportSize) -> Locator:
    # Without its animation the panel is in place when it is measured.
    await page.emulate_media(reduced_motion="reduce")
    await page.set_viewport_size(screen)
    await page.goto(f"{plane.url}/?token={plane.token}#/workers/{plane.worker_id}")
    await page.wait_for_selector('[data-connection="live"]')
    return page.get_by_role("complementary", name="live")


async def open_fleet(page: Page, plane: LonePlane) -> None:
    await page.goto(f"{plane.url}/?token={plane.token}")
    await page.wait_for_selector('[data-connection="live"]')
    await expect(page.locator('[data-worker-name="live"]')).to_be_visible()


async def report_labs(page: Page, plane: LonePlane, *names: str) -> None:
    for name in names:
        event = {"event": "created", "element_type": "lab", "element_id": name, "lab_id": name}
        await plane.accepted("/{id}/lab-state-change", {**event, "data": {"title": name}})
    labs = page.get_by_role("region", name="Labs")
    await expect(labs.locator(f'[data-lab-id="{names[-1]}"]')).to_be_visible()


async def report_load(page: Page, plane: LonePlane) -> None:
    figures = {"cpu_utilization": 95, "memory_utilization": 43.6, "disk_utilization": 61}
    await plane.accepted("/metrics", {"samples": [plane.sample(since=SystemClock().now(), **figures)]})
    await expect(page.locator('.chart-value[data-color="red"]')).to_have_text("95%")


async def report_stop(page: Page, plane: LonePlane) -> None:
    for status in ("stopping", "stopped"):
        worker = await plane.admin.get(f"/api/workers/{plane.worker_id}")
        report = {"status": status, "reason": "asked", "expected_version": worker["version"]}
        await plane.accepted("/{id}/status", report)
    await expect(page.get_by_test_id("timeline").locator('[data-to="stopped"]')).to_be_visible()


async def press(page: Page, control: Locator) -> None:
    box = await control.bounding_box()
    assert box is not None
    await page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    await page.mouse.down()


@SCREENS
async def test_no_control_of_a_worker_moves_when_updates_arrive(
    page: Page, plane: LonePlane, screen: ViewportSize
) -> None:
    panel = await open_panel(page, plane, screen)
    controls = panel.get_by_role("group", name="Controls")
    await expect(panel.get_by_test_id("timeline")).to_be_visible()
    places: list[float] = await controls.evaluate(PLACES)
    assert len(places) == 4 * 10

    await report_labs(page, plane, *(f"lab-{n}" for n in range(12)))
    assert await have_stayed(controls, places)
    await report_load(page, plane)
    assert await have_stayed(controls, places)
    await panel.evaluate("panel => panel.scrollTo(0, panel.scrollHeight)")
    assert await have_stayed(controls, places)
    await report_stop(page, plane)
    assert await have_stayed(controls, places)


@SCREENS
async def test_a_press_that_began_before_an_update_still_counts(
    page: Page, plane: LonePlane, screen: ViewportSize
) -> None:
    panel = await open_panel(page, plane, screen)
    dialog = page.get_by_role("dialog")
    names = ("Delete", "Hold until…", "Register…", "Edit CML login", "Edit tags")
    for number, name in enumerate(names):
        await press(page, panel.get_by_role("button", name=name, exact=True))
        await report_labs(page, plane, f"before-{number}", f"after-{number}")
        await page.mouse.up()
        await expect(dialog).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)

    await press(page, panel.get_by_role("switch", name="Auto-pause"))
    await report_labs(page, plane, "while-switching")
    await page.mouse.up()
    await expect(panel.get_by_test_id("pause-forecast")).to_contain_text("auto-pause is off")

    await press(page, panel.get_by_role("button", name="Stop", exact=True))
    await report_labs(page, plane, "while-stopping")
    await report_load(page, plane)
    async with page.expect_response("**/stop") as answer:
        await page.mouse.up()
    assert (await answer.value).ok


ANOTHER_AT_ONCE = """
async () => {
  const button = (name) => [...document.querySelectorAll("button")].find((one) => one.textContent === name);
  button("Cancel").click();
  await Promise.resolve();
  button("Register…").click();
}
"""


async def test_a_dialog_that_is_opened_right_after_another_stays_open(page: Page, plane: LonePlane) -> None:
    panel = await open_panel(page, plane, LARGE)
    await panel.get_by_role("button", name="Delete", exact=True).click()
    await expect(page.get_by_role("dialog", name="Delete live?")).to_be_visible()
    await page.evaluate(ANOTHER_AT_ONCE)
    # The close event of the first is fired in a task of its own, which has run by now.
    await page.evaluate("new Promise((soon) => setTimeout(soon))")
    await page.evaluate("new Promise(requestAnimationFrame)")
    assert await page.get_by_role("dialog", name="License live").count() == 1


async def test_a_press_on_a_row_that_moves_is_a_press_on_that_row(page: Page, plane: LonePlane) -> None:
    await open_fleet(page, plane)
    stop = page.get_by_role("button", name="Stop live")
    await press(page, stop)
    await plane.add_running("above-it")
    await expect(page.locator('[data-worker-name="above-it"]')).to_be_visible()
    async with page.expect_response("**/stop") as answer:
        await page.mouse.up()
    assert (await (await answer.value).json())["name"] == "live"

    await press(page, page.locator('[data-worker-name="live"] .cell-template'))
    await plane.add_running("above-it-too")
    await expect(page.locator('[data-worker-name="above-it-too"]')).to_be_visible()
    await page.mouse.up()
    await expect(page.get_by_role("complementary", name="live")).to_be_visible()


async def test_a_press_that_slides_off_is_cancelled(page: Page, plane: LonePlane) -> None:
    await open_fleet(page, plane)
    methods: list[str] = []
    page.on("request", lambda request: methods.append(request.method))
    await press(page, page.get_by_role("button", name="Stop live"))
    await page.mouse.move(300, 30)
    await page.mouse.up()
    await page.evaluate("new Promise(requestAnimationFrame)")
    assert "POST" not in methods
