"""Workers that LCM found and did not launch: what is shown of them, and how an admin adopts them."""

from typing import Any

import pytest
from playwright.async_api import Page, expect

from support.lone_plane import LonePlane

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def find(plane: LonePlane, name: str, certificate: str | None) -> dict[str, Any]:
    """Report an instance as discovery does; return its worker."""
    instance = {
        "id": f"i-{name}",
        "region": "us-east-1",
        "state": "running",
        "instance_type": "m5zn.metal",
        "image_id": "ami-1",
        "private_ip": "10.0.0.9",
        "owner_id": "111122223333",
        "vpc_id": "vpc-7",
        "subnet_id": "subnet-7",
        "tags": {"Name": name},
    }
    found = {"instance": instance, "cml_ready": True, "cml_certificate_sha256": certificate}
    status, answer = await plane.reported("POST", "/workers/bulk-import", {"instances": [found]})
    assert (status, answer["items"][0]["status"]) == (200, 201)
    worker: dict[str, Any] = await plane.admin.get(f"/api/workers/{answer['items'][0]['worker_id']}")
    return worker


async def test_an_admin_sees_what_was_found_and_adopts_it_by_its_certificate(
    page: Page, plane: LonePlane
) -> None:
    worker = await find(plane, "found", "9f" * 32)
    await page.goto(f"{plane.url}/?token={plane.token}#/workers/{worker['id']}")
    panel = page.get_by_role("complementary", name="found")
    section = panel.get_by_role("region", name="Adoption")
    for fact in ("i-found", "111122223333", "vpc-7 subnet-7", "ami-1", "9f" * 32):
        await expect(section).to_contain_text(fact)
    await section.get_by_role("button", name="Adopt…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("9f" * 32)
    await dialog.get_by_role("button", name="Adopt", exact=True).click()
    await expect(section).to_have_count(0)
    await expect(panel.get_by_test_id("timeline")).to_contain_text("adopted with certificate 9f9f")
    assert (await plane.admin.get(f"/api/workers/{worker['id']}"))["is_trusted"] is True


async def test_the_page_of_a_worker_says_that_it_is_not_adopted_and_adopts_it(
    page: Page, plane: LonePlane
) -> None:
    worker = await find(plane, "found", "9f" * 32)
    await page.goto(f"{plane.url}/?token={plane.token}#/workers/{worker['id']}/details")
    section = page.get_by_role("region", name="Adoption")
    await expect(section).to_contain_text("9f" * 32)
    await section.get_by_role("button", name="Adopt…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Adopt", exact=True).click()
    await expect(section).to_have_count(0)


async def test_several_are_adopted_together_and_what_is_trusted_is_left_as_it_is(
    page: Page, plane: LonePlane
) -> None:
    found = [
        await find(plane, name, certificate) for name, certificate in (("one", "a1" * 32), ("two", None))
    ]
    await page.goto(f"{plane.url}/?token={plane.token}")
    for name in ("one", "two", "live"):
        await page.get_by_label(f"Select {name}").check()
    await page.get_by_role("region", name="Selection").get_by_role("button", name="Adopt…").click()
    dialog = page.get_by_role("dialog", name="Adopt 2 workers?")
    await expect(dialog).to_contain_text("LCM trusts it already.")
    await expect(dialog).to_contain_text("the first one is pinned")
    await dialog.get_by_role("button", name="Adopt", exact=True).click()
    await expect(page.get_by_text("not adopted", exact=True)).to_have_count(0)
    for worker in found:
        assert (await plane.admin.get(f"/api/workers/{worker['id']}"))["is_trusted"] is True
