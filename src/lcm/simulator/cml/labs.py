"""Labs, and how their nodes come up and go down: a state machine on a clock that the caller drives.

Nothing here does I/O or reads the time. Every change takes its time as an argument; changes that happen by
themselves (a queued node is placed, a started one has booted) are scheduled until `advance` reaches them.
Two functions given at the start publish changes: `emit` to `/ws/ui`, `record` to telemetry.
"""

import heapq
import random
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from lcm.simulator.cml.definitions import DEFINITIONS, NodeDefinition
from lcm.simulator.cml.lab import (
    ALLOWED,
    BOOTED,
    DEFINED_ON_CORE,
    POWERED,
    QUEUED,
    RESTING,
    RUNNING,
    STARTED,
    STOPPED,
    Interface,
    Lab,
    Link,
    Node,
    Plan,
    State,
)
from lcm.simulator.cml.lab_faults import Fate, LabFaults
from lcm.simulator.cml.pools import ResourcePools
from lcm.simulator.cml.refusal import Refused, lab_not_found
from lcm.simulator.pace import Pace

QUEUE_SECONDS: Final = 1.5
"""How long a node waits for its place on a compute host, on average."""
STOP_SECONDS: Final = 0.6
MAX_TITLE: Final = 64


class Emit(Protocol):
    """Sends an event to every open user interface."""

    def __call__(self, event: dict[str, Any], /) -> None: ...


class Record(Protocol):
    """Records an event in the telemetry."""

    def __call__(self, category: str, at: float, data: dict[str, Any], /) -> None: ...


class Labs:
    """Every lab of one server."""

    def __init__(
        self,
        *,
        pace: Pace,
        rng: random.Random,
        emit: Emit,
        record: Record,
        definitions: Mapping[str, NodeDefinition] = DEFINITIONS,
    ) -> None:
        self._pace = pace
        self._rng = rng
        self._emit = emit
        self._record = record
        self._definitions = definitions
        self.faults = LabFaults(pace.seed)
        self.pools = ResourcePools(self.new_id)
        self.tags_revision = 0
        """Raised when nodes with tags are booted, stopped or get other tags."""
        self._by_id: dict[str, Lab] = {}
        self._plans: list[Plan] = []
        self._serial = 0

    # State

    def all(self) -> list[Lab]:
        """Oldest first."""
        return list(self._by_id.values())

    def get(self, lab_id: str) -> Lab:
        return self._by_id[lab_id] if lab_id in self._by_id else lab_not_found(lab_id)

    def nodes(self) -> Iterable[Node]:
        return (node for lab in self._by_id.values() for node in lab.nodes.values())

    def next_change_at(self) -> float | None:
        """When the next scheduled change is due; None if there is none."""
        return self._plans[0].at if self._plans else None

    # Time

    def advance(self, now: float) -> None:
        """Apply every change that is due, each at its own time."""
        while self._plans and self._plans[0].at <= now:
            plan = heapq.heappop(self._plans)
            if plan.node.plan is plan:
                plan.node.plan = None
                self._arrive(plan.node, plan.state, plan.at)

    def lose_power(self, at: float) -> None:
        """Stop everything because the host went down; pending changes are dropped."""
        self._plans.clear()
        for node in self.nodes():
            node.plan, node.is_stuck = None, False
            if node.is_running:
                self._enter(node, STOPPED, at)

    # Labs

    def create(self, at: float, *, title: str, owner_id: str, description: str = "", notes: str = "") -> Lab:
        _check_title(title)
        lab = Lab(
            id=self.new_id(),
            title=title,
            owner_id=owner_id,
            created=at,
            modified=at,
            description=description,
            notes=notes,
        )
        self._by_id[lab.id] = lab
        self._emit_lab(lab, "created", {})
        return lab

    def modify(self, lab: Lab, at: float, **changes: str) -> None:
        """Title, description, notes or owner."""
        if "title" in changes:
            _check_title(changes["title"])
        for name, value in changes.items():
            setattr(lab, "owner_id" if name == "owner" else name, value)
        lab.modified = at
        self._emit_lab(lab, "modified", dict(changes))

    def delete(self, lab: Lab) -> None:
        self.faults.check("delete")
        self.discard(lab)

    def discard(self, lab: Lab) -> None:
        """Remove a stopped and wiped lab, whatever the faults say."""
        if any(node.state is not DEFINED_ON_CORE for node in lab.nodes.values()):
            raise Refused(400, f"Lab {lab.id} must be stopped and wiped before it can be deleted.")
        del self._by_id[lab.id]
        self._emit_lab(lab, "deleted", {})

    def start(self, lab: Lab, at: float, user_id: str) -> None:
        self.faults.check("start")
        resting = [node for node in lab.nodes.values() if node.state in RESTING]
        pool = self.pools.admit(user_id, resting, self.nodes())
        self._record("start_lab", at, {"lab_id": lab.id, "user_id": user_id})
        for node in resting:
            self._start(node, at, user_id, pool)

    def stop(self, lab: Lab, at: float, user_id: str) -> None:
        self.faults.check("stop")
        self._record("stop_lab", at, {"lab_id": lab.id, "user_id": user_id})
        for node in list(lab.nodes.values()):
            self._stop(node, at, user_id)

    def wipe(self, lab: Lab, at: float, user_id: str) -> None:
        self.faults.check("wipe")
        if any(node.is_running for node in lab.nodes.values()):
            raise Refused(400, f"Lab {lab.id} must be stopped before it can be wiped.")
        for node in list(lab.nodes.values()):
            self.wipe_node(node, at, user_id)

    # Nodes

    def add_node(self, lab: Lab, at: float, *, label: str, definition_id: str, **properties: Any) -> Node:
        definition = self._definitions.get(definition_id)
        if definition is None:
            raise Refused(400, f"Node definition not found: {definition_id}")
        node = Node(id=self.new_id(), lab=lab, label=label, definition=definition, **properties)
        lab.nodes[node.id] = node
        lab.modified = at
        self._emit_element(
            lab,
            "created",
            "node",
            node.id,
            {
                "label": label,
                "node_definition": definition_id,
                "state": node.state,
                "x": node.x,
                "y": node.y,
            },
            at,
        )
        self._refresh(lab)
        return node

    def change_node(self, node: Node, at: float, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(node, name, value)
        self.tags_revision += "tags" in changes
        node.lab.modified = at
        shown = {name: value for name, value in changes.items() if name != "configuration"}
        self._emit_element(node.lab, "modified", "node", node.id, shown, at)

    def remove_node(self, node: Node, at: float) -> None:
        if node.state is not DEFINED_ON_CORE:
            raise Refused(400, f"Node {node.id} must be stopped and wiped before it can be deleted.")
        for interface in list(node.interfaces):
            self.remove_interface(interface, at)
        del node.lab.nodes[node.id]
        node.lab.modified = at
        self._emit_element(node.lab, "deleted", "node", node.id, {}, at)
        self._refresh(node.lab)

    def start_node(self, node: Node, at: float, user_id: str) -> None:
        self.faults.check("start")
        if node.state in RESTING:
            self._start(node, at, user_id, self.pools.admit(user_id, [node], self.nodes()))

    def stop_node(self, node: Node, at: float, user_id: str) -> None:
        self.faults.check("stop")
        self._stop(node, at, user_id)

    def wipe_node(self, node: Node, at: float, user_id: str) -> None:
        if node.is_running:
            raise Refused(400, f"Node {node.id} must be stopped before it can be wiped.")
        if node.state is STOPPED:
            self._record("wipe_node", at, _about(node) | {"user_id": user_id})
            self._enter(node, DEFINED_ON_CORE, at)

    def extract_configuration(self, node: Node) -> list[dict[str, str]]:
        """Keep the running configuration of a booted node in the lab."""
        if not node.definition.serial_ports:
            raise Refused(400, f"Node {node.id} does not support configuration extraction.")
        if node.state is not BOOTED:
            raise Refused(400, f"Node {node.id} is not running.")
        if not node.configuration:
            node.configuration = [{"name": "Main", "content": f"hostname {node.label}\n"}]
        return list(node.configuration)

    # Interfaces and links

    def add_interface(
        self, node: Node, at: float, *, slot: int | None = None, label: str = "", kind: str = "physical"
    ) -> Interface:
        if kind == "physical":
            slot = self._free_slot(node) if slot is None else slot
            label = label or node.definition.port_name(slot)
        interface = Interface(id=self.new_id(), label=label or "Loopback0", slot=slot, type=kind, node=node)
        node.interfaces.append(interface)
        node.lab.interfaces[interface.id] = interface
        node.lab.modified = at
        shown = {"node": node.id, "label": interface.label, "type": kind, "slot": slot}
        self._emit_element(node.lab, "created", "interface", interface.id, shown, at)
        return interface

    def fill_slots(self, node: Node, at: float, last_slot: int) -> list[Interface]:
        """Every missing port up to and including this one."""
        taken = {interface.slot for interface in node.interfaces}
        if last_slot >= node.definition.ports:
            raise Refused(400, f"Node {node.id} has no slot {last_slot}.")
        return [self.add_interface(node, at, slot=slot) for slot in range(last_slot + 1) if slot not in taken]

    def remove_interface(self, interface: Interface, at: float) -> None:
        if interface.link is not None:
            self.remove_link(interface.link, at)
        node = interface.node
        node.interfaces.remove(interface)
        del node.lab.interfaces[interface.id]
        node.lab.modified = at
        self._emit_element(node.lab, "deleted", "interface", interface.id, {}, at)

    def connect(self, a: Interface, b: Interface, at: float, *, label: str = "") -> Link:
        if a is b or a.link is not None or b.link is not None:
            raise Refused(400, "Both interfaces of a link must be free and different.")
        lab = a.node.lab
        label = label or f"{a.node.label}-{a.label}<->{b.node.label}-{b.label}"
        link = Link(id=self.new_id(), label=label, a=a, b=b)
        a.link = b.link = link
        lab.links[link.id] = link
        lab.modified = at
        shown = {"interface_a": a.id, "interface_b": b.id, "label": label}
        self._emit_element(lab, "created", "link", link.id, shown, at)
        self._follow(link, at)
        return link

    def remove_link(self, link: Link, at: float) -> None:
        lab = link.a.node.lab
        link.a.link = link.b.link = None
        del lab.links[link.id]
        lab.modified = at
        self._emit_element(lab, "deleted", "link", link.id, {}, at)

    def cut(self, link: Link, at: float, *, is_cut: bool) -> None:
        """Stop or start a link by hand."""
        link.is_cut = is_cut
        self._follow(link, at)

    def shut(self, interface: Interface, at: float, *, is_shut: bool) -> None:
        """Stop or start a port by hand; it follows its node again when that changes."""
        if interface.node.state in POWERED:
            self._turn(interface, STOPPED if is_shut else STARTED, at)

    def new_id(self) -> str:
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))

    # Transitions

    def _start(self, node: Node, at: float, user_id: str, pool: str | None) -> None:
        node.times = {}
        node.resource_pool = pool
        node.starts += 1
        self._record("queue_node", at, _about(node) | {"user_id": user_id})
        self._enter(node, QUEUED, at)
        fate, seconds = self.faults.fate(node)
        node.stop_after = seconds if fate is Fate.STOPS else None
        node.is_stuck = fate in (Fate.STUCK_QUEUED, Fate.STUCK_STARTED)
        if fate is not Fate.STUCK_QUEUED:
            self._schedule(node, STARTED, at, QUEUE_SECONDS)

    def _stop(self, node: Node, at: float, user_id: str) -> None:
        if not node.is_running:
            return
        self._record("stop_node", at, _about(node) | {"user_id": user_id})
        slow = self.faults.slow_stop(node)
        node.is_stuck = slow is not None and slow.seconds is None
        if node.is_stuck:
            node.plan = None
        else:
            longer = slow.seconds if slow is not None and slow.seconds else 0.0
            self._schedule(node, STOPPED, at, STOP_SECONDS + longer)

    def _arrive(self, node: Node, state: State, at: float) -> None:
        if state is STARTED:
            node.console_keys = [self.new_id() for _ in range(node.definition.serial_ports)]
            node.vnc_key = self.new_id() if node.definition.has_screen else None
            self._record("start_node", at, _about(node))
        if state is BOOTED:
            self._record("boot_node", at, _about(node))
        self._enter(node, state, at)
        if state is STARTED and not node.is_stuck:
            self._schedule(node, BOOTED, at, node.definition.boot_seconds)
        if state is BOOTED and node.stop_after is not None:
            self._schedule(node, STOPPED, at, node.stop_after)

    def _enter(self, node: Node, state: State, at: float) -> None:
        assert (node.state, state) in ALLOWED, f"{node.state} to {state}"
        if node.is_running:
            node.times[node.state] = node.times.get(node.state, 0.0) + at - node.since
        if node.tags and BOOTED in (node.state, state):
            self.tags_revision += 1
        node.state, node.since = state, at
        if not node.is_running:
            node.console_keys, node.vnc_key, node.resource_pool = [], None, None
        self._emit_state(node.lab, "node", node.id, state, at)
        if state is not QUEUED:
            for interface in node.interfaces:
                self._turn(interface, STARTED if state in POWERED else state, at)
        self._refresh(node.lab)

    def _turn(self, interface: Interface, state: State, at: float) -> None:
        if interface.state is not state:
            interface.state = state
            self._emit_state(interface.node.lab, "interface", interface.id, state, at)
        if interface.link is not None:
            self._follow(interface.link, at)

    def _follow(self, link: Link, at: float) -> None:
        """A link is what both of its ends are."""
        ends = {link.a.state, link.b.state}
        if ends == {STARTED} and not link.is_cut:
            state = STARTED
        elif STOPPED in ends or STARTED in ends:
            state = STOPPED
        else:
            state = DEFINED_ON_CORE
        if link.state is not state:
            link.state, link.since = state, at
            self._emit_state(link.a.node.lab, "link", link.id, state, at)

    def _refresh(self, lab: Lab) -> None:
        """A lab is what its nodes are."""
        states = {node.state for node in lab.nodes.values()}
        state = STARTED if states & RUNNING else STOPPED if STOPPED in states else DEFINED_ON_CORE
        if lab.state is not state:
            lab.state = state
            self._emit_lab(lab, "state", {"state": state, "lab_title": lab.title})

    def _schedule(self, node: Node, state: State, at: float, mean_seconds: float) -> None:
        seconds = self._pace.seconds(mean_seconds, "node", node.id, state, len(node.times))
        self._serial += 1
        node.plan = Plan(at + seconds, self._serial, node, state)
        heapq.heappush(self._plans, node.plan)

    # Events

    def _emit_lab(self, lab: Lab, event: str, data: dict[str, Any]) -> None:
        self._emit({"event_type": "lab_event", "lab_id": lab.id, "event": event, "data": data})

    def _emit_element(
        self, lab: Lab, event: str, kind: str, element_id: str, data: dict[str, Any], at: float
    ) -> None:
        self._emit(
            {
                "event_type": "lab_element_event",
                "lab_id": lab.id,
                "event": event,
                "element_type": kind,
                "element_id": element_id,
                "data": data,
            }
        )
        name = {"created": "ADD", "modified": "CHANGE", "deleted": "REMOVE"}[event]
        self._log(lab, name, kind, element_id, data, at)

    def _emit_state(self, lab: Lab, kind: str, element_id: str, state: State, at: float) -> None:
        self._emit(
            {
                "event_type": "state_change",
                "lab_id": lab.id,
                "element_type": kind,
                "element_id": element_id,
                "event": state,
            }
        )
        self._log(lab, "STATE_CHANGED", kind, element_id, {"state": state}, at)

    def _log(self, lab: Lab, event: str, kind: str, element_id: str, data: dict[str, Any], at: float) -> None:
        lab.events.append(
            {
                "lab_id": lab.id,
                "event": event,
                "element_type": kind.upper(),
                "element_id": element_id,
                "data": data,
                "previous": None,
                "timestamp": at,
            }
        )

    def _free_slot(self, node: Node) -> int:
        taken = {interface.slot for interface in node.interfaces}
        for slot in range(node.definition.ports):
            if slot not in taken:
                return slot
        raise Refused(400, f"Node {node.id} has no free slot.")


def _check_title(title: str) -> None:
    if not 1 <= len(title) <= MAX_TITLE:
        raise Refused(400, f"The lab title must have 1 to {MAX_TITLE} characters.")


def _about(node: Node) -> dict[str, Any]:
    return {"lab_id": node.lab.id, "node_id": node.id, "node_definition": node.definition.id}
