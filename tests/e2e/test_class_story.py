"""A class as a teacher sees it: created in the dashboard, its labs run on a worker, ended, nothing left.

What is on the CML is judged by Cisco's own client.
"""

import re

import aiohttp
import msgspec
import pytest
from playwright.async_api import Page, expect

from lcm.domain.lablet.marker import read_title
from lcm.simulator.main import SimulationInfo
from support.api import Api, Json, admin_of
from support.booking import license_worker
from support.cml_judge import cml_judge
from support.processes import eventually, running_lcm
from support.topologies import TWO_ALPINES

pytestmark = pytest.mark.asyncio(loop_scope="module")

SEATS = 3


async def _licensed_worker(api: Api, aws_endpoint: str) -> Json:
    async def is_ready() -> Json:
        [worker] = (await api.get("/api/workers"))["items"]
        return worker if worker["status"] == "running" and worker["cml_ready"] else None

    return await license_worker(api, aws_endpoint, await eventually(is_ready))


async def _simulation(aws_endpoint: str) -> SimulationInfo:
    async with aiohttp.ClientSession() as http, http.get(f"{aws_endpoint}/_lcm/simulation") as answer:
        return msgspec.convert(await answer.json(), SimulationInfo)


def _labs_of_sessions(worker: Json, info: SimulationInfo) -> dict[str, set[str]]:
    """The states of their nodes by the id of the lab."""
    with cml_judge(worker["public_ip"], info.cml_port, info.cml_username, info.cml_password) as judge:
        labs = judge.labs().values()
    return {lab.id: set(lab.nodes.values()) for lab in labs if read_title(lab.title) is not None}


async def test_a_class_is_created_comes_to_life_and_ends_in_the_dashboard(page: Page) -> None:
    with running_lcm("--workers", "1") as lcm:
        endpoint = lcm.ready.aws_endpoint
        assert endpoint is not None
        async with admin_of(lcm) as api:
            worker = await _licensed_worker(api, endpoint)
            body = {"name": "two-hosts", "lab_yaml": TWO_ALPINES}
            status, _ = await api.call("POST", "/api/lablet-definitions", body)
            assert status == 201

            await page.goto(f"{lcm.ready.url}#/sessions/new")
            await page.get_by_role("radio", name="two-hosts").check(force=True)
            await page.get_by_label("Seats", exact=True).fill(str(SEATS))
            await page.get_by_label("Name of the class").fill("Monday")
            await expect(page.get_by_role("region", name="Preview")).to_contain_text(re.compile("fit", re.I))
            await page.get_by_role("button", name=f"Create {SEATS} sessions").click()
            await expect(page.locator('.row-session[data-status="running"]')).to_have_count(SEATS)
            info = await _simulation(endpoint)
            labs = _labs_of_sessions(worker, info)
            assert list(labs.values()) == [{"BOOTED"}] * SEATS

            await page.locator(".row-session").first.get_by_role("link", name="two-hosts").click()
            await expect(page.locator('[data-step="running"]')).to_have_attribute("aria-current", "step")
            await page.get_by_role("link", name="← Sessions").click()

            await page.get_by_label("Select all listed sessions").check()
            bar = page.get_by_role("region", name="Selection")
            await bar.get_by_role("button", name="End…", exact=True).click()
            dialog = page.get_by_role("dialog", name=f"End {SEATS} sessions?")
            await dialog.get_by_role("button", name=f"End {SEATS} sessions").click()
            await expect(page.locator(".row-session")).to_have_count(0)
            assert _labs_of_sessions(worker, info) == {}
            assert (await api.get(f"/api/workers/{worker['id']}"))["sessions"] == []
