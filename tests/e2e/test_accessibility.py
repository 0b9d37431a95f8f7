"""axe-core finds no violation in any view of the dashboard, light or dark."""

from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.async_api import Page, ViewportSize, expect

from lcm.core.clock import SystemClock
from support.api import person
from support.lablet_desk import LAB, LabletDesk
from support.lone_plane import LonePlane

pytestmark = pytest.mark.asyncio(loop_scope="module")

AXE = Path(__file__).parents[2] / "ui/node_modules/axe-core/axe.min.js"
RUN_AXE = """
async () => {
  const rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
  const { violations } = await axe.run(document, { runOnly: rules });
  return violations.flatMap(({ id, nodes }) => nodes.map((node) => [id, node.html, node.failureSummary]));
}
"""

Scheme = Literal["light", "dark"]
SCHEMES = pytest.mark.parametrize("scheme", ["light", "dark"])
PHONE: ViewportSize = {"width": 390, "height": 844}
WAYS = {
    "starting": ("provisioning", "starting"),
    "running": ("provisioning", "starting", "running"),
    "stopping": ("provisioning", "starting", "running", "stopping"),
    "stopped": ("provisioning", "starting", "running", "stopping", "stopped"),
    "failed": ("provisioning", "starting", "running", "failed"),
    "terminated": ("provisioning", "starting", "running", "failed", "terminating", "terminated"),
}


async def open_page(page: Page, plane: LonePlane, scheme: Scheme, place: str = "") -> None:
    # An animation passes through other colors.
    await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    await page.goto(f"{plane.url}/?token={plane.token}{place}")
    await page.wait_for_selector('[data-connection="live"]')


async def violations(page: Page) -> list[Any]:
    """Return what axe-core finds once all animations have finished."""
    await page.evaluate("Promise.allSettled(document.getAnimations().map(({ finished }) => finished))")
    await page.evaluate(AXE.read_text("utf-8"))
    found: list[Any] = await page.evaluate(RUN_AXE)
    return found


async def add_worker_that_is(plane: LonePlane, status: str) -> None:
    worker_id = (await plane.admin.create(f"is-{status}"))["id"]
    for version, step in enumerate(WAYS[status], start=1):
        report = {"status": step, "reason": "test", "expected_version": version}
        await plane.accepted(f"/{worker_id}/status", report)


async def report_labs_and_load(plane: LonePlane) -> None:
    """Report a lab with nodes in each state, and load in each color."""
    lab = {"element_type": "lab", "element_id": "lab-1", "lab_id": "lab-1", "data": {"title": "BGP"}}
    await plane.accepted("/{id}/lab-state-change", {**lab, "event": "STARTED"})
    for state in ("QUEUED", "STARTED", "BOOTED", "STOPPED", "DISCONNECTED"):
        node = {"element_type": "node", "element_id": state, "data": {"label": "R1"}}
        await plane.accepted("/{id}/lab-state-change", {**lab, **node, "event": state})
    load = {"cpu_utilization": 95, "memory_utilization": 80, "disk_utilization": 61}
    since = SystemClock().now()
    await plane.accepted(
        "/metrics", {"samples": [plane.sample(at, since=since, **load) for at in (-20, -10, 0)]}
    )


@pytest.mark.provokes("401 GET /api/session", "401 POST /api/session")
@SCHEMES
async def test_the_sign_in_is_accessible(page: Page, plane: LonePlane, scheme: Scheme) -> None:
    await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    await page.goto(plane.url)
    field = page.get_by_label("Access token")
    await expect(field).to_be_visible()
    assert await violations(page) == []
    await field.fill("guess")
    await field.press("Enter")
    await expect(page.get_by_text("not valid")).to_be_visible()
    assert await violations(page) == []


@SCHEMES
async def test_the_fleet_is_accessible(page: Page, plane: LonePlane, scheme: Scheme) -> None:
    for status in WAYS:
        await add_worker_that_is(plane, status)
    await open_page(page, plane, scheme)
    await page.get_by_label("Show terminated").check()
    await report_labs_and_load(plane)
    await expect(page.locator("[data-worker-name]")).to_have_count(1 + len(WAYS))
    await expect(page.locator(".live-badge")).to_be_visible()
    assert await violations(page) == []
    await page.set_viewport_size(PHONE)
    assert await violations(page) == []
    await page.get_by_role("searchbox").fill("nothing has this name")
    await expect(page.get_by_role("heading", name="No matching workers")).to_be_visible()
    assert await violations(page) == []


@pytest.mark.provokes("404 GET /api/workers/unknown-id")
@SCHEMES
async def test_a_worker_is_accessible(page: Page, plane: LonePlane, scheme: Scheme) -> None:
    await report_labs_and_load(plane)
    await open_page(page, plane, scheme, f"#/workers/{plane.worker_id}")
    panel = page.get_by_role("complementary", name="live")
    await expect(panel.get_by_test_id("timeline")).to_be_visible()
    await expect(panel.locator('[data-node-id="QUEUED"]')).to_be_visible()
    assert await violations(page) == []
    await page.set_viewport_size(PHONE)
    assert await violations(page) == []
    worker = await plane.admin.get(f"/api/workers/{plane.worker_id}")
    report = {"status": "failed", "reason": "launch failed", "expected_version": worker["version"]}
    await plane.accepted("/{id}/status", report)
    await expect(panel.get_by_role("button", name="Retry")).to_be_enabled()
    assert await violations(page) == []
    await page.goto(f"{plane.url}/#/workers/unknown-id")
    await expect(page.get_by_role("heading", name="Worker not found")).to_be_visible()
    assert await violations(page) == []


@SCHEMES
@pytest.mark.parametrize("name", ["Scaling", "Cost"])
async def test_the_other_pages_are_accessible(
    page: Page, plane: LonePlane, scheme: Scheme, name: str
) -> None:
    await open_page(page, plane, scheme, f"#/{name.lower()}")
    await expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
    await expect(page.get_by_role("link", name="live", exact=True)).to_be_visible()
    assert await violations(page) == []
    await page.set_viewport_size(PHONE)
    assert await violations(page) == []


@SCHEMES
async def test_the_audit_page_shows_who_did_what_and_is_accessible(
    page: Page, plane: LonePlane, scheme: Scheme
) -> None:
    async with person(plane.url, "a wrong token") as stranger:
        assert (await stranger.call("GET", "/api/workers"))[0] == 401
    await plane.admin.call("POST", "/api/tokens", {"name": "canary", "role": "operator"})
    await open_page(page, plane, scheme, "#/audit")
    log = page.get_by_test_id("audit")
    await expect(log).to_contain_text("POST /api/tokens")
    await expect(log).to_contain_text("name: canary")
    await expect(log).to_contain_text("GET /api/workers")
    assert await violations(page) == []
    await page.set_viewport_size(PHONE)
    assert await violations(page) == []
    await page.get_by_label("Show outcomes").select_option("Refused")
    await expect(log).not_to_contain_text("POST /api/tokens")
    await expect(log).to_contain_text("authenticate")


@SCHEMES
async def test_the_pages_of_lablet_sessions_are_accessible(
    page: Page, plane: LonePlane, scheme: Scheme
) -> None:
    desk = await LabletDesk(plane).start()
    definition = await desk.define()
    waiting, placed = await desk.create(definition), await desk.create(definition)
    await desk.report_waiting(waiting, "No worker has 1 CPU free.")
    await open_page(page, plane, scheme, "#/sessions")
    assert await violations(page) == []  # while it is loading, too
    await page.get_by_label("Select all listed sessions").check()
    await check_dialogs(page, "End…")
    await page.set_viewport_size(PHONE)
    assert await violations(page) == []

    await page.goto(f"{plane.url}/#/sessions/{waiting['id']}")
    await expect(page.get_by_role("region", name="Workers")).to_be_visible()
    assert await violations(page) == []
    await desk.place(placed)
    await page.goto(f"{plane.url}/#/sessions/{placed['id']}")
    await expect(page.get_by_role("region", name="Needs")).to_contain_text("on live")
    assert await violations(page) == []


@SCHEMES
async def test_a_session_with_a_lab_is_accessible(page: Page, plane: LonePlane, scheme: Scheme) -> None:
    desk = await LabletDesk(plane).start()
    await desk.give_address("192.0.2.7")
    first, second = [await desk.define(name, max_duration_minutes=9) for name in ("a", "b")]
    await desk.give_login(first, "a-word-to-hide")
    session, other = await desk.create(first), await desk.create(second)
    await desk.run(session)
    await desk.run(other)
    boot = {"step": "boot", "status": "failed", "attempts": 2, "detail": "not booted in time"}
    await desk.report_progress(
        session, steps=[boot], nodes={"r1": "STARTED", "r2": "BOOTED", "r3": "STOPPED"}
    )
    for each in (session, other):
        await desk.warn_of_end(each)
    await open_page(page, plane, scheme, f"#/sessions/{session['id']}")
    await expect(page.get_by_role("button", name="Show the password")).to_be_visible()
    await expect(page.locator(".toast-ending")).to_be_visible()
    assert await violations(page) == []
    await page.set_viewport_size(PHONE)
    assert await violations(page) == []

    await desk.end(session)
    await desk.move(session, "stopping")
    await desk.report_progress(session, cleanup={"is_stuck": True})
    await expect(page.get_by_role("region", name="Lab")).to_contain_text("again and again")
    assert await violations(page) == []
    await check_dialogs(page, "Abandon…")


@pytest.mark.provokes("409 GET /api/lablet-sessions/")  # asked for while the session leaves its use
@SCHEMES
async def test_the_sheet_of_a_class_and_evidence_are_accessible(
    page: Page, plane: LonePlane, scheme: Scheme
) -> None:
    desk = await LabletDesk(plane).start()
    await desk.give_address("192.0.2.7")
    definition = await desk.define(collect="topology")
    await desk.give_login(definition, "a-word-to-hide")
    batch = await desk.create_class(definition, "ada", "grace")
    first, second = batch["sessions"]
    await desk.run(first)
    await open_page(page, plane, scheme, f"#/sessions/classes/{batch['id']}")
    await page.get_by_role("switch", name="Passwords").check(force=True)
    await expect(page.locator(".seat").first).to_contain_text("a-word-to-hide")
    await desk.end(second)
    await expect(page.locator(".sheet-note")).to_contain_text("refresh")
    assert await violations(page) == []
    await page.set_viewport_size(PHONE)
    assert await violations(page) == []
    await desk.end(first)
    await desk.move(first, "collecting")
    await desk.keep_evidence(first, "lab: {}")
    await page.goto(f"{plane.url}/#/sessions/{first['id']}")
    await expect(page.get_by_role("region", name="Evidence")).to_be_visible()
    assert await violations(page) == []


@SCHEMES
async def test_the_calendar_and_the_scheduler_are_accessible(
    page: Page, plane: LonePlane, scheme: Scheme
) -> None:
    desk = await LabletDesk(plane).start()
    definition = await desk.define()
    placed = await desk.create(definition)
    await desk.create(definition)
    await desk.place(placed)
    await open_page(page, plane, scheme, "#/calendar")
    await expect(page.locator(".calendar-block")).to_have_count(2)
    assert await violations(page) == []
    await page.get_by_role("button", name="Week").click()
    await page.set_viewport_size(PHONE)
    assert await violations(page) == []
    await page.goto(f"{plane.url}/#/scheduler")
    await expect(page.locator(".queue-item")).to_have_count(1)
    await expect(page.locator(".bin-segment").first).to_be_visible()
    assert await violations(page) == []


@SCHEMES
async def test_the_labs_are_accessible(page: Page, plane: LonePlane, scheme: Scheme) -> None:
    desk = await LabletDesk(plane).start()
    await desk.give_address("192.0.2.7")
    session = await desk.create(await desk.define())
    await desk.run(session)
    mark = {"session_id": "gone", "generation": 1, "fleet_id": await desk.fleet_id()}
    foreign = {"lab_id": "foreign-1", "title": "BGP of Ada", "state": "STOPPED"}
    leaked = {"lab_id": "leak-1", "title": "lcm-gone-g1", "mark": mark}
    await desk.list_labs({"lab_id": "lab-1", "title": "lcm-1"}, foreign, leaked)
    await open_page(page, plane, scheme, "#/labs")
    await expect(page.locator(".row-lab")).to_have_count(3)
    await page.get_by_role("button", name="Foreign 1").click()
    assert await violations(page) == []
    await check_dialogs(page, "Remove BGP of Ada", "Adopt BGP of Ada")
    await page.get_by_role("button", name="Foreign 1").click()
    await page.set_viewport_size(PHONE)
    assert await violations(page) == []


@SCHEMES
async def test_a_new_class_and_a_new_definition_are_accessible(
    page: Page, plane: LonePlane, scheme: Scheme
) -> None:
    definition = await (await LabletDesk(plane).start()).define()
    await open_page(page, plane, scheme, f"#/sessions/new?definition={definition['id']}")
    await page.get_by_label("Seats", exact=True).fill("30")
    await page.get_by_label("In a timeslot").check(force=True)
    await expect(page.locator("[data-verdict]")).to_be_visible()
    await page.get_by_role("button", name="Create 30 sessions").click()
    await expect(page.get_by_role("alert")).to_contain_text("Enter a name")
    assert await violations(page) == []
    await page.set_viewport_size(PHONE)
    assert await violations(page) == []
    await page.get_by_role("button", name="Add definition…").click()
    await page.get_by_label("Topology", exact=True).fill(LAB)
    await expect(page.get_by_test_id("analysis")).to_contain_text("Basics")
    assert await violations(page) == []


async def check_dialogs(page: Page, *names: str) -> None:
    dialog = page.get_by_role("dialog")
    for name in names:
        await page.get_by_role("button", name=name, exact=True).click()
        await expect(dialog).to_be_visible()
        assert (name, await violations(page)) == (name, [])
        await page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)


async def register_license(plane: LonePlane) -> None:
    await plane.admin.accepted("POST", f"/api/workers/{plane.worker_id}/license", {"token": "a-token"})
    await plane.accepted("/{id}/license/start-registration", {})
    await plane.accepted("/{id}/license/complete-registration", {})


@SCHEMES
async def test_every_dialog_is_accessible(page: Page, plane: LonePlane, scheme: Scheme) -> None:
    await open_page(page, plane, scheme, f"#/workers/{plane.worker_id}")
    await check_dialogs(page, "Create worker", "Delete", "Hold until…")
    await check_dialogs(page, "Register…", "Edit CML login", "Edit tags")
    await register_license(plane)
    await check_dialogs(page, "Deregister…")
    await page.get_by_role("link", name="Settings", exact=True).click()
    await check_dialogs(page, "Set token…", "New token…", "Edit small", "Edit discovery")


@SCHEMES
async def test_the_dialogs_of_many_workers_are_accessible(
    page: Page, plane: LonePlane, scheme: Scheme
) -> None:
    stopped = await plane.add_running("stopped")
    await plane.admin.accepted("POST", f"/api/workers/{stopped}/stop")
    await open_page(page, plane, scheme)
    await page.get_by_label("Select all listed workers").check()
    await check_dialogs(page, "Start…", "Stop…", "Drain…", "Hold…", "Delete…")
    view = page.get_by_role("button", name="View", exact=True)
    await view.click()
    await page.get_by_label("Name of this view").fill("night")
    await page.get_by_role("button", name="Save", exact=True).click()
    await page.get_by_label("Compact").check()
    assert await violations(page) == []
    await page.get_by_role("button", name="Remove the view night").click()
    await page.get_by_label("Comfortable").check()
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="Stop live").click()
    await expect(page.get_by_role("button", name="Undo")).to_be_visible()
    assert await violations(page) == []
    await page.keyboard.press("u")
    await page.set_viewport_size(PHONE)
    assert await violations(page) == []
    await check_dialogs(page, "Delete…")


@pytest.mark.provokes("503 POST")
@SCHEMES
async def test_a_license_debt_and_an_error_message_are_accessible(
    page: Page, plane: LonePlane, scheme: Scheme
) -> None:
    await register_license(plane)
    await plane.accepted(
        "/{id}/license/fail-deregistration", {"reason": "CML did not answer", "is_debt": True}
    )
    await open_page(page, plane, scheme)
    await expect(page.get_by_role("region", name="License debts")).to_be_visible()
    await page.route("**/stop", lambda route: route.fulfill(status=503))
    await page.get_by_role("button", name="Stop live").click()
    await expect(page.get_by_role("alert")).to_be_visible()
    assert await violations(page) == []
