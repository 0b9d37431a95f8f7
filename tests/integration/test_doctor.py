"""`lcm doctor` over the wire: all is ok on the simulator, and each fault turns exactly its own line red."""

import gc
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import yaml
from aiobotocore.session import get_session

from lcm.cli.doctor import examine
from lcm.cli.findings import exit_code
from lcm.domain.diagnosis import Finding, Verdict
from lcm.worker_controller.ports import CHANGING_ACTIONS, READING_ACTIONS
from support.etcd import etcd_cluster
from support.mongodb import mongo_server
from support.processes import RunningSimulator, lcm_to_its_end, running_simulator

TEMPLATE = {
    "name": "kvm",
    "description": "One that can run CML.",
    "instance_type": "m8i.xlarge",
    "nested_virtualization": True,
    "cpu": 4,
    "memory_gb": 16,
    "disk_gb": 64,
    "max_nodes": 10,
    "usd_per_hour": 0.2,
}
DENIED = {"kind": "error", "code": "UnauthorizedOperation", "status": 403, "count": None}


@dataclass
class Account:
    """A simulated account with one worker, and the settings under which it is examined."""

    simulator: RunningSimulator
    http: aiohttp.ClientSession
    directory: Path
    flags: dict[str, str]
    template: dict[str, Any] = field(default_factory=lambda: dict(TEMPLATE))
    region: dict[str, Any] = field(default_factory=dict)
    source: str | None = None

    def write(self) -> None:
        regions = {"aws_region_configs": {self.region.get("region"): self.region}}
        if self.region:
            Path(self.flags["REGIONS_CONFIG_PATH"]).write_text(json.dumps(regions))
        templates = {"worker_templates": [self.template]}
        Path(self.flags["WORKER_TEMPLATES_CONFIG_PATH"]).write_text(yaml.safe_dump(templates))

    async def findings(self) -> list[Finding]:
        self.write()
        return await examine(None, self.flags, self.source)

    async def not_ok(self) -> dict[str, Verdict]:
        """The lines that are not ok; the ids in them differ from run to run."""
        return {each.check: each.verdict for each in await self.findings() if each.verdict is not Verdict.OK}

    async def red(self) -> list[str]:
        return [check for check, verdict in (await self.not_ok()).items() if verdict is Verdict.FAILED]

    async def control(self, method: str, name: str, body: Any = None) -> None:
        url = f"{self.simulator.info.control_url}/{name}"
        async with self.http.request(method, url, json=body) as response:
            response.raise_for_status()

    @asynccontextmanager
    async def ec2(self) -> AsyncIterator[Any]:
        client = get_session().create_client(
            "ec2",
            region_name=self.region["region"],
            endpoint_url=self.simulator.info.aws_endpoint,
            aws_access_key_id="any",
            aws_secret_access_key="any",
        )
        async with client as ec2:
            yield ec2


@pytest.fixture(scope="module")
def simulator() -> Iterator[RunningSimulator]:
    with running_simulator("--workers", "1") as running:
        yield running


@pytest.fixture
async def account(
    simulator: RunningSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Account]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")
    flags = {
        "AWS_ENDPOINT_URL": simulator.info.aws_endpoint,
        "CML_WORKER_API_PORT": str(simulator.info.cml_port),
        "LCM_DATA_DIR": str(tmp_path / "data"),
        "REGIONS_CONFIG_PATH": str(tmp_path / "regions.yaml"),
        "WORKER_TEMPLATES_CONFIG_PATH": str(tmp_path / "templates.yaml"),
    }
    region = msgspec.to_builtins(simulator.info.regions[0])
    async with aiohttp.ClientSession() as http:
        account = Account(simulator, http, tmp_path, flags, region=region)
        yield account
        await account.control("DELETE", "faults")
        await account.control("DELETE", "cml/faults")
        await account.control("PATCH", "account", {"vcpu_quota": 100_000, "clock_ahead_seconds": 0})


def unused_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
        return port


async def test_with_a_worker_that_runs_every_line_is_ok(account: Account) -> None:
    findings = await account.findings()
    assert [finding for finding in findings if finding.verdict is not Verdict.OK] == []
    kinds = {finding.check.split()[0] for finding in findings}
    assert {"credentials", "account", "clock", "image", "subnet", "security", "template", "quota"} <= kinds
    assert {"etcd", "mongodb", "disk", "cml", "ec2:RunInstances", "cloudwatch:GetMetricData"} <= kinds


async def test_nothing_in_the_account_is_changed(account: Account) -> None:
    await account.control("DELETE", "calls")
    async with account.ec2() as ec2:
        before = (await ec2.describe_instances())["Reservations"]
        await account.findings()
        assert (await ec2.describe_instances())["Reservations"] == before
    async with account.http.get(f"{account.simulator.info.control_url}/calls") as response:
        calls = await response.json()
    changes = [call for call in calls if not call["operation"].startswith("Describe")]
    assert {call["operation"] for call in changes} == {"RunInstances", *CHANGING_ACTIONS}
    assert {call["outcome"] for call in changes} == {"DryRunOperation"}


async def test_without_an_instance_its_permissions_are_unknown_and_not_ok(account: Account) -> None:
    account.region = msgspec.to_builtins(account.simulator.info.regions[1])
    account.source = "127.0.0.1"
    name = account.region["region"]
    assert exit_code(await account.findings()) == 6
    assert await account.not_ok() == dict.fromkeys(
        [*(f"ec2:{action} {name}" for action in CHANGING_ACTIONS), f"cml {name}"], Verdict.UNKNOWN
    )


async def test_refused_credentials_are_one_red_line_and_leave_the_account_unknown(account: Account) -> None:
    await account.control(
        "POST", "faults", {**DENIED, "operation": "*", "code": "AuthFailure", "status": 401}
    )
    lines = await account.not_ok()
    assert [check for check, verdict in lines.items() if verdict is Verdict.FAILED] == ["credentials"]
    assert lines["permissions us-east-1"] is Verdict.UNKNOWN
    assert "clock" not in lines  # a refusal has the time too


async def test_credentials_of_another_account_turn_the_line_of_the_account_red(account: Account) -> None:
    account.flags["AWS_ACCOUNT_ID"] = "444455556666"
    assert await account.not_ok() == {"account": Verdict.FAILED}


@pytest.mark.parametrize("action", [*READING_ACTIONS, "RunInstances", *CHANGING_ACTIONS])
async def test_a_denied_action_turns_its_own_line_red(account: Account, action: str) -> None:
    await account.control("POST", "faults", {**DENIED, "operation": action})
    assert await account.red() == [f"ec2:{action} us-east-1"]


async def test_denied_measurements_turn_their_own_line_red(account: Account) -> None:
    await account.control(
        "POST", "faults", {**DENIED, "operation": "GetMetricData", "code": "AccessDeniedException"}
    )
    assert await account.not_ok() == {"cloudwatch:GetMetricData us-east-1": Verdict.FAILED}


@pytest.mark.parametrize(
    ("operation", "line"),
    [
        ("DescribeSubnets", "subnet us-east-1 {subnet_id}"),
        ("DescribeSecurityGroups", "security groups us-east-1"),
        ("GetServiceQuota", "quota us-east-1"),
    ],
)
async def test_what_may_not_be_read_is_unknown(account: Account, operation: str, line: str) -> None:
    code = "AccessDeniedException" if operation == "GetServiceQuota" else DENIED["code"]
    await account.control("POST", "faults", {**DENIED, "operation": operation, "code": code})
    assert await account.not_ok() == {line.format(**account.region): Verdict.UNKNOWN}


async def test_a_missing_image_turns_its_line_red(account: Account) -> None:
    account.template["ami_name_pattern"] = "CML-2.10*"  # there is one, still being made
    lines = await account.not_ok()
    assert lines.pop("image us-east-1 CML-2.10*") is Verdict.FAILED
    assert lines == {"ec2:RunInstances us-east-1": Verdict.UNKNOWN}


async def test_a_missing_subnet_turns_its_line_red(account: Account) -> None:
    account.region["subnet_ids"] = ["subnet-0123456789abcdef0"]
    assert await account.not_ok() == {"subnet us-east-1 subnet-0123456789abcdef0": Verdict.FAILED}


async def test_a_subnet_without_public_addresses_turns_its_line_red(account: Account) -> None:
    subnet_id = account.region["subnet_id"]
    async with account.ec2() as ec2:
        await ec2.modify_subnet_attribute(SubnetId=subnet_id, MapPublicIpOnLaunch={"Value": False})
        try:
            assert await account.not_ok() == {f"subnet us-east-1 {subnet_id}": Verdict.FAILED}
            account.template["associate_public_ip"] = True
            assert await account.not_ok() == {}
        finally:
            await ec2.modify_subnet_attribute(SubnetId=subnet_id, MapPublicIpOnLaunch={"Value": True})


async def test_a_closed_security_group_turns_its_line_red(account: Account) -> None:
    account.source = "198.51.100.7"
    assert await account.not_ok() == {"security groups us-east-1": Verdict.FAILED}


async def test_a_missing_security_group_turns_its_line_red(account: Account) -> None:
    account.region["security_group_ids"] = ["sg-0123456789abcdef0"]
    assert await account.not_ok() == {"security groups us-east-1": Verdict.FAILED}


async def test_a_template_without_kvm_turns_its_line_red(account: Account) -> None:
    account.template |= {"instance_type": "t3.large", "nested_virtualization": False}
    assert await account.not_ok() == {"template us-east-1 kvm": Verdict.FAILED}


async def test_a_type_that_the_region_lacks_turns_its_line_red(account: Account) -> None:
    account.template["instance_type"] = "m8i.17xlarge"
    assert await account.not_ok() == {"template us-east-1 kvm": Verdict.FAILED}


async def test_a_missing_instance_profile_turns_the_line_of_its_template_red(
    account: Account,
) -> None:
    account.template["iam_instance_profile"] = "not-made-yet"
    lines = await account.not_ok()
    assert lines.pop("template us-east-1 kvm") is Verdict.FAILED
    assert lines == {"ec2:RunInstances us-east-1": Verdict.UNKNOWN}


async def test_a_small_quota_turns_its_line_red(account: Account) -> None:
    await account.control("PATCH", "account", {"vcpu_quota": 5})
    assert await account.not_ok() == {"quota us-east-1": Verdict.FAILED}


@pytest.mark.parametrize("seconds", [400, -400])
async def test_a_wrong_clock_turns_its_line_red(account: Account, seconds: int) -> None:
    await account.control("PATCH", "account", {"clock_ahead_seconds": seconds})
    assert await account.not_ok() == {"clock": Verdict.FAILED}


async def test_a_cml_that_cannot_be_reached_turns_its_line_red(account: Account) -> None:
    await account.control("POST", "cml/faults", {"kind": "refuse"})
    [worker] = account.simulator.info.workers
    assert await account.not_ok() == {f"cml {worker.instance_id}": Verdict.FAILED}


async def test_an_etcd_that_answers_is_ok_and_one_that_does_not_turns_its_line_red(account: Account) -> None:
    with etcd_cluster() as etcd:
        account.flags["ETCD_ENDPOINTS"] = ",".join(etcd.endpoints)
        assert await account.not_ok() == {}
        etcd.kill()
        assert await account.not_ok() == {"etcd": Verdict.FAILED}


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
async def test_a_mongodb_that_does_not_answer_turns_its_line_red(account: Account) -> None:
    account.flags["STORE_URL"] = f"mongodb://127.0.0.1:{unused_port()}/lcm"
    assert await account.not_ok() == {"mongodb": Verdict.FAILED}
    gc.collect()  # the driver leaves its socket to the collector: here, not in another test


async def test_a_mongodb_that_answers_is_ok(account: Account) -> None:
    with mongo_server() as server:
        account.flags["STORE_URL"] = server.database("doctor")
        assert await account.not_ok() == {}


async def test_a_data_directory_that_cannot_be_one_turns_its_line_red(account: Account) -> None:
    occupied = account.directory / "occupied"
    occupied.touch()
    account.flags["LCM_DATA_DIR"] = str(occupied / "data")
    assert await account.not_ok() == {f"disk {occupied}/data": Verdict.FAILED}


async def test_a_wrong_setting_is_red_and_the_rest_is_examined(account: Account) -> None:
    account.flags["MIN_WORKERS"] = "many"
    assert await account.red() == ["settings control-plane", "settings worker-controller"]
    account.flags["MIN_WORKERS"] = "0"
    account.flags["REGIONS_CONFIG_PATH"] = str(account.directory / "elsewhere.yaml")
    account.region = {}
    assert await account.red() == [f"regions {account.directory}/elsewhere.yaml"]


@pytest.mark.parametrize(("quota", "code"), [(100_000, 0), (5, 1)])
async def test_the_command_prints_plain_lines_and_exits_by_the_worst(
    account: Account, quota: int, code: int
) -> None:
    await account.control("PATCH", "account", {"vcpu_quota": quota})
    account.write()
    settings = [part for name, value in account.flags.items() for part in ("--set", f"{name}={value}")]
    keys = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}
    ended = lcm_to_its_end("doctor", *settings, **keys)
    assert (ended.code, ended.stderr) == (code, "")
    lines = ended.stdout.splitlines()
    assert {line.split()[0] for line in lines[:-1]} == ({"ok"} if code == 0 else {"ok", "FAILED"})
    assert lines[-1] == f"{len(lines) - 1 - code} ok, {code} failed, 0 unknown"
