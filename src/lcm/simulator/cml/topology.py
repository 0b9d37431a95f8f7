"""Labs as text: the file form that is imported and downloaded, and the JSON form with real ids."""

from typing import Any, Final

import msgspec
import yaml

from lcm.simulator.cml.lab import Interface, Lab, Node
from lcm.simulator.cml.labs import Labs
from lcm.simulator.cml.refusal import Refused

VERSIONS: Final = frozenset(
    {"0.0.1", "0.0.2", "0.0.3", "0.0.4", "0.0.5", "0.1.0", "0.2.0", "0.2.1", "0.2.2", "0.3.0"}
)
OPTIONAL: Final = (
    "image_definition",
    "ram",
    "cpus",
    "cpu_limit",
    "data_volume",
    "boot_disk_size",
    "hide_links",
    "tags",
    "parameters",
)
"""Of a node; its configuration has a form of its own."""


class _Interface(msgspec.Struct):
    id: str
    type: str
    label: str = ""
    slot: int | None = None


class _Node(msgspec.Struct):
    id: str
    label: str | int
    """A number without quotes is taken as text, as LCM's own analysis does."""
    x: float
    y: float
    node_definition: str
    interfaces: list[_Interface] = []
    configuration: str | list[dict[str, str]] | None = None
    image_definition: str | None = None
    ram: int | None = None
    cpus: int | None = None
    cpu_limit: int | None = None
    data_volume: int | None = None
    boot_disk_size: int | None = None
    hide_links: bool = False
    tags: list[str] = []
    parameters: dict[str, Any] = {}


class _Link(msgspec.Struct):
    id: str
    n1: str
    i1: str
    n2: str
    i2: str
    label: str = ""
    conditioning: dict[str, Any] = {}


class _Head(msgspec.Struct):
    version: str
    title: str = ""
    description: str = ""
    notes: str = ""


class File(msgspec.Struct):
    """A topology file; unknown keys are ignored."""

    lab: _Head
    nodes: list[_Node]
    links: list[_Link]
    annotations: list[Any] = []
    smart_annotations: list[Any] = []


def read_file(body: bytes) -> File:
    """A topology in YAML or JSON, whatever its Content-Type says; refuses what is none."""
    try:
        raw = yaml.load(body, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        file = msgspec.convert(_without_nulls(raw), File, strict=False)
    except (yaml.YAMLError, msgspec.ValidationError, UnicodeDecodeError) as mistake:
        raise Refused(400, f"Bad request: topology cannot be imported: {mistake}") from None
    if file.lab.version not in VERSIONS:
        raise Refused(400, f"Bad request: unknown topology version {file.lab.version!r}")
    return file


def _without_nulls(raw: Any) -> Any:
    """A property of a node that is null is one that is not given."""
    if not isinstance(raw, dict) or not isinstance(raw.get("nodes"), list):
        return raw
    return raw | {"nodes": [_given(node) if isinstance(node, dict) else node for node in raw["nodes"]]}


def _given(node: dict[Any, Any]) -> dict[Any, Any]:
    return {name: value for name, value in node.items() if value is not None}


def import_file(labs: Labs, file: File, at: float, *, owner_id: str, title: str) -> Lab:
    """A new lab from a file; refuses a file with dangling links, and creates nothing then."""
    labs.faults.check("import")
    lab = labs.create(
        at,
        title=title,
        owner_id=owner_id,
        description=file.lab.description,
        notes=file.lab.notes,
    )
    lab.drawings = {"annotations": file.annotations, "smart_annotations": file.smart_annotations}
    try:
        _fill(labs, lab, file, at)
    except Refused:
        labs.discard(lab)
        raise
    return lab


def _fill(labs: Labs, lab: Lab, file: File, at: float) -> None:
    ports: dict[tuple[str, str], Interface] = {}
    for order in file.nodes:
        node = labs.add_node(
            lab,
            at,
            label=str(order.label),
            definition_id=order.node_definition,
            x=int(order.x),
            y=int(order.y),
            configuration=configuration_of(order.configuration),
            **{name: getattr(order, name) for name in OPTIONAL},
        )
        for port in order.interfaces:
            ports[order.id, port.id] = labs.add_interface(
                node, at, slot=port.slot, label=port.label, kind=port.type
            )
    for link in file.links:
        try:
            a, b = ports[link.n1, link.i1], ports[link.n2, link.i2]
        except KeyError as missing:
            raise Refused(400, f"Bad request: link {link.id} names an unknown interface: {missing}") from None
        labs.connect(a, b, at, label=link.label).conditioning = dict(link.conditioning)


def configuration_of(given: str | list[dict[str, str]] | None) -> list[dict[str, str]]:
    """Configurations as files with names; a bare text is the main one."""
    if not given:
        return []
    return [{"name": "Main", "content": given}] if isinstance(given, str) else list(given)


def shown_configuration(node: Node, exclude: bool | None) -> str | list[dict[str, str]] | None:
    """As the query `exclude_configurations` asks: absent, only the main one as text; false, all files."""
    if exclude:
        return None
    if exclude is None:
        return node.configuration[0]["content"] if node.configuration else ""
    return list(node.configuration)


def topology(lab: Lab, exclude: bool | None) -> dict[str, Any]:
    """What `GET /labs/{id}/topology` answers: real ids, no states."""
    return {
        "lab": {
            "title": lab.title,
            "description": lab.description,
            "notes": lab.notes,
            "owner": lab.owner_id,
            "version": "0.3.0",
        },
        "nodes": [_node(node, exclude) for node in lab.nodes.values()],
        "links": [
            {
                "id": link.id,
                "label": link.label,
                "interface_a": link.a.id,
                "interface_b": link.b.id,
                "node_a": link.a.node.id,
                "node_b": link.b.node.id,
                "conditioning": link.conditioning,
            }
            for link in lab.links.values()
        ],
        "annotations": [],
        "smart_annotations": [],
    }


def _node(node: Node, exclude: bool | None) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": node.id,
        "label": node.label,
        "node_definition": node.definition.id,
        "x": node.x,
        "y": node.y,
        "configuration": shown_configuration(node, exclude),
        **{name: getattr(node, name) for name in OPTIONAL},
        "interfaces": [
            {
                "id": interface.id,
                "label": interface.label,
                "type": interface.type,
                "slot": interface.slot,
                "mac_address": interface.mac_address,
                "node": node.id,
            }
            for interface in node.interfaces
        ],
    }
    if exclude:
        del shown["configuration"]
    return shown


def write_file(lab: Lab) -> str:
    """The lab as a file that can be imported, with ids of its own."""
    node_ids = {node.id: f"n{number}" for number, node in enumerate(lab.nodes.values())}
    port_ids = {
        interface.id: f"i{number}"
        for node in lab.nodes.values()
        for number, interface in enumerate(node.interfaces)
    }
    file = {
        "lab": {
            "title": lab.title,
            "description": lab.description,
            "notes": lab.notes,
            "version": "0.3.0",
        },
        "nodes": [
            {
                "id": node_ids[node.id],
                "label": node.label,
                "node_definition": node.definition.id,
                "x": node.x,
                "y": node.y,
                "configuration": list(node.configuration),
                **{name: getattr(node, name) for name in OPTIONAL},
                "interfaces": [
                    {
                        "id": port_ids[interface.id],
                        "label": interface.label,
                        "type": interface.type,
                        "slot": interface.slot,
                    }
                    for interface in node.interfaces
                ],
            }
            for node in lab.nodes.values()
        ],
        "links": [
            {
                "id": f"l{number}",
                "n1": node_ids[link.a.node.id],
                "i1": port_ids[link.a.id],
                "n2": node_ids[link.b.node.id],
                "i2": port_ids[link.b.id],
                "label": link.label,
                "conditioning": link.conditioning,
            }
            for number, link in enumerate(lab.links.values())
        ],
        **{name: drawings for name, drawings in lab.drawings.items() if drawings},
    }
    text: str = yaml.safe_dump(file, sort_keys=False)
    return text
