"""No secret shows in anything LCM says, writes or keeps: canaries everywhere, and a search through it all."""

import asyncio
import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from lcm.control_plane.access.sealing import KeyFile
from lcm.control_plane.access.secrets import SecretStore
from lcm.control_plane.api.app import openapi_document
from lcm.control_plane.store.sqlite import SqliteStore
from lcm.core.redaction import MASK
from support.api import Api, admin_of, person
from support.canaries import SHOWN_ON_PURPOSE, Canaries, forms, headers_text, suite_canaries
from support.issuer import Issuer
from support.lablet_desk import LAB
from support.lone_plane import LonePlane, lone_plane
from support.patience import PATIENCE_SECONDS
from support.processes import RunningLcm, eventually, running_lcm

ROLES = ("viewer", "operator", "admin", "controller")


@asynccontextmanager
async def observed(url: str, token: str | None, canaries: Canaries) -> AsyncIterator[Api]:
    """A person whose every answer is kept."""

    async def keep(_: Any, __: Any, params: aiohttp.TraceResponseChunkReceivedParams) -> None:
        canaries.collect(f"answer to {params.method} {params.url.path}", params.chunk)

    async def keep_headers(_: Any, __: Any, params: aiohttp.TraceRequestEndParams) -> None:
        canaries.collect(
            f"headers of {params.method} {params.url.path}", headers_text(params.response.headers)
        )

    tracing = aiohttp.TraceConfig()
    tracing.on_response_chunk_received.append(keep)
    tracing.on_request_end.append(keep_headers)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession(url, headers=headers, trace_configs=[tracing]) as session:
        yield Api(session)


IDS = {
    "name": "small",
    "token_id": "x",
    "lab_id": "l",
    "session_id": "s",
    "definition_id": "d",
    "batch_id": "b",
    "peer": "p",
    "n": "1",
}
"""For the parts of paths; only workers exist."""


async def ask_everything(api: Api, worker: Any) -> None:
    """Every public route that can be read, and wrong requests that carry secrets."""
    for path, operations in openapi_document()["paths"].items():
        if "get" in operations and path not in NEVER_END and "/internal/" not in path:
            await api.call("GET", path.format_map({**IDS, "worker_id": worker["id"]}))


async def misuse_secrets(api: Api, secret: str) -> None:
    """Put secrets where they do not belong; no answer may repeat them."""
    for method, path, body in (
        ("POST", "/api/session", {"token": secret, "extra": 1}),
        ("POST", "/api/session", {"token": secret * 1000}),
        ("POST", "/api/session", {"token": [secret]}),
        ("POST", "/api/tokens", {"name": secret, "role": secret}),
        ("POST", "/api/workers", {"name": secret, "template_name": "small", "tags": {"aws:x": secret}}),
    ):
        status, _ = await api.call(method, path, body)
        assert status in (401, 422), path
    async with api.session.post(
        "/api/session", data=f'{{"token": "{secret}', headers={"Content-Type": "application/json"}
    ) as response:
        assert response.status == 422


async def license_it(admin: Api, worker: Any, secrets: dict[str, str]) -> None:
    """With a token that CML does not know, and quotes in its refusal."""
    path = f"/api/workers/{worker['id']}"
    secrets["license token"] = 'Lc9~"token\\of+an/account='
    secrets["fleet license token"] = "Fl7-fleet-token-of-an-account"
    await admin.accepted("POST", f"{path}/license", {"token": secrets["license token"]})

    async def is_refused() -> bool:
        return bool((await admin.get(path))["license"]["last_error"])

    await eventually(is_refused)
    status, _ = await admin.call("PUT", "/api/settings/license", {"token": secrets["fleet license token"]})
    assert status == 200
    status, _ = await admin.call("POST", f"{path}/license", {"token": [secrets["license token"]]})
    assert status == 422


async def live_a_life(lcm: RunningLcm, canaries: Canaries) -> None:
    secrets = canaries.secrets
    async with person(lcm.url, secrets["admin"]) as unobserved:
        _, made = await unobserved.call("POST", "/api/tokens", {"name": "canary", "role": "operator"})
        secrets["token"] = made["token"]
        async with unobserved.session.post("/api/session", json={"token": made["token"]}) as response:
            cookie = re.search(r"(lcm_session_\d+)=([^;]+)", response.headers["Set-Cookie"])
            assert cookie is not None
            cookie_name, secrets["session"] = cookie.groups()
    async with (
        observed(lcm.url, secrets["admin"], canaries) as admin,
        observed(lcm.url, secrets["token"], canaries) as operator,
        observed(lcm.url, None, canaries) as browser,
        asyncio.TaskGroup() as tasks,
    ):

        async def listen() -> None:
            async with admin.session.get("/api/events/stream") as response:
                async for chunk in response.content.iter_any():
                    canaries.collect("stream", chunk)

        listening = tasks.create_task(listen())
        worker = await admin.create("canary")
        await admin.until(worker, "running", cml_ready=True)
        await operator.act(worker, "stop")
        await operator.until(worker, "stopped")
        await operator.act(worker, "start")
        await operator.until(worker, "running", cml_ready=True)
        await license_it(admin, worker, secrets)
        await ask_everything(admin, worker)
        await browser.call("GET", "/api/session", headers={"Cookie": f"{cookie_name}={secrets['session']}"})
        await browser.call("GET", "/api/workers", headers={"X-API-Key": secrets["controller"]})
        await browser.call("GET", "/api/internal/workers", headers={"X-API-Key": secrets["admin"]})
        for name in ("admin", "token", "controller"):
            await misuse_secrets(admin, secrets[name])
        await admin.act(worker, "delete")
        await admin.until(worker, "terminated")
        for url in (f"{lcm.url}/metrics", f"{lcm.url}/health", f"{lcm.worker_controller_url}/metrics"):
            async with aiohttp.ClientSession() as session, session.get(url) as response:
                canaries.collect(url, await response.text())
        async with aiohttp.ClientSession(headers={"X-API-Key": secrets["controller"]}) as controller:
            for path in ("/info", "/health", "/admin/stats"):
                async with controller.get(lcm.worker_controller_url + path) as response:
                    canaries.collect(path, await response.text())
            async with controller.get(f"{lcm.url}/api/internal/workers?include_terminated=true") as response:
                canaries.collect("internal records", await response.text())
        listening.cancel()


def arguments_of(pid: int) -> list[bytes]:
    """The command lines of a process and of all that it started, as every user of the host can read them."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
    family, found = [pid], []
    for one in family:
        family += [child for child, parent in parents.items() if parent == one]
        found.append(Path(f"/proc/{one}/cmdline").read_bytes())
    assert len(found) > 1, "the simulator is a process of its own"
    return found


async def read_the_audit_log(lcm: RunningLcm, canaries: Canaries) -> None:
    async with person(lcm.url, canaries.secrets["admin"]) as admin:
        for form in ("json", "csv"):
            async with admin.session.get(f"/api/audit?limit=500&format={form}") as response:
                text = await response.text()
                assert "/api/tokens" in text
                canaries.collect(f"audit log as {form}", text)


async def test_no_secret_shows_in_answers_logs_events_metrics_or_the_database(tmp_path: Path) -> None:
    canaries = Canaries(
        {role: f'K7{role}~"q\\{role[::-1]}+/=%41&9-and-long-enough-for-a-key' for role in ROLES}
    )
    (tmp_path / "keys.json").write_text(json.dumps(canaries.secrets))
    secret_key = base64.b64encode(b"W2 canary that seals everything!").decode()
    canaries.secrets |= {
        "secret key": secret_key,
        "raw secret key": "W2 canary that seals everything!",
        "password": 'Pw4cml~"\\canary+/=',
        "cloud key": "AKIACANARY0000000000",
        "cloud secret": "x8Canary/Cloud+Secret/Cloud+Secret012345",
    }
    environment = {
        "LCM_SECRET_KEY": secret_key,
        "CML_DEFAULT_PASSWORD": canaries.secrets["password"],
        "CML_WORKER_API_PASSWORD": canaries.secrets["password"],
        "AWS_ACCESS_KEY_ID": canaries.secrets["cloud key"],
        "AWS_SECRET_ACCESS_KEY": canaries.secrets["cloud secret"],
    }
    options = ("--workers", "1", "--data-dir", str(tmp_path), "--log-level", "DEBUG", "--log-json")
    with running_lcm(*options, **environment) as lcm:
        await live_a_life(lcm, canaries)
        for line in arguments_of(lcm.process.pid):
            canaries.collect("arguments", line)
        await read_the_audit_log(lcm, canaries)
        for path in tmp_path.glob("lcm.db*"):
            canaries.collect(path.name, path.read_bytes())
        lcm.process.terminate()
        assert lcm.process.wait(timeout=PATIENCE_SECONDS) == 0
        log = lcm.stderr()
    for path in tmp_path.iterdir():
        if path.name != "keys.json":
            canaries.collect(f"{path.name} afterwards", path.read_bytes())
    canaries.collect("log", log)
    for form in ([], ["--json"]):
        shown = subprocess.run(
            [sys.executable, "-m", "lcm", "config", *form],
            env={**os.environ, **environment},
            capture_output=True,
            check=True,
        )
        assert b"LCM_SECRET_KEY" in shown.stdout
        canaries.collect("settings", shown.stdout + shown.stderr)
    assert len(canaries.secrets) >= 8
    kinds = {where.split(" ")[0] for where, _ in canaries.collected}
    assert {"answer", "headers", "stream", "log", "lcm.db", "arguments", "settings", "audit"} <= kinds
    assert canaries.found() == []
    assert MASK not in log, "something tried to log a secret"


NEVER_END = ("/api/events/stream", "/api/internal/peers/feed")


async def test_no_secret_shows_on_any_route_in_any_key_or_in_what_is_kept(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Every route there is, public and internal, asked with secrets in its body, path and headers."""
    canaries = Canaries(
        {
            **{role: f'K7{role}~"q\\{role[::-1]}+/=%41&9-and-long-enough-for-a-key' for role in ROLES},
            "license token": 'Lc9~"token\\of+an/account=',
            "fleet license token": "Fl7-fleet-token-of-an-account",
            "user of nodes": "cn7-user~of-nodes",
            "password of nodes": 'Kw7~"canary\\of+nodes/=%41',
        }
    )
    secrets = canaries.secrets
    (tmp_path / "keys.json").write_text(json.dumps({role: secrets[role] for role in ROLES}))
    async with (
        lone_plane(tmp_path) as plane,
        observed(plane.url, secrets["admin"], canaries) as admin,
        asyncio.TaskGroup() as tasks,
    ):
        _, made = await plane.admin.call("POST", "/api/tokens", {"name": "canary", "role": "operator"})
        secrets["token"] = made["token"]
        async with plane.admin.session.post("/api/session", json={"token": made["token"]}) as response:
            secrets["session"] = response.headers["Set-Cookie"].split(";")[0].partition("=")[2]

        async def listen() -> None:
            async with admin.session.get("/api/events/stream") as response:
                async for chunk in response.content.iter_any():
                    canaries.collect("stream", chunk)

        async def follow() -> None:
            headers = {"X-API-Key": secrets["controller"], "X-LCM-Service": "control-plane"}
            async with admin.session.get("/api/internal/peers/feed", headers=headers) as response:
                async for chunk in response.content.iter_any():
                    canaries.collect("news", chunk)

        listening, following = tasks.create_task(listen()), tasks.create_task(follow())
        worker = f"/api/workers/{plane.worker_id}"
        await admin.accepted("POST", f"{worker}/license", {"token": secrets["license token"]})
        refusal = {"reason": "CML refused …"}
        for step in ("start", "fail", "start"):
            await plane.accepted(f"/{{id}}/license/{step}-registration", refusal)
        await admin.call("PUT", "/api/settings/license", {"token": secrets["fleet license token"]})
        login = {"username": secrets["user of nodes"], "password": secrets["password of nodes"]}
        new = {"name": "canary", "lab_yaml": LAB, "access": login}
        _, definition = await admin.call("POST", "/api/lablet-definitions", new)
        place = f"/api/lablet-definitions/{definition['id']}"
        assert (await admin.call("PUT", f"{place}/access", login))[1]["has_access_login"]
        await admin.call("PUT", place, {"lab_yaml": LAB.replace("Basics", "More"), "access": login})
        await ask_every_route(plane, admin, canaries, definition["id"])
        await admin.call("POST", "/api/secret-keys/rotate")
        for item in (await plane.kv.list_prefix("/")).items:
            canaries.collect("key", f"{item.key} {item.value.decode()}")
        for path in tmp_path.glob("lcm.db*"):
            canaries.collect(path.name, path.read_bytes())
        listening.cancel()
        following.cancel()
    canaries.collect("afterwards", (tmp_path / "lcm.db").read_bytes())
    canaries.collect("log", "".join(capfd.readouterr()))
    kinds = {where.split(" ")[0] for where, _ in canaries.collected}
    assert {"answer", "headers", "stream", "log", "lcm.db", "key", "news"} <= kinds
    assert canaries.found() == []


async def ask_every_route(plane: LonePlane, admin: Api, canaries: Canaries, definition_id: str) -> None:
    """First as they are meant, then with every secret where it does not belong."""
    bodies: list[Any] = [{}, *({"token": secret, "name": secret} for secret in canaries.secrets.values())]
    keys = {"X-API-Key": canaries.secrets["controller"], "X-LCM-Service": "worker-controller"}
    for path, operations in openapi_document()["paths"].items():
        if path in NEVER_END:
            continue
        where = path.format_map({**IDS, "worker_id": plane.worker_id, "definition_id": definition_id})
        for method in operations:
            if (method, path) in SHOWN_ON_PURPOSE or (method, path) == ("put", "/api/settings/license"):
                continue
            for body in bodies if method != "get" else bodies[:1]:
                headers = {**keys, "X-LCM-Epoch": "1"} if "/internal/" in path else {}
                async with admin.session.request(method, where, json=body, headers=headers) as response:
                    await response.read()
                    assert response.status < 500, path


async def test_stored_secrets_are_not_readable_in_the_databases_bytes(tmp_path: Path) -> None:
    canaries = Canaries({"password": "cml password canary", "licence": 'licence~"canary\\token/+'})
    key_file = KeyFile(tmp_path / "secret-keys.json")
    async with SqliteStore(tmp_path / "lcm.db") as store:
        secrets = SecretStore(store, key_file.load_or_create(), key_file)
        for number in range(20):
            for purpose, secret in canaries.secrets.items():
                await secrets.put(purpose, f"w{number}", secret)
        canaries.secrets["key before"] = json.loads((tmp_path / "secret-keys.json").read_text())["keys"][0]
        assert await secrets.rotate() == 40
        canaries.secrets["key after"] = json.loads((tmp_path / "secret-keys.json").read_text())["keys"][0]
        assert await secrets.get("password", "w7") == canaries.secrets["password"]
        for path in tmp_path.glob("lcm.db*"):
            canaries.collect(path.name, path.read_bytes())
    canaries.collect("afterwards", (tmp_path / "lcm.db").read_bytes())
    assert canaries.found() == []


@pytest.mark.parametrize("how", range(9))
def test_the_search_finds_a_secret_in_every_form(how: int) -> None:
    canaries = Canaries({"x": 'a~"secret\\with/+signs'})
    _, form = list(forms(canaries.secrets["x"]))[how]
    canaries.collect("here", b"before " + form + b" after")
    assert canaries.found()


async def test_a_secret_that_shows_in_any_test_is_found_wherever_it_is(tmp_path: Path) -> None:
    """What the whole suite is searched for: here a secret is the name of a worker, which shows everywhere."""
    secret = "a-canary-that-sings"
    options = ("--workers", "0", "--data-dir", str(tmp_path), "--log-level", "DEBUG")
    with running_lcm(*options) as lcm:
        suite_canaries.know("secret", secret)
        async with admin_of(lcm) as admin, admin.stream() as stream:
            worker = await admin.create(secret)
            await stream.until("worker.created")
            await admin.until(worker, "running")
    found = suite_canaries.take_found()
    suite_canaries.forget()
    for where in ("the answer to POST /api/workers", "an event of the stream", "lcm.db-wal", "the log"):
        assert f"secret as plain in {where}" in found


async def test_a_token_of_the_identity_provider_is_among_what_is_searched_for() -> None:
    token = Issuer().token(datetime.now(UTC))  # noqa: TID251 - as an identity provider does
    suite_canaries.search("a log", f"refused: Bearer {token}")
    assert "token of the identity provider as plain in a log" in suite_canaries.take_found()
