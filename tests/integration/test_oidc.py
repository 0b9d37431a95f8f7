"""LCM with an identity provider: its tokens open the API and the dashboard, and LCM's own still do."""

from datetime import UTC, datetime

import aiohttp

from support.api import person
from support.canaries import watched_session
from support.issuer import running_issuer
from support.processes import running_lcm


async def test_people_of_the_identity_provider_come_in_with_their_role() -> None:
    async with running_issuer() as issuer:
        with running_lcm("--workers", "0", OIDC_ISSUER=issuer.address, OIDC_AUDIENCE="lcm") as lcm:
            now = datetime.now(UTC)  # noqa: TID251 - another process reads the clock, too
            async with person(lcm.url, issuer.token(now, roles=["lcm-viewer"])) as ada:
                assert (await ada.get("/api/session")).items() >= {
                    "actor": "oidc:ada",
                    "role": "viewer",
                }.items()
                body = {"name": "x", "template_name": "small"}
                assert (await ada.call("POST", "/api/workers", body))[0] == 403
            for token, status in (
                (issuer.token(now, roles=["nothing-here"]), 403),
                (issuer.token(now, aud="somebody-else"), 401),
                (issuer.token(now)[:-4] + "AAAA", 401),
            ):
                async with person(lcm.url, token) as stranger:
                    assert (await stranger.call("GET", "/api/workers"))[0] == status
            jar = aiohttp.CookieJar(unsafe=True)
            async with watched_session(lcm.url, cookie_jar=jar) as browser:
                async with browser.post("/api/session", json={"token": issuer.token(now)}) as response:
                    assert response.status == 200
                async with browser.get("/api/session") as response:
                    assert (await response.json()).items() >= {
                        "actor": "oidc:ada",
                        "role": "operator",
                    }.items()
            async with person(lcm.url, lcm.ready.token) as admin:
                assert (await admin.get("/api/session"))["role"] == "admin"
            assert len(issuer.calls) == 2
