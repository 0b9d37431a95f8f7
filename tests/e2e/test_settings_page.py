"""The page of settings: templates are changed with the difference in view, tokens are made and revoked."""

import json

import pytest
from playwright.async_api import Browser, Page, expect

from e2e.test_accessibility import PHONE, SCHEMES, Scheme, open_page, violations
from support.api import person
from support.canaries import suite_canaries
from support.lone_plane import LonePlane

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def edit(page: Page, **changes: object) -> None:
    """Change fields of the document in the open dialog."""
    field = page.get_by_label("Settings as JSON")
    await expect(field).to_be_enabled()
    await field.fill(json.dumps({**json.loads(await field.input_value()), **changes}))


@pytest.mark.provokes("422 PUT")
async def test_a_template_is_changed_with_the_difference_in_view_and_reverted(
    page: Page, plane: LonePlane
) -> None:
    seeded = await plane.admin.get("/api/worker-templates/small")
    await open_page(page, plane, "dark", "#/settings")
    line = page.locator('[data-template="small"]')
    dialog = page.get_by_role("dialog")
    await line.get_by_role("button", name="Edit small").click()
    await edit(page, max_nodes=0, cpu=4)
    await expect(dialog.get_by_role("region", name="What changes")).to_contain_text("cpu 2 → 4")
    await dialog.get_by_role("button", name="Save").click()
    await expect(dialog.locator(".change-problem")).to_contain_text(">= 1")  # at its field
    await edit(page, max_nodes=6)
    await dialog.get_by_role("button", name="Save").click()
    await expect(dialog).to_have_count(0)
    await expect(line).to_contain_text("Changed here: cpu, max_nodes")
    assert await plane.admin.get("/api/worker-templates/small") == {**seeded, "cpu": 4, "max_nodes": 6}
    [entry] = (await plane.admin.get("/api/audit?action=PUT%20/api/worker-templates"))["items"]
    assert entry["after"] == {"edits": '{"cpu":4,"max_nodes":6}'}
    await line.get_by_role("button", name="Edit small").click()
    await dialog.get_by_role("button", name="Revert to the file").click()
    await expect(line).not_to_contain_text("Changed here")
    assert await plane.admin.get("/api/worker-templates/small") == seeded


@pytest.mark.provokes("412 PUT")
async def test_a_change_of_somebody_else_meanwhile_is_not_overwritten_unseen(
    page: Page, plane: LonePlane
) -> None:
    await open_page(page, plane, "dark", "#/settings")
    dialog = page.get_by_role("dialog")
    await page.get_by_role("button", name="Edit small").click()
    await edit(page, cpu=4)
    assert (await plane.admin.call("POST", "/api/worker-templates/small/disable"))[0] == 200
    await dialog.get_by_role("button", name="Save").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("version")
    changes = dialog.get_by_role("region", name="What changes")
    await expect(changes).to_contain_text("enabled false → true")  # what saving would undo
    assert (await plane.admin.get("/api/worker-templates/small"))["cpu"] == 2
    await edit(page, enabled=False)
    await dialog.get_by_role("button", name="Save").click()
    await expect(dialog).to_have_count(0)
    small = await plane.admin.get("/api/worker-templates/small")
    assert (small["cpu"], small["enabled"]) == (4, False)


@pytest.mark.provokes("422 POST")
async def test_a_token_is_shown_once_works_and_is_revoked(page: Page, plane: LonePlane) -> None:
    await open_page(page, plane, "dark", "#/settings")
    dialog = page.get_by_role("dialog")
    await page.get_by_role("button", name="New token…").click()
    await dialog.get_by_label("Name").fill("admin")
    await dialog.get_by_role("button", name="Create token").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("reserved")
    await dialog.get_by_label("Name").fill("ci-pipeline")
    await dialog.get_by_label("Role").select_option("operator")
    await dialog.get_by_role("button", name="Create token").click()
    await dialog.get_by_role("button", name="Show the token").click()
    token = await dialog.locator(".secret-text").inner_text()
    suite_canaries.know("token of the settings page", token)
    async with person(plane.url, token) as pipeline:
        assert (await pipeline.get("/api/session"))["role"] == "operator"
        await dialog.get_by_role("button", name="Done").click()
        assert token not in await page.content()
        line = page.locator('[data-token="ci-pipeline"]')
        await expect(line).to_contain_text("operator")
        await line.get_by_role("button", name="Revoke ci-pipeline").click()
        await dialog.get_by_role("button", name="Revoke").click()
        await expect(line).to_have_count(0)
        assert (await pipeline.call("GET", "/api/session"))[0] == 401


async def test_signing_out_everywhere_ends_the_sessions_of_all_browsers_and_no_token(
    page: Page, browser: Browser, plane: LonePlane
) -> None:
    async with await browser.new_context() as profile:
        other = await profile.new_page()
        await open_page(other, plane, "dark")
        await open_page(page, plane, "dark", "#/settings")
        browsers = page.get_by_role("region", name="Browsers")
        await expect(browsers.locator("[data-browser]")).to_have_count(2)
        await expect(browsers.get_by_text("this browser")).to_have_count(1)
        await browsers.get_by_role("button", name="Sign out everywhere").click()
        await page.get_by_role("dialog").get_by_role("button", name="Sign out everywhere").click()
        for each in (page, other):
            await expect(each.get_by_label("Access token")).to_be_visible()
        assert await page.context.cookies() == []
    assert (await plane.admin.get("/api/session/all"))["items"] == []


async def test_an_admin_sees_who_is_signed_in_and_signs_one_person_out(
    page: Page, browser: Browser, plane: LonePlane
) -> None:
    _, made = await plane.admin.call("POST", "/api/tokens", {"name": "ada", "role": "operator"})
    async with await browser.new_context() as profile:
        other = await profile.new_page()
        await other.goto(f"{plane.url}/?token={made['token']}#/settings")
        of_ada = other.get_by_role("region", name="Browsers").locator("[data-browser]")
        await expect(of_ada).to_have_count(1)
        await open_page(page, plane, "dark", "#/settings")
        browsers = page.get_by_role("region", name="Browsers")
        await expect(browsers.locator("[data-browser]")).to_have_count(2)
        await browsers.get_by_role("button", name="Sign out ada").click()
        dialog = page.get_by_role("dialog", name="Sign out ada?")
        await dialog.get_by_role("button", name="Sign out", exact=True).click()
        await expect(browsers.locator("[data-browser]")).to_have_count(1)
        await expect(other.get_by_label("Access token")).to_be_visible()
    await expect(page.get_by_role("heading", name="Settings", level=1)).to_be_visible()


async def test_discovery_is_changed_field_by_field(page: Page, plane: LonePlane) -> None:
    await open_page(page, plane, "dark", "#/settings")
    discovery = page.get_by_role("region", name="Discovery")
    await discovery.get_by_role("button", name="Edit discovery").click()
    await edit(page, tag_filter={"team": "networking"})
    await page.get_by_role("dialog").get_by_role("button", name="Save").click()
    await expect(discovery).to_contain_text("team=networking")
    settings = await plane.admin.get("/api/settings/discovery")
    assert (settings["tag_filter"], settings["enabled"]) == ({"team": "networking"}, None)


@SCHEMES
async def test_the_settings_page_is_accessible(page: Page, plane: LonePlane, scheme: Scheme) -> None:
    await plane.admin.call("POST", "/api/tokens", {"name": "ci", "role": "viewer"})
    await open_page(page, plane, scheme, "#/settings")
    await expect(page.locator('[data-token="ci"]')).to_be_visible()
    await expect(page.locator('[data-template="small"]')).to_be_visible()
    assert await violations(page) == []
    await page.get_by_role("button", name="Edit small").click()
    await edit(page, cpu=4)
    assert await violations(page) == []
    await page.keyboard.press("Escape")
    await page.set_viewport_size(PHONE)
    assert await violations(page) == []
