"""The pages besides the fleet, and what only admins see."""

import re
from calendar import monthrange
from pathlib import Path

import pytest
from playwright.async_api import Page, Route, expect

from support.lone_plane import LonePlane

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def open_page(page: Page, plane: LonePlane, place: str = "") -> None:
    await page.goto(f"{plane.url}/?token={plane.token}{place}")
    await page.wait_for_selector('[data-connection="live"]')


async def record(plane: LonePlane, event: str, reason: str, worker_id: str | None = None) -> None:
    entry = {"event": event, "reason": reason, "worker_id": worker_id}
    headers = {"X-LCM-Epoch": "1"}
    async with plane.controller.post("/api/internal/scaling/audit", json=entry, headers=headers) as response:
        assert response.status == 204, await response.text()


async def test_the_navigation_leads_to_every_page_by_click_and_by_key(page: Page, plane: LonePlane) -> None:
    await open_page(page, plane)
    pages = (
        "Fleet",
        "Sessions",
        "Definitions",
        "Calendar",
        "Scheduler",
        "Labs",
        "Scaling",
        "Cost",
        "Audit",
        "System",
        "Activity",
        "Settings",
    )
    for key, name in reversed([*zip("12d34567890,", pages, strict=True)]):
        heading = page.get_by_role("heading", name=name, level=1)
        await page.get_by_role("link", name=name, exact=True).click()
        await expect(heading).to_be_visible()
        await expect(page).to_have_title(f"{name} · Lablet Cloud Manager")
        await page.get_by_role("link", name="Lablet Cloud Manager").click()
        await page.keyboard.press(key)
        await expect(heading).to_be_visible()
        current = page.locator(".nav [aria-current]")
        await expect(current).to_have_text(name)


async def test_a_wide_screen_shows_the_whole_navigation_while_it_connects_too(
    page: Page, plane: LonePlane
) -> None:
    async def never_answer(_: Route) -> None:
        """Leave the request as it is."""

    await page.route("**/api/events/stream**", never_answer)
    await page.goto(f"{plane.url}/?token={plane.token}")
    await page.wait_for_selector('[data-connection="connecting"]')
    nav = await page.get_by_role("navigation", name="Pages").bounding_box()
    last = await page.get_by_role("link", name="Settings", exact=True).bounding_box()
    assert nav is not None
    assert last is not None
    assert last["x"] + last["width"] <= nav["x"] + nav["width"] + 1  # pixels are rounded


async def test_scaling_decisions_are_listed_filtered_and_lead_to_the_worker(
    page: Page, plane: LonePlane
) -> None:
    await record(plane, "skipped_not_idle", "unused for 3 minutes", plane.worker_id)
    await record(plane, "scale_up_rejected", "10 workers are active in this region")
    await open_page(page, plane, "#/scaling")
    decisions = page.get_by_test_id("audit").get_by_role("listitem")
    await expect(decisions).to_have_count(3)
    await expect(decisions.first).to_contain_text("Scale-up rejected")
    await expect(decisions.nth(1)).to_contain_text("unused for 3 minutes")
    await expect(decisions.last).to_contain_text("Provisioned")

    await page.get_by_label("Show decisions").select_option("skipped_not_idle")
    await expect(decisions).to_have_count(1)
    await decisions.get_by_role("link", name="live").click()
    await expect(page.get_by_role("complementary", name="live")).to_be_visible()


async def test_a_new_decision_appears_without_a_reload(page: Page, plane: LonePlane) -> None:
    await open_page(page, plane, "#/scaling")
    await expect(page.get_by_test_id("audit").get_by_role("listitem")).to_have_count(1)  # its launch
    await record(plane, "scale_down_initiated", "unused for 75 minutes", plane.worker_id)
    await plane.admin.accepted("POST", f"/api/workers/{plane.worker_id}/drain")
    await expect(page.get_by_test_id("audit")).to_contain_text("unused for 75 minutes")


async def test_older_decisions_are_a_page_away(page: Page, plane: LonePlane) -> None:
    for number in range(52):
        await record(plane, "skipped_cooldown", f"decision {number}.")
    await open_page(page, plane, "#/scaling")
    decisions = page.get_by_test_id("audit").get_by_role("listitem")
    await expect(decisions).to_have_count(50)
    await page.get_by_role("button", name="Show older").click()
    await expect(decisions).to_have_count(53)
    await expect(decisions.first).to_contain_text("decision 51.")
    await expect(decisions.nth(51)).to_contain_text("decision 0.")
    await expect(page.get_by_role("button", name="Show older")).to_have_count(0)


async def test_cost_of_a_past_month_is_shown_and_exported(page: Page, plane: LonePlane) -> None:
    await open_page(page, plane, "#/cost?month=2020-01")
    await expect(page.locator(".cost-cells")).to_contain_text("January 2020$0.00")
    await expect(page.locator(".cost-cells")).not_to_contain_text("Now")
    async with page.expect_download() as downloading:
        await page.get_by_role("link", name="CSV", exact=True).click()
    assert (await downloading.value).suggested_filename == "lcm-cost-2020-01.csv"
    latest = (await plane.admin.get("/api/cost"))["month"]
    await page.get_by_label("Month, UTC").select_option(latest)
    await expect(page.locator(".cost-cells")).to_contain_text("This month so far")
    assert page.url.endswith("#/cost")
    async with page.expect_download() as downloading:
        await page.get_by_role("link", name="CSV", exact=True).click()
    table = Path(await (await downloading.value).path()).read_text()
    assert f"{latest},{plane.worker_id},live," in table


async def test_every_day_of_a_month_has_a_bar_and_disks_of_unknown_cost_are_named(
    page: Page, plane: LonePlane
) -> None:
    report = await plane.admin.get("/api/cost")
    assert report["total"]["unknown_disks"] == 0
    foreign = {
        "instance": {
            "id": "i-0123456789abcdef0",
            "region": "us-east-1",
            "state": "running",
            "instance_type": "m8i.2xlarge",
            "image_id": "ami-0123456789abcdef0",
        }
    }
    await plane.reported("POST", "/workers/bulk-import", {"instances": [foreign]})
    await open_page(page, plane, "#/cost")
    days = page.get_by_role("list", name="Cost of each day in").get_by_role("listitem")
    year, month = map(int, report["month"].split("-"))
    await expect(days).to_have_count(monthrange(year, month)[1])
    today = days.nth(len(report["days"]) - 1)
    await expect(today).to_contain_text(re.compile(r"[A-Z][a-z]{2} \d+: .*\$\d.*of it disks"))
    await expect(page.get_by_role("table", name="By region")).to_contain_text("unknown")
    async with page.expect_download() as downloading:
        await page.get_by_role("link", name="CSV by day").click()
    table = Path(await (await downloading.value).path()).read_text().splitlines()
    assert (table[0], len(table) - 1) == ("day,usd,usd_disk,usd_saved", len(report["days"]))


async def test_cost_is_shown_in_the_fleet_and_on_its_page(page: Page, plane: LonePlane) -> None:
    await open_page(page, plane)
    summary = page.get_by_role("region", name="Summary")
    await expect(summary).to_contain_text(re.compile(r"This month.*\$\d.*so far.*saved by pausing"))
    await summary.get_by_role("link", name="This month").click()
    by_worker = page.get_by_role("table", name="By worker").get_by_role("row")
    await expect(by_worker).to_have_count(2)
    await expect(by_worker.last).to_contain_text("$0.0208")
    await expect(page.get_by_role("table", name="By template")).to_contain_text("small")
    await expect(page.get_by_role("table", name="By region")).to_contain_text("us-east-1")

    await plane.add_running("second")
    await expect(by_worker).to_have_count(3)
    await by_worker.get_by_role("link", name="second").click()
    await expect(page.get_by_role("complementary", name="second")).to_be_visible()


async def test_a_license_debt_is_shown_and_settled(page: Page, plane: LonePlane) -> None:
    await open_page(page, plane)
    await plane.admin.accepted("POST", f"/api/workers/{plane.worker_id}/license", {"token": "a-token"})
    await plane.accepted("/{id}/license/start-registration", {})
    await plane.accepted("/{id}/license/complete-registration", {})
    await plane.accepted(
        "/{id}/license/fail-deregistration", {"reason": "CML did not answer", "is_debt": True}
    )
    await plane.add_running("news")
    debts = page.get_by_role("region", name="License debts")
    await expect(debts).to_contain_text("1 license may still be in use")
    await expect(debts).to_contain_text("CML did not answer")
    await debts.get_by_role("button", name="Settle live").click()
    await expect(debts).to_have_count(0)
    assert (await plane.admin.get("/api/license-debts"))["items"][0]["settled_by"] == "admin"


FETCHING = (
    "sessions/unknown",
    "definitions",
    "definitions/unknown",
    "calendar",
    "scheduler",
    "labs",
    "scaling",
    "cost",
    "cost?month=2020-01",
    "audit",
    "system",
    "activity",
    "settings",
    "settings/api",
    "workers/unknown/details",
    "sessions/classes/unknown",
)
"""Pages whose content no event brings."""


@pytest.mark.provokes("503 GET")
async def test_every_page_that_cannot_be_loaded_says_why(page: Page, plane: LonePlane) -> None:
    async def reject(route: Route) -> None:
        await route.fulfill(status=503, json={"detail": "The store does not answer."})

    await open_page(page, plane, "#/scaling")
    await expect(page.get_by_test_id("audit").get_by_role("listitem")).to_have_count(1)
    await page.route(re.compile(r"/api/(?!session$|events)"), reject)
    await plane.add_running("second")
    await expect(page.get_by_role("status").filter(has_text="Newer entries")).to_contain_text("not answer")

    silent = []
    for place in FETCHING:
        await page.goto(f"{plane.url}/#/{place}")
        reason = page.get_by_role("main").get_by_text("The store does not answer.").first
        try:
            await expect(reason).to_be_visible(timeout=5_000)
        except AssertionError:
            silent.append(place)
    assert silent == []
