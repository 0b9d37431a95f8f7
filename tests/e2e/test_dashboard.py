"""The dashboard as a user operates it."""

import re

import pytest
from playwright.async_api import ConsoleMessage, Locator, Page, Request, expect

from support.api import admin_of
from support.processes import RunningLcm, running_lcm

pytestmark = pytest.mark.asyncio(loop_scope="module")


def row(page: Page, name: str) -> Locator:
    return page.locator(f'[data-worker-name="{name}"]')


async def shows(page: Page, name: str, status: str) -> None:
    await expect(row(page, name)).to_have_attribute("data-status", status, timeout=20_000)


async def open_dashboard(page: Page, lcm: RunningLcm) -> None:
    await page.goto(f"{lcm.url}/?token={lcm.ready.token}")
    await page.wait_for_selector('[data-connection="live"]')


async def test_the_list_changes_without_a_reload(page: Page, lcm: RunningLcm) -> None:
    await open_dashboard(page, lcm)
    await page.evaluate("window.loadedOnce = true")
    async with admin_of(lcm) as api:
        worker = await api.create("from-elsewhere")
        await shows(page, "from-elsewhere", "running")
        await api.act(worker, "stop")
        await shows(page, "from-elsewhere", "stopped")
    assert await page.evaluate("window.loadedOnce") is True


async def test_a_user_takes_a_worker_through_its_lifecycle_by_clicks(page: Page, lcm: RunningLcm) -> None:
    await open_dashboard(page, lcm)
    await page.get_by_role("button", name="Create worker").first.click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill("clicked")
    await dialog.get_by_role("radio", name="large", exact=True).check(force=True)
    await dialog.get_by_role("button", name="Create", exact=True).click()
    await shows(page, "clicked", "running")

    await page.get_by_role("button", name="Stop clicked").click()
    await shows(page, "clicked", "stopped")
    await page.get_by_role("button", name="Start clicked").click()
    await shows(page, "clicked", "running")

    await row(page, "clicked").click()
    timeline = page.get_by_test_id("timeline")
    await expect(timeline.locator('[data-to="stopped"]').first).to_be_visible()

    await page.get_by_role("button", name="Delete clicked").click()
    await page.get_by_role("button", name="Delete worker").click()
    await expect(row(page, "clicked")).to_have_count(0, timeout=20_000)
    await expect(timeline.locator('[data-to="terminated"]')).to_be_visible()


@pytest.mark.provokes("409 POST /api/workers")
async def test_a_taken_name_is_reported_at_its_field(page: Page, lcm: RunningLcm) -> None:
    await open_dashboard(page, lcm)
    await shows(page, "ccna-morning", "running")
    await page.get_by_role("button", name="Create worker").first.click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill("ccna-morning")
    await dialog.get_by_role("button", name="Create", exact=True).click()
    await expect(dialog.get_by_text("choose another name")).to_be_visible()


@pytest.mark.provokes("401 GET /api/session", "401 POST /api/session")
async def test_without_a_token_only_the_sign_in_is_shown(page: Page, lcm: RunningLcm) -> None:
    await page.goto(lcm.url)
    field = page.get_by_label(re.compile("token", re.IGNORECASE))
    await field.fill("guess")
    await field.press("Enter")
    await expect(page.get_by_text("not valid")).to_be_visible()
    await field.fill(lcm.ready.token)
    await field.press("Enter")
    await page.wait_for_selector('[data-connection="live"]')


async def test_the_page_contacts_no_other_host_and_logs_no_error(page: Page, lcm: RunningLcm) -> None:
    hosts: set[str] = set()
    errors: list[str] = []

    def on_request(request: Request) -> None:
        hosts.add(request.url.split("/")[2])

    def on_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            errors.append(message.text)

    page.on("request", on_request)
    page.on("console", on_console)
    await open_dashboard(page, lcm)
    await row(page, "ccna-morning").click()
    await expect(page.get_by_test_id("timeline")).to_be_visible()
    assert hosts == {lcm.url.removeprefix("http://")}
    assert errors == []


@pytest.mark.provokes("net::ERR_")
async def test_the_page_shows_that_the_server_is_unreachable(page: Page) -> None:
    with running_lcm("--workers", "0") as lcm:
        await open_dashboard(page, lcm)
    pill = page.locator("[data-connection]").first
    await expect(pill).not_to_have_attribute("data-connection", "live", timeout=20_000)
