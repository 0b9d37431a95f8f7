"""A real Chromium in front of a real LCM.

The tests of a module share it, each with a profile of its own; and as a browser can be used only on the event
loop it was started on, they share that too.
"""

import shutil
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Browser, ConsoleMessage, Page, Request, Response, async_playwright, expect

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


class Complaints:
    """What a browser complains about: errors on its console, uncaught exceptions and requests that fail."""

    def __init__(self, page: Page) -> None:
        self._heard: list[str] = []
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self._heard.append(f"uncaught: {error}"))
        page.on("requestfailed", self._on_failed_request)
        page.on("response", self._on_response)

    def besides(self, expected: Sequence[str]) -> list[str]:
        """Those that contain none of these."""
        return [each for each in self._heard if not any(part in each for part in expected)]

    def _on_console(self, message: ConsoleMessage) -> None:
        # A response that is an error is on the console, too, without the method of its request.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self._heard.append(f"{message.type}: {message.text}")

    def _on_failed_request(self, request: Request) -> None:
        # The page, or its end, aborts requests whose answers are of no interest any more.
        if request.failure != "net::ERR_ABORTED":
            self._heard.append(f"{request.failure} {_named(request)}")

    def _on_response(self, response: Response) -> None:
        if response.status >= 400:
            self._heard.append(f"{response.status} {_named(response.request)}")


def _named(request: Request) -> str:
    return f"{request.method} {urlsplit(request.url).path}"


COMPLAINTS = pytest.StashKey[Complaints]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """No browser complains but of what a test provokes; judged while the test's control plane still runs."""
    result = yield
    complaints = item.stash.get(COMPLAINTS, None)
    provoked = [part for marker in item.iter_markers("provokes") for part in marker.args]
    if complaints is not None:
        assert complaints.besides(provoked) == []
    return result


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Browser, request: pytest.FixtureRequest) -> AsyncIterator[Page]:
    async with await browser.new_context(viewport={"width": 1440, "height": 900}) as profile:
        page = await profile.new_page()
        page.set_default_timeout(20_000)
        request.node.stash[COMPLAINTS] = Complaints(page)
        yield page


@pytest_asyncio.fixture(loop_scope="module")
async def plane(tmp_path: Path) -> AsyncIterator[LonePlane]:
    async with lone_plane(tmp_path) as plane:
        yield plane
