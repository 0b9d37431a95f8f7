"""`lcm simulate` as a person or a script uses it."""

import asyncio
import json
import random
import signal
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from lcm.core.timeouts import timeout
from support.patience import PATIENCE_SECONDS
from support.processes import RunningSimulator, eventually, running_simulator


async def ask(http: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    async with http.get(f"{url}/api/v0/system_information", ssl=False) as response:
        body: dict[str, Any] = await response.json()
        return body


@pytest.fixture(scope="module")
def simulator() -> Iterator[RunningSimulator]:
    with running_simulator("--workers", "3", "--seed", "7", "--cml-version", "2.10.0") as running:
        yield running


async def test_the_ready_line_tells_all_that_is_needed_to_use_every_worker(
    simulator: RunningSimulator,
) -> None:
    info = simulator.info
    assert len(info.workers) == 3
    assert info.license_token
    async with aiohttp.ClientSession() as http:
        for worker in info.workers:
            told = await ask(http, worker.url)
            assert told["ready"] is True
            assert told["version"].startswith("2.10.0")
            login = {"username": worker.username, "password": worker.password}
            async with http.post(f"{worker.url}/api/v0/authenticate", json=login, ssl=False) as response:
                assert response.status == 200
        async with http.get(f"{info.control_url}/instances") as response:
            listed = (await response.json())["instances"]
    assert [i["id"] for i in listed] == [worker.instance_id for worker in info.workers]
    assert [i["private_ip"] for i in listed] == [worker.private_ip for worker in info.workers]
    assert all(i["tags"]["cml-managed"] == "true" for i in listed)
    assert not any("lcm:managed_by" in i["tags"] for i in listed)


def test_ctrl_c_ends_it_quickly_and_without_complaint() -> None:
    with running_simulator("--workers", "2") as simulator:
        simulator.process.send_signal(signal.SIGINT)
        assert simulator.process.wait(timeout=PATIENCE_SECONDS) == 0
        assert simulator.stderr() == ""


def test_without_json_a_person_can_read_it() -> None:
    command = [sys.executable, "-m", "lcm", "simulate", "--workers", "12"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("Ctrl-C"):
                break
        process.terminate()
        assert process.wait(timeout=PATIENCE_SECONDS) == 0
    text = "".join(lines)
    assert text.startswith("The simulated cloud is ready")
    assert text.count("https://127.64.") == 10
    assert "and 2 more" in text


def test_a_version_that_is_none_is_refused_before_anything_starts() -> None:
    command = [sys.executable, "-m", "lcm", "simulate", "--cml-version", "two"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 2
    assert "not a CML version" in done.stderr


async def test_people_make_labs_live_on_every_worker_until_told_not_to(simulator: RunningSimulator) -> None:
    workers = f"{simulator.info.control_url}/cml/workers"
    async with aiohttp.ClientSession() as http:

        async def looked() -> list[dict[str, Any]]:
            async with http.get(workers) as response:
                listed: list[dict[str, Any]] = await response.json()
                return listed

        async def all_are_alive() -> bool:
            return all(worker["lab_count"] for worker in await looked())

        await eventually(all_are_alive)
        async with http.patch(workers, json={"people": False}) as response:
            assert response.status == 204
        assert not any(worker["people"] for worker in await looked())


async def test_one_process_serves_a_thousand_workers() -> None:
    with running_simulator("--workers", "1000", "--no-people") as simulator:
        workers = simulator.info.workers
        assert len({worker.private_ip for worker in workers}) == 1000
        sample = random.Random(1).sample(workers, 50)
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname = False
        trusting.verify_mode = ssl.CERT_NONE
        seen: Counter[str] = Counter()

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting)) as http:

            async def listen(url: str, login: dict[str, str]) -> None:
                async with http.post(f"{url}/api/v0/authenticate", json=login) as response:
                    token = await response.json()
                async with http.ws_connect(f"{url}/ws/ui") as socket:
                    await socket.send_json({"token": token})
                    seen[json.loads(await socket.receive_str())["event_type"]] += 1

            async with timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as tasks:
                for worker in sample:
                    login = {"username": worker.username, "password": worker.password}
                    tasks.create_task(listen(worker.url, login))
        assert seen == {"system_stats": len(sample)}
