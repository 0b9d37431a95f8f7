"""What `lcm doctor` reads in AWS's answers: the time, and the rules of security groups."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lcm.domain.diagnosis import Ingress
from lcm.worker_controller.adapters.ec2_inspection import read_date, read_ingress, skew_of

ASKED = datetime(2026, 11, 19, 12, 0, 0, 400_000, tzinfo=UTC)
ANSWERED = ASKED + timedelta(seconds=2)


@pytest.mark.parametrize(
    ("seconds", "skew"),
    [(-0.4, 0.0), (1.0, 0.0), (-1.4, 0.4), (-301.4, 300.4), (302.0, -300.0)],
)
def test_a_clock_is_off_by_no_more_than_the_answer_proves(seconds: float, skew: float) -> None:
    theirs = ASKED + timedelta(seconds=seconds)
    found = skew_of(theirs, ASKED, ANSWERED)
    assert found is not None
    assert found.total_seconds() == pytest.approx(skew)


def test_without_their_time_the_skew_is_unknown() -> None:
    assert skew_of(None, ASKED, ANSWERED) is None


@pytest.mark.parametrize(
    ("headers", "date"),
    [
        ({"date": "Thu, 19 Nov 2026 12:00:00 GMT"}, datetime(2026, 11, 19, 12, tzinfo=UTC)),
        ({"date": "yesterday"}, None),
        ({}, None),
    ],
)
def test_the_time_is_in_the_headers_of_an_answer(headers: dict[str, str], date: datetime | None) -> None:
    assert read_date({"ResponseMetadata": {"HTTPHeaders": headers}}) == date


@pytest.mark.parametrize(
    ("rule", "ingress"),
    [
        (
            {
                "IpProtocol": "tcp",
                "FromPort": 443,
                "ToPort": 443,
                "IpRanges": [{"CidrIp": "198.51.100.0/24"}],
                "Ipv6Ranges": [{"CidrIpv6": "2001:db8::/32"}],
            },
            Ingress(
                protocol="tcp", first_port=443, last_port=443, networks=("198.51.100.0/24", "2001:db8::/32")
            ),
        ),
        (
            {
                "IpProtocol": "-1",
                "UserIdGroupPairs": [{"GroupId": "sg-2"}],
                "PrefixListIds": [{"PrefixListId": "pl-1"}],
            },
            Ingress(protocol="-1", first_port=0, last_port=65535, networks=(), others=("sg-2", "pl-1")),
        ),
    ],
)
def test_a_rule_has_networks_and_others_whose_addresses_are_not_known(
    rule: dict[str, Any], ingress: Ingress
) -> None:
    assert read_ingress(rule) == ingress
