"""What people get for a session: the ports of its lab, as a person reaches them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from lcm.domain.lablet.node_definitions import EXTERNAL_CONNECTOR
from lcm.domain.lablet.ports import PortKind, PortSpec
from lcm.domain.lablet.topology import TopologyNode

HIDDEN: Final = "hidden"
"""The tag of a node whose ports are not for people."""
TCP: Final = "tcp"
PRIORITY: Final = ("vnc", "http", "https", "rdp", "ssh", "serial", "telnet", TCP, "udp")
"""The order of several ports of one node."""
_WELL_KNOWN: Final = {22: "ssh", 23: "telnet", 80: "http", 443: "https", 3389: "rdp"}
_VNC_DISPLAYS: Final = range(5900, 6000)
_URI: Final[Mapping[str, str]] = {
    "vnc": "vnc://{at}",
    "http": "http://{at}",
    "https": "https://{at}",
    "rdp": "rdp://full%20address=s:{at}",
    "ssh": "ssh://{user}{at}",
    "serial": "telnet://{at}",
    "telnet": "telnet://{at}",
}


class GrantedPort(msgspec.Struct, frozen=True, kw_only=True):
    """One port of a worker that leads to a node of a session's lab."""

    label: str
    """The node, and what distinguishes its ports; no other port of the session has it."""
    node: str
    node_definition: str
    kind: PortKind
    protocol: str
    """What is spoken there, judged by the port of the node."""
    port: int
    """The port of the worker."""


def protocol_of(spec: PortSpec) -> str:
    """What is spoken at a port: that of the port of the node, if it is a well-known one."""
    if spec.kind is not PortKind.PAT or spec.protocol != TCP:
        return spec.protocol
    return "vnc" if spec.inside in _VNC_DISPLAYS else _WELL_KNOWN.get(spec.inside, TCP)


def granted_ports(
    specs: Sequence[PortSpec], ports: Mapping[str, int], nodes: Iterable[TopologyNode]
) -> list[GrantedPort]:
    """The ports that people get, by node in the order of the topology, the most useful of each first."""
    shown = {
        node.label: (place, node.definition)
        for place, node in enumerate(nodes)
        if HIDDEN not in node.tags and node.definition != EXTERNAL_CONNECTOR
    }
    granted = [spec for spec in specs if spec.name in ports and spec.node in shown]
    granted.sort(key=lambda spec: (shown[spec.node], PRIORITY.index(protocol_of(spec)), spec.inside))
    return [
        GrantedPort(
            label=label,
            node=spec.node,
            node_definition=shown[spec.node][1],
            kind=spec.kind,
            protocol=protocol_of(spec),
            port=ports[spec.name],
        )
        for spec, label in zip(granted, _labels(granted), strict=True)
    ]


def _labels(specs: Sequence[PortSpec]) -> list[str]:
    """The node, with the protocol and the port inside where it has several; none twice."""
    of_node = Counter(spec.node for spec in specs)
    of_protocol = Counter((spec.node, protocol_of(spec)) for spec in specs)
    labels: dict[str, None] = {}
    for spec in specs:
        plain = spec.node if of_node[spec.node] == 1 else f"{spec.node} {protocol_of(spec)}"
        if of_protocol[spec.node, protocol_of(spec)] > 1:
            plain = f"{plain} {spec.inside}"
        label, number = plain, 1
        while label in labels:
            number += 1
            label = f"{plain} ({number})"
        labels[label] = None
    return list(labels)


def uri_of(protocol: str, host: str, port: int, username: str | None = None) -> str | None:
    """An address that a client opens; None for a port of which LCM does not know what is spoken there."""
    form = _URI.get(protocol)
    if form is None:
        return None
    at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return form.format(at=at, user=f"{quote(username, safe='')}@" if username else "")
