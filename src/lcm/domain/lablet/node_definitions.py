"""What the nodes of a lab need, by their node definition.

A worker's own definitions (`GET /node_definitions`) come first. The table below is for a lab that is analysed
before any worker was asked; where releases of CML differ it has the larger number.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lcm.domain.errors import UnknownReference


class NodeDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """What one node of a kind needs unless the node itself says otherwise."""

    id: str
    ram_mb: int = 0
    cpus: int = 0
    boot_disk_gb: int | None = None
    data_volume_gb: int | None = None
    boot_seconds: int | None = None
    """Until when CML waits for the end of its boot."""
    has_vm: bool = True
    """Whether it runs as a virtual machine or container; connectors and unmanaged switches do not."""


def _fabric(name: str) -> NodeDefinition:
    return NodeDefinition(id=name, has_vm=False, boot_disk_gb=0)


EXTERNAL_CONNECTOR: Final = "external_connector"
UNMANAGED_SWITCH: Final = "unmanaged_switch"

# fmt: off
_SIZES: Final = {
    # id                     MiB  CPUs
    "alpine":               (512,    1),
    "asav":                 (2048,   1),
    "cat-sdwan-controller": (4096,   2),
    "cat-sdwan-edge":       (5120,   2),
    "cat-sdwan-manager":    (32768,  8),
    "cat-sdwan-validator":  (4096,   2),
    "cat8000v":             (4096,   1),
    "cat9000v-q200":        (18432,  4),
    "cat9000v-uadp":        (18432,  4),
    "chrome":               (2048,   1),
    "csr1000v":             (3072,   1),
    "desktop":              (512,    1),
    "dnsmasq":              (256,    1),
    "firefox":              (2048,   1),
    "fmcv":                 (32768,  4),
    "frr":                  (512,    1),
    "ftdv":                 (8192,   4),
    "iol-xe":               (1024,   1),
    "ioll2-xe":             (1024,   1),
    "iosv":                 (768,    1),
    "iosvl2":               (1024,   1),
    "iosxrv":               (3072,   1),
    "iosxrv9000":           (20480,  4),
    "net-tools":            (512,    1),
    "nginx":                (256,    1),
    "nxosv":                (3072,   1),
    "nxosv9000":            (12288,  4),
    "radius":               (256,    1),
    "server":               (128,    1),
    "splunk":               (4096,   2),
    "syslog":               (256,    1),
    "tacplus":              (256,    1),
    "thousandeyes-ea":      (2048,   1),
    "trex":                 (4096,   2),
    "ubuntu":               (2048,   1),
    "vwlc":                 (4096,   1),
    "wan_emulator":         (512,    1),
}
# fmt: on

KNOWN: Final[Mapping[str, NodeDefinition]] = {
    **{name: NodeDefinition(id=name, ram_mb=ram, cpus=cpus) for name, (ram, cpus) in _SIZES.items()},
    EXTERNAL_CONNECTOR: _fabric(EXTERNAL_CONNECTOR),
    UNMANAGED_SWITCH: _fabric(UNMANAGED_SWITCH),
}

ASSUMED: Final = NodeDefinition(id="", ram_mb=2048, cpus=1)
"""What an analysis shows for a node of an unknown definition, with a warning; never claimed without an
author's number."""


def read_node_definition(body: Mapping[str, Any]) -> NodeDefinition:
    """The needs in a node definition as CML describes it. Raises UnknownReference if it is none."""
    name = body.get("id")
    simulation = body.get("sim")
    native = simulation.get("linux_native") if isinstance(simulation, Mapping) else None
    if not isinstance(name, str):
        raise UnknownReference("this is not a node definition: it has no 'id'")
    if not isinstance(native, Mapping) or not native:
        return KNOWN.get(name) or _fabric(name)
    boot = body.get("boot")
    return NodeDefinition(
        id=name,
        ram_mb=_number(native, "ram") or 0,
        cpus=_number(native, "cpus") or 0,
        boot_disk_gb=_number(native, "boot_disk_size"),
        data_volume_gb=_number(native, "data_volume"),
        boot_seconds=_number(boot, "timeout") if isinstance(boot, Mapping) else None,
    )


def _number(native: Mapping[str, Any], name: str) -> int | None:
    value = native.get(name)
    return value if isinstance(value, int) and value > 0 else None
