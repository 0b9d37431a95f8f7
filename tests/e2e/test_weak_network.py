"""A computer that sleeps and a network that is slow: no click is lost, the past is not the present."""

from typing import Final

import pytest
from playwright.async_api import CDPSession, Locator, Page, Route, expect
from yarl import URL

from e2e.test_accessibility import Scheme, violations
from support.lone_plane import LonePlane
from support.silent_proxy import SilentProxy, silent_proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOTH: Final[tuple[Scheme, ...]] = ("light", "dark")
SLOW: Final = {
    "offline": False,
    "latency": 400,  # milliseconds
    "downloadThroughput": 400_000 / 8,  # bytes a second
    "uploadThroughput": 400_000 / 8,
}


@pytest.mark.provokes("net::ERR_")
async def test_after_hours_of_sleep_the_page_says_how_old_it_is_and_shows_the_present_again(
    page: Page, plane: LonePlane
) -> None:
    async with silent_proxy(URL(plane.url).port or 0) as network:
        await page.clock.install()
        await page.goto(f"http://127.0.0.1:{network.port}/?token={plane.token}")
        await page.wait_for_selector('[data-connection="live"]')
        out_of_date = page.get_by_role("status").filter(has_text="Out of date")
        await expect(out_of_date).to_have_count(0)

        network.fall_silent()
        await plane.admin.create("made-at-night")
        await page.clock.fast_forward("03:00:00")
        await expect(out_of_date).to_contain_text("last heard 3 h ago")
        await expect(page.locator("[data-connection]")).not_to_have_attribute("data-connection", "live")
        await expect(page.locator('[data-worker-name="made-at-night"]')).to_have_count(0)
        for scheme in BOTH:
            await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            assert await violations(page) == []

        await wake(page, network)
        await expect(page.locator('[data-worker-name="made-at-night"]')).to_be_visible()
        await expect(out_of_date).to_have_count(0)


async def wake(page: Page, network: SilentProxy) -> None:
    network.wake()
    while await page.locator('[data-connection="live"]').count() == 0:
        await page.clock.run_for(1_000)


async def throttled(page: Page) -> CDPSession:
    devtools = await page.context.new_cdp_session(page)
    await devtools.send("Network.enable")
    await devtools.send("Network.emulateNetworkConditions", SLOW)
    await devtools.send("Emulation.setCPUThrottlingRate", {"rate": 20})
    return devtools


async def answered(page: Page, control: Locator, path: str) -> dict[str, object]:
    async with page.expect_response(f"**{path}") as answer:
        await control.click()
    response = await answer.value
    assert response.ok
    worker: dict[str, object] = await response.json()
    return worker


async def test_over_a_slow_network_no_click_is_lost_and_no_state_is_wrong(
    page: Page, plane: LonePlane
) -> None:
    await page.emulate_media(reduced_motion="reduce")
    await page.goto(f"{plane.url}/?token={plane.token}#/workers/{plane.worker_id}")
    await page.wait_for_selector('[data-connection="live"]')
    await throttled(page)
    panel = page.get_by_role("complementary", name="live")
    row = page.locator('[data-worker-name="live"]')

    # While the first answer is on its way nothing else can be asked.
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url) if request.method == "POST" else None)
    async with page.expect_response("**/stop"):
        await panel.get_by_role("button", name="Stop", exact=True).click()
        await expect(panel.get_by_role("button", name="Start", exact=True)).to_be_disabled()
    await expect(row).to_contain_text("desired: stopped")
    assert [url.rsplit("/", 1)[-1] for url in requests] == ["stop"]

    button = panel.get_by_role("button", name="Start", exact=True)
    assert (await answered(page, button, "/start"))["desired_status"] == "running"
    await expect(row).not_to_contain_text("desired: stopped")
    switch = panel.get_by_role("switch", name="Auto-pause")
    for is_on in (False, True):
        worker = await answered(page, switch, "/idle-detection/*")
        assert worker["is_idle_detection_enabled"] is is_on
        await expect(switch).to_be_enabled()
        await expect(switch).to_be_checked(checked=is_on)
    await answered(page, panel.get_by_role("button", name="Drain", exact=True), "/drain")
    await expect(row).to_have_attribute("data-status", "draining")
    await answered(page, page.get_by_role("button", name="Undo"), "/cancel-drain")
    worker = await plane.admin.get(f"/api/workers/{plane.worker_id}")
    report = {"status": "running", "reason": "drain cancelled", "expected_version": worker["version"]}
    await plane.accepted("/{id}/status", report)
    await expect(row).to_have_attribute("data-status", "running")


@pytest.mark.provokes("503 GET /api/session")
async def test_a_page_that_is_opened_too_early_says_so_and_goes_on_by_itself(
    page: Page, plane: LonePlane
) -> None:
    async def reject(route: Route) -> None:
        await route.fulfill(status=503)

    await page.route("**/api/session", reject)
    await page.goto(f"{plane.url}/?token={plane.token}#/cost")
    await expect(page.get_by_role("alert")).to_contain_text("The control plane does not answer.")
    await page.unroute("**/api/session")
    await page.wait_for_selector('[data-connection="live"]')
    await expect(page.get_by_role("heading", name="Cost", level=1)).to_be_visible()
