"""A lab and what it is made of: nodes, their interfaces and the links between them."""

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from lcm.simulator.cml.definitions import NodeDefinition
from lcm.simulator.cml.refusal import Refused

EVENTS_KEPT: Final = 1000
"""Of each lab's own log."""


class State(StrEnum):
    """Of nodes; labs, links and interfaces know only the first, STARTED and STOPPED."""

    DEFINED_ON_CORE = "DEFINED_ON_CORE"
    """Never started, or wiped."""
    QUEUED = "QUEUED"
    """Waits for a compute host."""
    STARTED = "STARTED"
    """The node runs; its operating system boots."""
    BOOTED = "BOOTED"
    STOPPED = "STOPPED"
    """Off, but its disk is kept."""
    DISCONNECTED = "DISCONNECTED"
    """Its compute host is lost."""


DEFINED_ON_CORE = State.DEFINED_ON_CORE
QUEUED = State.QUEUED
STARTED = State.STARTED
BOOTED = State.BOOTED
STOPPED = State.STOPPED

RUNNING: Final = frozenset({QUEUED, STARTED, BOOTED})
POWERED: Final = frozenset({STARTED, BOOTED})
RESTING: Final = frozenset({DEFINED_ON_CORE, STOPPED})

# fmt: off
TRANSITIONS: Final = (
    # from             to               because
    (DEFINED_ON_CORE,  QUEUED,          "a user starts it"),
    (STOPPED,          QUEUED,          "a user starts it again"),
    (QUEUED,           STARTED,         "a compute host has room"),
    (STARTED,          BOOTED,          "the console shows that its system is up"),
    (QUEUED,           STOPPED,         "a user stops it"),
    (STARTED,          STOPPED,         "a user stops it, or the host loses power"),
    (BOOTED,           STOPPED,         "a user or its own system stops it, or the host loses power"),
    (STOPPED,          DEFINED_ON_CORE, "a user wipes it"),
)
# fmt: on
ALLOWED: Final = frozenset((source, target) for source, target, _ in TRANSITIONS)


@dataclass(eq=False)
class Interface:
    """A port of a node."""

    id: str
    label: str
    slot: int | None
    type: str
    node: "Node"
    mac_address: str | None = None
    state: State = DEFINED_ON_CORE
    link: "Link | None" = None


@dataclass(eq=False)
class Link:
    """A cable between two ports."""

    id: str
    label: str
    a: Interface
    b: Interface
    state: State = DEFINED_ON_CORE
    since: float = 0.0
    is_cut: bool = False
    """Stopped by hand; it stays so until it is started by hand."""
    conditioning: dict[str, Any] = field(default_factory=dict)
    capture: str | None = None
    """The key of a running packet capture."""


@dataclass(eq=False)
class Node:
    """A virtual machine or device in a lab."""

    id: str
    lab: "Lab"
    label: str
    definition: NodeDefinition
    x: int = 0
    y: int = 0
    image_definition: str | None = None
    configuration: list[dict[str, str]] = field(default_factory=list)
    ram: int | None = None
    cpus: int | None = None
    cpu_limit: int | None = None
    data_volume: int | None = None
    boot_disk_size: int | None = None
    hide_links: bool = False
    tags: list[str] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)
    pinned_compute_id: str | None = None
    priority: int | None = None
    state: State = DEFINED_ON_CORE
    since: float = 0.0
    times: dict[str, float] = field(default_factory=dict)
    """Seconds it spent in the states it has left, since it was last started."""
    interfaces: list[Interface] = field(default_factory=list)
    console_keys: list[str] = field(default_factory=list)
    """One per serial port, while it runs; so is the next."""
    vnc_key: str | None = None
    plan: "Plan | None" = None
    resource_pool: str | None = None
    """Of the user who started it; None at rest."""
    starts: int = 0
    """How often it was started."""
    stop_after: float | None = None
    """A fault: it stops that many seconds after it has booted."""
    is_stuck: bool = False
    """A fault: it never reaches the state it is on its way to."""

    @property
    def is_on_its_way(self) -> bool:
        """Whether a change of its state is due by itself, or should be."""
        return self.plan is not None or self.is_stuck

    @property
    def is_running(self) -> bool:
        return self.state in RUNNING

    @property
    def given_ram(self) -> int:
        """MiB."""
        return self.ram or self.definition.ram or 0

    @property
    def given_cpus(self) -> int:
        return self.cpus or self.definition.cpus or 0


@dataclass(eq=False)
class Lab:
    """A topology that can be started."""

    id: str
    title: str
    owner_id: str
    created: float
    modified: float
    description: str = ""
    notes: str = ""
    drawings: dict[str, list[Any]] = field(default_factory=dict)
    """The annotations of its file, as they were."""
    nodes: dict[str, Node] = field(default_factory=dict)
    links: dict[str, Link] = field(default_factory=dict)
    interfaces: dict[str, Interface] = field(default_factory=dict)
    associations: dict[str, list[Any]] = field(default_factory=lambda: {"groups": [], "users": []})
    autostart: dict[str, Any] = field(
        default_factory=lambda: {"enabled": False, "priority": None, "delay": None}
    )
    node_staging: dict[str, Any] = field(
        default_factory=lambda: {"enabled": False, "start_remaining": True, "abort_on_failure": False}
    )
    state: State = DEFINED_ON_CORE
    events: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))

    @property
    def has_converged(self) -> bool:
        """Whether no change of state is pending."""
        return not any(node.is_on_its_way for node in self.nodes.values())

    def node(self, node_id: str) -> Node:
        if node_id not in self.nodes:
            raise Refused(404, f"Node not found: {node_id}")
        return self.nodes[node_id]

    def interface(self, interface_id: str) -> Interface:
        if interface_id not in self.interfaces:
            raise Refused(404, f"Interface not found: {interface_id}")
        return self.interfaces[interface_id]

    def link(self, link_id: str) -> Link:
        if link_id not in self.links:
            raise Refused(404, f"Link not found: {link_id}")
        return self.links[link_id]


@dataclass(order=True, frozen=True)
class Plan:
    """A state that a node reaches by itself."""

    at: float
    serial: int
    node: Node = field(compare=False)
    state: State = field(compare=False)
