"""Where a worker may be."""

from ipaddress import ip_network

import pytest

from lcm.domain.addresses import require_worker_addresses
from lcm.domain.errors import InvalidAddress
from lcm.domain.launch import InstanceId
from lcm.domain.worker import Instance


def at(address: str | None) -> Instance:
    return Instance(
        id=InstanceId("i-1"),
        region="us-east-1",
        state="running",
        instance_type="m8i.large",
        image_id="ami-1",
        public_ip=address,
    )


@pytest.mark.parametrize("address", ["203.0.113.5", "10.0.0.5", "127.0.0.9", "2001:db8::5", None])
def test_an_ip_address_is_one_of_a_worker(address: str | None) -> None:
    require_worker_addresses(at(address), ())


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "fe80::1",
        "0.0.0.0",
        "224.0.0.1",
        "metadata.google.internal:80/#",
        "evil.example",
        "10.0.0.5:443",
        "",
    ],
)
def test_a_name_or_the_metadata_service_is_no_worker(address: str) -> None:
    with pytest.raises(InvalidAddress):
        require_worker_addresses(at(address), ())


def test_no_worker_is_outside_the_allowed_networks() -> None:
    networks = (ip_network("10.0.0.0/16"), ip_network("2001:db8::/32"))
    require_worker_addresses(at("10.0.9.9"), networks)
    require_worker_addresses(at("2001:db8::9"), networks)
    with pytest.raises(InvalidAddress, match="WORKER_NETWORKS"):
        require_worker_addresses(at("10.1.0.1"), networks)
