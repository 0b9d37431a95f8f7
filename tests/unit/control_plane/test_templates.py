"""Templates: what the file may say, how mistakes are named, and what people may switch."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from lcm.cli.regions import read_regions
from lcm.control_plane.records.preconditions import etag
from lcm.control_plane.records.templates import KIND, TemplateMistakes, Templates, read_templates
from lcm.control_plane.settings import ControlPlaneSettings
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import Document
from lcm.core.configuration import ConfigurationError, parse_yaml, read_yaml
from lcm.domain.capacity import Capacity, declared_by
from lcm.domain.errors import NotFound, PreconditionFailed
from lcm.domain.lablet.claim import Reserve, allocatable, reserved_by
from lcm.domain.template import WorkerTemplate
from support.fleet import TEMPLATES

GOOD = """\
worker_templates:
  - name: small
    description: A handful of light nodes.
    instance_type: t3.small
    cpu: 2
    memory_gb: 2
    disk_gb: 50
    max_nodes: 5
    usd_per_hour: 0.0208
"""

BAD = (
    GOOD
    + """\
  - name: broken
    description: Everything about it is wrong.
    instance_type: huge
    cpu: two
    memory_gb: 0
    max_nodes: 5
    usd_per_hour: -1
    colour: red
    cpu: 4
  - just a string
  - name: small
    description: A second one.
    instance_type: t3.small
    cpu: 2
    memory_gb: 2
    disk_gb: 50
    max_nodes: 5
    usd_per_hour: 0.0208
  - name: large
    description: Larger topologies.
    instance_type: t3.large
    cpu: 2
    memory_gb: 8
    disk_gb: 200
    max_nodes: 30
    usd_per_hour: 0.0832
"""
)


def names(templates: list[WorkerTemplate]) -> list[str]:
    return [template.name for template in templates]


def test_a_template_may_reserve_what_cml_itself_needs_and_not_everything() -> None:
    reserving = f"{GOOD}    reserved_cpu: 0.5\n    reserved_memory_gb: 1\n    cpu_overcommit: 2\n"
    [template], mistakes = read_templates(parse_yaml(reserving, "templates.yaml"))
    assert mistakes == []
    assert (template.reserved_cpu, template.reserved_memory_gb, template.reserved_storage_gb) == (0.5, 1, 0)
    assert allocatable(declared_by(template), reserved_by(template)) == Capacity(
        cpu=3.5, memory_gb=1, storage_gb=50, nodes=5
    )
    templates, [mistake] = read_templates(parse_yaml(f"{GOOD}    reserved_memory_gb: 2\n", "templates.yaml"))
    assert templates == []
    assert str(mistake).startswith("templates.yaml:10: worker_templates[0].reserved_memory_gb: it leaves")


LAUNCH_FIELDS = """\
    ami_owners: [self, "210987654321"]
    kms_key_id: arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab
    iam_instance_profile: cml-worker
    user_data: |
      #!/bin/sh
    associate_public_ip: false
    metadata_http_tokens: optional
    capacity_reservation: cr-0123456789abcdef0
    nested_virtualization: true
"""


def test_a_template_may_say_how_its_instances_are_launched() -> None:
    [template], mistakes = read_templates(parse_yaml(GOOD + LAUNCH_FIELDS, "t.yaml"))
    assert mistakes == []
    assert template.ami_owners == ("self", "210987654321")
    assert template.user_data == "#!/bin/sh\n"
    assert (template.associate_public_ip, template.nested_virtualization) == (False, True)


def test_what_a_template_leaves_out_is_safe() -> None:
    [template], _ = read_templates(parse_yaml(GOOD, "t.yaml"))
    assert (template.ami_owners, template.ebs_encrypted) == (("self",), True)
    assert template.metadata_http_tokens == "required"
    assert not template.nested_virtualization


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("ami_owners: []", "ami_owners: expected `array` of length >= 1"),
        ("ami_owners: [111122223333]", "ami_owners[0]: expected `str`, got `int`"),
        ("ami_owners: [everybody]", "ami_owners[0]: expected `str` matching regex"),
        ("kms_key_id: my key", "kms_key_id: expected `str` matching regex"),
        (
            "iam_instance_profile: arn:aws:x",
            "iam_instance_profile: expected `str` matching regex",
        ),
        ("user_data: ''", "user_data: expected `str` of length >= 1"),
        (f"user_data: {'é' * 8193}", "user_data: EC2 takes at most 16384 bytes"),
        ("associate_public_ip: maybe", "associate_public_ip: expected `bool | null`, got `str`"),
        ("metadata_http_tokens: none", "metadata_http_tokens: invalid enum value 'none'"),
        ("capacity_reservation: mine", "capacity_reservation: expected `str` matching regex"),
        ("nested_virtualization: 1", "nested_virtualization: expected `bool`, got `int`"),
        ("ebs_encrypted: 'no'", "ebs_encrypted: expected `bool`, got `str`"),
    ],
)
def test_a_mistake_in_a_launch_field_is_named_with_line_and_field(line: str, says: str) -> None:
    templates, [mistake] = read_templates(parse_yaml(f"{GOOD}    {line}\n", "t.yaml"))
    assert templates == []
    assert str(mistake).startswith(f"t.yaml:10: worker_templates[0].{says}")


def test_a_key_for_a_volume_that_is_not_encrypted_is_a_mistake() -> None:
    text = f"{GOOD}    ebs_encrypted: false\n    kms_key_id: alias/cml\n"
    templates, [mistake] = read_templates(parse_yaml(text, "t.yaml"))
    assert templates == []
    assert str(mistake).startswith("t.yaml:11: worker_templates[0].kms_key_id: ebs_encrypted is false")


def test_the_templates_of_the_contract_reserve_nothing() -> None:
    templates, _ = read_templates(read_yaml(TEMPLATES))
    assert {reserved_by(template) for template in templates} == {Reserve()}


def test_every_mistake_is_named_with_file_line_and_field_and_the_others_load() -> None:
    templates, mistakes = read_templates(parse_yaml(BAD, "templates.yaml"))
    assert names(templates) == ["small", "large"]
    said = [str(mistake) for mistake in mistakes]
    for expected in (
        "templates.yaml:12: worker_templates[1].instance_type: ",
        "templates.yaml:14: worker_templates[1].memory_gb: expected `int` >= 1",
        "templates.yaml:16: worker_templates[1].usd_per_hour: expected `float` >= 0",
        "templates.yaml:17: worker_templates[1].colour: unknown; there are: name, description",
        "templates.yaml:18: worker_templates[1].cpu: it is given twice",
        "templates.yaml:10: worker_templates[1].disk_gb: it is missing",
        "templates.yaml:1: worker_templates[2]: it must be a mapping",
        "templates.yaml:20: worker_templates[3].name: there is another template 'small'",
    ):
        assert any(line.startswith(expected) for line in said), (expected, said)
    assert len(said) == 8


def test_a_wrong_type_is_named_too() -> None:
    config = parse_yaml(GOOD.replace("cpu: 2", "cpu: two"), "t.yaml")
    _, mistakes = read_templates(config)
    assert [str(mistake) for mistake in mistakes] == [
        "t.yaml:5: worker_templates[0].cpu: expected `int`, got `str`"
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\nworker_templates: [", "t.yaml:2: YAML: "),
        ("worker_templates:\n\t- x", "t.yaml:2: YAML: "),
        ("- a\n- b\n", "t.yaml:1: file: it must be a mapping"),
        ("a: !!python/object/apply:os.system ['true']", "t.yaml:1: YAML: could not determine a constructor"),
    ],
)
def test_a_file_that_is_no_yaml_mapping_is_refused_with_its_line(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_yaml(text, "t.yaml")
    assert says in str(refused.value)


def test_an_anchor_may_share_values_and_a_key_may_replace_one_of_them() -> None:
    text = "base: &base\n  a: 1\n  b: 2\nreal:\n  <<: *base\n  b: 3\n"
    config = parse_yaml(text, "t.yaml")
    assert config["real"] == {"a": 1, "b": 3}
    assert config["real"].repeated == {}


@pytest.mark.parametrize("config", [{}, {"worker_templates": None}, {"worker_templates": "small"}])
def test_a_file_without_a_list_of_templates_is_a_mistake(config: dict[str, Any]) -> None:
    assert [m.field for m in read_templates(config)[1]] == ["worker_templates"]


def test_the_templates_are_those_of_the_contract() -> None:
    templates, mistakes = read_templates(read_yaml(TEMPLATES))
    assert mistakes == []
    sizes = {
        t.name: (t.instance_type, t.cpu, t.memory_gb, t.disk_gb, t.max_nodes, t.usd_per_hour)
        for t in templates
    }
    contract = {
        "micro": ("t3.micro", 2, 1, 20, 2, 0.0104),
        "small": ("t3.small", 2, 2, 50, 5, 0.0208),
        "medium": ("t3.medium", 2, 4, 100, 15, 0.0416),
        "large": ("t3.large", 2, 8, 200, 30, 0.0832),
        "metal": ("m5zn.metal", 48, 192, 1000, 200, 3.9641),
    }
    assert {name: sizes[name] for name in contract} == contract
    assert all(t.has_kvm for t in templates if t.name not in contract)
    for template in templates:
        assert template.description
        usual = (template.ami_name_pattern, template.enabled, template.drain_timeout_hours)
        assert usual == ("CML-*", True, None)
    assert ControlPlaneSettings().drain_timeout_seconds == 4 * 3600


def test_the_default_template_can_run_cml_and_those_that_cannot_say_so() -> None:
    templates, _ = read_templates(read_yaml(TEMPLATES))
    [default] = [template for template in templates if template.default]
    assert default.has_kvm
    unfit = {template.name for template in templates if not template.has_kvm}
    assert unfit == {template.name for template in templates if template.allow_without_kvm}
    assert unfit == {"micro", "small", "medium", "large"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"{GOOD}    default: true\n", "t.yaml:10: worker_templates[0].default: it must be able to run CML"),
        (
            "".join(
                GOOD.replace("worker_templates:\n", "" if name == "b" else "worker_templates:\n")
                .replace("small", name, 1)
                .replace("t3.small", "m8i.large")
                + "    nested_virtualization: true\n    default: true\n"
                for name in ("a", "b")
            ),
            "t.yaml:21: worker_templates[1].default: another template is the default",
        ),
    ],
)
def test_at_most_one_template_is_the_default_and_it_has_kvm(text: str, says: str) -> None:
    _, [mistake] = read_templates(parse_yaml(text, "t.yaml"))
    assert str(mistake).startswith(says)


def test_the_settings_are_those_of_the_contract() -> None:
    fields = ControlPlaneSettings.model_fields
    assert fields["worker_templates_auto_seed"].default is True
    assert fields["worker_templates_config_path"].default == Path("config/worker_templates.yaml")


async def test_a_bad_template_is_logged_once_per_mistake_and_left_out() -> None:
    templates = Templates(MemoryStore())
    with capture_logs() as logs:
        assert await templates.seed(parse_yaml(BAD, "t.yaml")) == 2
    assert [entry["event"] for entry in logs] == ["invalid template skipped"] * 8
    assert names(await templates.list_all()) == ["small", "large"]


async def test_templates_are_listed_cheapest_first() -> None:
    templates = Templates(MemoryStore())
    config = parse_yaml(GOOD, "t.yaml")
    entry = config["worker_templates"][0]
    prices = {"metal": 3.96, "micro": 0.01, "same": 0.01}
    config["worker_templates"] = [{**entry, "name": n, "usd_per_hour": usd} for n, usd in prices.items()]
    await templates.seed(config)
    assert names(await templates.list_all()) == ["micro", "same", "metal"]


async def test_what_a_person_switched_off_stays_off_when_the_file_is_read_again() -> None:
    templates = Templates(MemoryStore())
    await templates.seed(parse_yaml(GOOD, "t.yaml"))
    await templates.switch("small", enabled=False)
    await templates.seed(parse_yaml(GOOD.replace("0.0208", "0.05"), "t.yaml"))
    template = await templates.get("small")
    assert (template.enabled, template.usd_per_hour) == (False, 0.05)
    assert await templates.list_all(enabled_only=True) == []
    assert (await templates.switch("small", enabled=True)).enabled


async def small() -> Templates:
    templates = Templates(MemoryStore())
    await templates.seed(parse_yaml(GOOD, "t.yaml"))
    return templates


async def test_what_a_person_changed_stays_and_the_other_fields_follow_the_file() -> None:
    templates = await small()
    wanted = replace(await templates.get("small"), cpu=4, description="More of it.")
    assert await templates.edit("small", wanted, None) == wanted
    await templates.seed(parse_yaml(GOOD.replace("0.0208", "0.05"), "t.yaml"))
    assert await templates.get("small") == replace(wanted, usd_per_hour=0.05)
    stored, _ = await templates.get_stored("small")
    assert stored.edits == {"cpu": 4, "description": "More of it."}


async def test_a_change_that_is_reverted_leaves_the_template_of_the_file() -> None:
    templates = await small()
    seeded = await templates.get("small")
    await templates.edit("small", replace(seeded, cpu=4, enabled=False), None)
    assert not (await templates.get("small")).enabled
    assert await templates.revert("small", None) == await templates.get("small") == seeded
    await templates.edit("small", replace(seeded, cpu=4), None)
    await templates.edit("small", seeded, None)  # what equals the file is no change
    assert (await templates.get_stored("small"))[0].edits == {}


async def test_a_template_is_changed_only_at_the_version_that_was_read() -> None:
    templates = await small()
    seeded, (_, version) = await templates.get("small"), await templates.get_stored("small")
    seen = frozenset({etag(version)})
    await templates.edit("small", replace(seeded, cpu=4), seen)
    with pytest.raises(PreconditionFailed, match="version 2"):
        await templates.edit("small", replace(seeded, cpu=8), seen)
    with pytest.raises(PreconditionFailed):
        await templates.revert("small", seen)
    assert (await templates.get("small")).cpu == 4


async def test_a_change_keeps_the_name_and_the_one_default() -> None:
    text = GOOD + GOOD.removeprefix("worker_templates:\n").replace("small", "kvm").replace(
        "t3.kvm", "m5zn.metal"
    )
    templates = Templates(MemoryStore())
    await templates.seed(parse_yaml(text + "    default: true\n", "t.yaml"))
    template = await templates.get("small")
    with pytest.raises(TemplateMistakes) as refused:
        await templates.edit("small", replace(template, name="tiny", default=True), None)
    assert [mistake.field for mistake in refused.value.mistakes] == ["name", "default"]
    with pytest.raises(NotFound):
        await templates.edit("none", replace(template, name="none"), None)


async def test_a_file_that_contradicts_what_a_person_changed_is_not_taken() -> None:
    templates = await small()
    await templates.edit("small", replace(await templates.get("small"), reserved_cpu=1.5), None)
    with capture_logs() as logs:
        await templates.seed(parse_yaml(GOOD.replace("cpu: 2", "cpu: 1"), "t.yaml"))
    assert [entry["event"] for entry in logs] == ["template of the file not taken"]
    assert (await templates.get("small")).cpu == 2


async def test_every_change_of_a_template_is_published_and_nothing_else() -> None:
    templates, published = Templates(MemoryStore()), []
    templates.subscribe(lambda change, template: published.append((change, template.name, template.enabled)))
    for _ in range(2):
        await templates.seed(parse_yaml(GOOD, "t.yaml"))
    for _ in range(2):
        await templates.switch("small", enabled=False)
    await templates.delete("small")
    assert published == [("created", "small", True), ("updated", "small", False), ("deleted", "small", False)]
    with pytest.raises(NotFound):
        await templates.delete("small")
    with pytest.raises(NotFound):
        await templates.switch("small", enabled=True)


async def test_what_cannot_be_read_is_left_out_until_the_file_says_it_anew() -> None:
    store = MemoryStore()
    for name in ("small", "strange"):
        await store.insert(Document(KIND, name, 1, b'{"seeded": 5}'))
    templates = Templates(store)
    assert names(await templates.list_all()) == []
    await templates.seed(parse_yaml(GOOD, "t.yaml"))
    assert names(await templates.list_all()) == ["small"]


def test_the_regions_file_that_comes_with_lcm_is_right() -> None:
    regions, default = read_regions(TEMPLATES.parent / "regions.yaml")
    assert list(regions) == [default] == ["us-east-1"]


@pytest.mark.parametrize("text", ["", "aws_region_configs:\n", "aws_region_configs: {}\n"])
def test_a_regions_file_without_a_region_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "regions.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="at least one region"):
        read_regions(path)


def test_every_mistake_in_the_regions_file_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "regions.yaml"
    path.write_text(
        "aws_default_region: mars-north-1\n"
        "aws_region_configs:\n"
        "  us-east-1:\n"
        "    region: us-west-2\n"
        "    security_group_ids: [sg-1]\n"
        "    subnet_id: subnet-1\n"
        "  eu-west-1:\n"
        "    region: eu-west-1\n"
        "    security_group_ids: []\n"
        "    subnet: subnet-1\n"
    )
    with pytest.raises(ConfigurationError) as refused:
        read_regions(path)
    said = str(refused.value).splitlines()
    assert [line.split(": ")[0].rpartition(":")[2] for line in said] == ["4", "9", "10", "8", "1"]
    assert [line.split(": ")[1] for line in said] == [
        "us-east-1.region",
        "eu-west-1.security_group_ids",
        "eu-west-1.subnet",
        "eu-west-1.subnet_id",
        "aws_default_region",
    ]
