"""Signing in at the identity provider, in a real browser: its rules for cookies and redirects decide."""

import re
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Page, expect

from support.issuer import CLIENT, running_issuer
from support.processes import running_lcm

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.provokes("401 GET /api/session")
async def test_a_person_signs_in_at_the_identity_provider_and_out_again(page: Page) -> None:
    async with running_issuer() as issuer:
        issuer.address = issuer.address.replace("127.0.0.1", "localhost")  # another site, as in reality
        with running_lcm("--workers", "1", OIDC_ISSUER=issuer.address, OIDC_CLIENT_ID=CLIENT) as lcm:
            await page.goto(lcm.url)
            await page.get_by_role("link", name="Sign in with localhost").click()
            await page.wait_for_selector('[data-connection="live"]')
            assert page.url.rstrip("/#") == lcm.url
            [cookie] = await page.context.cookies()
            assert cookie["name"] == f"lcm_session_{urlsplit(lcm.url).port}"
            assert (cookie["sameSite"], cookie["httpOnly"]) == ("Strict", True)
            await page.reload()
            await page.wait_for_selector('[data-connection="live"]')
            await page.get_by_role("button", name="Sign out").click()
            await expect(page.get_by_label("Access token")).to_be_visible()
            assert await page.context.cookies() == []


@pytest.mark.provokes("401 GET /api/session")
async def test_the_page_names_the_reason_to_an_account_without_a_role(page: Page) -> None:
    async with running_issuer() as issuer:
        issuer.id_claims = issuer.access_claims = {"roles": ["staff"]}
        with running_lcm("--workers", "0", OIDC_ISSUER=issuer.address, OIDC_CLIENT_ID=CLIENT) as lcm:
            await page.goto(lcm.url)
            await page.get_by_role("link", name=re.compile("^Sign in with")).click()
            await expect(page.get_by_role("alert")).to_contain_text("no role in this LCM")
            assert "sign_in" not in page.url
            await page.reload()
            await expect(page.get_by_label("Access token")).to_be_visible()
            await expect(page.get_by_role("alert")).to_have_count(0)
