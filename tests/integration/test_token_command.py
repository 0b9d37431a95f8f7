"""`lcm token` and `lcm secrets`, as a person at a terminal uses them beside a running LCM."""

import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from lcm.control_plane.access.identity import COOKIE
from lcm.control_plane.access.sealing import SecretBox
from lcm.control_plane.access.secrets import SecretStore
from lcm.control_plane.store.sqlite import SqliteStore
from support.api import person
from support.processes import RunningLcm, lcm_to_its_end, running_lcm


def on(lcm: RunningLcm, *arguments: str) -> str:
    done = lcm_to_its_end(*arguments, "--data-dir", lcm.ready.data_dir)
    assert done.code == 0, done.stderr
    return done.stdout


def refused(*arguments: str) -> str:
    done = lcm_to_its_end(*arguments)
    assert done.code == 1
    assert "Traceback" not in done.stderr
    return done.stderr


async def test_a_token_is_made_used_listed_and_revoked(lcm: RunningLcm) -> None:
    made = on(lcm, "token", "create", "--name", "ci", "--role", "viewer", "--expires", "90d").strip()
    assert re.fullmatch(r"lcm_[\w-]{43}", made)
    async with person(lcm.url, made) as api:
        assert (await api.get("/api/session")).items() >= {"actor": "ci", "role": "viewer"}.items()
        (listed,) = json.loads(on(lcm, "token", "list", "--json"))
        assert (listed["name"], listed["role"], listed["created_by"]) == ("ci", "viewer", "admin")
        assert made not in on(lcm, "token", "list")
        on(lcm, "token", "revoke", "ci")
        assert (await api.call("GET", "/api/session"))[0] == 401
    assert json.loads(on(lcm, "token", "list", "--json")) == []


def test_a_rotation_says_which_key_seals_now(lcm: RunningLcm) -> None:
    done = lcm_to_its_end("secrets", "rotate", "--data-dir", lcm.ready.data_dir)
    assert done.code == 0
    assert re.search(r"Key [0-9a-f]{12} seals now; 0 secrets", done.stderr)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("token", "create", "--name", "x", "--role", "viewer", "--expires", "soon"), "45m, 12h or 90d"),
        (("token", "create", "--name", "admin", "--role", "viewer"), "reserved for the keys"),
        (("token", "revoke", "nobody"), "there is no token 'nobody'"),
        (("token", "revoke", "[bold] [/x]"), "there is no token '[bold] [/x]'"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(
    arguments: tuple[str, ...], says: str, lcm: RunningLcm
) -> None:
    assert says in refused(*arguments, "--data-dir", lcm.ready.data_dir).replace("\n", " ")


def test_where_no_lcm_runs_that_is_said(tmp_path: Path) -> None:
    assert "--data-dir" in refused("token", "list", "--data-dir", str(tmp_path))
    with running_lcm("--workers", "0", "--data-dir", str(tmp_path)):
        address = (tmp_path / "control-plane.url").read_text()
    assert not (tmp_path / "control-plane.url").exists()
    complaint = refused("token", "list", "--data-dir", str(tmp_path), "--url", address.strip())
    assert "is LCM running?" in complaint.replace("\n", " ")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("LCM_SECRET_KEY", "too short to be one", "32 bytes in base64"),
        ("OIDC_ISSUER", "http://issuer.example", "must begin with https://"),
    ],
)
def test_a_setting_lcm_cannot_run_with_is_said_in_one_sentence(
    name: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    complaint = refused("up", "--port", "0", "--workers", "0").replace("\n", " ")
    assert says in complaint
    assert "too short to be one" not in complaint


def test_a_missing_templates_file_is_said_in_one_sentence() -> None:
    complaint = refused("up", "--port", "0", "--workers", "0", "--templates", "/nowhere.yaml")
    assert "cannot read /nowhere.yaml" in complaint.replace("\n", " ")


async def test_another_secret_key_than_the_one_that_sealed_is_noticed_at_start(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "lcm.db") as store:
        await SecretStore(store, SecretBox.of(bytes(32))).put("cml-password", "w1", "some password")
    complaint = refused("up", "--port", "0", "--workers", "0", "--data-dir", str(tmp_path))
    assert "does not open the stored secrets" in complaint.replace("\n", " ")


async def test_tokens_and_sessions_outlive_a_restart(tmp_path: Path) -> None:
    options = ("--workers", "0", "--data-dir", str(tmp_path))
    with running_lcm(*options) as lcm:
        token = on(lcm, "token", "create", "--name", "lasting", "--role", "viewer").strip()
        async with (
            person(lcm.url, None) as browser,
            browser.session.post("/api/session", json={"token": token}) as response,
        ):
            session = response.headers["Set-Cookie"].partition(";")[0].partition("=")[2]
        lcm.process.kill()
        lcm.process.wait()
    with running_lcm(*options) as lcm:
        async with person(lcm.url, token) as api:
            assert (await api.get("/api/session"))["actor"] == "lasting"
        async with person(lcm.url, None) as browser:
            cookie = f"{COOKIE}_{urlsplit(lcm.url).port}={session}"  # it names the port, which is another one
            status, answer = await browser.call("GET", "/api/session", headers={"Cookie": cookie})
            assert (status, answer["actor"]) == (200, "lasting")
