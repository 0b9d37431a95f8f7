"""A topology as CML exports it: read, checked, and counted.

`analyse` finds every mistake at once, each with its line, its node and what to do. What CML would accept but
an author may not have meant is a warning. Nothing here changes a text; `rewrite` does.
"""

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Final

import msgspec

from lcm.domain.capacity import Capacity
from lcm.domain.errors import InvalidTopology, TopologyMistake
from lcm.domain.lablet import marked_yaml
from lcm.domain.lablet.marked_yaml import Scalar, Sequence, YamlMistake
from lcm.domain.lablet.node_definitions import (
    ASSUMED,
    EXTERNAL_CONNECTOR,
    KNOWN,
    NodeDefinition,
)
from lcm.domain.lablet.ports import (
    PLACEHOLDER,
    BadTag,
    PortKey,
    PortKind,
    PortSpec,
    PortTag,
    canonical,
    name_ports,
    read_tag,
)

MAX_BYTES: Final = 1024 * 1024
MAX_NODES: Final = 1_000
MAX_LINKS: Final = 10_000
MAX_TITLE_LENGTH: Final = 64
LAB_OVERHEAD_GB: Final = 0.5
"""Memory that a lab takes beside its nodes."""
UNKNOWN_DISK_GB: Final = 1
VERSIONS: Final = frozenset(
    {"0.0.1", "0.0.2", "0.0.3", "0.0.4", "0.0.5", "0.1.0", "0.2.0", "0.2.1", "0.2.2", "0.3.0"}
)
_NAT: Final = frozenset({"", "nat", "default", "virbr0"})
"""How connectors of kind NAT are written; the last one by the first releases of CML 2."""


class TopologyNode(msgspec.Struct, frozen=True, kw_only=True):
    """One node of a lab, and what it needs."""

    label: str
    definition: str
    image: str | None = None
    line: int
    cpus: float
    ram_mb: int
    disk_gb: float
    has_vm: bool
    tags: tuple[str, ...] = ()
    x: float = 0.0
    y: float = 0.0


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """What LCM knows of a lab from its text alone."""

    title: str
    version: str
    nodes: tuple[TopologyNode, ...]
    links: tuple[tuple[int, int], ...]
    """The places of both ends among the nodes: labels may be shared."""
    ports: tuple[PortSpec, ...]
    needs: Capacity
    unknown_definitions: tuple[str, ...] = ()
    """Node definitions whose needs were assumed: an author must state the needs of the lab."""
    warnings: tuple[TopologyMistake, ...] = ()

    @property
    def node_definitions(self) -> tuple[str, ...]:
        """The node definitions that a worker must have."""
        return tuple(sorted({node.definition for node in self.nodes}))

    @property
    def images(self) -> tuple[str, ...]:
        """The image definitions that nodes name."""
        return tuple(sorted({node.image for node in self.nodes if node.image}))


class TaggedPort(msgspec.Struct, frozen=True):
    """A tag that asks for a port, and where it stands in the text."""

    node: str
    tag: PortTag
    scalar: Scalar

    @property
    def key(self) -> PortKey:
        return PortKey(self.node, self.tag.kind, self.tag.protocol, self.tag.inside)


def analyse(text: str, definitions: Mapping[str, NodeDefinition] | None = None) -> Topology:
    """Read a topology; `definitions` are those of a worker. Raises InvalidTopology with every mistake."""
    reader = TopologyReader(text, {**KNOWN, **(definitions or {})})
    topology = reader.read()
    if reader.mistakes:
        raise InvalidTopology(reader.mistakes)
    return topology


def compose(text: str) -> marked_yaml.Mapping:
    """The mapping that a topology is. Raises InvalidTopology."""
    if len(text.encode(errors="replace")) > MAX_BYTES:
        message = f"the topology is larger than {MAX_BYTES // 1024} KiB; shorten configurations"
        raise InvalidTopology([TopologyMistake(1, None, message)])
    try:
        root = marked_yaml.compose(text)
    except YamlMistake as mistake:
        raise InvalidTopology([TopologyMistake(mistake.line, None, f"not YAML: {mistake}")]) from None
    if not isinstance(root, marked_yaml.Mapping):
        message = "not a topology: download the lab from CML and paste the whole file"
        raise InvalidTopology([TopologyMistake(1, None, message)])
    return root


def configuration_scalars(node: marked_yaml.Mapping) -> Iterator[Scalar]:
    """The texts of a node's configuration: one text, or files with a content each."""
    value = node.entries.get("configuration")
    if isinstance(value, Scalar):
        yield value
    for file in node.items_of("configuration"):
        content = file.entries.get("content") if isinstance(file, marked_yaml.Mapping) else None
        if isinstance(content, Scalar):
            yield content


def tag_scalars(node: marked_yaml.Mapping) -> Iterator[Scalar]:
    """The tags of a node."""
    yield from (tag for tag in node.items_of("tags") if isinstance(tag, Scalar))


class TopologyReader:
    """Reads one topology and collects what is wrong with it."""

    def __init__(self, text: str, definitions: Mapping[str, NodeDefinition]) -> None:
        self.root = compose(text)
        self.mistakes: list[TopologyMistake] = []
        self.tagged: list[TaggedPort] = []
        self._definitions = definitions
        self._warnings: list[TopologyMistake] = []
        self._unknown: set[str] = set()
        self._interfaces: dict[str, set[str]] = {}
        self._labels: dict[str, int] = {}
        self._has_nat = False

    def read(self) -> Topology:
        """The topology; meaningless if there are mistakes."""
        title, version = self._read_head()
        nodes = tuple(self._read_nodes())
        links = tuple(self._read_links())
        self._check_ports()
        ports = name_ports((port.node, port.tag) for port in self.tagged)
        self._check_placeholders(ports)
        return Topology(
            title=title,
            version=version,
            nodes=nodes,
            links=links,
            ports=ports,
            needs=needs_of(nodes),
            unknown_definitions=tuple(sorted(self._unknown)),
            warnings=tuple(self._warnings),
        )

    def _mistake(self, line: int, message: str, node: str | None = None) -> None:
        self.mistakes.append(TopologyMistake(line, node, message))

    def _warn(self, line: int, message: str, node: str | None = None) -> None:
        self._warnings.append(TopologyMistake(line, node, message))

    def _read_head(self) -> tuple[str, str]:
        lab = self.root.entries.get("lab")
        if not isinstance(lab, marked_yaml.Mapping):
            self._mistake(self.root.line, "'lab' with 'title' and 'version' is missing; add it")
            return "", ""
        title, version = lab.text("title") or "", lab.text("version") or ""
        if len(title) > MAX_TITLE_LENGTH:
            message = f"the title has {len(title)} characters; CML takes {MAX_TITLE_LENGTH}, shorten it"
            self._mistake(lab.entries["title"].line, message)
        if not version:
            self._mistake(lab.line, "'version' is missing in 'lab'; CML 2.9 writes 'version: 0.3.0'")
        elif version not in VERSIONS:
            message = f"version {version} is unknown to LCM; a CML that does not know it refuses the lab"
            self._warn(lab.entries["version"].line, message)
        return title, version

    def _list(self, name: str, limit: int, advice: str) -> list[marked_yaml.Node]:
        value = self.root.entries.get(name)
        if not isinstance(value, Sequence):
            self._mistake(value.line if value else self.root.line, f"'{name}' must be a list; {advice}")
            return []
        if len(value.items) > limit:
            self._mistake(value.line, f"{len(value.items)} {name}, more than {limit}; split the lab")
            return []
        return value.items

    def _read_nodes(self) -> Iterator[TopologyNode]:
        items = self._list("nodes", MAX_NODES, "add the nodes of the lab")
        if not items and "nodes" in self.root.entries and not self.mistakes:
            self._mistake(self.root.entries["nodes"].line, "the lab has no nodes; add one")
        for item in items:
            node = self._read_node(item)
            if node is not None:
                yield node

    def _read_node(self, item: marked_yaml.Node) -> TopologyNode | None:
        if not isinstance(item, marked_yaml.Mapping):
            self._mistake(item.line, "a node must be a mapping with 'id', 'label' and 'node_definition'")
            return None
        label = item.text("label")
        missing = [name for name in ("id", "label", "node_definition", "x", "y") if item.text(name) is None]
        if missing:
            self._mistake(item.line, f"{', '.join(missing)} missing; add it to the node", label)
        identity, definition_id = item.text("id") or "", item.text("node_definition") or ""
        if identity in self._interfaces:
            self._mistake(item.line, f"the id {identity} is used twice; give each node its own", label)
        self._interfaces[identity] = self._interface_ids(item, label)
        self._see_label(label or "", item.line)
        self._has_nat = self._has_nat or (definition_id == EXTERNAL_CONNECTOR and _is_nat(item))
        tags = tuple(scalar.text for scalar in tag_scalars(item))
        self._read_tags(item, label or identity)
        return self._counted(item, label or identity, definition_id, tags)

    def _see_label(self, label: str, line: int) -> None:
        if label in self._labels:
            self._warn(line, f"the label is also that of the node in line {self._labels[label]}", label)
        self._labels.setdefault(label, line)

    def _interface_ids(self, item: marked_yaml.Mapping, label: str | None) -> set[str]:
        found: set[str] = set()
        for interface in item.items_of("interfaces"):
            identity = interface.text("id") if isinstance(interface, marked_yaml.Mapping) else None
            if identity is None:
                self._mistake(interface.line, "an interface has no 'id'; add it", label)
            elif identity in found:
                message = f"the interface id {identity} is used twice; give each interface its own"
                self._mistake(interface.line, message, label)
            else:
                found.add(identity)
        return found

    def _counted(
        self, item: marked_yaml.Mapping, label: str, definition_id: str, tags: tuple[str, ...]
    ) -> TopologyNode:
        own = {
            name: self._amount(item, name, label) for name in ("cpus", "ram", "boot_disk_size", "data_volume")
        }
        definition = self._definition(definition_id, item, label, is_stated=bool(own["cpus"] and own["ram"]))
        has_vm = definition.has_vm
        disk = own["boot_disk_size"] or definition.boot_disk_gb or UNKNOWN_DISK_GB
        volume = own["data_volume"] or definition.data_volume_gb or 0
        return TopologyNode(
            label=label,
            definition=definition_id,
            image=item.text("image_definition"),
            line=item.line,
            cpus=(own["cpus"] or definition.cpus) if has_vm else 0,
            ram_mb=(own["ram"] or definition.ram_mb) if has_vm else 0,
            disk_gb=disk + volume if has_vm else 0,
            has_vm=has_vm,
            tags=tags,
            x=_position(item.text("x")),
            y=_position(item.text("y")),
        )

    def _definition(
        self, name: str, item: marked_yaml.Mapping, label: str, *, is_stated: bool
    ) -> NodeDefinition:
        known = self._definitions.get(name)
        if known is not None:
            return known
        if name and not is_stated:
            self._unknown.add(name)
            message = (
                f"the node definition {name} is unknown; assumed {ASSUMED.cpus} CPU and {ASSUMED.ram_mb} MB."
                " State the needs of the lab, or set 'cpus' and 'ram' of the node"
            )
            self._warn(item.line, message, label)
        return ASSUMED

    def _amount(self, item: marked_yaml.Mapping, name: str, label: str) -> int | None:
        """A positive number; None if it is absent, null or 0, with which CML means its own default."""
        value = item.entries.get(name)
        if value is None or (isinstance(value, Scalar) and value.is_null):
            return None
        number = value.integer if isinstance(value, Scalar) else None
        if number is None or not 0 <= number <= 1_000_000:
            shown = value.text if isinstance(value, Scalar) else "a list or mapping"
            self._mistake(value.line, f"'{name}' is {shown[:20]}; write a whole number or null", label)
            return None
        return number or None

    def _read_tags(self, item: marked_yaml.Mapping, label: str) -> None:
        for scalar in tag_scalars(item):
            try:
                tag = read_tag(scalar.text)
            except BadTag as mistake:
                self._mistake(scalar.line, str(mistake), label)
                continue
            if tag is not None:
                self.tagged.append(TaggedPort(label, tag, scalar))

    def _check_ports(self) -> None:
        seen: dict[PortKey, int] = {}
        names: dict[str, int] = {}
        places: set[int] = set()
        for port in self.tagged:
            line, node = port.scalar.line, port.node
            if port.scalar.start in places:
                message = "an anchor gives two nodes this port tag; write the tags of each node out"
                self._mistake(line, message, node)
            elif port.key in seen:
                self._mistake(line, _twice(port, seen[port.key]), node)
            elif port.tag.placeholder and canonical(port.tag.placeholder) in names:
                first = names[canonical(port.tag.placeholder)]
                message = f"{port.tag.outside} is the port of line {first} already; use another name"
                self._mistake(line, message, node)
            places.add(port.scalar.start)
            seen.setdefault(port.key, line)
            if port.tag.placeholder:
                names.setdefault(canonical(port.tag.placeholder), line)
        pats = [port for port in self.tagged if port.tag.kind is PortKind.PAT]
        if pats and not self._has_nat:
            message = f"the tag {pats[0].tag.text} works only with an external connector of kind NAT; add one"
            self._warn(pats[0].scalar.line, message, pats[0].node)

    def _check_placeholders(self, ports: tuple[PortSpec, ...]) -> None:
        names = {canonical(port.name) for port in ports}
        for item in self.root.items_of("nodes"):
            if not isinstance(item, marked_yaml.Mapping):
                continue
            for scalar in configuration_scalars(item):
                if "${PORT_" not in scalar.text:
                    continue
                for name in PLACEHOLDER.findall(scalar.text):
                    if canonical(name) not in names:
                        self._warn(scalar.line, _unknown_port(name, ports), item.text("label"))

    def _read_links(self) -> Iterator[tuple[int, int]]:
        places = {identity: place for place, identity in enumerate(self._interfaces)}
        items = self._list("links", MAX_LINKS, "write 'links: []' if there are none")
        for item in items:
            if not isinstance(item, marked_yaml.Mapping):
                self._mistake(item.line, "a link must be a mapping with 'n1', 'i1', 'n2' and 'i2'")
                continue
            for node, interface in (("n1", "i1"), ("n2", "i2")):
                self._check_end(item, item.text(node), item.text(interface), f"{node} and {interface}")
            ends = places.get(item.text("n1") or ""), places.get(item.text("n2") or "")
            if ends[0] is not None and ends[1] is not None:
                yield ends[0], ends[1]

    def _check_end(
        self, link: marked_yaml.Mapping, node: str | None, interface: str | None, names: str
    ) -> None:
        label = link.text("label") or link.text("id") or "without id"
        if node is None or interface is None:
            self._mistake(link.line, f"the link {label} lacks {names}; add them or remove the link")
        elif node not in self._interfaces:
            self._mistake(link.line, f"the link {label} leads to node {node}, which is not there; remove it")
        elif interface not in self._interfaces[node]:
            message = f"the link {label} leads to interface {interface} of {node}, which is not there; add it"
            self._mistake(link.line, f"{message} to the node or remove the link")


def needs_of(nodes: tuple[TopologyNode, ...]) -> Capacity:
    """What a lab takes of a worker. Connectors and unmanaged switches need nothing and count as no node."""
    return Capacity(
        cpu=float(sum(node.cpus for node in nodes)),
        memory_gb=round(sum(node.ram_mb for node in nodes) / 1024 + LAB_OVERHEAD_GB, 3),
        storage_gb=float(sum(node.disk_gb for node in nodes)),
        nodes=float(sum(node.has_vm for node in nodes)),
    )


def _is_nat(connector: marked_yaml.Mapping) -> bool:
    """Whether an external connector is one of kind NAT, which is CML's default."""
    texts = [scalar.text for scalar in configuration_scalars(connector) if not scalar.is_null]
    return not texts or any(text.strip().lower() in _NAT for text in texts)


def _position(text: str | None) -> float:
    try:
        number = float(text or 0)
    except ValueError:
        return 0.0
    return number if isfinite(number) else 0.0


def _twice(port: TaggedPort, first: int) -> str:
    if port.tag.kind is PortKind.VNC:
        return f"a second vnc tag, the first is in line {first}; a node has one, remove it"
    return f"the tag {port.tag.text} asks for the port of line {first} again; remove one of them"


def _unknown_port(name: str, ports: tuple[PortSpec, ...]) -> str:
    known = ", ".join(port.name for port in ports) or "none, no node has a port tag"
    return f"${{PORT_{name}}} names no port of this lab and stays as it is; ports: {known}"
