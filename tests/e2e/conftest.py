"""A real Chromium in front of a real LCM."""

import shutil
from collections.abc import AsyncIterator, Iterator

import pytest
from playwright.async_api import Page, async_playwright, expect

from support.processes import RunningLcm, running_lcm

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]

expect.set_options(timeout=20_000)


@pytest.fixture(scope="module")
def lcm() -> Iterator[RunningLcm]:
    with running_lcm("--workers", "3") as running:
        yield running


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    if CHROMIUM is None:
        pytest.skip("NOT RUN: no Chromium on this machine, and 'make browser' could not install one")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = await browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(20_000)
        yield page
        await browser.close()
