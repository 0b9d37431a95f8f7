"""A real Chromium in front of a real LCM.

The tests of a module share it, each with a profile of its own; and as a browser can be used only on the event
loop it was started on, they share that too.
"""

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect

from support.lone_plane import LonePlane, lone_plane
from support.processes import RunningLcm, running_lcm

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]

expect.set_options(timeout=20_000)


@pytest.fixture(scope="module")
def lcm() -> Iterator[RunningLcm]:
    with running_lcm("--workers", "3") as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("NOT RUN: no Chromium on this machine, and 'make browser' could not install one")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Browser) -> AsyncIterator[Page]:
    async with await browser.new_context(viewport={"width": 1440, "height": 900}) as profile:
        page = await profile.new_page()
        page.set_default_timeout(20_000)
        yield page


@pytest_asyncio.fixture(loop_scope="module")
async def plane(tmp_path: Path) -> AsyncIterator[LonePlane]:
    async with lone_plane(tmp_path) as plane:
        yield plane
