"""A topology is read as CML exports it; a bad one gets the line, the node and what to do."""

from pathlib import Path

import pytest

from lcm.domain.capacity import Capacity
from lcm.domain.errors import InvalidTopology, UnknownReference
from lcm.domain.lablet.node_definitions import KNOWN, NodeDefinition, read_node_definition
from lcm.domain.lablet.topology import MAX_BYTES, Topology, analyse

TOPOLOGIES = Path(__file__).parents[3] / "fixtures" / "topologies"
BRANCH_OFFICE = (TOPOLOGIES / "branch-office.yaml").read_text()
FIRST_FORMAT = (TOPOLOGIES / "first-format.yaml").read_text()

HEAD = "lab: {title: t, version: 0.3.0}\n"


def node(fields: str = "", *, label: str = "r1", identity: str = "n0", kind: str = "alpine") -> str:
    more = f", {fields}" if fields else ""
    return f"  - {{id: {identity}, label: {label}, node_definition: {kind}, x: 0, y: 0{more}}}\n"


def lab(*nodes: str, links: str = "links: []\n") -> str:
    return HEAD + "nodes:\n" + "".join(nodes) + links


def mistakes(text: str) -> list[tuple[int, str | None, str]]:
    with pytest.raises(InvalidTopology) as caught:
        analyse(text)
    return [(mistake.line, mistake.node, mistake.message) for mistake in caught.value.mistakes]


def warnings(topology: Topology) -> list[str]:
    return [warning.message for warning in topology.warnings]


def test_the_needs_are_the_sum_of_the_nodes_with_their_own_numbers_first() -> None:
    topology = analyse(BRANCH_OFFICE)
    assert topology.needs == Capacity(cpu=3, memory_gb=4 + 1 + 0.5, storage_gb=16 + 4 + 1, nodes=2)
    assert (topology.title, len(topology.links), len(topology.nodes)) == ("Branch office", 3, 4)
    assert topology.node_definitions == ("external_connector", "iol-xe", "ubuntu", "unmanaged_switch")
    assert topology.images == ("ubuntu-24-04",)
    assert topology.warnings == ()


def test_the_first_export_format_is_read() -> None:
    topology = analyse(FIRST_FORMAT)
    assert topology.needs == Capacity(cpu=1 + 1 + 2, memory_gb=3 + 2 + 8 + 0.5, storage_gb=3, nodes=3)
    assert [n.y for n in topology.nodes] == [-50.5, 0, 2, 9]


def test_the_definitions_of_a_worker_come_before_the_table() -> None:
    own = NodeDefinition(id="alpine", ram_mb=1024, cpus=2, boot_disk_gb=8)
    assert analyse(lab(node()), {"alpine": own}).needs == Capacity(
        cpu=2, memory_gb=1.5, storage_gb=8, nodes=1
    )


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_every_known_kind_of_node_is_counted(name: str) -> None:
    needs = analyse(lab(node(kind=name))).needs
    assert needs.nodes == float(KNOWN[name].has_vm)
    assert (needs.cpu > 0) == KNOWN[name].has_vm
    assert needs.memory_gb >= 0.5


def test_an_unknown_definition_is_assumed_and_named() -> None:
    topology = analyse(lab(node(kind="robot")))
    assert topology.unknown_definitions == ("robot",)
    assert topology.warnings[0].node == "r1"
    assert "State the needs of the lab" in topology.warnings[0].message


def test_an_unknown_definition_with_its_own_numbers_is_known() -> None:
    topology = analyse(lab(node("cpus: 4, ram: 8192", kind="robot")))
    assert topology.unknown_definitions == ()
    assert (topology.needs.cpu, topology.needs.memory_gb) == (4, 8.5)


def test_a_port_tag_without_a_nat_connector_is_a_warning() -> None:
    assert "kind NAT" in warnings(analyse(lab(node("tags: ['pat:7001:80']"))))[0]
    bridge = node("configuration: System Bridge", label="out", identity="n9", kind="external_connector")
    assert "kind NAT" in warnings(analyse(lab(node("tags: ['pat:7001:80']"), bridge)))[0]
    plain = node("configuration: []", label="out", identity="n9", kind="external_connector")
    assert warnings(analyse(lab(node("tags: ['pat:7001:80']"), plain))) == []


def test_two_nodes_of_one_label_are_a_warning() -> None:
    assert "line 3" in warnings(analyse(lab(node(), node(identity="n1"))))[0]


def test_a_placeholder_of_no_port_is_a_warning_with_the_ports_there_are() -> None:
    text = lab(node("tags: ['serial:5000'], configuration: 'port ${PORT_OTHER}'"))
    assert warnings(analyse(text)) == [
        "${PORT_OTHER} names no port of this lab and stays as it is; ports: r1_serial"
    ]


def test_an_unknown_version_is_a_warning() -> None:
    assert "version 9.9.9" in warnings(analyse(lab(node()).replace("0.3.0", "9.9.9")))[0]


@pytest.mark.parametrize(
    ("text", "line", "label", "says"),
    [
        ("a: ]", 1, None, "not YAML"),
        ("a: 1\n---\nb: 1", 2, None, "second document"),
        ("a: *b", 1, None, "no anchor '&b'"),
        ("? [a]\n: 1", 1, None, "simple text"),
        ("x: '\x07'", 1, None, "not YAML"),
        ("[" * 100_000, 1, None, "nested deeper"),
        ("just text", 1, None, "download the lab from CML"),
        ("", 1, None, "download the lab from CML"),
        ("nodes: []\nlinks: []", 1, None, "'lab' with"),
        (HEAD + "links: []", 1, None, "'nodes' must be a list"),
        (HEAD + "nodes: 4\nlinks: []", 2, None, "'nodes' must be a list"),
        (HEAD + "nodes: []\nlinks: []", 2, None, "no nodes"),
        (HEAD + "nodes: [4]\nlinks: []", 2, None, "must be a mapping"),
        (lab(node(), links=""), 1, None, "links: []"),
        (lab(node()).replace("version: 0.3.0", "x: 1"), 1, None, "'version' is missing"),
        (lab(node()).replace("title: t", f"title: {'t' * 65}"), 1, None, "65 characters"),
        (HEAD + "nodes:\n  - {id: n0, label: r1}\nlinks: []", 3, "r1", "node_definition, x, y missing"),
        (lab(node(), node(label="r2")), 4, "r2", "n0 is used twice"),
        (lab(node("ram: much")), 3, "r1", "'ram' is much; write a whole number"),
        (lab(node("cpus: -1")), 3, "r1", "'cpus' is -1"),
        (lab(node("cpus: [1]")), 3, "r1", "'cpus' is a list"),
        (lab(node("interfaces: [{label: a}]")), 3, "r1", "no 'id'"),
        (lab(node("interfaces: [{id: i0}, {id: i0}]")), 3, "r1", "i0 is used twice"),
        (lab(node("tags: ['pat:80']")), 3, "r1", "write pat:<outside>:<inside>"),
        (lab(node("tags: ['pat:sctp:1:2']")), 3, "r1", "write pat:<outside>:<inside>"),
        (lab(node("tags: ['serial:']")), 3, "r1", "write serial:<outside>"),
        (lab(node("tags: ['vnc:99999']")), 3, "r1", "ports are 1 to 65535"),
        (lab(node(f"tags: ['serial:${{PORT_{'A' * 60}}}']")), 3, "r1", "longer than 64"),
        (lab(node("tags: ['vnc:7000', 'vnc:7001']")), 3, "r1", "second vnc tag"),
        (lab(node("tags: ['pat:1:22', 'pat:tcp:2:22']")), 3, "r1", "again"),
        (lab(node("tags: ['serial:${PORT_A}', 'vnc:${PORT_a}']")), 3, "r1", "use another name"),
        (lab(node("tags: &t ['vnc:1']"), node("tags: *t", label="r2", identity="n1")), 3, "r2", "anchor"),
        (lab(node(), links="links: [4]"), 4, None, "a link must be"),
        (lab(node(), links="links: [{id: l0}]"), 4, None, "lacks n1 and i1"),
        (lab(node(), links="links: [{id: l0, n1: n7, i1: i0, n2: n0, i2: i0}]"), 4, None, "node n7"),
        (lab(node(), links="links: [{id: l0, n1: n0, i1: i5, n2: n0, i2: i5}]"), 4, None, "interface i5"),
        (lab(*(node(identity=f"n{n}") for n in range(1_001))), 3, None, "split the lab"),
    ],
)
def test_a_bad_topology_gets_the_line_the_node_and_what_to_do(
    text: str, line: int, label: str | None, says: str
) -> None:
    found = mistakes(text)
    assert any(at == line and who == label and says in message for at, who, message in found), found


def test_every_mistake_is_reported_at_once_in_order() -> None:
    text = lab(node("ram: x, tags: ['pat:1']"), node("cpus: y", label="r2", identity="n1"))
    assert [(line, label) for line, label, _ in mistakes(text)] == [(3, "r1"), (3, "r1"), (4, "r2")]


def test_a_topology_that_is_too_large_is_refused_before_it_is_parsed() -> None:
    assert "larger than 1024 KiB" in mistakes("#" * (MAX_BYTES + 1))[0][2]


def test_a_mistake_reads_as_a_sentence() -> None:
    with pytest.raises(InvalidTopology, match=r"line 3: node r1: 'ram' is x; write a whole number or null"):
        analyse(lab(node("ram: x")))


def test_the_needs_of_a_node_definition_are_read_as_cml_describes_it() -> None:
    body = {"id": "fw", "sim": {"linux_native": {"ram": 8192, "cpus": 4, "boot_disk_size": 16}}}
    assert read_node_definition(body) == NodeDefinition(id="fw", ram_mb=8192, cpus=4, boot_disk_gb=16)
    assert not read_node_definition({"id": "cloud", "sim": {}}).has_vm
    with pytest.raises(UnknownReference):
        read_node_definition({"general": {}})


def read_fixture(name: str) -> str:
    return (TOPOLOGIES / f"{name}.yaml").read_text()


@pytest.mark.parametrize("path", sorted(TOPOLOGIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_an_export_is_analysed_with_any_line_ends_and_marks(path: Path) -> None:
    plain = analyse(path.read_text())
    for text in (
        path.read_text().replace("\n", "\r\n"),
        "\ufeff" + path.read_text(),
        f"---\n{path.read_text()}...\n",
    ):
        other = analyse(text)
        assert (other.needs, other.ports, other.links) == (plain.needs, plain.ports, plain.links)


def test_every_kind_of_node_that_cml_brings_along_is_known() -> None:
    topology = analyse(read_fixture("every-kind"))
    kinds = {each.definition for each in topology.nodes}
    assert kinds == set(KNOWN) - {"external_connector"}
    with_vm = [KNOWN[each.definition] for each in topology.nodes if each.has_vm]
    assert topology.needs.cpu == sum(each.cpus for each in with_vm)
    assert topology.needs.nodes == len(with_vm) == len(topology.links)
    assert (topology.unknown_definitions, topology.warnings) == ((), ())


def test_connectors_and_unmanaged_switches_need_nothing() -> None:
    topology = analyse(read_fixture("connectors"))
    assert topology.needs == Capacity(memory_gb=0.5)
    assert not any(each.has_vm for each in topology.nodes)


@pytest.mark.parametrize("kind", ["", "configuration: []", "configuration: NAT", "configuration: virbr0"])
def test_a_connector_of_kind_nat_lets_pat_tags_work(kind: str) -> None:
    text = lab(
        node("tags: ['pat:2022:22']"),
        node(kind, label="out", identity="n1", kind="external_connector"),
    )
    assert warnings(analyse(text)) == []
    bridged = text.replace(kind, "configuration: bridge0") if kind else ""
    assert not bridged or "external connector of kind NAT" in warnings(analyse(bridged))[0]


def test_drawings_files_and_texts_that_look_like_keys_change_nothing() -> None:
    topology = analyse(read_fixture("drawn"))
    assert topology.needs == Capacity(cpu=3, memory_gb=2 + 0.5 + 0.5, storage_gb=8 + 16 + 1, nodes=2)
    assert [(each.label, each.x, each.y) for each in topology.nodes] == [("r1", -40, 12.25), ("2", 120, 0.5)]
    assert (topology.ports, topology.warnings, topology.images) == ((), (), ("iol-xe-17-12-01",))


def test_a_node_of_an_unknown_definition_that_says_what_it_needs_is_counted() -> None:
    topology = analyse(read_fixture("own-kinds"))
    assert topology.unknown_definitions == ("my-server-1.0",)
    assert "line 7: node silent" in str(topology.warnings[0])
    own = {"my-server-1.0": NodeDefinition(id="my-server-1.0", ram_mb=1024, cpus=1, boot_disk_gb=2)}
    known = analyse(read_fixture("own-kinds"), own)
    assert known.needs == Capacity(cpu=3, memory_gb=3 + 1 + 0.5, storage_gb=4 + 2, nodes=2)
    assert known.unknown_definitions == ()


def test_the_third_export_format_is_read() -> None:
    topology = analyse(read_fixture("third-format"))
    assert topology.needs == Capacity(cpu=1, memory_gb=1.5, storage_gb=1, nodes=1)
    assert topology.warnings == ()


@pytest.mark.parametrize("number", ["nan", ".inf", "1e999", "far"])
def test_a_position_that_is_no_number_is_the_origin(number: str) -> None:
    (found,) = analyse(lab(node().replace("x: 0", f"x: {number}"))).nodes
    assert found.x == 0
