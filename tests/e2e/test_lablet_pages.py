"""Lablet sessions as users see, book and end them; the test acts as the scheduler."""

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, Route, expect

from lcm.core.clock import SystemClock
from support.lablet_desk import LAB, LabletDesk
from support.lone_plane import LonePlane

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def desk(plane: LonePlane) -> LabletDesk:
    return await LabletDesk(plane).start()


async def open_page(page: Page, plane: LonePlane, place: str = "#/sessions") -> None:
    await page.emulate_media(reduced_motion="reduce")
    await page.goto(f"{plane.url}/?token={plane.token}{place}")
    await page.wait_for_selector('[data-connection="live"]')
    await page.evaluate("window.loadedOnce = true")


def row(page: Page, session: Any) -> Locator:
    return page.locator(f'[data-session-id="{session["id"]}"]')


def tile(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name="Sessions by state").get_by_role("button", name=name)


def timeslot(hours: float, length: float = 0.5) -> dict[str, str]:
    start = (SystemClock().now() + timedelta(hours=hours)).replace(microsecond=0)
    return {
        "start": start.isoformat(),
        "end": (start + timedelta(hours=length)).isoformat(),
        "zone": "Asia/Tokyo",
    }


async def test_a_session_appears_says_why_it_waits_is_placed_and_ends_without_a_reload(
    page: Page, plane: LonePlane, desk: LabletDesk
) -> None:
    await open_page(page, plane)
    await expect(page.get_by_role("heading", name="No sessions yet")).to_be_visible()
    session = await desk.create(await desk.define())
    await expect(row(page, session)).to_have_attribute("data-status", "pending_scheduling")
    await expect(tile(page, "Waiting")).to_contain_text("1")

    await desk.report_waiting(session, "No worker has 1 CPU free: live takes it at 10:00.")
    await expect(row(page, session)).to_contain_text("No worker has 1 CPU free")
    await desk.place(session)
    await expect(row(page, session)).to_have_attribute("data-status", "scheduled")
    await expect(row(page, session).get_by_role("link", name="live")).to_be_visible()
    await expect(tile(page, "Starting")).to_contain_text("1")

    waiting = await desk.create(await desk.define("other"))
    await desk.end(waiting)
    await expect(row(page, waiting)).to_have_count(0)
    await page.get_by_label("Status", exact=True).select_option("terminated")
    await expect(row(page, waiting)).to_contain_text("Cancelled")
    assert await page.evaluate("window.loadedOnce") is True


async def test_an_older_answer_does_not_undo_a_newer_event(
    page: Page, plane: LonePlane, desk: LabletDesk
) -> None:
    session = await desk.create(await desk.define())
    path = f"**/api/lablet-sessions/{session['id']}"
    await open_page(page, plane)
    await expect(row(page, session)).to_be_visible()

    async def answer_late(route: Route) -> None:
        old = await route.fetch()
        await desk.place(session)
        await expect(page.locator(".session-lead .badge")).to_have_text("Scheduled")
        await route.fulfill(response=old)

    await page.route(path, answer_late)
    async with page.expect_response(path) as late:
        await page.goto(f"{plane.url}/#/sessions/{session['id']}")
    assert (await (await late.value).json())["status"] == "pending_scheduling"
    await page.evaluate("new Promise(requestAnimationFrame)")
    await expect(page.locator(".session-lead .badge")).to_have_text("Scheduled")


async def test_the_filter_is_in_the_url_and_survives_a_reload(
    page: Page, plane: LonePlane, desk: LabletDesk
) -> None:
    basics, other = await desk.define(), await desk.define("other")
    first, booked = await desk.create(basics), await desk.create(other, timeslot=timeslot(30))
    await open_page(page, plane)
    await expect(row(page, first)).to_be_visible()
    await tile(page, "Booked").click()
    await page.get_by_label("Definition").select_option("other")
    await page.get_by_role("searchbox").fill("oth")
    await expect(page).to_have_url(re.compile(r"show=is-booked.*q=oth.*definition=other"))
    await page.reload()
    await expect(row(page, booked)).to_contain_text("Asia/Tokyo")
    await expect(row(page, first)).to_have_count(0)
    await expect(tile(page, "Booked")).to_have_attribute("aria-pressed", "true")
    await row(page, booked).get_by_role("link", name="other").click()
    await page.get_by_role("link", name="← Sessions").click()
    await expect(page).to_have_url(re.compile(r"definition=other"))
    await page.get_by_role("searchbox").fill("nothing like it")
    await page.get_by_role("button", name="Clear the filters").click()
    await expect(row(page, first)).to_be_visible()


async def test_several_sessions_are_extended_and_ended_after_a_summary(
    page: Page, plane: LonePlane, desk: LabletDesk
) -> None:
    definition = await desk.define(max_duration_minutes=60)
    booked = [await desk.create(definition, timeslot=timeslot(30)) for _ in range(2)]
    at_once = await desk.create(definition)
    await open_page(page, plane)
    await page.get_by_label("Select all listed sessions").check()
    bar = page.get_by_role("region", name="Selection")
    await expect(bar).to_contain_text("3 selected")

    await bar.get_by_role("button", name="Extend…").click()
    dialog = page.get_by_role("dialog", name="Extend 2 sessions")
    await dialog.get_by_text("15 min more").click()
    await dialog.get_by_role("button", name="Extend").click()
    await expect(dialog).to_have_count(0)
    later = (await desk.get(booked[0]))["timeslot"]["end"]
    assert later > booked[0]["timeslot"]["end"]

    await page.get_by_label("Select all listed sessions").check()
    await bar.get_by_role("button", name="End…", exact=True).click()
    dialog = page.get_by_role("dialog", name="End 3 sessions?")
    await expect(dialog).to_contain_text("3 sessions that wait are cancelled")
    await dialog.get_by_role("button", name="End 3 sessions").click()
    await expect(page.get_by_role("heading", name="Every session has ended")).to_be_visible()
    assert (await desk.get(at_once))["status"] == "terminated"


async def test_the_list_is_used_with_the_keyboard(page: Page, plane: LonePlane, desk: LabletDesk) -> None:
    definition = await desk.define()
    sessions = [await desk.create(definition) for _ in range(2)]
    await open_page(page, plane)
    await expect(row(page, sessions[1])).to_be_visible()
    for key in ("j", "j", "x"):
        await page.keyboard.press(key)
    await expect(row(page, sessions[1])).to_have_attribute("data-selected", "true")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("region", name="Selection")).to_have_count(0)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("region", name="Why and when")).to_be_visible()
    await page.keyboard.press("2")
    await page.keyboard.press("c")
    await expect(page.get_by_role("heading", name="New session or class")).to_be_visible()
    await page.keyboard.press("2")
    await expect(page.get_by_role("table")).to_be_visible()
    await page.keyboard.press("/")
    await expect(page.get_by_role("searchbox")).to_be_focused()


@pytest.mark.provokes("404 GET /api/lablet-sessions/unknown")
async def test_the_page_of_a_session_says_why_and_when_and_follows_it_to_its_end(
    page: Page, plane: LonePlane, desk: LabletDesk
) -> None:
    session = await desk.create(await desk.define())
    await open_page(page, plane, f"#/sessions/{session['id']}")
    why = page.get_by_role("region", name="Why and when")
    await expect(why.get_by_role("region", name="Workers").get_by_role("link", name="live")).to_be_visible()
    await expect(why).to_contain_text("needs running and ready, has running, CML does not answer")
    await expect(page.locator('[data-step="waiting"]')).to_have_attribute("aria-current", "step")
    await desk.place(session)
    await expect(page.locator('[data-step="starting"]')).to_have_attribute("aria-current", "step")
    await expect(page.get_by_test_id("history").locator('[data-to="scheduled"]')).to_be_visible()
    await expect(page.get_by_role("region", name="Needs")).to_contain_text("on live")

    other = await desk.create(await desk.define("other"))
    await page.goto(f"{plane.url}/#/sessions/{other['id']}")
    await page.get_by_role("button", name="End…", exact=True).click()
    await page.get_by_role("dialog").get_by_role("button", name="End session").click()
    await expect(page.locator('[data-step="ended"]')).to_contain_text("Cancelled")
    await expect(page.get_by_role("button", name="End…", exact=True)).to_be_disabled()
    await page.goto(f"{plane.url}/#/sessions/unknown")
    await expect(page.get_by_role("heading", name="Session not found")).to_be_visible()


async def test_a_class_is_previewed_and_created(page: Page, plane: LonePlane, desk: LabletDesk) -> None:
    await desk.define(max_duration_minutes=90)
    await open_page(page, plane, "#/sessions/new")
    await page.get_by_role("radio", name="basics").check(force=True)
    preview = page.get_by_role("region", name="Preview")
    await expect(preview.locator("[data-verdict]")).to_be_visible()
    await page.get_by_label("Seats", exact=True).fill("4")
    await page.get_by_label("Name of the class").fill("CCNA Monday")
    await page.get_by_label("In a timeslot").check(force=True)
    await page.get_by_label("Start").fill(await _local(page, hours=30))
    await page.get_by_label("Length").select_option("90")
    await expect(preview).to_contain_text("4")
    await page.get_by_role("button", name="Create 4 sessions").click()
    await expect(page.locator(".row-session")).to_have_count(4)
    await expect(page.locator(".row-session").first).to_contain_text("CCNA Monday · seat 1 of 4")
    created = (await plane.admin.get("/api/lablet-sessions"))["items"]
    zone = await page.evaluate("Intl.DateTimeFormat().resolvedOptions().timeZone")
    assert {session["timeslot"]["zone"] for session in created} == {zone}


async def _local(page: Page, *, hours: float) -> str:
    """What a user types into a field for a time so many hours ahead."""
    text: str = await page.evaluate(
        """hours => {
          const moment = new Date(Date.now() + hours * 3_600_000);
          return new Date(moment - moment.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
        }""",
        hours,
    )
    return text


@pytest.mark.provokes("409 POST", "422 POST")
async def test_an_error_of_the_api_is_shown_at_its_field_in_its_words(
    page: Page, plane: LonePlane, desk: LabletDesk
) -> None:
    definition = await desk.define()
    await desk.create(definition, reservation_id="r-7")
    await open_page(page, plane, f"#/sessions/new?definition={definition['id']}")
    form = page.get_by_role("form", name="New session")
    await form.get_by_text("Region and reservation").click()
    await form.get_by_label("Reservation id").fill("r-7")
    await form.get_by_role("button", name="Create session").click()
    field = form.locator('[data-field="reservation"]')
    await expect(field.get_by_role("alert")).to_contain_text("use another reservation id")
    await expect(form.get_by_label("Reservation id")).to_be_focused()

    await form.get_by_label("Reservation id").fill("")
    await form.get_by_label("In a timeslot").check(force=True)
    await form.get_by_label("Start").fill(await _local(page, hours=-3))
    await form.get_by_role("button", name="Create session").click()
    await expect(form.locator('[data-field="when"]').get_by_role("alert")).to_contain_text(
        "starts in the past"
    )
    assert len((await plane.admin.get("/api/lablet-sessions"))["items"]) == 1


@pytest.mark.provokes("net::ERR_FAILED POST /api/lablet-sessions")
async def test_a_request_that_is_sent_again_creates_nothing_twice(
    page: Page, plane: LonePlane, desk: LabletDesk
) -> None:
    definition = await desk.define()
    await open_page(page, plane, f"#/sessions/new?definition={definition['id']}")

    async def lose_the_answer(route: Route) -> None:
        await route.fetch()
        await route.abort()

    await page.route("**/api/lablet-sessions", lose_the_answer, times=1)
    create = page.get_by_role("button", name="Create session")
    await create.click()
    await expect(page.get_by_role("alert")).to_contain_text("does not answer")
    await create.click()
    await expect(page.get_by_role("region", name="Why and when")).to_be_visible()
    assert len((await plane.admin.get("/api/lablet-sessions"))["items"]) == 1


@pytest.mark.provokes("422 POST")
async def test_a_definition_is_added_from_a_topology_with_its_mistakes_by_line(
    page: Page, plane: LonePlane, tmp_path: Path
) -> None:
    await open_page(page, plane, "#/sessions/new")
    await page.get_by_role("button", name="Add definition…").click()
    dialog = page.get_by_role("dialog")
    analysis = dialog.get_by_test_id("analysis")
    await dialog.get_by_label("Topology", exact=True).fill(LAB.replace("label: pc1", "name: pc1"))
    await expect(analysis.get_by_text("line 5", exact=True)).to_be_visible()
    file = tmp_path / "branch office.yaml"
    file.write_text(LAB)
    await dialog.get_by_label("File of the topology").set_input_files(file)
    await expect(analysis).to_contain_text("Basics: 1 CPU")
    await expect(analysis).to_contain_text("pc1_serial")
    await expect(dialog.get_by_label("Name", exact=True)).to_have_value("branch-office")
    await dialog.get_by_role("button", name="Create definition").click()
    await expect(page.get_by_role("radio", name="branch-office")).to_be_checked()


PLACES = """
form => [...form.querySelectorAll("button, input, select")].flatMap((control) => {
  const { x, y, width, height } = control.getBoundingClientRect();
  return [x, y, width, height];
})
"""


async def test_a_preview_that_arrives_moves_nothing_that_can_be_pressed(
    page: Page, plane: LonePlane, desk: LabletDesk
) -> None:
    definition = await desk.define()
    await open_page(page, plane, f"#/sessions/new?definition={definition['id']}")
    form = page.get_by_role("form", name="New session")
    verdict = page.locator("[data-verdict]")
    await expect(verdict).to_be_visible()
    answers = {"over": ["A", "B", "C"], "fits": []}
    places: list[float] = await form.evaluate(PLACES)
    for answer, names in answers.items():
        await page.route("**/api/scheduling/preview", _verdict(answer, len(names)))
        await page.get_by_label("Seats", exact=True).fill("1")
        await page.get_by_label("Seats", exact=True).dispatch_event("input")
        await expect(verdict).to_have_attribute("data-verdict", answer)
        assert await form.evaluate(PLACES) == pytest.approx(places, abs=0.99)


async def test_no_control_of_a_session_moves_when_updates_arrive(
    page: Page, plane: LonePlane, desk: LabletDesk
) -> None:
    session = await desk.create(await desk.define())
    await open_page(page, plane, f"#/sessions/{session['id']}")
    controls = page.get_by_role("group", name="Controls")
    why = page.get_by_role("region", name="Why and when")
    await expect(why).to_contain_text("needs running and ready")
    places: list[float] = await controls.evaluate(PLACES)
    await desk.report_waiting(session, "A long reason. " * 40)
    await desk.place(session)
    await expect(page.locator('[data-step="starting"]')).to_have_attribute("aria-current", "step")
    assert await controls.evaluate(PLACES) == pytest.approx(places, abs=0.99)


async def test_a_press_on_a_session_that_moves_is_a_press_on_that_session(
    page: Page, plane: LonePlane, desk: LabletDesk
) -> None:
    definition = await desk.define("later")
    booked = await desk.create(definition, timeslot=timeslot(30))
    await open_page(page, plane)
    end = row(page, booked).get_by_role("button", name="End later 1.0.0")
    box = await end.bounding_box()
    assert box is not None
    await page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    await page.mouse.down()
    above = await desk.create(await desk.define("at-once"))
    await expect(row(page, above)).to_be_visible()
    await page.mouse.up()
    await expect(page.get_by_role("dialog", name="End later 1.0.0")).to_be_visible()


def _verdict(verdict: str, slots: int) -> Any:
    async def answer(route: Route) -> None:
        real = await (await route.fetch()).json()
        nearest = [timeslot(30 + number) for number in range(slots)]
        text = "A long sentence about the room in this timeslot. " * slots
        forecast = {**real["forecast"], "verdict": verdict, "nearest": nearest, "text": text}
        await route.fulfill(body=json.dumps({**real, "verdict": verdict, "text": text, "forecast": forecast}))

    return answer


async def test_a_nearest_timeslot_is_taken_over_by_a_click(
    page: Page, plane: LonePlane, desk: LabletDesk
) -> None:
    definition = await desk.define()
    await page.route("**/api/scheduling/preview", _verdict("over", 2))
    await open_page(page, plane, f"#/sessions/new?definition={definition['id']}")
    nearest = page.get_by_role("group", name="Nearest timeslots that fit")
    await nearest.get_by_role("button").first.click()
    await expect(page.get_by_label("In a timeslot")).to_be_checked()
    await expect(page.get_by_label("Length")).to_have_value("30")


async def test_a_thousand_sessions_are_listed(page: Page, plane: LonePlane, desk: LabletDesk) -> None:
    one = await desk.create(await desk.define())
    many = [{**one, "id": f"s{number:04}", "owner_id": f"student-{number}"} for number in range(1_000)]

    async def answer(route: Route) -> None:
        wants_ended = "status=archived" in route.request.url
        ended = [{**session, "status": "archived"} for session in many]
        await route.fulfill(json={"items": ended if wants_ended else [], "next": None})

    await page.route("**/api/lablet-sessions?*", answer)
    await open_page(page, plane, "#/sessions?show=all")
    await expect(page.get_by_role("table")).to_have_attribute("aria-rowcount", "1002")
    await expect(page.locator(".row-session")).to_have_count(1_001)
    await page.get_by_role("searchbox").fill("student-999")
    await expect(page.locator(".row-session")).to_have_count(1)


@pytest.mark.provokes("503 GET", "net::ERR_FAILED GET /api/events/stream")
async def test_the_list_says_what_is_wrong_when_it_cannot_be_loaded(page: Page, plane: LonePlane) -> None:
    await page.route(
        "**/api/lablet-sessions?*",
        lambda route: route.fulfill(status=503, json={"detail": "The store does not answer."}),
    )
    await page.route("**/api/events/stream?*", lambda route: route.abort())
    await page.goto(f"{plane.url}/?token={plane.token}#/sessions")
    await expect(page.get_by_role("alert")).to_contain_text("The store does not answer.")
    await page.unroute("**/api/lablet-sessions?*")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.get_by_role("heading", name="No sessions yet")).to_be_visible()


async def test_a_worker_lists_its_sessions_and_ports(page: Page, plane: LonePlane, desk: LabletDesk) -> None:
    session = await desk.create(await desk.define())
    await open_page(page, plane, f"#/workers/{plane.worker_id}")
    await desk.place(session)
    section = page.get_by_role("complementary", name="live").get_by_role("region", name="Sessions")
    await expect(section).to_contain_text("1 port used")
    await section.get_by_role("link", name="basics 1.0.0").click()
    await expect(page.get_by_role("region", name="Why and when")).to_be_visible()
