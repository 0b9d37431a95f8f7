"""CML's labs in memory, behind the lablet controller's port.

Labs, nodes and their refusals are those of `lcm.simulator.cml`; time is the clock's. Public fields are its
faults and its call log.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from lcm.cml.sessions import CmlServer
from lcm.core.clock import Clock
from lcm.domain.errors import LabRefused, LcmError, NotFound, Unreachable
from lcm.domain.lablet.node_definitions import NodeDefinition, read_node_definition
from lcm.domain.observation import Absent, Known, Observation, Unknown
from lcm.lablet_controller.ports import (
    CmlLab,
    CmlNode,
    Console,
    ElementState,
    ElementStates,
    ImageDefinition,
    ImportedLab,
    LabListing,
)
from lcm.simulator.cml import lab as model
from lcm.simulator.cml.accounts import ADMIN_ID
from lcm.simulator.cml.definitions import node_definition
from lcm.simulator.cml.refusal import Refused
from lcm.simulator.cml.server import CmlServer as SimulatedCml
from lcm.simulator.cml.topology import import_file, read_file, write_file


class MemoryCmlLabs:
    """The labs of all servers, as one account sees them."""

    def __init__(self, clock: Clock, user_id: str = ADMIN_ID) -> None:
        self._clock = clock
        self._user_id = user_id
        self.servers: dict[str, SimulatedCml] = {}
        """By host. One that is missing cannot be reached."""
        self.failing: dict[str, LcmError] = {}
        """By the name of the call: raised instead of its effect."""
        self.is_extraction_hanging = False
        """Nodes do not answer when their configuration is asked for."""
        self.cut: set[str] = set()
        """Calls whose answer is lost after their effect, once each."""
        self.calls: list[tuple[str, str]] = []
        """Name and lab, in order."""

    # Labs

    async def list_labs(self, server: CmlServer, *, show_all: bool = True) -> LabListing:
        with self._call("list_labs", server) as cml:
            labs = [lab.id for lab in cml.labs.all() if self._sees(cml, lab, is_own=not show_all)]
            return LabListing(tuple(labs), show_all and self._is_admin(cml), self._clock.now())

    async def get_lab(self, server: CmlServer, lab_id: str) -> Observation[CmlLab]:
        try:
            with self._call("get_lab", server, lab_id) as cml:
                return Known(_shown(cml, self._lab(cml, lab_id)), self._clock.now())
        except NotFound as missing:
            if self._is_admin(self.servers[server.host]):
                return Absent(str(missing))
            return Unknown("not an administrator")
        except LcmError as error:
            return Unknown(str(error), is_failure=True)

    async def import_lab(self, server: CmlServer, topology: str, *, title: str) -> ImportedLab:
        with self._call("import_lab", server) as cml:
            file = read_file(topology.encode())
            lab = import_file(cml.labs, file, self._now(), owner_id=self._user_id, title=title)
            return ImportedLab(lab.id, ())

    async def download_lab(self, server: CmlServer, lab_id: str) -> str:
        with self._call("download_lab", server, lab_id) as cml:
            return write_file(self._lab(cml, lab_id))

    async def start_lab(self, server: CmlServer, lab_id: str) -> None:
        with self._call("start_lab", server, lab_id) as cml:
            cml.labs.start(self._lab(cml, lab_id), self._now(), self._user_id)

    async def stop_lab(self, server: CmlServer, lab_id: str) -> None:
        with self._call("stop_lab", server, lab_id) as cml:
            cml.labs.stop(self._lab(cml, lab_id), self._now(), self._user_id)

    async def wipe_lab(self, server: CmlServer, lab_id: str) -> None:
        with self._call("wipe_lab", server, lab_id) as cml:
            cml.labs.wipe(self._lab(cml, lab_id), self._now(), self._user_id)

    async def delete_lab(self, server: CmlServer, lab_id: str) -> None:
        with self._call("delete_lab", server, lab_id) as cml:
            if any(lab.id == lab_id for lab in cml.labs.all()):
                cml.labs.delete(self._lab(cml, lab_id))

    # What is in them

    async def nodes(self, server: CmlServer, lab_id: str) -> Sequence[CmlNode]:
        with self._call("nodes", server, lab_id) as cml:
            return [_node(cml, node) for node in self._lab(cml, lab_id).nodes.values()]

    async def set_node_tags(self, server: CmlServer, lab_id: str, node_id: str, tags: Sequence[str]) -> None:
        with self._call("set_node_tags", server, lab_id) as cml:
            cml.labs.change_node(self._lab(cml, lab_id).node(node_id), self._now(), tags=list(tags))

    async def stop_node(self, server: CmlServer, lab_id: str, node_id: str) -> None:
        with self._call("stop_node", server, lab_id) as cml:
            cml.labs.stop_node(self._lab(cml, lab_id).node(node_id), self._now(), self._user_id)

    async def extract_configuration(self, server: CmlServer, lab_id: str, node_id: str) -> None:
        if self.is_extraction_hanging:
            await self._clock.sleep(86_400)
        with self._call("extract_configuration", server, lab_id) as cml:
            cml.labs.extract_configuration(self._lab(cml, lab_id).node(node_id))

    async def element_states(self, server: CmlServer, lab_id: str) -> ElementStates:
        with self._call("element_states", server, lab_id) as cml:
            lab = self._lab(cml, lab_id)
            return ElementStates(_states(lab.nodes), _states(lab.interfaces), _states(lab.links))

    async def has_converged(self, server: CmlServer, lab_id: str) -> bool:
        with self._call("has_converged", server, lab_id) as cml:
            return self._lab(cml, lab_id).has_converged

    # Definitions

    async def node_definitions(self, server: CmlServer) -> Sequence[NodeDefinition]:
        with self._call("node_definitions", server) as cml:
            return [read_node_definition(node_definition(each)) for each in cml.definitions.values()]

    async def image_definitions(self, server: CmlServer) -> Sequence[ImageDefinition]:
        with self._call("image_definitions", server) as cml:
            return [
                ImageDefinition(body["id"], body["node_definition_id"], body["label"])
                for body in cml.images.values()
            ]

    # Inside

    @contextmanager
    def _call(self, name: str, server: CmlServer, lab_id: str = "") -> Iterator[SimulatedCml]:
        """One call that arrives; CML's refusals become the port's errors."""
        self.calls.append((name, lab_id))
        if name in self.failing:
            raise self.failing[name]
        cml = self.servers.get(server.host)
        if cml is None:
            raise Unreachable(f"CML at {server.host}: connection refused")
        cml.labs.advance(self._now())
        try:
            yield cml
        except Refused as refused:
            if lab_id and f"Lab not found: {lab_id}" in refused.description:
                raise NotFound(refused.description) from None
            raise LabRefused(refused.code, refused.description) from None
        finally:
            if name in self.cut:
                self.cut.discard(name)
                raise Unreachable(f"CML at {server.host}: connection reset")

    def _lab(self, cml: SimulatedCml, lab_id: str) -> model.Lab:
        return cml.visible_lab(cml.accounts.user(self._user_id), lab_id)

    def _sees(self, cml: SimulatedCml, lab: model.Lab, *, is_own: bool) -> bool:
        return lab.owner_id == self._user_id or (self._is_admin(cml) and not is_own)

    def _is_admin(self, cml: SimulatedCml) -> bool:
        return cml.accounts.user(self._user_id).admin

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _shown(cml: SimulatedCml, lab: model.Lab) -> CmlLab:
    owner = cml.accounts.users.get(lab.owner_id)
    return CmlLab(
        id=lab.id,
        title=lab.title,
        description=lab.description,
        notes=lab.notes,
        owner_id=lab.owner_id,
        owner=owner.username if owner else "",
        state=ElementState(lab.state),
        node_count=len(lab.nodes),
        link_count=len(lab.links),
        created=datetime.fromtimestamp(int(lab.created), UTC),
        modified=datetime.fromtimestamp(int(lab.modified), UTC),
    )


def _node(cml: SimulatedCml, node: model.Node) -> CmlNode:
    is_on = node.state in model.POWERED
    return CmlNode(
        id=node.id,
        label=node.label,
        node_definition=node.definition.id,
        image_definition=node.image_definition,
        state=ElementState(node.state),
        tags=tuple(node.tags),
        cpus=node.cpus,
        ram_mb=node.ram,
        x=node.x,
        y=node.y,
        compute_id=cml.compute_id if is_on else None,
        consoles=tuple(Console(key, f"Serial {line}", line) for line, key in enumerate(node.console_keys)),
        vnc_key=node.vnc_key,
    )


def _states(elements: dict[str, Any]) -> dict[str, ElementState]:
    return {element_id: ElementState(element.state) for element_id, element in elements.items()}
