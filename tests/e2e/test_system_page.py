"""The page of LCM itself: every process of a real LCM reports, and what is missing is said."""

import pytest
from playwright.async_api import Page, expect

from e2e.test_accessibility import PHONE, SCHEMES, Scheme, open_page, violations
from e2e.test_adoption import find
from support.lone_plane import LonePlane
from support.processes import RunningLcm

pytestmark = pytest.mark.asyncio(loop_scope="module")

REPORT = {
    "service": "worker-controller",
    "instance_id": "a",
    "version": "0.0.1",
    "started_at": "2026-01-01T00:00:00Z",
    "loop_lag_seconds": 0.012,
    "frozen": ["credentials: <b>refused</b>"],
    "silent_loops": [],
    "controller": {
        "is_leader": True,
        "epoch": 1,
        "coordination": "elected",
        "is_watching": True,
        "last_reconciliation": None,
        "in_progress": 1,
        "waiting": 2,
        "scheduled": 3,
        "retrying": 4,
    },
    "finds": {
        "scans": [
            {"region": "us-east-1", "at": "2026-01-01T00:00:00Z", "error": "", "found": 2, "imported": 1},
            {"region": "eu-west-1", "at": "2026-01-01T00:00:00Z", "error": "no", "found": 0, "imported": 0},
        ],
        "orphans": [
            {
                "instance_id": "i-0123456789abcdef0",
                "region": "us-east-1",
                "state": "running",
                "kind": "no_record",
                "worker_id": "w",
                "detail": "launch 1 of a worker without a record",
            }
        ],
        "orphan_count": 1,
        "may_terminate": False,
        "dry_run_reasons": {"us-east-1": "too many at once"},
    },
}


async def test_all_processes_of_a_real_lcm_report_themselves(page: Page, lcm: RunningLcm) -> None:
    await page.goto(f"{lcm.url}/?token={lcm.ready.token}")
    await page.wait_for_selector('[data-connection="live"]')
    await page.keyboard.press("9")
    await expect(page.get_by_role("heading", name="System", level=1)).to_be_visible()
    processes = page.get_by_role("region", name="Processes")
    leaders = page.get_by_role("region", name="Leaders")
    for service in ("worker-controller", "resource-scheduler", "lablet-controller"):
        await expect(processes.get_by_role("listitem").filter(has_text=service)).to_contain_text("leads")
        leader = leaders.get_by_role("listitem").filter(has_text=service)
        await expect(leader).to_contain_text("epoch 1")
        await expect(leader).to_have_attribute("data-color", "green")
    await expect(processes.get_by_role("listitem").filter(has_text="control-plane")).to_have_count(1)
    await expect(page.get_by_text("Everything runs.")).to_be_visible()


@SCHEMES
async def test_the_system_page_says_what_is_missing_and_is_accessible(
    page: Page, plane: LonePlane, scheme: Scheme
) -> None:
    await find(plane, "discovered", None)
    status, _ = await plane.reported("POST", "/processes", REPORT)
    assert status == 204
    await open_page(page, plane, scheme, "#/system")
    problems = page.get_by_role("region", name="Problems")
    await expect(problems).to_contain_text("credentials: <b>refused</b>")
    await expect(problems).to_contain_text("different versions")
    await expect(problems).to_contain_text("eu-west-1 was not searched")
    worker_controller = page.get_by_role("region", name="Processes").get_by_role("listitem")
    await expect(worker_controller.filter(has_text="worker-controller")).to_contain_text("4 retrying")
    orphans = page.get_by_role("region", name="Instances without a worker")
    await expect(orphans).to_contain_text("launch 1 of a worker without a record")
    found = page.get_by_role("region", name="Workers found in EC2").get_by_role("listitem")
    await expect(found.filter(has_text="discovered")).to_contain_text("Not adopted")
    assert await violations(page) == []
    await page.set_viewport_size(PHONE)
    assert await violations(page) == []
