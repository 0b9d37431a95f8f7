"""The node and image definitions that come with CML, and how long their nodes take to boot."""

from typing import Any, Final, NamedTuple


class NodeDefinition(NamedTuple):
    """A kind of node."""

    id: str
    label: str
    nature: str
    driver: str
    """KVM, IOL, or NONE for what is part of the fabric, as console keys name it."""
    ram: int | None
    """MiB; None: it is no virtual machine."""
    cpus: int | None
    boot_seconds: float
    ports: int
    default_ports: int

    @property
    def image(self) -> str | None:
        """The id of its only image; a definition without a virtual machine needs none."""
        return f"{self.id}-simulated" if self.has_vm else None

    @property
    def has_vm(self) -> bool:
        return self.ram is not None

    @property
    def serial_ports(self) -> int:
        return int(self.has_vm)

    @property
    def has_loopback(self) -> bool:
        return self.has_vm and self.nature in {ROUTER, SWITCH}

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
        return PORT_NAMES.get(self.id, "eth{}").format(slot)


SERVER: Final = "server"
ROUTER: Final = "router"
SWITCH: Final = "switch"
CLOUD: Final = "external_connector"

PORT_NAMES: Final = {
    "ubuntu": "ens{}",
    "iol-xe": "Ethernet0/{}",
    "ioll2-xe": "Ethernet0/{}",
    "iosv": "GigabitEthernet0/{}",
    "iosvl2": "GigabitEthernet0/{}",
    "nxosv9000": "Ethernet1/{}",
    "unmanaged_switch": "port{}",
    "external_connector": "port",
}
"""Of the others: eth0, eth1, …"""

# fmt: off
DEFINITIONS: Final = {row.id: row for row in (
    #              id                  label                nature  driver  MiB    CPU  boot  ports
    NodeDefinition("alpine",           "Alpine",            SERVER, "KVM",  512,   1,   8,   4,  1),
    NodeDefinition("server",           "Server",            SERVER, "KVM",  128,   1,   5,   8,  1),
    NodeDefinition("desktop",          "Desktop",           SERVER, "KVM",  512,   1,   12,  8,  1),
    NodeDefinition("ubuntu",           "Ubuntu",            SERVER, "KVM",  2048,  1,   30,  8,  1),
    NodeDefinition("iol-xe",           "IOL XE",            ROUTER, "IOL",  1024,  1,   15,  16, 4),
    NodeDefinition("ioll2-xe",         "IOL L2 XE",         SWITCH, "IOL",  1024,  1,   15,  16, 4),
    NodeDefinition("iosv",             "IOSv",              ROUTER, "KVM",  768,   1,   60,  16, 4),
    NodeDefinition("iosvl2",           "IOSv L2",           SWITCH, "KVM",  1024,  1,   70,  16, 8),
    NodeDefinition("nxosv9000",        "NX-OS 9000",        SWITCH, "KVM",  12288, 4,   180, 64, 8),
    NodeDefinition("unmanaged_switch", "Unmanaged Switch",  SWITCH, "NONE", None, None, 0.4, 32, 8),
    NodeDefinition("external_connector", "External Connector", CLOUD, "NONE", None, None, 0.4, 1, 1),
)}
# fmt: on

ICONS: Final = {SERVER: "server", ROUTER: "router", SWITCH: "switch", CLOUD: "cloud"}


def node_definition(definition: NodeDefinition) -> dict[str, Any]:
    """As `GET /node_definitions` describes it."""
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
        "id": definition.image,
        "node_definition_id": definition.id,
        "label": f"{definition.label} ({definition.image})",
        "description": f"{definition.label} image (simulated)",
        "disk_image": f"{definition.image}.qcow2",
        "read_only": True,
        "schema_version": "0.0.1",
    }


def images() -> dict[str, NodeDefinition]:
    """Every image and the definition it belongs to."""
    return {d.image: d for d in DEFINITIONS.values() if d.image is not None}
