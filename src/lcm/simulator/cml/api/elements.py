"""What a lab is made of: nodes, interfaces, links, and the keys to their consoles."""

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from lcm.simulator.cml.api.routing import Call, Route
from lcm.simulator.cml.console import console_text
from lcm.simulator.cml.lab import POWERED, STARTED, Interface, Link, Node
from lcm.simulator.cml.refusal import Refused
from lcm.simulator.cml.times import shown
from lcm.simulator.cml.topology import OPTIONAL, configuration_of, shown_configuration


class NodeFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of a node that a client may set; a new node needs the first four."""

    label: str | UnsetType = UNSET
    node_definition: str | UnsetType = UNSET
    x: float | UnsetType = UNSET
    y: float | UnsetType = UNSET
    configuration: str | list[dict[str, str]] | UnsetType | None = UNSET
    image_definition: str | UnsetType | None = UNSET
    ram: int | UnsetType | None = UNSET
    cpus: int | UnsetType | None = UNSET
    cpu_limit: int | UnsetType | None = UNSET
    data_volume: int | UnsetType | None = UNSET
    boot_disk_size: int | UnsetType | None = UNSET
    hide_links: bool | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    parameters: dict[str, Any] | UnsetType = UNSET
    pinned_compute_id: str | UnsetType | None = UNSET
    priority: int | UnsetType | None = UNSET
    resource_pool: str | UnsetType | None = UNSET
    pyats: dict[str, str | None] | UnsetType = UNSET

    def properties(self) -> dict[str, Any]:
        """The given fields, as a node stores them."""
        ignored = {"node_definition", "resource_pool", "pyats"}
        names = (name for name in self.__struct_fields__ if name not in ignored)
        said = {name: value for name in names if (value := getattr(self, name)) is not UNSET}
        if "configuration" in said:
            said["configuration"] = configuration_of(said["configuration"])
        return said | {name: int(said[name]) for name in ("x", "y") if name in said}


# Nodes


def node_object(call: Call, node: Node) -> dict[str, Any]:
    """A node as every call shows it, with what the query asks for."""
    exclude = call.flag("exclude_configurations")
    body: dict[str, Any] = {
        "id": node.id,
        "lab_id": node.lab.id,
        "label": node.label,
        "node_definition": node.definition.id,
        "x": node.x,
        "y": node.y,
        "state": node.state,
        "boot_progress": _progress(node),
        **{name: getattr(node, name) for name in OPTIONAL},
        "pinned_compute_id": node.pinned_compute_id,
    }
    if not exclude:
        body["configuration"] = shown_configuration(node, exclude)
    running = _operational(call, node)
    if call.flag("operational"):
        body["operational"] = running
    if call.server.version.is_2_10:
        no_login = {"username": None, "password": None, "enable_password": None}
        body |= {"priority": node.priority, "pyats": no_login}
    else:
        flat = running or {
            "compute_id": None,
            "vnc_key": None,
            "resource_pool": None,
            "iol_app_id": None,
            "serial_consoles": [],
        }
        names = ("compute_id", "vnc_key", "resource_pool", "iol_app_id", "serial_consoles")
        body |= {name: flat[name] for name in names}
    return body


def list_nodes(call: Call) -> list[Any]:
    nodes = call.lab.nodes.values()
    if call.flag("data") or call.flag("operational"):
        return [node_object(call, node) for node in nodes]
    return [node.id for node in nodes]


def create_node(call: Call) -> dict[str, str]:
    lab, requested, labs = call.lab, call.read(NodeFields), call.server.labs
    definition_id, properties = requested.node_definition, requested.properties()
    if isinstance(definition_id, UnsetType) or not {"label", "x", "y"} <= properties.keys():
        raise Refused(400, "Bad request: label, node_definition, x and y are required")
    node = labs.add_node(lab, call.now, definition_id=definition_id, **properties)
    if call.flag("populate_interfaces"):
        if node.definition.has_loopback:
            labs.add_interface(node, call.now, kind="loopback")
        labs.fill_slots(node, call.now, node.definition.default_ports - 1)
    return {"id": node.id}


def get_node(call: Call) -> dict[str, Any]:
    lab = call.lab
    if call.names["node_id"] not in lab.nodes:
        raise Refused(400, f"Node not found: {call.names['node_id']}")
    return node_object(call, lab.nodes[call.names["node_id"]])


def change_node(call: Call) -> str:
    node = _node(call)
    call.server.labs.change_node(node, call.now, **call.read(NodeFields).properties())
    return node.id


def remove_node(call: Call) -> None:
    call.server.labs.remove_node(_node(call), call.now)


def node_state(call: Call) -> dict[str, str]:
    node = _node(call)
    return {"state": node.state, "progress": _progress(node)}


def start_node(call: Call) -> None:
    call.server.labs.start_node(_node(call), call.now, call.user.id)


def stop_node(call: Call) -> None:
    call.server.labs.stop_node(_node(call), call.now, call.user.id)


def wipe_node(call: Call) -> None:
    call.server.labs.wipe_node(_node(call), call.now, call.user.id)


def node_converged(call: Call) -> bool:
    return not _node(call).is_on_its_way


def extract_configuration(call: Call) -> dict[str, Any]:
    node = _node(call)
    return {"id": node.id, "configuration": call.server.labs.extract_configuration(node)}


def node_interfaces(call: Call) -> list[Any]:
    interfaces = _node(call).interfaces
    if call.flag("data"):
        return [interface_object(call, interface) for interface in interfaces]
    return [interface.id for interface in interfaces]


def node_addresses(call: Call) -> dict[str, Any]:
    return {"name": _node(call).label, "interfaces": {}}


def clear_addresses(call: Call) -> None:
    _node(call)


def console_log(call: Call) -> str:
    node = _node(call)
    port = call.names["port"]
    if not port.isdecimal() or int(port) >= node.definition.serial_ports:
        raise Refused(400, f"Node {node.id} has no console {port}.")
    lines = console_text(node).split("\n")
    wanted = call.query.parameters.get("lines", "")
    return "\n".join(lines[-int(wanted) :] if wanted.isdecimal() and int(wanted) else lines)


def console_key(call: Call) -> str:
    node = _node(call)
    line = call.query.parameters.get("line", "0")
    if not line.isdecimal() or int(line) >= len(node.console_keys):
        raise Refused(404, f"Console key not found for node {node.id}")
    return node.console_keys[int(line)]


def vnc_key(call: Call) -> str:
    node = _node(call)
    if node.vnc_key is None:
        raise Refused(404, f"VNC key not found for node {node.id}")
    return node.vnc_key


def all_console_keys(call: Call) -> dict[str, Any]:
    return {
        key: _key_object(call, node) | {"line": line}
        for node in _visible_nodes(call)
        for line, key in enumerate(node.console_keys)
    }


def all_vnc_keys(call: Call) -> dict[str, Any]:
    return {node.vnc_key: _key_object(call, node) for node in _visible_nodes(call) if node.vnc_key}


# Interfaces


def interface_object(call: Call, interface: Interface) -> dict[str, Any]:
    body: dict[str, Any] = {
        "id": interface.id,
        "label": interface.label,
        "slot": interface.slot,
        "type": interface.type,
        "node": interface.node.id,
        "lab_id": interface.node.lab.id,
        "state": interface.state,
        "is_connected": interface.link is not None,
        "mac_address": interface.mac_address,
    }
    if call.flag("operational") or call.server.version.is_2_10:
        is_up = interface.state is STARTED
        body["operational"] = {"device_name": None, "mac_address": _mac(interface)} if is_up else None
    return body


def list_interfaces(call: Call) -> list[dict[str, Any]]:
    """Since 2.10; before, the path only took POST."""
    lab = call.lab
    if not call.server.version.is_2_10:
        raise Refused(405, "Method Not Allowed")
    return [interface_object(call, interface) for interface in lab.interfaces.values()]


def create_interface(call: Call) -> Any:
    """One interface, or a list of all that were missing up to the slot that was given."""
    lab, requested = call.lab, call.fields()
    node, slot = lab.node(str(requested.get("node"))), requested.get("slot")
    if slot is None:
        return interface_object(call, call.server.labs.add_interface(node, call.now))
    if not isinstance(slot, int):
        raise Refused(400, "Bad request: slot must be a number")
    made = call.server.labs.fill_slots(node, call.now, slot)
    return [interface_object(call, interface) for interface in made]


def get_interface(call: Call) -> dict[str, Any]:
    return interface_object(call, _interface(call))


def change_interface(call: Call) -> str:
    interface = _interface(call)
    interface.mac_address = call.fields().get("mac_address", interface.mac_address)
    return interface.id


def remove_interface(call: Call) -> None:
    call.server.labs.remove_interface(_interface(call), call.now)


def interface_state(call: Call) -> dict[str, str]:
    interface = _interface(call)
    return {"id": interface.id, "state": interface.state}


def start_interface(call: Call) -> None:
    call.server.labs.shut(_interface(call), call.now, is_shut=False)


def stop_interface(call: Call) -> None:
    call.server.labs.shut(_interface(call), call.now, is_shut=True)


# Links


def link_object(link: Link) -> dict[str, Any]:
    return {
        "id": link.id,
        "label": link.label,
        "lab_id": link.a.node.lab.id,
        "interface_a": link.a.id,
        "interface_b": link.b.id,
        "node_a": link.a.node.id,
        "node_b": link.b.node.id,
        "state": link.state,
        "link_capture_key": link.capture or "",
    }


def list_links(call: Call) -> list[Any]:
    links = call.lab.links.values()
    return [link_object(link) for link in links] if call.flag("data") else [link.id for link in links]


def create_link(call: Call) -> dict[str, Any]:
    lab, requested = call.lab, call.fields()
    a, b = lab.interface(str(requested.get("src_int"))), lab.interface(str(requested.get("dst_int")))
    return link_object(call.server.labs.connect(a, b, call.now))


def get_link(call: Call) -> dict[str, Any]:
    return link_object(_link(call))


def remove_link(call: Call) -> None:
    call.server.labs.remove_link(_link(call), call.now)


def link_state(call: Call) -> dict[str, str]:
    link = _link(call)
    return {"id": link.id, "state": link.state}


def start_link(call: Call) -> None:
    call.server.labs.cut(_link(call), call.now, is_cut=False)


def stop_link(call: Call) -> None:
    call.server.labs.cut(_link(call), call.now, is_cut=True)


def link_converged(call: Call) -> bool:
    link = _link(call)
    return not (link.a.node.is_on_its_way or link.b.node.is_on_its_way)


def condition(call: Call) -> dict[str, Any]:
    return _link(call).conditioning


def set_condition(call: Call) -> dict[str, Any]:
    link = _link(call)
    link.conditioning = link.conditioning | call.fields()
    return link.conditioning


def clear_condition(call: Call) -> None:
    _link(call).conditioning = {}


def start_capture(call: Call) -> dict[str, Any]:
    link = _link(call)
    if link.state is not STARTED:
        raise Refused(400, f"Link {link.id} is not running.")
    link.capture = call.server.labs.new_id()
    call.server.telemetry.record(
        "packet_capture", call.now, {"lab_id": link.a.node.lab.id, "user_id": call.user.id}
    )
    return _capture(call, link)


def stop_capture(call: Call) -> None:
    _link(call).capture = None


def capture_status(call: Call) -> dict[str, Any]:
    return _capture(call, _link(call))


def _capture(call: Call, link: Link) -> dict[str, Any]:
    if link.capture is None:
        return {}
    return {
        "config": {"link_capture_key": link.capture},
        "starttime": shown(call.now),
        "packetscaptured": 0,
    }


# Shared


def _node(call: Call) -> Node:
    return call.lab.node(call.names["node_id"])


def _interface(call: Call) -> Interface:
    return call.lab.interface(call.names["interface_id"])


def _link(call: Call) -> Link:
    return call.lab.link(call.names["link_id"])


def _visible_nodes(call: Call) -> list[Node]:
    sees_all = call.user.admin and call.flag("show_all")
    return [node for node in call.server.labs.nodes() if sees_all or node.lab.owner_id == call.user.id]


def _progress(node: Node) -> str:
    if not node.is_running:
        return "Not running"
    return "Booted" if node.state == "BOOTED" else "Booting"


def _operational(call: Call, node: Node) -> dict[str, Any] | None:
    if node.state not in POWERED:
        return None
    return {
        "compute_id": call.server.compute_id,
        "cpus": node.given_cpus,
        "ram": node.given_ram,
        "cpu_limit": node.cpu_limit or 100,
        "data_volume": node.data_volume or 0,
        "boot_disk_size": node.boot_disk_size or 0,
        "image_definition": node.image_definition or node.definition.image,
        "vnc_key": node.vnc_key,
        "resource_pool": node.resource_pool,
        "iol_app_id": int(node.id[:2], 16) + 1 if node.definition.driver == "IOL" else None,
        "serial_consoles": [
            {"console_key": key, "label": f"Serial {number}", "device_number": number}
            for number, key in enumerate(node.console_keys)
        ],
    }


def _key_object(call: Call, node: Node) -> dict[str, Any]:
    return {
        "node_id": node.id,
        "compute_id": call.server.compute_id,
        "lab_id": node.lab.id,
        "label": node.label,
        "driver": node.definition.driver,
    }


def _mac(interface: Interface) -> str:
    digits = interface.id.replace("-", "")
    return interface.mac_address or f"52:54:00:{digits[0:2]}:{digits[2:4]}:{digits[4:6]}"


LAB: Final = "labs/{lab_id}"
NODE: Final = f"{LAB}/nodes/{{node_id}}"
INTERFACE: Final = f"{LAB}/interfaces/{{interface_id}}"
LINK: Final = f"{LAB}/links/{{link_id}}"

ROUTES: Final[tuple[Route, ...]] = (
    ("GET", f"{LAB}/nodes", list_nodes),
    ("POST", f"{LAB}/nodes", create_node),
    ("GET", NODE, get_node),
    ("PATCH", NODE, change_node),
    ("DELETE", NODE, remove_node),
    ("GET", f"{NODE}/state", node_state),
    ("PUT", f"{NODE}/state/start", start_node),
    ("PUT", f"{NODE}/state/stop", stop_node),
    ("PUT", f"{NODE}/wipe_disks", wipe_node),
    ("GET", f"{NODE}/check_if_converged", node_converged),
    ("PUT", f"{NODE}/extract_configuration", extract_configuration),
    ("GET", f"{NODE}/interfaces", node_interfaces),
    ("GET", f"{NODE}/layer3_addresses", node_addresses),
    ("DELETE", f"{NODE}/layer3_addresses", clear_addresses),
    ("GET", f"{NODE}/consoles/{{port}}/log", console_log),
    ("GET", f"{NODE}/keys/console", console_key),
    ("GET", f"{NODE}/keys/vnc", vnc_key),
    ("GET", "keys/console", all_console_keys),
    ("GET", "keys/vnc", all_vnc_keys),
    ("GET", f"{LAB}/interfaces", list_interfaces),
    ("POST", f"{LAB}/interfaces", create_interface),
    ("GET", INTERFACE, get_interface),
    ("PATCH", INTERFACE, change_interface),
    ("DELETE", INTERFACE, remove_interface),
    ("GET", f"{INTERFACE}/state", interface_state),
    ("PUT", f"{INTERFACE}/state/start", start_interface),
    ("PUT", f"{INTERFACE}/state/stop", stop_interface),
    ("GET", f"{LAB}/links", list_links),
    ("POST", f"{LAB}/links", create_link),
    ("GET", LINK, get_link),
    ("DELETE", LINK, remove_link),
    ("GET", f"{LINK}/state", link_state),
    ("PUT", f"{LINK}/state/start", start_link),
    ("PUT", f"{LINK}/state/stop", stop_link),
    ("GET", f"{LINK}/check_if_converged", link_converged),
    ("GET", f"{LINK}/condition", condition),
    ("PATCH", f"{LINK}/condition", set_condition),
    ("DELETE", f"{LINK}/condition", clear_condition),
    ("PUT", f"{LINK}/capture/start", start_capture),
    ("PUT", f"{LINK}/capture/stop", stop_capture),
    ("GET", f"{LINK}/capture/status", capture_status),
)
