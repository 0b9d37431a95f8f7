"""The panel of a worker: its explanation, pausing, drain, license, tags and CML login."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, expect

from support.api import Api, admin_of
from support.booking import book, license_worker, placed
from support.canaries import suite_canaries
from support.processes import RunningLcm
from support.topologies import TWO_ALPINES

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def api(lcm: RunningLcm) -> AsyncIterator[Api]:
    async with admin_of(lcm) as api:
        yield api


async def open_worker(page: Page, lcm: RunningLcm, worker: Any, key: str | None = None) -> Locator:
    """Open the worker's panel with the event stream connected; a reload would be noticed."""
    await page.goto(f"{lcm.url}/?token={key or lcm.ready.token}#/workers/{worker['id']}")
    await page.wait_for_selector('[data-connection="live"]')
    await page.evaluate("window.loadedOnce = true")
    return page.get_by_role("complementary")


async def was_never_reloaded(page: Page) -> bool:
    return await page.evaluate("window.loadedOnce") is True


async def running(api: Api, name: str) -> Any:
    return await api.until(await api.create(name), "running", cml_ready=True)


def keys_of(lcm: RunningLcm) -> dict[str, str]:
    keys: dict[str, str] = json.loads((Path(lcm.ready.data_dir) / "keys.json").read_text())
    return keys


async def test_the_panel_says_why_and_what_comes_next(page: Page, lcm: RunningLcm, api: Api) -> None:
    worker = await running(api, "explained")
    panel = await open_worker(page, lcm, worker)
    why = panel.get_by_role("region", name="Why and what next")
    reason = why.locator('[data-code="status_reason"]')
    await expect(reason).to_have_text(worker["status_reason"], ignore_case=True)
    await expect(why.locator('[data-code="pause"]')).to_contain_text(re.compile(r"in \d+"))
    await api.act(worker, "stop")
    await expect(why.locator('[data-code="stop_requested"]')).to_be_visible()
    assert await was_never_reloaded(page)


async def test_a_hold_is_set_shown_and_ended(page: Page, lcm: RunningLcm, api: Api) -> None:
    worker = await running(api, "held")
    panel = await open_worker(page, lcm, worker)
    pausing = panel.get_by_role("region", name="Pausing")
    forecast = pausing.get_by_test_id("pause-forecast")
    await expect(forecast).to_have_text(re.compile(r"Pauses in .* unless used\."))

    await panel.get_by_role("button", name="Hold until…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("radio", name=re.compile("4 hours")).check()
    await dialog.get_by_label("Reason").fill("exam in room 4")
    await dialog.get_by_role("button", name="Set hold").click()
    await expect(forecast).to_have_text(re.compile(r"Held until .*, 4 h left\."))
    await expect(pausing).to_contain_text("Held by admin: exam in room 4")
    row = page.locator('[data-worker-name="held"]')
    await expect(row.locator('[data-indicator="held"]')).to_contain_text("4 h")
    assert (await api.get(f"/api/workers/{worker['id']}"))["hold"]["reason"] == "exam in room 4"

    await panel.get_by_role("button", name="End hold").click()
    await expect(forecast).to_have_text(re.compile(r"Pauses in .* unless used\."))
    await expect(row.locator("[data-indicator]")).to_have_count(0)
    assert await was_never_reloaded(page)


async def test_a_hold_cannot_end_in_the_past(page: Page, lcm: RunningLcm, api: Api) -> None:
    worker = await running(api, "custom-time")
    panel = await open_worker(page, lcm, worker)
    await panel.get_by_role("button", name="Hold until…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Day and time").fill("2020-01-01T12:00")
    await dialog.get_by_role("button", name="Set hold").click()
    await expect(dialog).to_contain_text("in the future")
    await dialog.get_by_label("Day and time").fill("2099-01-01T12:00")
    await dialog.get_by_role("button", name="Set hold").click()
    await expect(panel.get_by_test_id("pause-forecast")).to_contain_text("2099")


async def test_auto_pause_is_switched_off_and_on(page: Page, lcm: RunningLcm, api: Api) -> None:
    worker = await running(api, "switched")
    panel = await open_worker(page, lcm, worker)
    forecast = panel.get_by_test_id("pause-forecast")
    switch = panel.get_by_role("switch", name="Auto-pause")
    await switch.click()
    await expect(forecast).to_have_text("Never pauses: auto-pause is off for this worker.")
    await api.accepted("POST", f"/api/workers/{worker['id']}/idle-detection/enable")
    await expect(switch).to_be_checked()
    await expect(forecast).to_contain_text("unless used")


async def test_a_drain_waits_for_sessions_and_can_be_cancelled(page: Page, lcm: RunningLcm, api: Api) -> None:
    endpoint = lcm.ready.aws_endpoint
    assert endpoint is not None
    await license_worker(api, endpoint, await running(api, "drained"))
    _, definition = await api.call(
        "POST", "/api/lablet-definitions", {"name": "hosts", "lab_yaml": TWO_ALPINES}
    )
    session = await placed(api, await book(api, definition))
    panel = await open_worker(page, lcm, await api.get(f"/api/workers/{session['worker_id']}"))
    await panel.get_by_role("button", name="Drain", exact=True).click()
    why = panel.get_by_role("region", name="Why and what next")
    await expect(why).to_contain_text("Draining")
    await expect(why).to_contain_text(re.compile(r"Waits for 1 session, another (3 h \d+ min|4 h) at most\."))
    await panel.get_by_role("button", name="Cancel drain", exact=True).click()
    await expect(why).to_contain_text("Running")
    await api.accepted("POST", f"/api/lablet-sessions/{session['id']}/end")
    assert await was_never_reloaded(page)


async def test_a_license_is_registered_and_deregistered(page: Page, lcm: RunningLcm, api: Api) -> None:
    # The simulator's own endpoint: it exposes its secrets on purpose.
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{lcm.ready.aws_endpoint}/_lcm/simulation") as response,
    ):
        token: str = (await response.json())["license_token"]
    worker = await running(api, "licensed")
    panel = await open_worker(page, lcm, worker)
    license_badge = panel.get_by_test_id("license")
    await expect(license_badge).to_have_text("Not licensed")

    await panel.get_by_role("button", name="Register…").click()
    field = page.get_by_label("Registration token")
    await expect(field).to_have_attribute("type", "password")
    await page.get_by_text("Product, nodes and license server").click()
    await page.get_by_label("Product").select_option("Education")
    await page.get_by_label("More nodes").fill("40")
    await field.fill(token)
    await field.press("Enter")
    await expect(license_badge).to_have_text("Registered", timeout=30_000)
    await expect(panel.get_by_role("region", name="License")).to_contain_text("Education, 40 more nodes")
    assert token not in await page.content()

    await panel.get_by_role("button", name="Deregister…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Deregister").click()
    await expect(license_badge).to_have_text("Deregistered", timeout=30_000)
    assert await was_never_reloaded(page)


async def test_a_rejected_token_shows_the_message_of_cml(page: Page, lcm: RunningLcm, api: Api) -> None:
    worker = await running(api, "unlicensed")
    panel = await open_worker(page, lcm, worker)
    await panel.get_by_role("button", name="Register…").click()
    await page.get_by_label("Registration token").fill("not-a-token-of-this-account")
    await page.get_by_role("dialog").get_by_role("button", name="Register").click()
    license_section = panel.get_by_role("region", name="License")
    await expect(license_section).to_contain_text("Registering")
    await expect(license_section).to_contain_text(re.compile(r"Attempt \d of 5 failed: \w+"), timeout=30_000)


async def test_a_viewer_sees_every_control_disabled_with_the_reason(
    page: Page, lcm: RunningLcm, api: Api
) -> None:
    worker = await running(api, "read-only")
    panel = await open_worker(page, lcm, worker, keys_of(lcm)["viewer"])
    for name in ("Drain", "Hold until…", "Register…"):
        button = panel.get_by_role("button", name=name, exact=True)
        await expect(button).to_be_disabled()
        await expect(button).to_have_attribute("title", re.compile("Needs the role"))
    await expect(panel.get_by_role("switch", name="Auto-pause")).to_be_disabled()


async def test_tags_are_shown_and_edited(page: Page, lcm: RunningLcm, api: Api) -> None:
    worker = await api.create("tagged")
    panel = await open_worker(page, lcm, worker)
    await panel.get_by_role("button", name="Edit tags").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Key 1").fill("team")
    await dialog.get_by_label("Value 1").fill("networking")
    await dialog.get_by_label("Key 2").fill("team")
    await dialog.get_by_role("button", name="Save tags").click()
    await expect(dialog.get_by_role("alert")).to_have_text("“team” appears twice.")
    await dialog.get_by_label("Key 2").fill("course")
    await dialog.get_by_label("Value 2").fill("ccna")
    await dialog.get_by_role("button", name="Save tags").click()
    await expect(panel.get_by_text("team=networking")).to_be_visible()
    await expect(panel.get_by_text("course=ccna")).to_be_visible()
    assert (await api.get(f"/api/workers/{worker['id']}"))["tags"] == {"team": "networking", "course": "ccna"}
    await panel.get_by_role("button", name="Edit tags").click()
    await dialog.get_by_role("button", name="Remove tag 1").click()
    await dialog.get_by_role("button", name="Save tags").click()
    await expect(panel.get_by_text("team=networking")).to_be_hidden()
    assert (await api.get(f"/api/workers/{worker['id']}"))["tags"] == {"course": "ccna"}
    assert await was_never_reloaded(page)


async def test_a_worker_gets_its_own_cml_login_and_the_fleets_again(
    page: Page, lcm: RunningLcm, api: Api
) -> None:
    password = "sesame-of-one-worker"
    suite_canaries.know("CML password of a worker", password)
    worker = await api.create("own-login")
    panel = await open_worker(page, lcm, worker)
    login = panel.locator(".fact", has_text="CML login")
    edit = panel.get_by_role("button", name="Edit CML login")
    await expect(login).to_contain_text("the fleet's")

    await edit.click()
    dialog = page.get_by_role("dialog")
    username_field = dialog.get_by_label("User name")
    password_field = dialog.get_by_label("Password")
    remove = dialog.get_by_role("button", name="Use the fleet's login")
    await expect(username_field).to_have_value("admin")
    await expect(password_field).to_have_attribute("type", "password")
    await expect(remove).to_have_count(0)
    await dialog.get_by_role("button", name="Save login").click()
    await expect(dialog.get_by_role("alert")).to_have_text("Enter the password of this user.")
    await username_field.fill("")
    await password_field.fill(password)
    await dialog.get_by_role("button", name="Save login").click()
    await expect(dialog.get_by_role("alert")).to_have_text("Enter a user name.")
    await username_field.fill("instructor")
    await dialog.get_by_role("button", name="Save login").click()
    await expect(login).to_contain_text("instructor")
    assert (await api.get(f"/api/workers/{worker['id']}"))["cml_username"] == "instructor"
    assert password not in await page.content()

    await edit.click()
    await expect(username_field).to_have_value("instructor")
    await expect(password_field).to_have_value("")
    await remove.click()
    await expect(login).to_contain_text("the fleet's")
    assert (await api.get(f"/api/workers/{worker['id']}"))["cml_username"] is None
    assert await was_never_reloaded(page)


async def test_a_changed_certificate_is_shown_with_both_fingerprints_and_accepted(
    page: Page, lcm: RunningLcm, api: Api
) -> None:
    worker = await running(api, "renewed")
    pinned = worker["cml_certificate_sha256"]
    async with aiohttp.ClientSession() as session:
        for fault in ({"kind": "certificate"}, {"kind": "close", "code": 1006}):
            on_it = {**fault, "worker": worker["ec2_instance_id"]}
            async with session.post(f"{lcm.ready.aws_endpoint}/_lcm/cml/faults", json=on_it) as response:
                assert response.status < 300
    panel = await open_worker(page, lcm, worker)
    section = panel.get_by_role("region", name="Certificate")
    await expect(section).to_contain_text(pinned, timeout=60_000)
    presented = (await api.get(f"/api/workers/{worker['id']}"))["cml_refused_certificate_sha256"]
    await expect(section).to_contain_text(presented)
    await section.get_by_role("button", name="Accept…").click()
    dialog = page.get_by_role("dialog")
    for fingerprint in (pinned, presented):
        await expect(dialog).to_contain_text(fingerprint)
    await dialog.get_by_role("button", name="Accept certificate").click()
    await expect(section).to_be_hidden()
    await api.until(worker, "running", cml_certificate_sha256=presented, ws_connected=True)
    assert await was_never_reloaded(page)


async def test_the_fleets_license_token_is_set_and_removed_and_never_shown(
    page: Page, lcm: RunningLcm, api: Api
) -> None:
    token = "token-of-the-smart-account"
    suite_canaries.know("fleet license token", token)
    await page.goto(f"{lcm.url}/?token={lcm.ready.token}#/settings")
    setting = page.get_by_role("region", name="License of the fleet")
    await expect(setting).to_contain_text("No license token is set.")
    await setting.get_by_role("button", name="Set token…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Registration token").fill(token)
    await dialog.get_by_role("button", name="Set token").click()
    await expect(setting).to_contain_text("A license token is set.")
    assert (await api.get("/api/settings/license"))["has_token"] is True
    assert token not in await page.content()
    await setting.get_by_role("button", name="Remove token").click()
    await expect(setting).to_contain_text("No license token is set.")
    assert (await api.get("/api/settings/license"))["has_token"] is False


async def test_a_viewer_sees_why_tags_login_and_fleet_token_cannot_be_changed(
    page: Page, lcm: RunningLcm, api: Api
) -> None:
    worker = await api.create("viewed")
    viewer = keys_of(lcm)["viewer"]
    panel = await open_worker(page, lcm, worker, viewer)
    await expect(panel.get_by_role("button", name="Edit tags")).to_be_disabled()
    edit_login = panel.get_by_role("button", name="Edit CML login")
    await expect(edit_login).to_be_disabled()
    await expect(edit_login).to_have_attribute("title", re.compile("Needs the role admin"))
    await page.goto(f"{lcm.url}/#/settings")
    await expect(page.get_by_role("button", name="Set token…")).to_be_disabled()
