"""People get the ports of the nodes that are for them, each with its own label and what is spoken there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcm.domain.lablet.access import GrantedPort, granted_ports, uri_of
from lcm.domain.lablet.ports import PortKind, PortSpec
from lcm.domain.lablet.topology import TopologyNode, analyse
from unit.domain.lablet.test_topology import lab, node

NAT = node(label="out", identity="n9", kind="external_connector")


def granted(*nodes: str) -> list[GrantedPort]:
    topology = analyse(lab(*nodes, NAT))
    ports = {spec.name: 2000 + number for number, spec in enumerate(topology.ports)}
    return granted_ports(topology.ports, ports, topology.nodes)


@pytest.mark.parametrize(
    ("tag", "protocol", "uri"),
    [
        ("pat:1:22", "ssh", "ssh://w:2000"),
        ("pat:tcp:1:23", "telnet", "telnet://w:2000"),
        ("pat:1:80", "http", "http://w:2000"),
        ("pat:1:443", "https", "https://w:2000"),
        ("pat:1:3389", "rdp", "rdp://full%20address=s:w:2000"),
        ("pat:1:5900", "vnc", "vnc://w:2000"),
        ("pat:1:5999", "vnc", "vnc://w:2000"),
        ("pat:1:6000", "tcp", None),
        ("pat:udp:1:22", "udp", None),
        ("serial:1", "serial", "telnet://w:2000"),
        ("vnc:1", "vnc", "vnc://w:2000"),
    ],
)
def test_the_port_of_the_node_says_what_is_spoken(tag: str, protocol: str, uri: str | None) -> None:
    [port] = granted(node(f"tags: ['{tag}']"))
    assert (port.label, port.node, port.node_definition) == ("r1", "r1", "alpine")
    assert (port.protocol, port.port, uri_of(port.protocol, "w", port.port)) == (protocol, 2000, uri)


def test_hidden_nodes_and_nodes_without_a_port_are_not_shown() -> None:
    hidden = node("tags: ['serial:1', hidden]", label="grader", identity="n1")
    other = node("tags: ['serial:2']", label="b", identity="n2")
    assert [port.node for port in granted(hidden, node(), other)] == ["b"]
    connector = node("tags: ['pat:1:80']", label="out2", identity="n2", kind="external_connector")
    assert granted(connector) == []


def test_a_port_that_was_not_granted_is_not_shown() -> None:
    topology = analyse(lab(node("tags: ['serial:1', 'vnc:2']")))
    [port] = granted_ports(topology.ports, {"r1_vnc": 2007}, topology.nodes)
    assert (port.kind, port.port) == (PortKind.VNC, 2007)


def test_the_ports_of_a_node_come_in_the_order_of_their_use() -> None:
    tags = ["serial:1", "pat:2:23", "pat:3:22", "pat:4:3389", "pat:5:443", "pat:6:80", "vnc:7", "pat:8:9000"]
    ports = granted(node(f"tags: {tags}"), node("tags: ['serial:9']", label="a", identity="n1"))
    assert [port.label for port in ports] == [
        "r1 vnc",
        "r1 http",
        "r1 https",
        "r1 rdp",
        "r1 ssh",
        "r1 serial",
        "r1 telnet",
        "r1 tcp",
        "a",
    ]


def test_ports_of_one_protocol_are_told_apart_by_the_port_inside() -> None:
    ports = granted(node("tags: ['serial:1', 'serial:2:1', 'pat:3:8080']"))
    assert [port.label for port in ports] == ["r1 serial 0", "r1 serial 1", "r1 tcp"]


LABELS = st.sampled_from(["r1", "r1 ssh", "r1 ssh 22", "r1 serial", "r1 (2)"])
SPECS = st.lists(
    st.builds(
        PortSpec,
        name=st.text("ab", min_size=1, max_size=4),
        node=LABELS,
        kind=st.sampled_from(PortKind),
        protocol=st.sampled_from(["tcp", "udp", "serial", "vnc"]),
        inside=st.sampled_from([0, 22, 2022]),
    ),
    max_size=12,
    unique_by=lambda spec: spec.name,
)


@given(specs=SPECS)
def test_no_two_ports_have_one_label_whatever_nodes_are_called(specs: list[PortSpec]) -> None:
    nodes = [
        TopologyNode(label=label, definition="alpine", line=1, cpus=1, ram_mb=1, disk_gb=1, has_vm=True)
        for label in {spec.node for spec in specs}
    ]
    ports = granted_ports(specs, {spec.name: 2000 for spec in specs}, nodes)
    assert len({port.label for port in ports}) == len(ports) == len(specs)


def test_a_user_name_is_part_of_an_ssh_address_and_of_no_other() -> None:
    assert uri_of("ssh", "::1", 2001, "a b@c") == "ssh://a%20b%40c@[::1]:2001"
    assert uri_of("https", "w", 2001, "ann") == "https://w:2001"
