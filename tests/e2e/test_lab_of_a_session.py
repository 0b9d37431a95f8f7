"""The lab of a session as users see it: brought up, reached, warned of its end and removed."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, ViewportSize, expect

from lcm.core.clock import SystemClock
from support.lablet_desk import LabletDesk
from support.lone_plane import LonePlane

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.provokes("409 GET /api/lablet-sessions/"),  # access, asked for while the session ends
]

LARGE: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 844}
SCREENS = pytest.mark.parametrize("screen", [LARGE, PHONE], ids=["large", "phone"])
FIRST, SECOND = "192.0.2.7", "192.0.2.8"
PORT = 2000
"""The first of the port range."""

PLACES = """
place => [...place.querySelectorAll("a, button")].flatMap((control) => {
  const { x, y, width, height } = control.getBoundingClientRect();
  return [x, y, width, height];
})
"""


@pytest_asyncio.fixture(loop_scope="module")
async def desk(plane: LonePlane) -> LabletDesk:
    desk = await LabletDesk(plane).start()
    await desk.give_address(FIRST)
    return desk


async def open_session(page: Page, plane: LonePlane, session: Any) -> None:
    await page.emulate_media(reduced_motion="reduce")
    await page.goto(f"{plane.url}/?token={plane.token}#/sessions/{session['id']}")
    await page.wait_for_selector('[data-connection="live"]')
    await expect(page.get_by_test_id("history").locator("[data-to]").first).to_be_visible()


def card(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name=name, exact=True)


def slot(*, minutes: float) -> dict[str, str]:
    """A timeslot that begins in a moment."""
    start = SystemClock().now() + timedelta(seconds=1)
    return {
        "start": start.isoformat(),
        "end": (start + timedelta(minutes=minutes)).isoformat(),
        "zone": "UTC",
    }


async def test_the_nodes_and_steps_of_a_lab_are_followed_while_it_boots(
    page: Page, plane: LonePlane, desk: LabletDesk
) -> None:
    session = await desk.create(await desk.define())
    await desk.place(session)
    await open_session(page, plane, session)
    lab = card(page, "Lab")
    await expect(lab.locator('[data-step="import"]')).to_have_attribute("data-status", "pending")
    await desk.import_lab(session)
    await expect(lab.locator('[data-step="import"]')).to_have_attribute("data-status", "completed")

    boot = {"step": "boot", "status": "running", "attempts": 2}
    refused = {"step": "start", "status": "failed", "attempts": 1, "detail": "not enough licenses"}
    await desk.report_progress(session, steps=[boot, refused], nodes={"pc1": "STARTED", "sw1": "BOOTED"})
    await expect(lab.locator('[data-step="boot"]')).to_contain_text("try 2 of 3")
    await expect(lab.locator('[data-step="start"]')).to_contain_text("not enough licenses")
    await expect(lab.locator('.boot-node[data-node="pc1"]')).to_contain_text("started")
    await expect(lab.locator('.boot-node[data-node="pc1"] .boot-time')).to_have_text(re.compile(r"^\d+ s$"))
    await desk.report_progress(session, nodes={"pc1": "BOOTED", "sw1": "BOOTED"})
    await expect(lab).to_contain_text("2 of 2 nodes booted")
    await expect(lab.locator('.boot-node[data-node="pc1"]')).to_have_attribute("data-state", "BOOTED")


async def test_people_reach_the_lab_from_its_page_while_it_is_in_use(
    page: Page, plane: LonePlane, desk: LabletDesk
) -> None:
    session = await desk.create(await desk.define())
    await open_session(page, plane, session)
    access = card(page, "Access")
    await expect(access).to_contain_text("when every node has booted")
    await desk.run(session)
    port = access.locator('[data-port="pc1"]')
    await expect(port.get_by_role("link", name="Open pc1")).to_have_attribute(
        "href", f"telnet://{FIRST}:{PORT}"
    )
    await expect(port.get_by_title(f"Copy {FIRST}:{PORT}")).to_be_visible()
    await expect(access.get_by_role("link", name="Open the lab in CML")).to_have_attribute(
        "href", f"https://{FIRST}/lab/lab-1"
    )
    await desk.give_address(SECOND)
    await expect(port.get_by_role("link", name="Open pc1")).to_have_attribute(
        "href", f"telnet://{SECOND}:{PORT}"
    )
    await desk.end(session)
    await desk.move(session, "stopping")
    await expect(access).to_contain_text("no longer for use")
    await expect(port).to_have_count(0)


async def test_a_password_is_shown_on_request_only_and_stays_out_of_the_url(
    page: Page, plane: LonePlane, desk: LabletDesk
) -> None:
    definition = await desk.define()
    await desk.give_login(definition, "a-word-to-hide")
    session = await desk.create(definition)
    await desk.run(session)
    await open_session(page, plane, session)
    access = card(page, "Access")
    await expect(access).to_contain_text("cisco")
    assert "a-word-to-hide" not in await page.content()
    await access.get_by_role("button", name="Show the password").click()
    await expect(access).to_contain_text("a-word-to-hide")
    assert "a-word-to-hide" not in page.url
    await access.get_by_role("button", name="Hide the password").click()
    await expect(access).not_to_contain_text("a-word-to-hide")
    await access.get_by_role("button", name="Show the password").click()
    await page.get_by_role("link", name="← Sessions").click()
    await expect(access).to_have_count(0)
    await page.go_back()
    await expect(access).to_contain_text("cisco")
    assert "a-word-to-hide" not in await page.content()


@pytest.mark.provokes("409 GET")
async def test_an_access_that_is_refused_says_why_and_is_fetched_again(
    page: Page, plane: LonePlane, desk: LabletDesk
) -> None:
    session = await desk.create(await desk.define())
    await desk.run(session)
    refusal = {
        "type": "urn:lcm:problem:not-ready-yet",
        "detail": "worker live has no address yet",
        "status": 409,
    }
    await page.route("**/access", lambda route: route.fulfill(status=409, json=refusal))
    await open_session(page, plane, session)
    access = card(page, "Access")
    await expect(access).to_contain_text("Not ready yet. Worker live has no address yet.")
    await page.unroute("**/access")
    await access.get_by_role("button", name="Try again").click()
    await expect(access.locator('[data-port="pc1"]')).to_be_visible()


async def test_the_owner_is_warned_of_the_end_on_every_page_and_extends(
    page: Page, plane: LonePlane, desk: LabletDesk
) -> None:
    session = await desk.create(await desk.define(), timeslot=slot(minutes=9))
    await desk.boot(session)
    await page.goto(f"{plane.url}/?token={plane.token}#/sessions")
    await page.wait_for_selector('[data-connection="live"]')
    await expect(page.locator(f'[data-session-id="{session["id"]}"]')).to_be_visible()
    await desk.warn_of_end(session)
    notice = page.locator(".toast-ending")
    await expect(notice).to_contain_text("Ends in 9 min")
    tile = page.get_by_role("region", name="Sessions by state").get_by_role("button", name="Ending soon")
    await expect(tile).to_contain_text("1")
    await expect(page.locator('.row-session .countdown[data-soon="true"]')).to_contain_text("min left")

    await notice.get_by_role("link", name="basics").click()
    await expect(notice).to_have_count(0)
    timeslot = card(page, "Timeslot")
    await expect(timeslot).to_contain_text("Ends in")
    await timeslot.get_by_role("button", name="Extend…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Extend").click()
    await expect(timeslot).not_to_contain_text("Ends in")
    await expect(notice).to_have_count(0)


async def test_a_lab_that_was_stopped_outside_is_started_again(
    page: Page, plane: LonePlane, desk: LabletDesk
) -> None:
    session = await desk.create(await desk.define())
    await desk.run(session)
    await open_session(page, plane, session)
    lab = card(page, "Lab")
    run = {"step": "run", "status": "failed", "attempts": 0, "detail": "lab_stopped_outside: it was stopped"}
    await desk.report_progress(session, steps=[run])
    await lab.get_by_role("button", name="Start the lab again").click()
    await expect(lab.get_by_role("button", name="Start requested")).to_be_disabled()
    await desk.report_progress(session, steps=[{"step": "run", "status": "running", "attempts": 1}])
    await expect(lab.get_by_role("button")).to_have_count(0)


async def test_a_removal_that_is_stuck_is_abandoned_by_an_admin(
    page: Page, plane: LonePlane, desk: LabletDesk
) -> None:
    session = await desk.create(await desk.define())
    await desk.run(session)
    await desk.end(session)
    await desk.move(session, "stopping")
    await open_session(page, plane, session)
    wipe = {"step": "wipe", "status": "failed", "attempts": 3, "detail": "the lab is locked"}
    await desk.report_progress(session, steps=[wipe], cleanup={"is_stuck": True})
    lab = card(page, "Lab")
    await expect(lab).to_contain_text("CML refuses the removal again and again")
    await expect(lab.locator('[data-step="wipe"]')).to_contain_text("the lab is locked")
    await page.get_by_role("button", name="Abandon…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Abandon the lab").click()
    await expect(dialog).to_contain_text("Enter a reason")
    await dialog.get_by_label("Reason").fill("the disk of the worker is full")
    await dialog.get_by_role("button", name="Abandon the lab").click()
    await expect(page.locator('[data-step="ended"]')).to_have_attribute("aria-current", "step")
    await expect(lab).to_contain_text("It was abandoned")
    await expect(page.get_by_test_id("history")).to_contain_text("the disk of the worker is full")


async def test_the_sheet_of_a_class_is_printed_with_the_passwords_and_moves_for_nothing(
    page: Page, plane: LonePlane, desk: LabletDesk
) -> None:
    definition = await desk.define()
    await desk.give_login(definition, "a-word-to-hide")
    batch = await desk.create_class(definition, "ada", "grace")
    await desk.run(batch["sessions"][0])
    await page.add_init_script("window.print = () => { window.printed = document.body.innerText; }")
    await page.goto(f"{plane.url}/?token={plane.token}#/sessions/classes/{batch['id']}")
    seats = page.locator(".seat")
    await expect(seats.nth(0)).to_contain_text(f"{FIRST}:{PORT}")
    await expect(seats.nth(1)).to_contain_text("it waits")
    note = page.locator(".sheet-note")
    await expect(note).to_contain_text("1 of 2 seats can be used")
    assert "a-word-to-hide" not in await page.content()
    await page.get_by_role("button", name="Print…").click()
    assert "cisco / a-word-to-hide" in await page.evaluate("window.printed")
    await expect(seats.nth(0)).not_to_contain_text("a-word-to-hide")

    places = await page.locator("main").evaluate(PLACES)
    await desk.end(batch["sessions"][1])
    await expect(note).to_contain_text("refresh the sheet")
    assert await page.locator("main").evaluate(PLACES) == pytest.approx(places, abs=0.99)
    await page.get_by_role("button", name="Refresh").click()
    await expect(seats.nth(1)).to_contain_text("Cancelled")
    async with page.expect_download() as file:
        await page.get_by_role("link", name="CSV").click()
    assert (await file.value).suggested_filename == f"access-{batch['id']}.csv"


async def test_what_was_kept_of_a_lab_is_downloaded_from_its_page(
    page: Page, plane: LonePlane, desk: LabletDesk
) -> None:
    session = await desk.create(await desk.define(collect="configs"))
    await desk.run(session)
    await open_session(page, plane, session)
    await desk.end(session)
    await desk.move(session, "collecting")
    await desk.keep_evidence(session, "lab: {title: kept}")
    evidence = card(page, "Evidence")
    await expect(evidence).to_contain_text("Topology with running configurations")
    async with page.expect_download() as file:
        await evidence.get_by_role("link", name="Download evidence 1").click()
    assert Path(await (await file.value).path()).read_text() == "lab: {title: kept}"


@SCREENS
async def test_nothing_that_arrives_moves_a_control_of_a_session_in_use(
    page: Page, plane: LonePlane, desk: LabletDesk, screen: ViewportSize
) -> None:
    definition = await desk.define(max_duration_minutes=9)
    await desk.give_login(definition, "a-word-to-hide")
    session = await desk.create(definition)
    await desk.run(session)
    await page.set_viewport_size(screen)
    await open_session(page, plane, session)
    access, controls = card(page, "Access"), page.get_by_role("group", name="Controls")
    await expect(access.locator('[data-port="pc1"]')).to_be_visible()
    places = [await place.evaluate(PLACES) for place in (controls, access)]

    await desk.report_progress(session, nodes={f"a-long-name-of-node-{n}": "STARTED" for n in range(20)})
    await expect(card(page, "Lab")).to_contain_text("0 of 20")
    await desk.warn_of_end(session)
    await expect(card(page, "Timeslot")).to_contain_text("Ends in")
    await desk.give_address(SECOND)
    await expect(access.locator('[data-port="pc1"]').get_by_role("link")).to_have_attribute(
        "href", f"telnet://{SECOND}:{PORT}"
    )
    for place, before in zip((controls, access), places, strict=True):
        assert await place.evaluate(PLACES) == pytest.approx(before, abs=0.99)


@SCREENS
async def test_the_controls_of_a_session_stay_while_its_lab_is_brought_up(
    page: Page, plane: LonePlane, desk: LabletDesk, screen: ViewportSize
) -> None:
    session = await desk.create(await desk.define())
    await page.set_viewport_size(screen)
    await open_session(page, plane, session)
    controls = page.get_by_role("group", name="Controls")
    places = await controls.evaluate(PLACES)
    await desk.place(session)
    await expect(page.locator('[data-step="starting"]')).to_have_attribute("aria-current", "step")
    assert await controls.evaluate(PLACES) == pytest.approx(places, abs=0.99)
    await desk.import_lab(session)
    await desk.report_progress(session, nodes={"pc1": "BOOTED"})
    await desk.move(session, "ready")
    await desk.move(session, "running")
    await expect(card(page, "Access").locator('[data-port="pc1"]')).to_be_visible()
    assert await controls.evaluate(PLACES) == pytest.approx(places, abs=0.99)
