"""Takes the pictures of the documentation from a simulated fleet: `make screenshots`.

Every page in light and dark and as on a phone goes to a folder, to be looked at. With `--docs` those that
documents show replace the ones in docs/images.
"""

import argparse
import asyncio
from dataclasses import dataclass
from pathlib import Path

from playwright.async_api import Browser, Page, ViewportSize, async_playwright

from e2e.conftest import CHROMIUM, FLAGS
from lcm.core.clock import SystemClock
from support.api import Api, admin_of
from support.processes import RunningLcm, eventually, running_lcm

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "images"
WIDE: ViewportSize = {"width": 1440, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
MEASURED_SECONDS = 120
"""How long the fleet is measured before its load is drawn."""


@dataclass(frozen=True)
class View:
    """A page of the dashboard."""

    name: str
    place: str
    waits_for: str
    """A selector of what it shows last."""
    is_of_worker: bool = False


VIEWS = (
    View("fleet", "#/", "[data-worker-name]"),
    View("dashboard", "#/workers/{worker}", '[data-testid="timeline"]'),
    View("worker", "#/workers/{worker}/details", ".history-plot canvas", is_of_worker=True),
    View("sessions", "#/sessions", ".session-list .row:not(.row-head)"),
    View("session", "#/sessions/{session}", ".topology"),
    View("new-session", "#/sessions/new", ".picker"),
    View("definitions", "#/definitions", "[data-definition]"),
    View("definition", "#/definitions/{definition}", ".topology-label"),
    View("calendar", "#/calendar", ".calendar-block"),
    View("scheduler", "#/scheduler", ".bin-segment"),
    View("labs", "#/labs", "h1"),
    View("scaling", "#/scaling", ".decision"),
    View("cost", "#/cost", "h1"),
    View("audit", "#/audit", "h1"),
    View("system", "#/system", ".system-part"),
    View("activity", "#/activity", ".decision"),
    View("settings", "#/settings", "[data-template]"),
    View("api", "#/settings/api?operation=create_worker", ".operation-body"),
)
IN_DOCS = ("dashboard", "worker", "definition", "session", "calendar", "scheduler")


async def main(folder: Path, *, for_docs: bool) -> None:
    assert CHROMIUM is not None, "no Chromium; 'make browser' installs one where that is possible"
    folder.mkdir(parents=True, exist_ok=True)
    with running_lcm("--demo-sessions", "--workers", "5", "--speed", "10") as lcm:
        async with admin_of(lcm) as api, async_playwright() as playwright:
            names = await things_to_show(api)
            await SystemClock().sleep(MEASURED_SECONDS)
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            for scheme in ("light", "dark"):
                await take(browser, lcm, names, folder, scheme, WIDE)
            await take(browser, lcm, names, folder, "phone", PHONE)
            await browser.close()
    if for_docs:
        for name in IN_DOCS:
            (DOCS / f"{name}.png").write_bytes((folder / f"{name}-light.png").read_bytes())


async def things_to_show(api: Api) -> dict[str, str]:
    """A session whose lab runs, its worker and its definition, once they are there."""
    shown: dict[str, str] = {}

    async def has_lab() -> bool:
        sessions = (await api.get("/api/lablet-sessions?limit=500"))["items"]
        for session in sessions:
            if session["status"] in ("ready", "running") and session["nodes"]:
                shown["session"], shown["worker"] = session["id"], session["worker_id"]
                shown["definition"] = session["definition_id"]
        return bool(shown)

    await eventually(has_lab)
    return shown


async def take(
    browser: Browser, lcm: RunningLcm, names: dict[str, str], folder: Path, kind: str, size: ViewportSize
) -> None:
    context = await browser.new_context(
        viewport=size, color_scheme="dark" if kind == "dark" else "light", reduced_motion="reduce"
    )
    page = await context.new_page()
    await page.goto(f"{lcm.url}/?token={lcm.ready.token}")
    await page.wait_for_selector('[data-connection="live"]')
    for view in VIEWS:
        await page.goto(f"{lcm.url}/{view.place.format(**names)}")
        await page.wait_for_selector(view.waits_for)
        if view.is_of_worker and kind != "phone":
            await zoom_to_what_was_measured(page)
        await page.wait_for_timeout(500)
        await page.screenshot(path=folder / f"{view.name}-{kind}.png")
    await context.close()


async def zoom_to_what_was_measured(page: Page) -> None:
    """Drag over the last minutes of the hour."""
    over = page.locator('[data-chart="cpu"] .u-over')
    box = await over.bounding_box()
    assert box is not None
    begin = box["width"] * (1 - (MEASURED_SECONDS + 60) / 3_600)
    await over.drag_to(
        over, source_position={"x": begin, "y": 40}, target_position={"x": box["width"] - 1, "y": 40}
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "screenshots")
    parser.add_argument("--docs", action="store_true", help="replace the pictures of the documents")
    options = parser.parse_args()
    asyncio.run(main(options.folder, for_docs=options.docs))
