"""The rules of `lcm doctor`: what would stop a launch, and what cannot be known."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from lcm.domain.diagnosis import (
    MIN_FREE_BYTES,
    Ingress,
    Subnet,
    Verdict,
    family_of,
    judge_clock,
    judge_disk,
    judge_ingress,
    judge_quota,
    judge_subnet,
)

OK, FAILED, UNKNOWN = Verdict.OK, Verdict.FAILED, Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("seconds", "verdict"), [(0, OK), (60, OK), (-60, OK), (61, FAILED), (-61, FAILED), (None, UNKNOWN)]
)
def test_a_clock_may_be_off_by_a_minute(seconds: int | None, verdict: Verdict) -> None:
    skew = None if seconds is None else timedelta(seconds=seconds)
    assert judge_clock(skew).verdict is verdict


def test_a_wrong_clock_is_described_by_its_direction() -> None:
    assert "400 s ahead of AWS" in judge_clock(timedelta(seconds=400)).detail
    assert "400 s behind AWS" in judge_clock(timedelta(seconds=-400)).detail


SUBNET = Subnet(
    id="subnet-1",
    state="available",
    zone="us-east-1a",
    network="10.0.0.0/24",
    free_addresses=7,
    gives_public_addresses=True,
)
PRIVATE = replace(SUBNET, gives_public_addresses=False)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (SUBNET, OK),
        (None, FAILED),
        (replace(SUBNET, state="pending"), FAILED),
        (replace(SUBNET, free_addresses=0), FAILED),
        (PRIVATE, FAILED),
    ],
)
def test_a_subnet_must_exist_and_have_a_free_and_reachable_address(
    found: Subnet | None, verdict: Verdict
) -> None:
    assert judge_subnet("subnet", found, ["kvm-medium"]).verdict is verdict


def test_a_subnet_without_public_addresses_is_fine_where_templates_ask_for_one() -> None:
    assert judge_subnet("subnet", PRIVATE, []).verdict is OK


def rule(
    protocol: str = "tcp", first: int = 443, last: int = 443, *networks: str, others: tuple[str, ...] = ()
) -> Ingress:
    return Ingress(
        protocol=protocol,
        first_port=first,
        last_port=last,
        networks=networks or ("198.51.100.0/24",),
        others=others,
    )


@pytest.mark.parametrize(
    ("rules", "source", "verdict"),
    [
        ([rule()], "198.51.100.7", OK),
        ([rule("-1", 0, 65535)], "198.51.100.7", OK),
        ([rule("tcp", 0, 65535)], "198.51.100.7", OK),
        ([rule(), rule("tcp", 443, 443, "203.0.113.7/32")], "203.0.113.7", OK),
        ([rule("tcp", 443, 443, "2001:db8::/32", "198.51.100.0/24")], "198.51.100.7", OK),
        ([], "198.51.100.7", FAILED),
        ([rule()], "203.0.113.7", FAILED),
        ([rule("tcp", 22, 22)], "198.51.100.7", FAILED),
        ([rule("udp", 443, 443)], "198.51.100.7", FAILED),
        ([rule("tcp", 443, 443, "203.0.113.0/24", others=("sg-2",))], "198.51.100.7", UNKNOWN),
        ([rule("tcp", 443, 443, "0.0.0.0/0")], None, OK),
        ([rule()], None, UNKNOWN),
        ([rule("tcp", 22, 22, "0.0.0.0/0")], None, UNKNOWN),
    ],
)
def test_a_security_group_must_let_this_host_in(
    rules: list[Ingress], source: str | None, verdict: Verdict
) -> None:
    assert judge_ingress("security groups", rules, 443, source).verdict is verdict


@pytest.mark.parametrize(
    ("instance_type", "family"),
    [
        ("m8i.2xlarge", "m"),
        ("m5zn.metal", "m"),
        ("im4gn.large", "im"),
        ("u-6tb1.metal", "u"),
        ("p5.4xlarge", "p"),
    ],
)
def test_the_letters_of_a_type_are_its_family(instance_type: str, family: str) -> None:
    assert family_of(instance_type) == family


def test_a_quota_must_have_room_for_one_worker_of_each_template() -> None:
    needed = {"small": 8, "metal": 48}
    assert judge_quota("quota", 64, 16, needed).verdict is OK
    finding = judge_quota("quota", 63, 16, needed)
    assert finding.verdict is FAILED
    assert "metal (48)" in finding.detail
    assert "small" not in finding.detail


@pytest.mark.parametrize(("free", "verdict"), [(MIN_FREE_BYTES, OK), (MIN_FREE_BYTES - 1, FAILED)])
def test_a_disk_needs_room_for_the_records(free: int, verdict: Verdict) -> None:
    assert judge_disk("disk", free).verdict is verdict
