"""A controller that runs as its own process is elected, answers, and says what it does."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from support.api import Json
from support.canaries import watched_session
from support.etcd import EtcdCluster, etcd_cluster
from support.ha import KEY, LcmProcess
from support.mongodb import mongo_server
from support.processes import eventually, lcm_to_its_end


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdCluster]:
    with etcd_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def plane(etcd: EtcdCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LcmProcess]:
    directory = tmp_path_factory.mktemp("shells")
    region = {"region": "us-east-1", "security_group_ids": ["sg-1"], "subnet_id": "subnet-1"}
    (directory / "regions.yaml").write_text(yaml.safe_dump({"aws_region_configs": {"us-east-1": region}}))
    config = directory / "lcm.yaml"
    settings = {
        "etcd_endpoints": list(etcd.endpoints),
        "regions_config_path": str(directory / "regions.yaml"),
        "lcm_data_dir": str(directory / "data"),
    }
    config.write_text(yaml.safe_dump(settings))
    process = LcmProcess("plane", ("control-plane", "--config", str(config)), {"CONTROL_PLANE_API_KEY": KEY})
    process.start()
    try:
        process.wait_until_answering()
        yield process
    finally:
        process.forget()


async def test_a_lablet_controller_is_elected_and_says_what_it_does(
    etcd: EtcdCluster, plane: LcmProcess
) -> None:
    service = "lablet-controller"
    environment = {
        "ETCD_ENDPOINTS": etcd.endpoints[0],
        "CONTROL_PLANE_API_URL": plane.url,
        "CONTROL_PLANE_API_KEY": KEY,
    }
    with ExitStack() as stack:
        shell = LcmProcess(service, (service,), environment)
        stack.callback(shell.forget)
        shell.start()
        shell.wait_until_answering()

        async def leading() -> Json:
            async with watched_session() as session, session.get(f"{shell.url}/health") as response:
                said = await response.json()
            return said if said["is_leader"] else None

        said = await eventually(leading)
        assert (said["instances_managed"], said["instances_running"]) == (0, 0)
        assert (said["epoch"], said["frozen"], said["coordination"]) == (1, [], "elected")
        held = etcd.ctl("get", f"/lcm/{service}/leader", "--print-value-only").stdout.decode().strip()
        assert held == said["instance_id"]


async def test_a_controller_whose_etcd_is_not_there_leads_nobody_and_says_so() -> None:
    environment = {"ETCD_ENDPOINTS": "127.0.0.1:9", "CONTROL_PLANE_API_KEY": KEY}
    shell = LcmProcess("lost", ("resource-scheduler",), environment)
    shell.start()
    try:
        shell.wait_until_answering()

        async def frozen() -> Json:
            async with watched_session() as session, session.get(f"{shell.url}/ready") as response:
                said = await response.json()
                return said if response.status == 503 else None

        said = await eventually(frozen)
        assert [reason.partition(":")[0] for reason in said["frozen"]] == ["coordination store"]
    finally:
        shell.forget()


async def test_a_second_controller_without_etcd_leads_nobody_and_says_what_to_set(plane: LcmProcess) -> None:
    environment = {"CONTROL_PLANE_API_URL": plane.url, "CONTROL_PLANE_API_KEY": KEY}

    async def health(shell: LcmProcess) -> Json:
        async with watched_session() as session, session.get(f"{shell.url}/health") as response:
            return await response.json()

    async def leading(shell: LcmProcess) -> Json:
        said = await health(shell)
        return said if said["is_leader"] else None

    async def refused(shell: LcmProcess) -> Json:
        said = await health(shell)
        return said if said["frozen"] else None

    with ExitStack() as stack:
        first, second = [LcmProcess(name, ("resource-scheduler",), environment) for name in ("one", "two")]
        for shell in (first, second):
            stack.callback(shell.forget)
        first.start()
        first.wait_until_answering()
        led = await eventually(lambda: leading(first))
        second.start()
        second.wait_until_answering()
        said = await eventually(lambda: refused(second))
        assert (led["coordination"], said["is_leader"]) == ("alone", False)
        assert led["instance_id"] in said["frozen"][0]
        assert "set ETCD_HOST or ETCD_ENDPOINTS for both" in said["frozen"][0]
        assert (await health(first))["epoch"] == led["epoch"]


# Commands that end by themselves.


def test_config_tells_values_and_sources_for_scripts() -> None:
    told = lcm_to_its_end(
        "config", "control-plane", "--set", "STORE_URL=mongodb://lcm:sesame@db/lcm", "--json"
    )
    settings = json.loads(told.stdout)["control-plane"]
    assert settings["STORE_URL"]["source"] == "flag"
    assert settings["CONTROL_PLANE_PORT"]["value"] == "8080"
    assert "sesame" not in told.stdout + told.stderr


def test_wrong_settings_end_the_start_with_one_message() -> None:
    told = lcm_to_its_end("worker-controller", "--set", "LEADER_LEASE_TTL=soon", "--set", "NO_SUCH=1")
    assert told.code == 1
    assert told.stdout == ""
    assert "these 2 settings are wrong" in told.stderr
    assert "Traceback" not in told.stderr


def test_records_are_copied_from_the_command_line(tmp_path: Path) -> None:
    with mongo_server() as mongo:
        path = tmp_path / "lcm.db"
        missing = lcm_to_its_end(
            "store", "copy", "--from", "sqlite", str(path), "--to", "mongodb", mongo.database("a")
        )
        assert (missing.code, "there is no file" in missing.stderr) == (1, True)
        subprocess.run([sys.executable, "-c", EMBEDDED, str(path)], check=True)
        for _ in range(2):  # again is fine
            url = mongo.database("lcm_copied_here")
            copied = lcm_to_its_end("store", "copy", "--from", "sqlite", str(path), "--to", "mongodb", url)
            assert copied.code == 0, copied.stderr
            assert "3 documents copied and compared" in copied.stdout


EMBEDDED = """
import asyncio, sys
from pathlib import Path
from lcm.control_plane.store.port import Document
from lcm.control_plane.store.sqlite import SqliteStore

async def main():
    async with SqliteStore(Path(sys.argv[1])) as store:
        for name in "abc":
            await store.insert(Document("worker", name, 1, b"{}", (f"name:{name}",)))

asyncio.run(main())
"""
