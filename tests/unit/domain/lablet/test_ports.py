"""Ports are read from tags, picked once each, and written into the topology without a trace left of tags."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lcm.domain.errors import InvalidTopology, NoFreePort
from lcm.domain.lablet.node_definitions import KNOWN
from lcm.domain.lablet.ports import (
    PLACEHOLDER,
    PortKind,
    PortRange,
    PortSpec,
    pick_ports,
    read_tag,
)
from lcm.domain.lablet.rewrite import rewrite
from lcm.domain.lablet.topology import TopologyReader, analyse
from unit.domain.lablet.test_topology import BRANCH_OFFICE, TOPOLOGIES, lab, node

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def spec(name: str, fixed: int | None = None) -> PortSpec:
    return PortSpec(name=name, node=name, kind=PortKind.SERIAL, protocol="serial", fixed=fixed)


ranges = st.tuples(st.integers(2000, 2040), st.integers(2000, 2040)).map(
    lambda ends: PortRange(first=min(ends), last=max(ends), reserved=frozenset({2005}))
)
ports = st.integers(1995, 2045)


@given(
    within=ranges,
    taken=st.sets(ports),
    fixed=st.lists(st.none() | ports, max_size=30),
    freed=st.dictionaries(ports, st.integers(0, 20)),
)
def test_no_port_is_picked_twice_or_outside_the_range(
    within: PortRange, taken: set[int], fixed: list[int | None], freed: dict[int, int]
) -> None:
    specs = [spec(f"p{n}", port) for n, port in enumerate(fixed)]
    freed_at = {port: NOON - timedelta(minutes=age) for port, age in freed.items()}
    wanted = [port for port in fixed if port is not None]
    can_be_fixed = len(set(wanted)) == len(wanted) and all(p in within and p not in taken for p in wanted)
    fits = can_be_fixed and within.free(taken) >= len(specs)
    try:
        picked = pick_ports(specs, taken=taken, within=within, freed_at=freed_at, now=NOON)
    except NoFreePort:
        assert not fits
        return
    assert fits
    assert set(picked) == {each.name for each in specs}
    assert len(set(picked.values())) == len(specs)
    assert all(port in within and port not in taken for port in picked.values())
    assert all(picked[each.name] == each.fixed for each in specs if each.fixed is not None)


def test_the_lowest_free_port_is_picked_and_a_port_just_freed_last() -> None:
    within = PortRange(first=2000, last=2003)
    freed_at = {2000: NOON - timedelta(minutes=9), 2001: NOON - timedelta(minutes=11)}
    picked = pick_ports(
        [spec("a"), spec("b"), spec("c")], taken={2002}, within=within, freed_at=freed_at, now=NOON
    )
    assert picked == {"a": 2001, "b": 2003, "c": 2000}


@pytest.mark.parametrize(("fixed", "says"), [(1999, "outside"), (9090, "outside"), (2002, "is taken")])
def test_a_port_that_must_be_one_number_is_refused_with_the_reason(fixed: int, says: str) -> None:
    with pytest.raises(NoFreePort, match=says):
        pick_ports([spec("a", fixed)], taken={2002}, within=PortRange(last=9999), now=NOON)


@pytest.mark.parametrize(("first", "last"), [(1999, 3000), (3000, 2999), (2000, 10_000)])
def test_a_port_range_stays_within_its_bounds(first: int, last: int) -> None:
    with pytest.raises(ValueError, match="not within 2000 to 9999"):
        PortRange(first=first, last=last)


def test_a_range_counts_its_reserved_ports_only_once() -> None:
    assert PortRange().size == 6000
    assert PortRange(first=9000, last=9999).size == 999
    assert PortRange(first=9000, last=9999).free([9000, 9000, 9090, 1]) == 998


@pytest.mark.parametrize("text", ["Branch", "patio:3", "serial", "vnc", "PAT:1:2", ""])
def test_a_tag_for_another_purpose_is_left_alone(text: str) -> None:
    assert read_tag(text) is None


@pytest.mark.parametrize(
    ("text", "protocol", "inside"),
    [
        ("pat:7001:22", "tcp", 22),
        ("pat:udp:7001:53", "udp", 53),
        ("serial:5041", "serial", 0),
        ("serial:5041:3", "serial", 3),
        ("vnc:5900", "vnc", 0),
        ("pat:${PORT_WEB}:80", "tcp", 80),
    ],
)
def test_a_port_tag_is_read_with_what_it_leads_to(text: str, protocol: str, inside: int) -> None:
    tag = read_tag(text)
    assert tag is not None
    assert (tag.protocol, tag.inside) == (protocol, inside)
    assert tag.with_port(2345) == text.replace(tag.outside, "2345", 1)


def test_ports_are_named_by_node_and_protocol_and_each_name_is_unique() -> None:
    names = [port.name for port in analyse(BRANCH_OFFICE).ports]
    assert names == ["web_tcp_8443", "web_tcp_22", "web_vnc", "SERIAL_1", "r1_serial"]
    clash = lab(node("tags: ['vnc:1']", label="a b"), node("tags: ['vnc:1']", label="a_b", identity="n1"))
    assert [port.name for port in analyse(clash).ports] == ["a_b_vnc_0", "a_b_vnc_0_2"]


def granted(text: str, first: int = 2000) -> str:
    specs = analyse(text).ports
    return rewrite(
        text, specs, pick_ports(specs, taken=(), within=PortRange(first=first, last=7999), now=NOON)
    )


def test_only_port_tags_and_placeholders_change() -> None:
    before, after = BRANCH_OFFICE.splitlines(), granted(BRANCH_OFFICE).splitlines()
    changed = [(old.strip(), new.strip()) for old, new in zip(before, after, strict=True) if old != new]
    assert changed == [
        ("- tag: pat:tcp:7001:8443", "- tag: pat:tcp:2000:8443"),
        ("label: pat:tcp:7001:8443", "label: pat:tcp:2000:8443"),
        (
            "# reached from outside at port ${PORT_WEB_TCP_8443} and ${PORT_web_tcp_22}",
            "# reached from outside at port 2000 and 2001",
        ),
        ("- pat:tcp:7001:8443", "- pat:tcp:2000:8443"),
        ("- 'pat:7002:22'", "- 'pat:2001:22'"),
        ('- "vnc:7003"', '- "vnc:2002"'),
        ("- serial:${PORT_SERIAL_1}", "- serial:2003"),
        ("- serial:5042:1", "- serial:2004:1"),
    ]


def test_a_rewritten_topology_can_be_rewritten_with_other_ports() -> None:
    specs = analyse(BRANCH_OFFICE).ports
    other = {each.name: 3000 + n for n, each in enumerate(specs)}
    once = rewrite(BRANCH_OFFICE, specs, {each.name: 4000 + n for n, each in enumerate(specs)})
    assert "pat:tcp:3000:8443" in rewrite(once, specs, other)
    assert "4000" not in rewrite(once, specs, other).replace("port 4000", "")


def test_a_tag_without_a_granted_port_is_refused() -> None:
    with pytest.raises(InvalidTopology, match=r"line 3: node r1: no port was granted"):
        rewrite(lab(node("tags: ['vnc:1']")), (), {})


def test_a_topology_with_mistakes_is_not_rewritten() -> None:
    with pytest.raises(InvalidTopology, match="write pat"):
        rewrite(lab(node("tags: ['pat:1']")), (), {})


tags = st.one_of(
    st.builds("pat:{}:{}".format, st.integers(1, 65_535), st.integers(1, 65_535)),
    st.builds("pat:udp:{}:{}".format, st.integers(1, 65_535), st.integers(1, 65_535)),
    st.builds("serial:{}:{}".format, st.integers(1, 65_535), st.integers(0, 3)),
    st.builds("vnc:{}".format, st.integers(1, 65_535)),
    st.sampled_from(["Branch", "serial:${PORT_con}", "a: b", "été", "'", '"', "# x"]),
)
configurations = st.lists(
    st.sampled_from(
        ["${PORT_R0_SERIAL}", "${PORT_con}", "${PORT_none}", "\n", "é", '"', "'", "\\", " : ", "#"]
    )
).map("".join)
labs = st.lists(st.tuples(st.lists(tags, max_size=4), configurations), min_size=1, max_size=4)


@given(nodes=labs, is_wide=st.booleans(), style=st.sampled_from([None, '"', "'"]))
def test_the_rewriter_is_idempotent_and_leaves_no_tag_unresolved(
    nodes: list[tuple[list[str], str]], is_wide: bool, style: str | None
) -> None:
    content = {
        "lab": {"title": "t", "version": "0.3.0"},
        "nodes": [
            {
                "id": f"n{n}",
                "label": f"r{n}",
                "node_definition": "alpine",
                "x": 0,
                "y": 0,
                "tags": list(names),
                "configuration": configuration if n % 2 else [{"name": "c", "content": configuration}],
            }
            for n, (names, configuration) in enumerate(nodes)
        ],
        "links": [],
    }
    text = yaml.safe_dump(content, default_style=style, width=1000 if is_wide else 20, allow_unicode=is_wide)
    try:
        specs = analyse(text).ports
    except InvalidTopology:
        return  # the same port twice, or one name for two
    numbers = pick_ports(specs, taken=(), within=PortRange(), now=NOON)
    rewritten = rewrite(text, specs, numbers)
    assert rewrite(rewritten, specs, numbers) == rewritten
    after = yaml.safe_load(rewritten)
    outside = [read_tag(tag) for each in after["nodes"] for tag in each["tags"]]
    assert sorted(int(tag.outside) for tag in outside if tag) == sorted(numbers.values())
    left = {name for each in after["nodes"] for name in PLACEHOLDER.findall(str(each["configuration"]))}
    assert not {name for name in left if name.lower() in {each.name.lower() for each in specs}}
    assert without_ports(after) == without_ports(content)


@pytest.mark.parametrize("path", sorted(TOPOLOGIES.glob("*.yaml")), ids=lambda path: path.stem)
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("start", ["", "\ufeff", "---\n"])
def test_ports_that_are_granted_as_written_leave_every_character_as_it_is(
    path: Path, ends: str, start: str
) -> None:
    text = start + granted(path.read_text()).replace("\n", ends)
    specs = analyse(text).ports
    written = {port.key: int(port.tag.outside) for port in reader_of(text).tagged}
    assert rewrite(text, specs, {each.name: written[each.key] for each in specs}) == text


@given(nodes=labs, style=st.sampled_from([None, '"', "'"]), ends=st.sampled_from(["\n", "\r\n"]))
def test_other_ports_and_the_first_ones_again_give_the_first_text(
    nodes: list[tuple[list[str], str]], style: str | None, ends: str
) -> None:
    content = {
        "lab": {"title": "t", "version": "0.3.0"},
        "nodes": [
            {
                "id": f"n{n}",
                "label": f"r{n}",
                "node_definition": "alpine",
                "x": 0,
                "y": 0,
                "tags": list(names),
            }
            for n, (names, _) in enumerate(nodes)
        ],
        "links": [],
    }
    text = yaml.safe_dump(content, default_style=style, width=1000).replace("\n", ends)
    try:
        specs = analyse(text).ports
    except InvalidTopology:
        return  # the same port twice, or one name for two
    first, other = (
        pick_ports(specs, taken=(), within=PortRange(first=start, last=start + 999), now=NOON)
        for start in (2000, 3000)
    )
    once = rewrite(text, specs, first)
    assert rewrite(rewrite(once, specs, other), specs, first) == once


@given(
    st.lists(st.one_of(st.none(), st.integers(2000, 2030)), max_size=20),
    st.sets(st.integers(1990, 2040)),
    st.sets(st.integers(2000, 2030)),
)
def test_no_port_is_picked_twice_nor_one_that_is_taken_or_outside(
    fixed: list[int | None], taken: set[int], cooling: set[int]
) -> None:
    specs = [spec(f"p{n}", each) for n, each in enumerate(fixed)]
    within = PortRange(first=2000, last=2030, reserved=frozenset({2007}))
    freed_at = dict.fromkeys(cooling, NOON)
    try:
        picked = pick_ports(specs, taken=taken, within=within, freed_at=freed_at, now=NOON)
    except NoFreePort:
        return
    ports = list(picked.values())
    assert len(set(ports)) == len(ports) == len(specs)
    assert taken.isdisjoint(ports)
    assert all(port in within for port in ports)


def reader_of(text: str) -> TopologyReader:
    reader = TopologyReader(text, KNOWN)
    reader.read()
    return reader


def without_ports(content: Mapping[str, object]) -> list[list[str]]:
    nodes = content["nodes"]
    assert isinstance(nodes, list)
    return [[tag for tag in each["tags"] if read_tag(tag) is None] for each in nodes]
