"""LCM with an identity provider: its tokens open the API and the dashboard, and LCM's own still do."""

import asyncio
import json
import stat
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from lcm.client import AsyncLcm
from lcm.client.contexts import config_path, find_context
from support.api import person
from support.canaries import watched_session
from support.issuer import CLIENT, DEVICE_CLIENT, running_issuer
from support.processes import Ended, lcm_to_its_end, running_lcm


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
                    assert await response.json() == {"identity_provider": "127.0.0.1", "device": None}
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


async def at_a_terminal(*arguments: str) -> Ended:
    """The issuer answers meanwhile."""
    run = partial(lcm_to_its_end, *arguments)
    return await asyncio.get_running_loop().run_in_executor(None, run)


async def test_a_login_with_a_code_is_renewed_until_the_provider_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    async with running_issuer() as issuer:
        issuer.device_interval_seconds, issuer.questions_before_the_person = 1.0, 1
        issuer.access_seconds = 20  # too short to be used without a renewal
        known = {"OIDC_ISSUER": issuer.address, "OIDC_DEVICE_CLIENT_ID": DEVICE_CLIENT}
        with running_lcm("--workers", "0", **known) as lcm:
            done = await at_a_terminal("login", lcm.url, "--device", "--name", "here")
            assert (done.code, done.stdout) == (0, ""), done.stderr
            assert f"Open {issuer.address}/device in any browser and enter the code " in done.stderr
            assert f"You are oidc:ada (operator) at {lcm.url}; the context is 'here'." in done.stderr
            assert stat.S_IMODE(config_path().stat().st_mode) == 0o600
            kept = find_context()
            done = await at_a_terminal("whoami")
            assert done.stdout == f"oidc:ada (operator) at {lcm.url}\n", done.stderr
            assert find_context().token != kept.token
            both = [at_a_terminal("get", "workers", "-o", "json") for _ in range(2)]
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(each) for each in both]
            assert [json.loads(task.result().stdout) for task in running] == [{"items": []}] * 2
            async with AsyncLcm() as client:
                assert (await client.who()).actor == "oidc:ada"
            issuer.end_all_sign_ins()
            done = await at_a_terminal("get", "workers")
            assert done.code == 4
            assert f"is over (invalid_grant); log in again: lcm login {lcm.url} --device" in done.stderr


async def test_a_login_with_a_code_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with running_lcm("--workers", "0") as lcm:
        done = await at_a_terminal("login", lcm.url, "--device")
        assert done.code == 4
        assert "its admin has to set OIDC_DEVICE_CLIENT_ID" in done.stderr
        assert not config_path().exists()
