"""The simulated ports of a lablet controller: the labs on the CML servers, and the ports of workers.

Every change that arrives is passed to the invariants with what is true at that moment, before its effect.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from lcm.cml.sessions import CmlServer
from lcm.domain.errors import CertificateChanged, LabRefused, LcmError, Unreachable
from lcm.domain.lablet.node_definitions import NodeDefinition
from lcm.domain.lablet.probe import PortAnswer
from lcm.domain.observation import Observation, Unknown
from lcm.lablet_controller.ports import (
    CmlLab,
    CmlNode,
    ElementStates,
    ImageDefinition,
    ImportedLab,
    LabListing,
)
from lcm.simulator.cml.lab import Lab
from lcm.simulator.cml.topology import read_file
from simulation.world.live_fleet import LiveFleet, SimulatedCmlServer
from simulation.world.ports import SimulatedPort
from support.memory_labs import MemoryCmlLabs
from support.memory_ports import MemoryPortProbe

if TYPE_CHECKING:
    from simulation.world.processes import Process

T = TypeVar("T")


@dataclass(frozen=True)
class LabAct:
    """A change of a lab that arrives at a CML server."""

    process: "Process"
    operation: str
    server: SimulatedCmlServer
    lab: Lab | None
    """None if there is none of this id, and for an import."""
    notes: str = ""
    """Of the topology that is imported."""


class _LabPort(SimulatedPort):
    """A port to the CML servers and what runs on them."""

    error = Unreachable

    @property
    def _fleet(self) -> LiveFleet:
        assert self._world.live is not None
        return self._world.live

    def _reached(self, server: CmlServer) -> SimulatedCmlServer:
        reached = self._fleet.server_at(server.host)
        if server.certificate_sha256 not in (None, reached.certificate_sha256):
            raise CertificateChanged(f"CML at {server.host} shows another certificate")
        return reached

    def _labs(self, server: CmlServer) -> MemoryCmlLabs:
        labs = MemoryCmlLabs(self._world.clock)
        labs.servers[server.host] = self._reached(server).cml
        return labs


class SimulatedLabs(_LabPort):
    """The labs of all servers, as an administrator sees them."""

    name = "labs"

    # Reads

    async def list_labs(self, server: CmlServer, *, show_all: bool = True) -> LabListing:
        return await self._see("list_labs", server, lambda labs: labs.list_labs(server, show_all=show_all))

    async def get_lab(self, server: CmlServer, lab_id: str) -> Observation[CmlLab]:
        try:
            return await self._see("get_lab", server, lambda labs: labs.get_lab(server, lab_id), lab_id)
        except LcmError as error:
            return Unknown(str(error), is_failure=True)

    async def download_lab(self, server: CmlServer, lab_id: str) -> str:
        return await self._see("download_lab", server, lambda labs: labs.download_lab(server, lab_id), lab_id)

    async def nodes(self, server: CmlServer, lab_id: str) -> Sequence[CmlNode]:
        return await self._see("nodes", server, lambda labs: labs.nodes(server, lab_id), lab_id)

    async def element_states(self, server: CmlServer, lab_id: str) -> ElementStates:
        return await self._see(
            "element_states", server, lambda labs: labs.element_states(server, lab_id), lab_id
        )

    async def has_converged(self, server: CmlServer, lab_id: str) -> bool:
        return await self._see(
            "has_converged", server, lambda labs: labs.has_converged(server, lab_id), lab_id
        )

    async def node_definitions(self, server: CmlServer) -> Sequence[NodeDefinition]:
        return await self._see("node_definitions", server, lambda labs: labs.node_definitions(server))

    async def image_definitions(self, server: CmlServer) -> Sequence[ImageDefinition]:
        return await self._see("image_definitions", server, lambda labs: labs.image_definitions(server))

    # Changes

    async def import_lab(self, server: CmlServer, topology: str, *, title: str) -> ImportedLab:
        notes = read_file(topology.encode()).lab.notes

        async def make(labs: MemoryCmlLabs) -> ImportedLab:
            made = await labs.import_lab(server, topology, title=title)
            self._fleet.note_import(server.host, made.lab_id, notes)
            return made

        return await self._change("import_lab", server, make, notes=notes)

    async def set_node_tags(self, server: CmlServer, lab_id: str, node_id: str, tags: Sequence[str]) -> None:
        await self._change(
            "set_node_tags", server, lambda labs: labs.set_node_tags(server, lab_id, node_id, tags), lab_id
        )

    async def start_lab(self, server: CmlServer, lab_id: str) -> None:
        await self._change("start_lab", server, lambda labs: labs.start_lab(server, lab_id), lab_id)

    async def stop_lab(self, server: CmlServer, lab_id: str) -> None:
        await self._change("stop_lab", server, lambda labs: labs.stop_lab(server, lab_id), lab_id)

    async def stop_node(self, server: CmlServer, lab_id: str, node_id: str) -> None:
        await self._change("stop_node", server, lambda labs: labs.stop_node(server, lab_id, node_id), lab_id)

    async def wipe_lab(self, server: CmlServer, lab_id: str) -> None:
        await self._change("wipe_lab", server, lambda labs: labs.wipe_lab(server, lab_id), lab_id)

    async def delete_lab(self, server: CmlServer, lab_id: str) -> None:
        await self._change("delete_lab", server, lambda labs: labs.delete_lab(server, lab_id), lab_id)

    async def extract_configuration(self, server: CmlServer, lab_id: str, node_id: str) -> None:
        await self._see(
            "extract_configuration",
            server,
            lambda labs: labs.extract_configuration(server, lab_id, node_id),
            lab_id,
        )

    # Calls

    async def _see(
        self,
        operation: str,
        server: CmlServer,
        ask: Callable[[MemoryCmlLabs], Awaitable[T]],
        lab_id: str = "",
    ) -> T:
        async def effect() -> T:
            return await ask(self._labs(server))

        return await self._read(operation, self._subject(server, lab_id), effect)

    async def _change(
        self,
        operation: str,
        server: CmlServer,
        change: Callable[[MemoryCmlLabs], Awaitable[T]],
        lab_id: str = "",
        notes: str = "",
    ) -> T:
        async def effect() -> T:
            reached = self._reached(server)
            reached.advance_labs()
            lab = next((each for each in reached.cml.labs.all() if each.id == lab_id), None)
            self._world.check_lab(LabAct(self._process, operation, reached, lab, notes))
            try:
                return await change(self._labs(server))
            finally:
                if operation == "delete_lab":
                    reached.removed_at = self._world.clock.now()
                self._fleet.on_labs_changed()

        subject = self._subject(server, lab_id, notes)
        # A topology that CML does not take fails its session, rightly; stories have that happen.
        refusal = None if notes else lambda why: LabRefused(400, why)
        return await self._write(operation, subject, effect, refusal=refusal)

    def _subject(self, server: CmlServer, lab_id: str = "", notes: str = "") -> str:
        """The session whose lab it is, as far as that is known; else the worker."""
        return self._fleet.session_of(lab_id, notes) or server.worker_id


class SimulatedPortProbe(_LabPort):
    """The ports of workers, which PATty opens."""

    name = "ports"

    async def probe(self, host: str, ports: Collection[int]) -> Mapping[int, PortAnswer]:
        async def connect() -> Mapping[int, PortAnswer]:
            reached = {host: self._fleet.server_at(host).cml}
            return await MemoryPortProbe(self._world.clock, reached).probe(host, ports)

        try:
            return await self._read("probe", "", connect)
        except Unreachable:
            return dict.fromkeys(ports, PortAnswer.SILENT)
