"""A press acts on the control that was pressed, whatever updates arrive meanwhile."""

import os
from datetime import timedelta
from itertools import count

import pytest
from playwright.async_api import Locator, Page, ViewportSize, expect

from lcm.core.clock import SystemClock
from support.lone_plane import LonePlane

pytestmark = pytest.mark.asyncio(loop_scope="module")

LARGE: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 844}
SCREENS = pytest.mark.parametrize("screen", [LARGE, PHONE], ids=["large", "phone"])

CLICKS = int(os.environ.get("LCM_CLICKS", "3"))
"""Clicks on every control of the panel."""
SLOWDOWN = float(os.environ.get("LCM_SLOWDOWN", "4"))
"""How many times slower the browser's CPU is made."""

PLACES = """
group => [...group.querySelectorAll("a, button, input")].flatMap((control) => {
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
    assert len(places) == 4 * 11

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


class BusyPanel:
    """The panel of a worker in a slow browser; every click arrives among updates of labs and load."""

    def __init__(self, page: Page, plane: LonePlane, panel: Locator) -> None:
        self._page = page
        self._plane = plane
        self._panel = panel
        self._updates = count()

    async def _update(self) -> None:
        """Make the lists above the controls longer or shorter, without waiting for the page."""
        number = next(self._updates)
        lab = f"lab-{number // 2 % 8}"
        change = {
            "event": "created" if number % 2 else "deleted",
            "element_type": "lab",
            "element_id": lab,
            "lab_id": lab,
            "data": {"title": lab},
        }
        await self._plane.accepted("/{id}/lab-state-change", change)
        load = self._plane.sample(since=SystemClock().now(), cpu_utilization=number % 100)
        await self._plane.accepted("/metrics", {"samples": [load]})

    async def click(self, control: Locator) -> None:
        await expect(control).to_be_enabled()
        await self._update()
        await press(self._page, control)
        await self._update()
        await self._page.mouse.up()

    def button(self, name: str) -> Locator:
        return self._panel.get_by_role("button", name=name, exact=True)

    async def click_for_dialog(self, name: str) -> None:
        await self.click(self.button(name))
        dialog = self._page.get_by_role("dialog")
        await expect(dialog).to_be_visible()
        await self._page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)

    async def click_for_answer(self, control: Locator, path: str) -> None:
        async with self._page.expect_response(f"**{path}") as answer:
            await self.click(control)
        assert (await answer.value).ok

    async def hold(self) -> None:
        until = (SystemClock().now() + timedelta(hours=1)).isoformat()
        path = f"/api/workers/{self._plane.worker_id}/hold"
        status, answer = await self._plane.admin.call("PUT", path, {"until": until, "reason": "exam"})
        assert status in (200, 202), answer


@pytest.mark.timeout(120 + 40 * CLICKS)
async def test_every_click_counts_in_a_slow_browser_among_updates(page: Page, plane: LonePlane) -> None:
    panel = await open_panel(page, plane, LARGE)
    devtools = await page.context.new_cdp_session(page)
    await devtools.send("Emulation.setCPUThrottlingRate", {"rate": SLOWDOWN})
    busy = BusyPanel(page, plane, panel)
    for _ in range(CLICKS):
        for name in ("Delete", "Hold until…", "Register…", "Edit CML login", "Edit tags"):
            await busy.click_for_dialog(name)
        await busy.click_for_answer(panel.get_by_role("switch", name="Auto-pause"), "/idle-detection/*")
        await busy.hold()
        for name, path in (
            ("End hold", "/hold"),
            ("Stop", "/stop"),
            ("Start", "/start"),
            ("Drain", "/drain"),
            ("Cancel drain", "/cancel-drain"),
        ):
            await busy.click_for_answer(busy.button(name), path)
        version = (await plane.admin.get(f"/api/workers/{plane.worker_id}"))["version"]
        report = {"status": "running", "reason": "drain cancelled", "expected_version": version}
        await plane.accepted("/{id}/status", report)
