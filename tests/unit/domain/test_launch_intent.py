"""The launch intent: one token for one generation, and a limit on unattended launches."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lcm.domain.errors import Conflict, IllegalTransition
from lcm.domain.launch import (
    MAX_UNATTENDED_LAUNCHES,
    InstanceId,
    InstanceTypeFacts,
    RootVolume,
    WorkerId,
    client_token,
    instance_tags,
    kvm_mistake,
    launch_spec,
    other_subnets,
)
from lcm.domain.lifecycle import FAILED, PENDING, PROVISIONING, RUNNING, STARTING, WorkerStatus
from lcm.domain.requests import request
from lcm.domain.template import RegionConfig, WorkerTemplate
from lcm.domain.transitions import attach_instance, move, with_launch_intent, without_launch_intent
from lcm.domain.worker import Action, Worker
from support.core import IMAGE, NOON, SPEC, a_worker, an_instance

LATER = NOON + timedelta(minutes=1)
TEMPLATE = WorkerTemplate(
    name="small",
    description="a small one",
    instance_type="m5zn.metal",
    cpu=48,
    memory_gb=192,
    disk_gb=250,
    max_nodes=100,
    usd_per_hour=3.96,
)
REGION = RegionConfig(
    region="eu-west-1",
    security_group_ids=("sg-1", "sg-2"),
    subnet_id="subnet-1",
    key_name="ops",
    default_tags={"cost-centre": "labs", "Name": "unnamed", "worker_id": "from the region"},
)


def planned(worker: Worker) -> Worker:
    return with_launch_intent(worker, SPEC, now=LATER)


def token_of(worker: Worker) -> str:
    assert worker.launch.intent is not None
    return worker.launch.intent.client_token


def lost(worker: Worker) -> Worker:
    """The launched instance came up, and then it was gone."""
    worker = attach_instance(worker, an_instance(), now=LATER)
    for status in (PROVISIONING, STARTING, RUNNING, PENDING):
        worker = move(worker, status, by="controller", reason="because", now=LATER)
    return worker


def tags(**overrides: str) -> dict[str, str]:
    return instance_tags(
        worker_id=WorkerId("w-1"),
        name="lab-1",
        template_name=TEMPLATE.name,
        region=REGION,
        overrides=overrides,
        environment="test",
    )


def test_a_launch_intent_names_generation_token_parameters_and_time() -> None:
    worker = planned(a_worker())
    assert worker.launch.intent is not None
    assert worker.launch.generation == worker.launch.generation == 1
    assert worker.launch.intent.client_token == client_token(worker.id, 1)
    assert worker.launch.intent.spec == SPEC
    assert worker.launch.intent.requested_at == LATER
    assert worker.has_unresolved_launch


@given(st.text(max_size=300), st.integers(1, 10**9))
def test_a_token_depends_on_worker_and_generation_alone_and_fits_ec2(worker_id: str, number: int) -> None:
    token = client_token(WorkerId(worker_id), number)
    assert token == client_token(WorkerId(worker_id), number)
    assert len(token) <= 64
    assert token.isascii()
    assert token.isprintable()


@given(st.lists(st.tuples(st.uuids().map(str), st.integers(1, 1_000)), unique=True, max_size=50))
def test_no_two_generations_share_a_token(launches: list[tuple[str, int]]) -> None:
    assert len({client_token(WorkerId(w), n) for w, n in launches}) == len(launches)


def test_the_next_generation_has_another_token() -> None:
    first = planned(a_worker())
    second = planned(without_launch_intent(first, reason="gone", now=LATER))
    assert second.launch.generation == 2
    assert token_of(second) != token_of(first)


def test_an_unresolved_launch_is_repeated_not_replaced() -> None:
    with pytest.raises(Conflict, match="repeat that one"):
        planned(planned(a_worker()))


@pytest.mark.parametrize("status", sorted(set(WorkerStatus) - {PENDING}))
def test_only_a_pending_worker_can_have_a_new_launch_intent(status: WorkerStatus) -> None:
    with pytest.raises(IllegalTransition):
        planned(a_worker(status=status))


def test_no_launch_intent_is_recorded_while_an_earlier_instance_is_not_proven_gone() -> None:
    failed = a_worker(status=FAILED, ec2_instance_id=InstanceId("i-1"))
    retried = request(failed, Action.RETRY, by="ada", now=LATER)
    with pytest.raises(Conflict, match="i-1"):
        planned(retried)


def test_after_three_unattended_launches_a_person_must_ask() -> None:
    worker = a_worker()
    for _ in range(MAX_UNATTENDED_LAUNCHES):
        worker = lost(planned(worker))
    assert MAX_UNATTENDED_LAUNCHES == 3
    with pytest.raises(Conflict, match="3 launches without a request of a person"):
        planned(worker)


@pytest.mark.parametrize("actions", [[Action.STOP, Action.START], [Action.RETRY]])
def test_a_persons_request_allows_three_more_launches(actions: list[Action]) -> None:
    worker = a_worker(
        status=FAILED if actions == [Action.RETRY] else PENDING,
        unattended_launches=MAX_UNATTENDED_LAUNCHES,
        launch_generation=7,
    )
    for action in actions:
        worker = request(worker, action, by="ada", now=LATER)
    for _ in range(MAX_UNATTENDED_LAUNCHES):
        worker = lost(planned(worker))
    assert worker.launch.generation == 10  # generations never start over, so no token is used twice


def test_a_refused_launch_does_not_count_as_one_that_did_not_last() -> None:
    worker = planned(a_worker())
    assert without_launch_intent(worker, reason="gone", now=LATER).launch.unattended == 1
    refused = without_launch_intent(worker, reason="no capacity", now=LATER, refused=True)
    assert refused.launch.unattended == 0
    assert planned(refused).launch.generation == 2


@pytest.mark.parametrize(
    ("refused", "expected"),
    [("a", ["b", "c"]), ("b", ["c", "a"]), ("c", ["a", "b"]), ("removed since", ["a", "b", "c"])],
)
def test_the_other_subnets_are_tried_in_turn(refused: str, expected: list[str]) -> None:
    region = RegionConfig(region="r", security_group_ids=(), subnet_id="a", subnet_ids=("b", "c", "a"))
    assert other_subnets(region, refused) == expected


def test_region_defaults_come_first_and_worker_overrides_last() -> None:
    assert tags(**{"cost-centre": "ada", "Name": "my lab", "cml-environment": "hers"}) == {
        "cost-centre": "ada",
        "Name": "my lab",
        "template_name": "small",
        "worker_id": "w-1",
        "lcm:managed_by": "lablet-cloud-manager",
        "cml-managed": "true",
        "cml-environment": "hers",
        "cml-region": "eu-west-1",
    }


def test_without_overrides_every_tag_of_the_contract_is_there() -> None:
    assert tags() == {
        "cost-centre": "labs",
        "Name": "lab-1",
        "template_name": "small",
        "worker_id": "w-1",
        "lcm:managed_by": "lablet-cloud-manager",
        "cml-managed": "true",
        "cml-environment": "test",
        "cml-region": "eu-west-1",
    }


@pytest.mark.parametrize("tag", ["worker_id", "lcm:managed_by", "cml-managed"])
def test_ownership_tags_cannot_be_overridden(tag: str) -> None:
    assert tags(**{tag: "somebody else"}) == tags()


def test_a_template_in_a_region_makes_one_exact_request() -> None:
    spec = launch_spec(region=REGION, template=TEMPLATE, image=IMAGE, tags={"a": "b"})
    assert (spec.region, spec.subnet_id, spec.key_name) == ("eu-west-1", "subnet-1", "ops")
    assert spec.security_group_ids == ("sg-1", "sg-2")
    assert (spec.image, spec.instance_type, spec.tags) == (IMAGE, "m5zn.metal", {"a": "b"})
    assert spec.root_volume == RootVolume(device="/dev/sda1", size_gb=250, is_encrypted=True)
    assert spec.metadata_http_tokens == "required"


def test_what_a_template_says_of_the_instance_is_in_the_request() -> None:
    said = {
        "iam_instance_profile": "cml-worker",
        "user_data": "#!/bin/sh",
        "associate_public_ip": False,
        "metadata_http_tokens": "optional",
        "capacity_reservation": "cr-0123456789abcdef0",
        "nested_virtualization": True,
    }
    template = replace(TEMPLATE, **said, kms_key_id="alias/cml")
    spec = launch_spec(region=REGION, template=template, image=IMAGE, tags={})
    assert {name: getattr(spec, name) for name in said} == said
    assert spec.root_volume is not None
    assert spec.root_volume.kms_key_id == "alias/cml"


T3 = InstanceTypeFacts(is_bare_metal=False, can_nest=False)
M8I = InstanceTypeFacts(is_bare_metal=False, can_nest=True)
METAL = InstanceTypeFacts(is_bare_metal=True, can_nest=False)


@pytest.mark.parametrize(
    ("facts", "is_asked", "is_allowed", "says"),
    [
        (METAL, False, False, ""),
        (M8I, True, False, ""),
        (T3, False, True, ""),
        (M8I, False, True, ""),
        (T3, False, False, "choose bare metal, c8i, m8i or r8i"),
        (M8I, False, False, "say nested_virtualization: true"),
        (T3, True, True, "choose a type of c8i, m8i or r8i"),
        (METAL, True, False, "bare metal needs none"),
    ],
)
def test_a_type_without_kvm_is_refused_with_the_cure_unless_the_template_accepts_it(
    facts: InstanceTypeFacts, is_asked: bool, is_allowed: bool, says: str
) -> None:
    template = replace(TEMPLATE, nested_virtualization=is_asked, allow_without_kvm=is_allowed)
    mistake = kvm_mistake(template, facts)
    assert says in mistake
    assert bool(says) == bool(mistake)


def test_a_root_volume_is_never_smaller_than_the_image() -> None:
    template = replace(TEMPLATE, disk_gb=8, ebs_encrypted=False)
    spec = launch_spec(region=REGION, template=template, image=IMAGE, tags={})
    assert spec.root_volume == RootVolume(device="/dev/sda1", size_gb=16, is_encrypted=False)
