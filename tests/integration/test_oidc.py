"""LCM with an identity provider: its tokens open the API and the dashboard, and LCM's own still do."""

from datetime import UTC, datetime

import aiohttp

from support.api import person
from support.canaries import watched_session
from support.issuer import CLIENT, running_issuer
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


async def test_a_browser_signs_in_at_the_identity_provider_and_out_and_both_are_audited() -> None:
    async with running_issuer() as issuer:
        client = {"OIDC_ISSUER": issuer.address, "OIDC_CLIENT_ID": CLIENT}
        jar = aiohttp.CookieJar(unsafe=True)
        with running_lcm("--workers", "0", **client) as lcm:
            async with watched_session(lcm.url, cookie_jar=jar) as browser:
                async with browser.get("/api/session/sign-in") as response:
                    assert await response.json() == {"identity_provider": "127.0.0.1"}
                async with browser.get("/api/session/oidc", allow_redirects=False) as response:
                    assert response.status == 303
                    page, cookie = response.headers["Location"], response.headers["Set-Cookie"]
                assert cookie.startswith("lcm_sign_in=")
                for attribute in ("HttpOnly", "Max-Age=600", "SameSite=lax"):
                    assert attribute in cookie
                back = issuer.sign_in(page)
                async with browser.get(back, allow_redirects=False) as response:
                    assert (response.status, response.headers["Location"]) == (303, "/")
                    given, taken = response.headers.getall("Set-Cookie")
                assert given.startswith("lcm_session_")
                assert "SameSite=strict" in given
                assert 0 < int(given.partition("Max-Age=")[2].partition(";")[0]) <= 300, (
                    "as long as its token"
                )
                assert taken.startswith('lcm_sign_in=""')
                async with browser.get("/api/session") as response:
                    session = await response.json()
                    assert (session["actor"], session["role"]) == ("oidc:ada", "operator")
                async with browser.get(back, allow_redirects=False) as response:
                    assert response.headers["Location"] == "/?sign_in=refused"
                async with browser.delete("/api/session", headers={"Origin": lcm.url}) as response:
                    assert response.status == 204
                async with browser.get("/api/session") as response:
                    assert response.status == 401
            async with person(lcm.url, lcm.ready.token) as admin:
                entries = (await admin.get("/api/audit"))["items"]
            actions = {(entry["action"], entry["principal_id"], entry["outcome"]) for entry in entries}
            assert ("GET /api/session/oidc/callback", "oidc:42", "done") in actions
            assert ("DELETE /api/session", "oidc:42", "done") in actions
            assert [entry for entry in entries if entry["outcome"] == "refused"]
