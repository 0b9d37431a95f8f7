"""`lcm up --ha`: the demonstration that the tutorial walks through."""

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import aiohttp
import msgspec
import pytest

from lcm.cli.ha import CONTROLLERS, LABLET_CONTROLLERS, SCHEDULERS, HaReady
from lcm.core.tls import TlsFiles
from support.api import Json, person
from support.booking import book, license_worker, session_in
from support.canaries import watched_session
from support.processes import eventually, lcm_to_its_end, running_command

pytestmark = pytest.mark.timeout(600)
"""Ten processes start; on a busy host that alone takes minutes."""


async def test_the_demonstration_survives_the_death_of_its_leader_and_of_a_control_plane() -> None:
    options = ("up", "--ha", "--port", "0", "--workers", "1", "--no-demo-sessions", "--speed", "20")
    environment = {"LEADER_LEASE_TTL": "7", "WORKER_WAIT_SECONDS": "0.1"}
    with running_command(*options, **environment) as (line, process, errors):
        ready = msgspec.json.decode(line, type=HaReady)

        async def leader_of(names: Sequence[str]) -> str | None:
            async with watched_session(timeout=aiohttp.ClientTimeout(total=2)) as session:
                for name in names:
                    with suppress(aiohttp.ClientError, TimeoutError):
                        async with session.get(f"http://127.0.0.1:{ready.ports[name]}/health") as response:
                            if (await response.json())["is_leader"]:
                                return name
            return None

        pairs = (CONTROLLERS, SCHEDULERS, LABLET_CONTROLLERS)
        first = [await eventually(partial(leader_of, names)) for names in pairs]
        for name in (*first, "control-plane-1"):
            os.kill(ready.processes[name], signal.SIGKILL)

        async def others_lead() -> bool:
            leaders = [await leader_of(names) for names in pairs]
            return None not in leaders and not set(leaders) & set(first)

        await eventually(others_lead)
        async with person(f"http://127.0.0.1:{ready.ports['control_plane']}", ready.token) as api:

            async def the_worker_runs() -> Json:
                with suppress(aiohttp.ClientError):
                    [worker] = (await api.get("/api/workers"))["items"]
                    return worker if worker["status"] == "running" and worker["cml_ready"] else None

            worker = await eventually(the_worker_runs)
            assert ready.aws_endpoint is not None
            await license_worker(api, ready.aws_endpoint, worker)
            session = await session_in(api, await book(api), "running")
            assert session["worker_id"] == worker["id"]
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
        errors.seek(0)
        assert "Traceback" not in errors.read()


async def test_with_tls_no_process_and_no_etcd_answers_in_clear() -> None:
    options = ("up", "--ha", "--tls", "--port", "0", "--workers", "0", "--no-demo-sessions")
    with running_command(*options) as (line, _, _):
        ready = msgspec.json.decode(line, type=HaReady)
        assert ready.ca_file is not None
        own = TlsFiles(
            Path(ready.ca_file).with_name("lcm.pem"),
            Path(ready.ca_file).with_name("lcm-key.pem"),
            Path(ready.ca_file),
        ).client_context()
        stranger = TlsFiles(authority=Path(ready.ca_file)).client_context()
        assert own is not None
        assert stranger is not None
        async with watched_session() as session:

            async def health_of(name: str) -> Json:
                url = f"https://127.0.0.1:{ready.ports[name]}/health"
                async with session.get(url, ssl=own.get()) as response:
                    assert response.status == 200, name
                    return await response.json(content_type=None)

            for name in (*ready.processes, "control_plane"):
                await health_of(name)
                with pytest.raises(aiohttp.ClientError):
                    await session.get(f"http://127.0.0.1:{ready.ports[name]}/health")
            with pytest.raises(aiohttp.ClientError):
                await session.get(f"https://127.0.0.1:{ready.ports['etcd']}/health", ssl=stranger.get())

            async def all_are_led() -> bool:
                for names in (CONTROLLERS, SCHEDULERS, LABLET_CONTROLLERS):
                    if not any([(await health_of(name))["is_leader"] for name in names]):
                        return False
                return True

            await eventually(all_are_led)
        assert ready.url.startswith("https://")


def test_a_process_that_does_not_start_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OIDC_ROLES", "nonsense")
    told = lcm_to_its_end("up", "--ha", "--port", "0", "--workers", "0")
    assert told.code == 1
    assert "control-plane-1 did not start" in told.stderr
    assert "OIDC_ROLES (environment): write a JSON object" in told.stderr
    assert "Traceback" not in told.stderr


def test_an_etcd_that_does_not_start_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETCD_ELECTION_TIMEOUT", "never")
    told = lcm_to_its_end("up", "--ha", "--port", "0", "--workers", "0")
    assert told.code == 1
    assert "etcd did not start" in told.stderr
    assert "never" in told.stderr
    assert "Traceback" not in told.stderr
