"""The page of one worker, and the topologies of labs and definitions, as users see them."""

import re
from typing import Any

import pytest
from playwright.async_api import Locator, Page, Position, Request, expect

from e2e.test_accessibility import PHONE, SCHEMES, Scheme, open_page, violations
from lcm.core.clock import SystemClock
from support.lablet_desk import LAB, LabletDesk
from support.lone_plane import LonePlane

pytestmark = pytest.mark.asyncio(loop_scope="module")

TWO_NODES = (
    LAB.replace("links: []", "links: [{id: l0, label: l0, n1: n0, i1: i0, n2: n1, i2: i0}]")
    .replace("interfaces: []", "interfaces: [{id: i0, label: eth0, slot: 0, type: physical}]")
    .replace(
        "links:",
        "  - {id: n1, label: pc2, node_definition: alpine, x: 300, y: 120,"
        " interfaces: [{id: i0, label: eth0, slot: 0, type: physical}]}\nlinks:",
    )
)


async def measure(plane: LonePlane, seconds: range, **load: float) -> None:
    now = SystemClock().now()
    values: dict[str, Any] = {"memory_utilization": 43.6, "disk_utilization": 61.0, **load}
    await plane.accepted(
        "/metrics", {"samples": [plane.sample(second, since=now, **values) for second in seconds]}
    )


async def open_details(page: Page, plane: LonePlane, scheme: Scheme = "light", query: str = "") -> None:
    await open_page(page, plane, scheme, f"#/workers/{plane.worker_id}/details{query}")


def chart(page: Page, name: str) -> Locator:
    return page.locator(f'[data-chart="{name}"]')


async def test_the_load_of_the_last_hour_is_drawn_and_read_under_the_pointer(
    page: Page, plane: LonePlane
) -> None:
    await measure(plane, range(-500, -250, 10), cpu_utilization=20.0)
    await measure(plane, range(-250, 0, 10), cpu_utilization=70.0)
    await open_details(page, plane)
    drawing = page.get_by_role("img", name=re.compile("^CPU over 1 hour: between 20% and 70%"))
    await expect(drawing.locator("canvas")).to_be_visible()
    await expect(chart(page, "cpu").locator(".history-value")).to_have_text("70%")
    await expect(page.get_by_role("img", name=re.compile("^Network .*unknown"))).to_be_visible()
    over = drawing.locator(".u-over")
    box = await over.bounding_box()
    assert box is not None
    for seconds, load in ((400, "20%"), (100, "70%"), (300, "20%")):
        await over.hover(position={"x": box["width"] * (1 - seconds / 3600), "y": 40})
        await expect(chart(page, "cpu").locator(".history-value")).to_have_text(load)
    await expect(chart(page, "cpu").locator(".history-at")).not_to_be_empty()
    await expect(chart(page, "memory").locator(".history-at")).not_to_be_empty()


async def test_a_part_of_the_time_is_zoomed_into_and_left_again(page: Page, plane: LonePlane) -> None:
    await measure(plane, range(-500, -400, 10), cpu_utilization=20.0)
    await measure(plane, range(-400, -300, 10), cpu_utilization=50.0)
    await measure(plane, range(-300, 0, 10), cpu_utilization=90.0)
    await open_details(page, plane)
    over = chart(page, "cpu").locator(".u-over")
    whole = page.get_by_role("button", name="Whole range")
    await expect(whole).to_be_disabled()
    box = await over.bounding_box()
    assert box is not None
    left, right = box["width"] * (1 - 400 / 3600), box["width"] * (1 - 300 / 3600)
    await over.drag_to(over, source_position={"x": left, "y": 40}, target_position={"x": right, "y": 40})
    await expect(whole).to_be_enabled()
    middle: Position = {"x": box["width"] / 2, "y": 40}
    await over.hover(position=middle)
    await expect(chart(page, "cpu").locator(".history-value")).to_have_text("50%")
    await whole.click()
    await expect(whole).to_be_disabled()
    await over.hover(position=middle)
    await expect(chart(page, "cpu").locator(".history-value")).to_have_text("20%")


async def test_the_range_is_in_the_url_and_charts_are_loaded_only_with_the_page(
    page: Page, plane: LonePlane
) -> None:
    requested: list[str] = []

    def note(request: Request) -> None:
        requested.append(request.url)

    page.on("request", note)
    await open_page(page, plane, "light", f"#/workers/{plane.worker_id}")
    panel = page.get_by_role("complementary", name="live")
    await expect(panel.get_by_test_id("timeline")).to_be_visible()
    assert [url for url in requested if "load-charts" in url] == []
    await panel.get_by_role("link", name="Open the page").click()
    await page.get_by_role("button", name="7 days").click()
    await expect(page).to_have_url(re.compile("details.range=7d$"))
    await expect(page.get_by_role("img", name=re.compile("^CPU over 7 days"))).to_be_visible()
    assert [url for url in requested if "load-charts" in url] != []
    await page.reload()
    await expect(page.get_by_role("button", name="7 days")).to_have_attribute("aria-pressed", "true")
    await page.get_by_role("link", name="← Fleet").click()
    await expect(panel).to_be_visible()


async def test_the_first_load_is_at_most_150_kb_compressed(page: Page, plane: LonePlane) -> None:
    loaded: list[Request] = []

    def note(request: Request) -> None:
        loaded.append(request)

    page.on("requestfinished", note)
    await open_page(page, plane, "light", "#/")
    await expect(page.locator("[data-worker-name]")).to_be_visible()
    assets = [request for request in loaded if "/assets/" in request.url]
    sizes = [(await request.sizes())["responseBodySize"] for request in assets]
    assert len(sizes) >= 2
    assert 0 < sum(sizes) <= 150_000


@pytest.mark.provokes("409 GET")
async def test_the_lab_of_a_session_is_drawn_with_its_nodes_as_they_boot(
    page: Page, plane: LonePlane
) -> None:
    desk = await LabletDesk(plane).start()
    definition = await desk.define("two", lab_yaml=TWO_NODES)
    session = await desk.create(definition)
    await desk.run(session)
    lab = {"element_type": "lab", "element_id": "lab-1", "lab_id": "lab-1", "data": {"title": "two"}}
    await plane.accepted("/{id}/lab-state-change", {**lab, "event": "STARTED"})
    await open_details(page, plane)
    labs = page.get_by_role("region", name="Labs")
    node = labs.locator('[data-node="pc2"]')
    for state in ("QUEUED", "BOOTED"):
        change = {"element_type": "node", "element_id": "n1", "data": {"label": "pc2"}, "event": state}
        await plane.accepted("/{id}/lab-state-change", {**lab, **change})
        await expect(node).to_have_attribute("data-state", state)
    await expect(labs.locator(".topology line")).to_have_count(1)
    await page.goto(f"{plane.url}/#/sessions/{session['id']}")
    card = page.get_by_role("region", name="Lab")
    await expect(card.locator('.topology [data-node="pc1"]')).to_have_attribute("data-state", "BOOTED")


async def test_a_lab_that_lcm_did_not_make_is_drawn_from_the_places_of_its_nodes(
    page: Page, plane: LonePlane
) -> None:
    desk = await LabletDesk(plane).start()
    await desk.give_address("192.0.2.7")
    nodes = [
        {"id": "n0", "label": "r1", "state": "BOOTED", "x": 0, "y": 0},
        {"id": "n1", "label": "r2", "state": "STOPPED", "x": 200, "y": -50.5},
    ]
    await desk.list_labs({"lab_id": "foreign-1", "title": "BGP of Ada", "contents": {"nodes": nodes}})
    await open_details(page, plane)
    labs = page.get_by_role("region", name="Labs")
    await expect(labs.locator(".topology-node")).to_have_count(2)
    lab = {"element_type": "node", "element_id": "n1", "lab_id": "foreign-1", "data": {}}
    await plane.accepted("/{id}/lab-state-change", {**lab, "event": "BOOTED"})
    await expect(labs.locator('.topology-node[data-node="r2"]')).to_have_attribute("data-state", "BOOTED")
    low, high = [
        await labs.locator(f'.topology-node[data-node="{name}"]').bounding_box() for name in ("r1", "r2")
    ]
    assert low is not None
    assert high is not None
    assert low["x"] < high["x"]
    assert low["y"] > high["y"]


async def test_the_controls_stay_where_they_are_whatever_arrives(page: Page, plane: LonePlane) -> None:
    await open_details(page, plane)
    await expect(chart(page, "cpu")).to_be_visible()
    controls = {name: page.get_by_role("button", name=name) for name in ("Stop", "Hold until…", "24 hours")}
    before = {name: await control.bounding_box() for name, control in controls.items()}
    await measure(plane, range(-60, 0, 10), cpu_utilization=95.0)
    await plane.admin.accepted("POST", f"/api/workers/{plane.worker_id}/stop")
    await expect(page.locator(".session-lead")).to_contain_text("stopped")
    lab = {"element_type": "lab", "element_id": "lab-1", "lab_id": "lab-1", "data": {"title": "BGP"}}
    await plane.accepted("/{id}/lab-state-change", {**lab, "event": "STARTED"})
    await expect(page.get_by_role("region", name="Labs")).to_be_visible()
    assert {name: await control.bounding_box() for name, control in controls.items()} == before


@pytest.mark.provokes("404 GET")
@SCHEMES
async def test_the_page_of_a_worker_is_accessible(page: Page, plane: LonePlane, scheme: Scheme) -> None:
    desk = await LabletDesk(plane).start()
    await desk.run(await desk.create(await desk.define("two", lab_yaml=TWO_NODES)))
    lab = {"element_type": "lab", "element_id": "lab-1", "lab_id": "lab-1", "data": {"title": "<b>two</b>"}}
    await plane.accepted("/{id}/lab-state-change", {**lab, "event": "STARTED"})
    for label, state in (("pc1", "BOOTED"), ("pc2", "STARTED")):
        change = {"element_type": "node", "element_id": label, "data": {"label": label}, "event": state}
        await plane.accepted("/{id}/lab-state-change", {**lab, **change})
    await measure(plane, range(-500, 0, 10), cpu_utilization=20.0, network_in_bytes=5_000.0)
    await open_details(page, plane, scheme)
    await expect(chart(page, "network").locator("canvas")).to_be_visible()
    await expect(page.locator(".topology")).to_be_visible()
    await expect(page.get_by_role("region", name="Labs")).to_contain_text("<b>two</b>")
    await page.get_by_text("Raw record").click()
    await expect(page.locator("pre")).to_contain_text(plane.worker_id)
    assert await violations(page) == []
    await page.set_viewport_size(PHONE)
    assert await violations(page) == []
    await page.goto(f"{plane.url}/#/workers/unknown-id/details")
    await expect(page.get_by_role("heading", name="Worker not found")).to_be_visible()
    assert await violations(page) == []


@pytest.mark.provokes("404 GET")
@SCHEMES
async def test_definitions_show_their_picture_and_where_they_can_run(
    page: Page, plane: LonePlane, scheme: Scheme
) -> None:
    desk = await LabletDesk(plane).start()
    definition = await desk.define("two", lab_yaml=TWO_NODES)
    await open_page(page, plane, scheme, "#/definitions")
    await expect(page.locator('[data-definition="two"]')).to_contain_text("2 nodes")
    assert await violations(page) == []
    await page.get_by_role("link", name="two").click()
    await expect(page).to_have_url(re.compile(f"definitions/{definition['id']}$"))
    await expect(page.locator(".topology-node")).to_have_count(2)
    for label in ("pc1", "pc2"):
        await expect(page.locator(f'[data-node="{label}"] .topology-label')).to_be_visible()
    await expect(page.get_by_role("region", name="Needs")).to_contain_text("2 CPU")
    await expect(page.get_by_role("region", name="Needs")).to_contain_text("too few labs came up")
    fits = page.get_by_role("region", name="Where it can run")
    await expect(fits.locator('[data-fit="live"]')).to_be_visible()
    assert await fits.locator('[data-possible="false"] .fit-reason').all_inner_texts() != []
    assert await violations(page) == []
    await page.set_viewport_size(PHONE)
    assert await violations(page) == []
    await page.goto(f"{plane.url}/#/definitions/unknown")
    await expect(page.get_by_role("heading", name="Definition not found")).to_be_visible()
    assert await violations(page) == []


@pytest.mark.provokes("422 POST")
async def test_a_definition_is_added_and_its_mistakes_are_named_with_their_lines(
    page: Page, plane: LonePlane
) -> None:
    await open_page(page, plane, "light", "#/definitions")
    await expect(page.get_by_role("heading", name="No definitions")).to_be_visible()
    await page.get_by_role("button", name="Add definition…").click()
    field = page.get_by_label("Topology", exact=True)
    await field.fill(TWO_NODES.replace("n2: n1", "n2: n9"))
    await expect(page.get_by_test_id("analysis")).to_contain_text(re.compile(r"line \d+ .*n9"))
    await field.fill(TWO_NODES)
    await expect(page.get_by_test_id("analysis")).to_contain_text("Basics")
    await page.get_by_role("dialog").get_by_label("Name").fill("two")
    await page.get_by_role("button", name="Create definition").click()
    await expect(page.locator('[data-definition="two"]')).to_be_visible()
