"""The reference of the API: served by LCM itself, from its own document, to people who are signed in."""

import json
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Page, expect

from e2e.test_accessibility import PHONE, SCHEMES, Scheme, open_page, violations
from lcm.control_plane.api.app import openapi_document
from lcm.control_plane.api.openapi import part_of
from support.lone_plane import LonePlane

pytestmark = pytest.mark.asyncio(loop_scope="module")

DOCUMENT = part_of(openapi_document(), internal=False)
PUBLIC = [operation["operationId"] for at in DOCUMENT["paths"].values() for operation in at.values()]


async def test_the_page_shows_every_public_operation_and_asks_nobody_else(
    page: Page, plane: LonePlane
) -> None:
    hosts, complaints = set(), []
    page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    await open_page(page, plane, "dark", "#/settings")
    await page.get_by_role("link", name="API reference").click()
    await expect(page.locator("[data-operation]")).to_have_count(len(PUBLIC))
    shown = await page.locator("[data-operation]").evaluate_all(
        "found => found.map(({ dataset }) => dataset.operation)"
    )
    assert sorted(shown) == sorted(PUBLIC)
    assert hosts == {urlsplit(plane.url).netloc}
    assert complaints == []  # a breach of the content security policy is one


async def test_an_operation_is_found_and_shown_with_access_parameters_schemas_and_an_example(
    page: Page, plane: LonePlane
) -> None:
    await open_page(page, plane, "dark", "#/settings/api")
    await page.get_by_label("Find operations").fill("create admin worker idempotency")
    await expect(page.get_by_role("status").filter(has_text="1 operation")).to_be_visible()
    operation = page.locator('[data-operation="create_worker"]')
    await operation.get_by_role("button").click()
    await expect(operation).to_contain_text("access: admin")
    await expect(operation.get_by_role("region", name="Parameters")).to_contain_text("idempotency-key")
    asked = operation.get_by_role("region", name="Request")
    await asked.locator("summary").first.click()
    await expect(asked.get_by_role("row", name="template_name")).to_contain_text("required")
    example = json.loads(await asked.locator("pre").inner_text())
    assert set(example) == {"name", "template_name"}
    answers = operation.get_by_role("region", name="Responses")
    await expect(answers).to_contain_text("WorkerView")
    await expect(answers).to_contain_text("Problem")
    await page.reload()  # the URL has both
    await expect(operation).to_contain_text("access: admin")
    await expect(page.locator("[data-operation]")).to_have_count(1)


@SCHEMES
async def test_the_reference_of_the_api_is_accessible(page: Page, plane: LonePlane, scheme: Scheme) -> None:
    await open_page(page, plane, scheme, "#/settings/api?operation=create_worker")
    operation = page.locator('[data-operation="create_worker"]')
    await operation.locator("summary").first.click()
    await expect(operation.get_by_role("table").nth(1)).to_be_visible()
    assert await violations(page) == []
    await page.set_viewport_size(PHONE)
    assert await violations(page) == []
