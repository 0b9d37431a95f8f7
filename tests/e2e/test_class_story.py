"""A class as a teacher sees it: created in the dashboard, its labs run on a worker, ended, nothing left.

The lablet controller is killed while it brings the labs up, and again while it removes them. What is on the
CML is judged by Cisco's own client.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from support.processes import eventually
from support.school import School, running_school

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(240),
    pytest.mark.provokes("409 GET /api/lablet-"),  # access, asked for while a session ends
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of httpx, by a client that verifies nothing
]

SEATS = 4
SLOW_IMPORT_SECONDS = 3.0
SLOW_STOP_SECONDS = 60.0
"""Of the simulation, which runs faster."""
STORY_MS = 90_000.0
"""For what waits for another leader."""


async def until_labs(school: School, is_enough: Callable[[int], bool]) -> None:
    """Wait for a number of labs of sessions on all workers."""

    async def is_reached() -> bool:
        return is_enough(sum((await school.labs_of_sessions()).values()))

    await eventually(is_reached)


async def test_a_class_comes_to_life_and_ends_in_the_dashboard_although_its_controller_is_killed(
    page: Page, tmp_path: Path
) -> None:
    async with running_school(tmp_path) as school:
        [worker] = await school.add_workers(1)
        name = await school.define(SEATS, 1)
        await school.disturb(worker, kind="slow", seconds=SLOW_IMPORT_SECONDS, path="/api/v0/import")
        await page.goto(f"{school.plane.url}/?token={school.token}#/sessions/new")
        await page.get_by_role("radio", name=name).check(force=True)
        await page.get_by_label("Seats", exact=True).fill(str(SEATS))
        await page.get_by_label("Name of the class").fill("Monday")
        await expect(page.get_by_role("region", name="Preview")).to_contain_text(re.compile("fit", re.I))
        await page.get_by_role("button", name=f"Create {SEATS} sessions").click()
        await until_labs(school, lambda count: count > 0)
        school.kill_lablet_controller()
        await school.heal()
        await expect(page.locator('.row-session[data-status="instantiating"]')).not_to_have_count(0)
        school.start_lablet_controller()
        running = page.locator('.row-session[data-status="running"]')
        await expect(running).to_have_count(SEATS, timeout=STORY_MS)
        [labs] = school.judged().values()
        assert [set(lab.nodes.values()) for lab in labs.values()] == [{"BOOTED"}] * SEATS

        await page.locator(".row-session").first.get_by_role("link", name=name).click()
        await expect(page.locator('[data-step="running"]')).to_have_attribute("aria-current", "step")
        await page.get_by_role("link", name="← Sessions").click()

        await school.disturb(worker, kind="slow_stop", seconds=SLOW_STOP_SECONDS, count=1)
        await page.get_by_label("Select all listed sessions").check()
        bar = page.get_by_role("region", name="Selection")
        await bar.get_by_role("button", name="End…", exact=True).click()
        dialog = page.get_by_role("dialog", name=f"End {SEATS} sessions?")
        await dialog.get_by_role("button", name=f"End {SEATS} sessions").click()
        await until_labs(school, lambda count: count < SEATS)
        school.kill_lablet_controller()
        await expect(page.locator(".row-session")).not_to_have_count(0)
        school.start_lablet_controller()
        await expect(page.locator(".row-session")).to_have_count(0, timeout=STORY_MS)
        assert school.judged() == {worker["id"]: {}}
        [left] = await school.workers()
        assert left["sessions"] == []
