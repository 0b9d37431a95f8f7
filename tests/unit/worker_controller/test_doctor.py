"""What `lcm doctor` makes of an account: one fault, one line, and unknown where nothing can be known."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from lcm.domain.diagnosis import Finding, Verdict
from lcm.domain.errors import CredentialsRefused, Unreachable
from lcm.domain.launch import Ami, LaunchSpec, launch_spec
from lcm.domain.template import RegionConfig, WorkerTemplate
from lcm.worker_controller.doctor import INTERNET, LaunchDoctor, LaunchSettings
from lcm.worker_controller.ports import CHANGING_ACTIONS, READING_ACTIONS
from support.fleet import MemoryCml
from support.memory_cloud import MemoryCloud
from support.memory_inspection import MemoryInspection
from support.memory_live import MemoryMetrics
from support.virtual_time import VirtualClock

FAILED, UNKNOWN = Verdict.FAILED, Verdict.UNKNOWN
REGION = RegionConfig(region="us-east-1", security_group_ids=("sg-1",), subnet_id="subnet-1")
TEMPLATE = WorkerTemplate(
    name="kvm",
    description="One that can run CML.",
    instance_type="m8i.xlarge",
    nested_virtualization=True,
    cpu=4,
    memory_gb=16,
    disk_gb=64,
    max_nodes=10,
    usd_per_hour=0.2,
)


def spec() -> LaunchSpec:
    image = Ami(id="ami-2", name="CML-2.9.1", root_device="/dev/sda1", disk_gb=16)
    return launch_spec(region=REGION, template=TEMPLATE, image=image, tags={"cml-managed": "true"})


@dataclass
class Account:
    """An account without a fault, with one worker that runs."""

    cloud: MemoryCloud
    cml: MemoryCml
    inspection: MemoryInspection = field(default_factory=MemoryInspection)
    metrics: MemoryMetrics = field(default_factory=lambda: MemoryMetrics(["us-east-1"]))
    templates: tuple[WorkerTemplate, ...] = (TEMPLATE,)
    region: RegionConfig = REGION
    account_id: str | None = None
    use_private_ip: bool = False
    source: str | None = None
    own_address: Callable[[str], str | None] = lambda target: "10.9.9.9"

    async def findings(self) -> list[Finding]:
        settings = LaunchSettings(
            regions={self.region.region: self.region},
            templates=self.templates,
            account_id=self.account_id,
            environment="test",
            cml_port=443,
            use_private_ip=self.use_private_ip,
            source=self.source,
        )
        parts = (self.cloud, self.inspection, self.metrics, self.cml)
        return await LaunchDoctor(settings, *parts, lambda target: self.own_address(target)).examine()

    async def not_ok(self) -> Mapping[str, Verdict]:
        return {each.check: each.verdict for each in await self.findings() if each.verdict is not Verdict.OK}

    async def detail(self, check: str) -> str:
        [found] = [each.detail for each in await self.findings() if each.check == check]
        return found


@pytest.fixture
async def account() -> Account:
    clock = VirtualClock()
    cloud = MemoryCloud(clock)
    account = Account(cloud, MemoryCml(cloud))
    account.cloud.add(spec())
    await clock.sleep(60)
    cloud.settle()
    return account


async def test_an_account_without_a_fault_has_only_ok_lines(account: Account) -> None:
    assert await account.not_ok() == {}


@pytest.mark.parametrize("action", [*READING_ACTIONS, "RunInstances", *CHANGING_ACTIONS])
async def test_a_denied_action_is_failed_and_one_without_an_answer_unknown(
    account: Account, action: str
) -> None:
    account.inspection.denied = {action}
    assert await account.not_ok() == {f"ec2:{action} us-east-1": FAILED}
    account.inspection.denied = {f"{action}?"}
    assert await account.not_ok() == {f"ec2:{action} us-east-1": UNKNOWN}


async def test_a_denied_launch_with_a_profile_hints_at_pass_role(account: Account) -> None:
    account.templates = (replace(TEMPLATE, iam_instance_profile="cml-worker"),)
    account.inspection.denied = {"RunInstances"}
    assert "iam:PassRole" in await account.detail("ec2:RunInstances us-east-1")


@pytest.mark.parametrize(
    ("error", "verdict"), [(CredentialsRefused("expired"), FAILED), (Unreachable("timed out"), UNKNOWN)]
)
async def test_without_an_identity_no_permission_is_judged(
    account: Account, error: CredentialsRefused | Unreachable, verdict: Verdict
) -> None:
    account.inspection.refusal = error
    lines = await account.not_ok()
    assert lines["credentials"] is verdict
    assert {each for check, each in lines.items() if check != "credentials"} == {UNKNOWN}
    assert "permissions us-east-1" in lines


async def test_another_account_is_one_line(account: Account) -> None:
    account.account_id = "444455556666"
    assert await account.not_ok() == {"account": FAILED}


async def test_refused_measurements_are_one_line(account: Account) -> None:
    account.metrics.error = CredentialsRefused("AccessDenied")
    assert await account.not_ok() == {"cloudwatch:GetMetricData us-east-1": FAILED}


async def test_a_missing_image_is_one_line_and_leaves_the_launch_untried(account: Account) -> None:
    account.templates = (replace(TEMPLATE, ami_name_pattern="CML-3*", ami_owners=("self", "444455556666")),)
    assert await account.not_ok() == {
        "image us-east-1 CML-3* of self,444455556666": FAILED,
        "ec2:RunInstances us-east-1": UNKNOWN,
    }


async def test_launch_parameters_that_ec2_refuses_are_the_line_of_the_template(account: Account) -> None:
    account.inspection.launch_mistake = "InvalidKeyPair.NotFound"
    assert await account.not_ok() == {"template us-east-1 kvm": FAILED, "ec2:RunInstances us-east-1": UNKNOWN}


@pytest.mark.parametrize(
    ("template", "says"),
    [
        (replace(TEMPLATE, instance_type="m5zn.metal", nested_virtualization=False), "is bare metal"),
        (
            replace(TEMPLATE, instance_type="t3.large", nested_virtualization=False, allow_without_kvm=True),
            "allow_without_kvm accepts",
        ),
        (TEMPLATE, "by nested virtualization"),
    ],
)
async def test_a_template_says_why_it_may_be_launched(
    account: Account, template: WorkerTemplate, says: str
) -> None:
    account.templates = (template,)
    assert await account.not_ok() == {}
    assert says in await account.detail("template us-east-1 kvm")


@pytest.mark.parametrize(
    "template",
    [
        replace(TEMPLATE, instance_type="t3.large", nested_virtualization=False),
        replace(TEMPLATE, instance_type="x9.large"),
    ],
)
async def test_a_type_that_cannot_run_cml_or_is_not_there_is_the_line_of_the_template(
    account: Account, template: WorkerTemplate
) -> None:
    account.templates = (template,)
    assert (await account.not_ok())["template us-east-1 kvm"] is FAILED


async def test_a_disabled_template_is_not_examined(account: Account) -> None:
    account.templates = (TEMPLATE, replace(TEMPLATE, name="off", instance_type="x9.large", enabled=False))
    assert await account.not_ok() == {}


async def test_a_type_of_another_quota_leaves_the_quota_unknown(account: Account) -> None:
    account.templates = (TEMPLATE, replace(TEMPLATE, name="gpu", instance_type="p5.48xlarge"))
    assert (await account.not_ok())["quota us-east-1"] is UNKNOWN


async def test_subnets_are_examined_one_by_one(account: Account) -> None:
    account.region = RegionConfig(
        region="us-east-1", security_group_ids=("sg-1",), subnet_id="subnet-1", subnet_ids=("subnet-2",)
    )
    assert await account.not_ok() == {"subnet us-east-1 subnet-2": FAILED}
    account.inspection.denied = {"DescribeSubnets"}
    assert await account.not_ok() == {
        "subnet us-east-1 subnet-1": UNKNOWN,
        "subnet us-east-1 subnet-2": UNKNOWN,
    }


async def test_private_subnets_are_fine_where_private_addresses_are_used(account: Account) -> None:
    account.inspection.subnets = [replace(account.inspection.subnets[0], gives_public_addresses=False)]
    assert await account.not_ok() == {"subnet us-east-1 subnet-1": FAILED}
    account.use_private_ip = True
    assert await account.not_ok() == {}


async def test_a_missing_security_group_is_failed(account: Account) -> None:
    account.inspection.groups = set()
    assert await account.not_ok() == {"security groups us-east-1": FAILED}


class TestTheAddressOfThisHost:
    """Which one the security groups are asked about."""

    @pytest.fixture(autouse=True)
    def only_one_network(self, account: Account) -> None:
        account.inspection.ingress = [
            replace(account.inspection.ingress[0], networks=("10.9.0.0/16", "198.51.100.7/32"))
        ]

    async def verdict(self, account: Account) -> Verdict:
        return (await account.not_ok()).get("security groups us-east-1", Verdict.OK)

    async def test_is_the_one_that_is_named(self, account: Account) -> None:
        account.source = "198.51.100.7"
        assert await self.verdict(account) is Verdict.OK
        account.source = "198.51.100.8"
        assert await self.verdict(account) is FAILED

    async def test_is_not_known_behind_nat(self, account: Account) -> None:
        instance = next(iter(account.cloud.instances.values()))
        instance.public_ip = "52.1.2.3"
        assert await self.verdict(account) is UNKNOWN

    async def test_is_its_own_towards_the_private_address_of_a_worker(self, account: Account) -> None:
        account.use_private_ip = True
        assert await self.verdict(account) is Verdict.OK

    async def test_is_its_own_towards_the_subnet_if_no_worker_runs(self, account: Account) -> None:
        account.cloud.instances.clear()
        account.use_private_ip = True
        asked: list[str] = []

        def own_address(target: str) -> str:
            asked.append(target)
            return "10.9.9.9"

        account.own_address = own_address
        assert await self.verdict(account) is Verdict.OK
        assert asked == ["10.0.0.1"]

    async def test_without_worker_and_route_is_not_known(self, account: Account) -> None:
        account.cloud.instances.clear()
        account.own_address = {INTERNET: None}.get
        assert await self.verdict(account) is UNKNOWN


async def test_without_a_worker_what_needs_one_is_unknown(account: Account) -> None:
    account.cloud.instances.clear()
    assert await account.not_ok() == dict.fromkeys(
        [*(f"ec2:{action} us-east-1" for action in CHANGING_ACTIONS), "cml us-east-1"], UNKNOWN
    )


async def test_a_cml_that_does_not_answer_is_its_own_line(account: Account) -> None:
    account.cml = MemoryCml(MemoryCloud(account.cloud.clock))  # that of other instances
    [instance_id] = account.cloud.instances
    assert await account.not_ok() == {f"cml {instance_id}": FAILED}
