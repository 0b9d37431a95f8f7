"""No secret shows in a page, in what the browser keeps of it, or in what its scripts get."""

import json
from pathlib import Path

import pytest
from playwright.async_api import Page, Response, expect

from support.canaries import Canaries
from support.lone_plane import lone_plane

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGES = ("Sessions", "Calendar", "Scheduler", "Labs", "Scaling", "Cost", "Audit")
KEPT_BY_SCRIPTS = """() => JSON.stringify([
  document.cookie, document.title, location.href, {...localStorage}, {...sessionStorage},
  [...document.querySelectorAll("input, textarea")].map((field) => field.value),
])"""


async def collect(page: Page, canaries: Canaries) -> None:
    """Everything of the present page that a person, or one of its scripts, could read."""
    canaries.collect(f"page {page.url}", await page.content())
    canaries.collect(f"kept at {page.url}", str(await page.evaluate(KEPT_BY_SCRIPTS)))


@pytest.mark.provokes("401 GET /api/session")
async def test_no_page_shows_a_secret(page: Page, tmp_path: Path) -> None:
    roles = ("viewer", "operator", "admin", "controller")
    canaries = Canaries(
        {role: f'K7{role}~"q\\{role[::-1]}+/=%41&9-and-long-enough-for-a-key' for role in roles}
    )
    secrets = canaries.secrets
    (tmp_path / "keys.json").write_text(json.dumps(secrets))
    secrets |= {"license token": 'Lc9~"token\\of+an/account=', "password of CML": 'Pw4cml~"\\canary+/='}
    answers: list[Response] = []
    page.on("response", lambda answer: answers.append(answer))  # it sets an attribute of its handler
    page.on("console", lambda message: canaries.collect("console", message.text))
    async with lone_plane(tmp_path) as plane:
        worker = f"/api/workers/{plane.worker_id}"
        await plane.admin.accepted("POST", f"{worker}/license", {"token": secrets["license token"]})
        login = {"username": "lcm", "password": secrets["password of CML"]}
        await plane.admin.accepted("PUT", f"{worker}/cml-login", login)
        _, made = await plane.admin.call("POST", "/api/tokens", {"name": "canary", "role": "admin"})
        secrets["token"] = made["token"]

        await page.goto(plane.url)
        await page.get_by_label("Access token").fill(secrets["token"])
        await page.get_by_role("button", name="Sign in").click()
        await page.wait_for_selector('[data-connection="live"]')
        [cookie] = await page.context.cookies()
        secrets["session"] = cookie.get("value", "")
        for name in PAGES:
            await page.goto(f"{plane.url}/#/{name.lower()}")
            await expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
            await collect(page, canaries)
        await page.goto(f"{plane.url}/#/workers/{plane.worker_id}")
        await expect(page.get_by_role("complementary", name="live")).to_contain_text("CML login")
        await expect(page.get_by_test_id("timeline")).to_contain_text("CML login is its own, lcm")
        await collect(page, canaries)
        for answer in answers:
            if "/api/events/stream" not in answer.url and answer.status == 200:
                canaries.collect(f"answer {answer.url}", await answer.body())
    kinds = {where.split(" ")[0] for where, _ in canaries.collected}
    assert {"page", "kept", "answer"} <= kinds
    assert len(secrets) == 8
    assert canaries.found() == []
