"""A real Prometheus scrapes every process of LCM, and evaluates the alert rules on what it gets."""

import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from support.patience import PATIENCE_SECONDS
from support.ports import reserve_port
from support.processes import RunningLcm, eventually, running_lcm

ROOT = Path(__file__).parents[2]
PROMETHEUS = shutil.which("prometheus", path=f"{Path(sys.prefix) / 'bin'}")
PROCESSES = ("control_plane", "worker_controller", "resource_scheduler", "lablet_controller")

pytestmark = pytest.mark.skipif(
    PROMETHEUS is None, reason="no Prometheus here; tools/install-prometheus says why"
)


@pytest.fixture(scope="module")
def lcm() -> Iterator[RunningLcm]:
    with running_lcm("--workers", "2") as running:
        yield running


@pytest.fixture(scope="module")
def prometheus(lcm: RunningLcm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address."""
    assert PROMETHEUS is not None
    directory, port = tmp_path_factory.mktemp("prometheus"), reserve_port()
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ROOT / "deploy" / "prometheus" / "rules.yaml")],
        "scrape_configs": [
            {
                "job_name": f"lcm-{process.replace('_', '-')}",
                "static_configs": [{"targets": [f"127.0.0.1:{lcm.ready.ports[process]}"]}],
            }
            for process in PROCESSES
        ],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(
            [
                PROMETHEUS,
                f"--config.file={directory}/prometheus.yml",
                f"--storage.tsdb.path={directory}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stderr=log,
        )
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(timeout=PATIENCE_SECONDS)


class Asked:
    """Prometheus' own API."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url

    async def get(self, path: str, **query: str) -> Any:
        """What it answers; None while it starts."""
        try:
            async with self._http.get(f"{self._url}/api/v1/{path}", params=query) as response:
                return (await response.json())["data"] if response.status == 200 else None
        except aiohttp.ClientConnectionError:
            return None

    async def values(self, expression: str) -> list[float]:
        found = await self.get("query", query=expression)
        return [float(each["value"][1]) for each in found["result"]] if found else []


@pytest.fixture
async def asked(prometheus: str) -> AsyncIterator[Asked]:
    async with aiohttp.ClientSession() as http:
        yield Asked(http, prometheus)


async def test_every_process_is_scraped_without_an_error(asked: Asked) -> None:
    async def all_are_up() -> bool:
        return await asked.values('up{job=~"lcm-.+"}') == [1.0] * len(PROCESSES)

    await eventually(all_are_up)
    targets = (await asked.get("targets"))["activeTargets"]
    assert {target["lastError"] for target in targets} == {""}


@pytest.mark.parametrize("controller", ["worker_controller", "resource_scheduler", "lablet_controller"])
async def test_each_controller_has_one_leader(asked: Asked, controller: str) -> None:
    async def leads() -> bool:
        return await asked.values(f"sum({controller}_leader)") == [1.0]

    await eventually(leads)


async def test_the_rules_can_be_evaluated_and_find_nothing_to_page_about(asked: Asked) -> None:
    async def are_evaluated() -> list[dict[str, Any]]:
        found = await asked.get("rules")
        rules = [rule for group in found["groups"] for rule in group["rules"]] if found else []
        return rules if rules and all(rule["health"] == "ok" for rule in rules) else []

    rules = await eventually(are_evaluated)
    firing = [rule["name"] for rule in rules if rule["state"] == "firing"]
    assert firing == []
