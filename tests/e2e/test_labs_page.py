"""The labs on all workers as users see them; the test acts as the lablet controller that discovers them."""

import re

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, expect

from support.lablet_desk import Json, LabletDesk
from support.lone_plane import LonePlane

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def desk(plane: LonePlane) -> LabletDesk:
    desk = await LabletDesk(plane).start()
    await desk.give_address("192.0.2.7")
    return desk


async def open_labs(page: Page, plane: LonePlane, query: str = "") -> None:
    await page.emulate_media(reduced_motion="reduce")
    await page.goto(f"{plane.url}/?token={plane.token}#/labs{query}")
    await page.wait_for_selector('[data-connection="live"]')


def row(page: Page, lab_id: str) -> Locator:
    return page.locator(f'[data-lab-id="{lab_id}"]')


async def leaked_lab(desk: LabletDesk) -> Json:
    """A lab with the marker of this fleet and a session that nobody knows."""
    mark = {"session_id": "gone", "generation": 1, "fleet_id": await desk.fleet_id()}
    return {"lab_id": "leak-1", "title": "lcm-gone-g1", "mark": mark}


async def test_a_discovery_shows_whose_each_lab_is(page: Page, plane: LonePlane, desk: LabletDesk) -> None:
    await open_labs(page, plane)
    await expect(page.get_by_role("heading", name="No labs")).to_be_visible()
    session = await desk.create(await desk.define())
    await desk.run(session)
    foreign = {"lab_id": "foreign-1", "title": "BGP of Ada"}
    await desk.list_labs({"lab_id": "lab-1", "title": "lcm-1"}, foreign, await leaked_lab(desk))
    await expect(row(page, "foreign-1")).to_have_attribute("data-kind", "foreign")
    await expect(row(page, "leak-1")).to_contain_text("LCM does not know the session that its marker names.")
    await row(page, "lab-1").get_by_role("link", name="Session of basics").click()
    await expect(page.get_by_role("region", name="Why and when")).to_be_visible()


async def test_the_filter_of_labs_is_in_the_url(page: Page, plane: LonePlane, desk: LabletDesk) -> None:
    await desk.list_labs({"lab_id": "foreign-1", "title": "BGP of Ada"}, await leaked_lab(desk))
    await open_labs(page, plane)
    kinds = page.get_by_role("group", name="Kind")
    await kinds.get_by_role("button", name="Leaked 1").click()
    await page.get_by_label("Worker").select_option("live")
    await expect(page).to_have_url(re.compile(f"labs.worker={plane.worker_id}&kind=leaked"))
    await page.reload()
    await expect(row(page, "leak-1")).to_be_visible()
    await expect(row(page, "foreign-1")).to_have_count(0)
    await page.goto(f"{plane.url}/#/labs?kind=orphaned")
    await page.get_by_role("button", name="Show all labs").click()
    await expect(row(page, "foreign-1")).to_be_visible()


async def test_a_lab_of_people_is_adopted_and_disowned(
    page: Page, plane: LonePlane, desk: LabletDesk
) -> None:
    await desk.list_labs({"lab_id": "foreign-1", "title": "BGP of Ada"})
    await open_labs(page, plane)
    await page.get_by_role("button", name="Adopt BGP of Ada").click()
    await page.get_by_role("dialog").get_by_role("button", name="Adopt lab").click()
    await expect(row(page, "foreign-1")).to_contain_text("Adopted by admin: ")
    await page.get_by_role("group", name="Kind").get_by_role("button", name="Adopted 1").click()
    await page.get_by_role("button", name="Disown BGP of Ada").click()
    await expect(row(page, "foreign-1")).to_have_count(0)
    await page.get_by_role("button", name="Show all labs").click()
    await expect(row(page, "foreign-1")).to_have_attribute("data-kind", "foreign")


async def test_a_lab_of_people_is_adopted_as_one_of_a_definition(
    page: Page, plane: LonePlane, desk: LabletDesk
) -> None:
    definition = await desk.define()
    await desk.list_labs({"lab_id": "foreign-1", "title": "BGP of Ada"})
    await open_labs(page, plane)
    await page.get_by_role("button", name="Adopt BGP of Ada").click()
    dialog = page.get_by_role("dialog", name="Adopt BGP of Ada?")
    choice = dialog.get_by_label("Adopt as a lab of")
    await expect(choice).to_have_value("")
    await choice.select_option(label=f"{definition['name']} {definition['version']}")
    await dialog.get_by_role("button", name="Adopt lab").click()
    await expect(row(page, "foreign-1")).to_contain_text("Adopted by admin as a lab of basics 1.0.0:")


@pytest.mark.provokes("409 POST")
async def test_a_lab_of_people_is_removed_only_with_its_title(
    page: Page, plane: LonePlane, desk: LabletDesk
) -> None:
    await desk.list_labs({"lab_id": "foreign-1", "title": "BGP of Ada"})
    await open_labs(page, plane)
    await page.get_by_role("button", name="Remove BGP of Ada").click()
    dialog = page.get_by_role("dialog", name="Remove BGP of Ada?")
    title = dialog.get_by_label("enter its title")
    await title.fill("BGP")
    await dialog.get_by_role("button", name="Remove lab").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("LCM did not make this lab")
    await title.fill("BGP of Ada")
    await dialog.get_by_role("button", name="Remove lab").click()
    await expect(row(page, "foreign-1")).to_contain_text("Removal requested by admin.")
    await expect(page.get_by_role("button", name="Stop BGP of Ada")).to_be_disabled()


async def test_a_lab_is_stopped_and_the_session_of_a_lab_is_ended(
    page: Page, plane: LonePlane, desk: LabletDesk
) -> None:
    session = await desk.create(await desk.define())
    await desk.run(session)
    await desk.list_labs({"lab_id": "lab-1", "title": "its lab"}, {"lab_id": "foreign-1", "title": "BGP"})
    await open_labs(page, plane)
    await page.get_by_role("button", name="Stop BGP").click()
    await expect(row(page, "foreign-1")).to_contain_text("Stop requested by admin.")
    await page.get_by_role("button", name="End session of its lab").click()
    await page.get_by_role("dialog").get_by_role("button", name="End session").click()
    await expect(page.get_by_role("button", name="End session of its lab")).to_be_disabled()
    assert (await desk.get(session))["desired_status"] == "terminated"


async def test_a_worker_leads_to_its_labs_and_they_are_discovered_on_request(
    page: Page, plane: LonePlane, desk: LabletDesk
) -> None:
    await desk.list_labs({"lab_id": "foreign-1", "title": "BGP"})
    await page.goto(f"{plane.url}/?token={plane.token}#/workers/{plane.worker_id}")
    await page.get_by_role("link", name="Whose they are").click()
    await expect(row(page, "foreign-1")).to_be_visible()
    async with page.expect_response("**/labs/discover") as answer:
        await page.get_by_role("button", name="Discover now").click()
    assert (await answer.value).ok


async def test_a_press_on_a_lab_that_moves_is_a_press_on_that_lab(
    page: Page, plane: LonePlane, desk: LabletDesk
) -> None:
    await desk.list_labs({"lab_id": "z", "title": "z"})
    await open_labs(page, plane)
    box = await page.get_by_role("button", name="Remove z").bounding_box()
    assert box is not None
    await page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    await page.mouse.down()
    await desk.list_labs({"lab_id": "a", "title": "a"}, {"lab_id": "z", "title": "z"})
    await expect(row(page, "a")).to_be_visible()
    await page.mouse.up()
    await expect(page.get_by_role("dialog", name="Remove z?")).to_be_visible()
