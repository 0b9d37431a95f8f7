"""`lcm up --ha`: the demonstration that the tutorial walks through."""

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import aiohttp
import msgspec
import pytest

from lcm.cli.ha import CONTROLLERS, LABLET_CONTROLLERS, SCHEDULERS, HaReady
from support.api import Json, person
from support.booking import book, license_worker, session_in
from support.canaries import watched_session
from support.processes import eventually, lcm_to_its_end, running_command


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


def test_a_process_that_does_not_start_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OIDC_ROLES", "nonsense")
    told = lcm_to_its_end("up", "--ha", "--port", "0", "--workers", "0")
    assert told.code == 1
    assert "control-plane-1 did not start" in told.stderr
    assert "OIDC_ROLES (environment): write a JSON object" in told.stderr
    assert "Traceback" not in told.stderr
