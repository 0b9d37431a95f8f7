"""The node and image definitions that a CML 2.9 ships, those that users add, and how long nodes take to boot.

What the shipped ones need is the domain's table: an analysis and the simulated server agree.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from lcm.domain.lablet.node_definitions import KNOWN
from lcm.simulator.cml.refusal import Refused


class NodeDefinition(NamedTuple):
    """A kind of node."""

    id: str
    label: str
    nature: str
    driver: str
    """KVM, IOL, DOCKER, or NONE for what is part of the fabric, as console keys name it."""
    ram: int | None
    """MiB; None: it is no virtual machine."""
    cpus: int | None
    boot_seconds: float
    ports: int
    default_ports: int
    body: Mapping[str, Any] | None = None
    """Of one that a user added: the definition as it was given."""

    @property
    def image(self) -> str | None:
        """The id of its only image; a definition without a virtual machine needs none."""
        return f"{self.id}-simulated" if self.has_vm and self.body is None else None

    @property
    def has_vm(self) -> bool:
        return self.ram is not None

    @property
    def serial_ports(self) -> int:
        if self.body is not None:
            return int(_part(self.body, "device", "interfaces").get("serial_ports") or 0)
        return int(self.has_vm)

    @property
    def has_screen(self) -> bool:
        """Whether VNC shows something."""
        return self.driver == "KVM" or self.id in {"chrome", "firefox"}

    @property
    def has_loopback(self) -> bool:
        return self.has_vm and self.nature in {ROUTER, SWITCH, FIREWALL}

    @property
    def prefix(self) -> str:
        """How the labels of its nodes begin."""
        return f"{self.id.replace('_', '-')}-"

    @property
    def boot_text(self) -> str:
        """What its console shows when it is up."""
        if not self.has_vm:
            return ""
        return "Press RETURN to get started" if self.has_loopback else "login:"

    def port_name(self, slot: int) -> str:
        if self.body is not None:
            names = _part(self.body, "device", "interfaces").get("physical") or []
            return str(names[slot]) if slot < len(names) else f"eth{slot}"
        pattern, first = PORT_NAMES.get(self.id, ("eth{}", 0))
        return pattern.format(slot + first)


SERVER: Final = "server"
ROUTER: Final = "router"
SWITCH: Final = "switch"
FIREWALL: Final = "firewall"
CLOUD: Final = "external_connector"

PORT_NAMES: Final = {
    "ubuntu": ("ens{}", 2),
    "asav": ("GigabitEthernet0/{}", 0),
    "cat8000v": ("GigabitEthernet{}", 1),
    "cat9000v-q200": ("GigabitEthernet1/0/{}", 1),
    "cat9000v-uadp": ("GigabitEthernet1/0/{}", 1),
    "csr1000v": ("GigabitEthernet{}", 1),
    "iol-xe": ("Ethernet0/{}", 0),
    "ioll2-xe": ("Ethernet0/{}", 0),
    "iosv": ("GigabitEthernet0/{}", 0),
    "iosvl2": ("GigabitEthernet0/{}", 0),
    "iosxrv": ("GigabitEthernet0/0/0/{}", 0),
    "iosxrv9000": ("GigabitEthernet0/0/0/{}", 0),
    "nxosv": ("Ethernet2/{}", 1),
    "nxosv9000": ("Ethernet1/{}", 1),
    "unmanaged_switch": ("port{}", 0),
    "external_connector": ("port", 0),
}
"""And the number of the first. Of the others: eth0, eth1, …"""

# fmt: off
_SHIPPED: Final = (
    # id                     label                    nature    driver    boot  ports
    ("alpine",               "Alpine",                SERVER,   "KVM",    8,    4,  1),
    ("asav",                 "ASAv",                  FIREWALL, "KVM",    150,  10, 10),
    ("cat-sdwan-controller", "SD-WAN Controller",     SERVER,   "KVM",    120,  8,  3),
    ("cat-sdwan-edge",       "SD-WAN Edge",           ROUTER,   "KVM",    200,  26, 8),
    ("cat-sdwan-manager",    "SD-WAN Manager",        SERVER,   "KVM",    600,  8,  3),
    ("cat-sdwan-validator",  "SD-WAN Validator",      SERVER,   "KVM",    120,  8,  3),
    ("cat8000v",             "Cat 8000v",             ROUTER,   "KVM",    200,  26, 4),
    ("cat9000v-q200",        "Cat 9000v Q200",        SWITCH,   "KVM",    360,  24, 9),
    ("cat9000v-uadp",        "Cat 9000v UADP",        SWITCH,   "KVM",    360,  24, 9),
    ("chrome",               "Chrome",                SERVER,   "DOCKER", 6,    4,  1),
    ("csr1000v",             "CSR 1000v",             ROUTER,   "KVM",    150,  26, 4),
    ("desktop",              "Desktop",               SERVER,   "KVM",    12,   8,  1),
    ("dnsmasq",              "Dnsmasq",               SERVER,   "DOCKER", 3,    4,  1),
    ("firefox",              "Firefox",               SERVER,   "DOCKER", 6,    4,  1),
    ("fmcv",                 "Secure FMC",            SERVER,   "KVM",    900,  4,  2),
    ("frr",                  "FRR",                   ROUTER,   "DOCKER", 4,    16, 4),
    ("ftdv",                 "Secure Firewall",       FIREWALL, "KVM",    600,  10, 10),
    ("iol-xe",               "IOL XE",                ROUTER,   "IOL",    15,   16, 4),
    ("ioll2-xe",             "IOL L2 XE",             SWITCH,   "IOL",    15,   16, 4),
    ("iosv",                 "IOSv",                  ROUTER,   "KVM",    60,   16, 4),
    ("iosvl2",               "IOSv L2",               SWITCH,   "KVM",    70,   16, 8),
    ("iosxrv",               "IOS XRv",               ROUTER,   "KVM",    180,  32, 4),
    ("iosxrv9000",           "IOS XRv 9000",          ROUTER,   "KVM",    420,  32, 4),
    ("net-tools",            "Net-tools",             SERVER,   "DOCKER", 3,    4,  1),
    ("nginx",                "Nginx",                 SERVER,   "DOCKER", 3,    4,  1),
    ("nxosv",                "NX-OSv",                SWITCH,   "KVM",    150,  32, 8),
    ("nxosv9000",            "NX-OS 9000",            SWITCH,   "KVM",    180,  64, 8),
    ("radius",               "Radius",                SERVER,   "DOCKER", 3,    4,  1),
    ("server",               "Server",                SERVER,   "KVM",    5,    8,  1),
    ("splunk",               "Splunk",                SERVER,   "DOCKER", 60,   4,  1),
    ("syslog",               "Syslog",                SERVER,   "DOCKER", 3,    4,  1),
    ("tacplus",              "TACACS+",               SERVER,   "DOCKER", 3,    4,  1),
    ("thousandeyes-ea",      "TE Agent",              SERVER,   "DOCKER", 10,   4,  1),
    ("trex",                 "TRex",                  SERVER,   "KVM",    20,   8,  2),
    ("ubuntu",               "Ubuntu",                SERVER,   "KVM",    30,   8,  1),
    ("vwlc",                 "vWLC",                  SERVER,   "KVM",    240,  2,  2),
    ("wan_emulator",         "WAN Emulator",          SERVER,   "KVM",    8,    4,  2),
    ("unmanaged_switch",     "Unmanaged Switch",      SWITCH,   "NONE",   0.4,  32, 8),
    ("external_connector",   "External Connector",    CLOUD,    "NONE",   0.4,  1,  1),
)
# fmt: on


def _shipped(
    name: str, label: str, nature: str, driver: str, boot: float, ports: int, default_ports: int
) -> NodeDefinition:
    needs = KNOWN[name]
    ram, cpus = (needs.ram_mb, needs.cpus) if needs.has_vm else (None, None)
    return NodeDefinition(name, label, nature, driver, ram, cpus, boot, ports, default_ports)


DEFINITIONS: Final = {row[0]: _shipped(*row) for row in _SHIPPED}
OWN_BOOT_SECONDS: Final = 20.0
"""Of definitions that users add and whose boot has no timeout."""


def added_definition(body: Any) -> NodeDefinition:
    """A definition that a user adds; refuses what is none."""
    try:
        name, general = body["id"], body["general"]
        interfaces = body["device"]["interfaces"]
        native = body.get("sim", {}).get("linux_native") or {}
        boot = float(body.get("boot", {}).get("timeout") or 4 * OWN_BOOT_SECONDS) / 4
        driver = str(native.get("libvirt_domain_driver") or "none").upper()
        definition = NodeDefinition(
            id=name,
            label=str(body.get("ui", {}).get("label") or name),
            nature=str(general["nature"]),
            driver=driver,
            ram=int(native["ram"]) if native else None,
            cpus=int(native.get("cpus") or 1) if native else None,
            boot_seconds=boot,
            ports=len(interfaces["physical"]),
            default_ports=int(interfaces.get("default_count") or len(interfaces["physical"])),
            body=body,
        )
        int(interfaces.get("serial_ports") or 0)
        msgspec.json.encode(body)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as mistake:
        raise Refused(400, f"Bad request: this is not a node definition: {mistake!r}") from None
    if not isinstance(name, str) or not 1 <= len(name) <= 250:
        raise Refused(400, "Bad request: a node definition needs an id")
    return definition


def _part(body: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    for name in names:
        body = body.get(name) or {}
    return body


ICONS: Final = {SERVER: "server", ROUTER: "router", SWITCH: "switch", FIREWALL: "firewall", CLOUD: "cloud"}


def node_definition(definition: NodeDefinition) -> dict[str, Any]:
    """As `GET /node_definitions` describes it."""
    if definition.body is not None:
        return dict(definition.body)
    has_console = definition.serial_ports > 0
    return {
        "id": definition.id,
        "general": {
            "nature": definition.nature,
            "description": f"{definition.label} (simulated)",
            "read_only": True,
        },
        "device": {
            "interfaces": {
                "serial_ports": definition.serial_ports,
                "physical": [definition.port_name(n) for n in range(definition.ports)],
                "has_loopback_zero": definition.has_loopback,
                "default_count": definition.default_ports,
                "loopback": ["Loopback0"] if definition.has_loopback else [],
            }
        },
        "ui": {
            "label_prefix": definition.prefix,
            "icon": ICONS[definition.nature],
            "label": definition.label,
            "visible": True,
            "group": "Cisco" if definition.has_loopback else "Others",
            "description": f"{definition.label} (simulated)",
        },
        "sim": {
            "linux_native": {
                "libvirt_domain_driver": definition.driver.lower(),
                "driver": definition.driver.lower(),
                "ram": definition.ram,
                "cpus": definition.cpus,
            }
            if definition.has_vm
            else {}
        },
        "boot": {
            "timeout": int(definition.boot_seconds * 4),
            "completed": [definition.boot_text] if definition.boot_text else [],
        },
        "configuration": {
            "generator": {"driver": definition.driver.lower()} if has_console else {},
            "provisioning": {"files": [], "media_type": "iso", "volume_name": "config"}
            if has_console
            else None,
        },
        "inherited": {"image": {}, "node": {}},
        "schema_version": "0.0.1",
    }


def image_definition(definition: NodeDefinition) -> dict[str, Any]:
    """The image of a node definition that has one, as `GET /image_definitions` describes it."""
    return {
        **_OF_THE_NODE_DEFINITION,
        "id": definition.image,
        "node_definition_id": definition.id,
        "label": f"{definition.label} ({definition.image})",
        "description": f"{definition.label} image (simulated)",
        "disk_image": f"{definition.image}.qcow2",
        "read_only": True,
        "schema_version": "0.0.1",
    }


def shipped_images() -> dict[str, dict[str, Any]]:
    """Every image that CML ships, by its id."""
    return {d.image: image_definition(d) for d in DEFINITIONS.values() if d.image is not None}


def added_image(body: Any, definitions: Mapping[str, NodeDefinition]) -> dict[str, Any]:
    """An image definition that a user adds; refuses what is none."""
    if not isinstance(body, dict) or not all(isinstance(body.get(name), str) for name in _IMAGE_NEEDS):
        raise Refused(400, f"Bad request: an image definition needs {', '.join(_IMAGE_NEEDS)}")
    if body["node_definition_id"] not in definitions:
        raise Refused(400, f"Node definition not found: {body['node_definition_id']}")
    return {**_OF_THE_NODE_DEFINITION, "description": "", "read_only": False, **body}


_OF_THE_NODE_DEFINITION: Final = dict.fromkeys(
    ("ram", "cpus", "cpu_limit", "data_volume", "boot_disk_size", "disk_subfolder")
)
"""What an image may say instead of its node definition; null: as that says."""
_IMAGE_NEEDS: Final = ("id", "node_definition_id", "label", "disk_image")
