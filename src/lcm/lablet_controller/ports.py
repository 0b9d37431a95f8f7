"""The ports of the lablet controller.

The consumer owns these; adapters translate and decide nothing. Every call is bounded in time by its
adapter, and raises only errors of `lcm.domain.errors`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol

from lcm.cml.sessions import CmlServer
from lcm.domain.lablet.node_definitions import NodeDefinition
from lcm.domain.lablet.probe import PortAnswer
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.states import SessionStatus
from lcm.domain.observation import Observation
from lcm.domain.telemetry import LabRecord
from lcm.domain.worker import Worker
from lcm.rest.lab_reports import (
    ConfigsExtracted,
    DefinitionsReport,
    LabGone,
    LabListingReceipt,
    LabListingReport,
    LabRequestOutcome,
    LabWork,
)
from lcm.rest.lablet_reports import (
    EvidenceCollected,
    ImportIntent,
    LabCleaned,
    LabImported,
    SessionMove,
    SessionProgress,
)


class ElementState(StrEnum):
    """CML's own states. Labs, links and interfaces have only DEFINED_ON_CORE, STARTED and STOPPED."""

    DEFINED_ON_CORE = "DEFINED_ON_CORE"
    """Never started, or wiped."""
    QUEUED = "QUEUED"
    STARTED = "STARTED"
    """A node boots; a lab has a node that runs."""
    BOOTED = "BOOTED"
    STOPPED = "STOPPED"
    """Off, with its disks."""
    DISCONNECTED = "DISCONNECTED"
    """The compute host of the node is lost."""
    OTHER = "OTHER"
    """A state that LCM does not know: it proves nothing."""


@dataclass(frozen=True)
class CmlLab:
    """A lab as CML describes it."""

    id: str
    title: str
    description: str
    notes: str
    owner_id: str
    owner: str
    """The name of the user."""
    state: ElementState
    node_count: int
    link_count: int
    created: datetime | None
    modified: datetime | None


class LabListing(NamedTuple):
    """The labs of a server."""

    lab_ids: tuple[str, ...]
    is_complete: bool
    """Every lab is in it. Only a complete listing may lead to the conclusion that a lab is gone."""
    taken_at: datetime


class ImportedLab(NamedTuple):
    """A lab that was made from a topology."""

    lab_id: str
    warnings: tuple[str, ...]


class Console(NamedTuple):
    """A serial console of a running node."""

    key: str
    label: str
    line: int


@dataclass(frozen=True)
class CmlNode:
    """A node of a lab, with what it has while it runs."""

    id: str
    label: str
    node_definition: str
    image_definition: str | None
    state: ElementState
    tags: tuple[str, ...]
    cpus: int | None
    ram_mb: int | None
    x: float | None = None
    """Where it stands in the lab's picture, like the next."""
    y: float | None = None
    compute_id: str | None = None
    """None at rest, as are the next."""
    consoles: tuple[Console, ...] = ()
    vnc_key: str | None = None


@dataclass(frozen=True)
class ElementStates:
    """The state of everything in a lab, by id."""

    nodes: Mapping[str, ElementState]
    interfaces: Mapping[str, ElementState]
    links: Mapping[str, ElementState]


class ImageDefinition(NamedTuple):
    """An image that nodes of one definition can boot."""

    id: str
    node_definition_id: str
    label: str


class ControlPlane(Protocol):
    """The records; every write carries the leader's epoch. A refusal raises SessionChanged."""

    async def claim_leadership(self, cluster_id: str, revision: int, instance_id: str) -> int: ...

    async def list_sessions(self, *statuses: SessionStatus) -> list[LabletSession]: ...

    async def get_session(self, session_id: str) -> LabletSession: ...

    async def list_resources(self) -> list[Worker]:
        """Every worker that is not terminated."""
        ...

    async def fetch_single_resource(self, worker_id: str) -> Worker | None:
        """A worker; None if there is none under this id."""
        ...

    async def get_topology(self, session_id: str) -> str: ...

    async def get_fleet_id(self) -> str: ...

    async def move(self, session_id: str, move: SessionMove) -> LabletSession: ...

    async def intend_import(self, session_id: str, intent: ImportIntent) -> LabletSession: ...

    async def record_lab(self, session_id: str, lab: LabImported) -> LabletSession: ...

    async def report_progress(self, items: Sequence[SessionProgress]) -> tuple[str, ...]: ...

    async def report_evidence(self, session_id: str, evidence: EvidenceCollected) -> LabletSession: ...

    async def unschedule(
        self, session_id: str, reason: str, *, generation: int, is_worker_lost: bool = False
    ) -> LabletSession: ...

    async def report_cleaned(self, session_id: str, cleaned: LabCleaned) -> LabletSession | None: ...

    async def report_labs(self, worker_id: str, report: LabListingReport) -> LabListingReceipt: ...

    async def report_definitions(self, worker_id: str, report: DefinitionsReport) -> None: ...

    async def get_lab_work(self) -> LabWork:
        """What a person, the leak sweep or a stop requests of labs, and the workers with unknown labs."""
        ...

    async def report_configs(self, worker_id: str, report: ConfigsExtracted) -> None: ...

    async def get_lab_record(self, worker_id: str, lab_id: str) -> LabRecord:
        """A lab with whose it is at this moment. Raises NotFound."""
        ...

    async def report_lab_outcome(self, worker_id: str, lab_id: str, outcome: LabRequestOutcome) -> None: ...

    async def report_lab_gone(self, worker_id: str, lab_id: str, gone: LabGone) -> None: ...


class PortProbe(Protocol):
    """Whether ports of a worker take connections. Nothing is sent through them."""

    async def probe(self, host: str, ports: Collection[int]) -> Mapping[int, PortAnswer]:
        """Connect to TCP ports. Raises nothing: every port has an answer, a late one is SILENT."""
        ...


class CmlLabs(Protocol):
    """CML's labs API. No other port and no other process changes a lab.

    Every call raises Unreachable, Throttled or CredentialsRefused if it could not be made, and
    CertificateChanged before anything is sent to a server with another certificate. After Unreachable a
    change may have happened, or happen later. LabRefused is CML's own refusal, with its description:
    nothing has changed. Calls about a lab raise NotFound where CML answers that it has no such lab: to an
    account that is no administrator that may be a lab of another owner, so it is no proof; `get_lab` is.
    """

    async def list_labs(self, server: CmlServer, *, show_all: bool = True) -> LabListing:
        """Every lab that LCM's account may see; without `show_all` only its own, which is never complete."""
        ...

    async def get_lab(self, server: CmlServer, lab_id: str) -> Observation[CmlLab]:
        """One lab. Raises nothing: a failure is Unknown.

        Absent only if the server with the pinned certificate answers 404 for this lab to an account that
        sees every lab. A 404 of a proxy, of a booting server or for another path is Unknown.
        """
        ...

    async def import_lab(self, server: CmlServer, topology: str, *, title: str) -> ImportedLab:
        """Make a lab of a topology (YAML or JSON) under this title, at rest.

        Never repeated by the adapter: each import makes another lab. After Unreachable the caller searches
        for the lab before it imports again; an import may complete after its time limit.
        """
        ...

    async def download_lab(self, server: CmlServer, lab_id: str) -> str:
        """The topology as a file that can be imported, with the configurations that were extracted."""
        ...

    async def nodes(self, server: CmlServer, lab_id: str) -> Sequence[CmlNode]:
        """Every node of a lab, with its console keys while it runs. Complete or not at all."""
        ...

    async def set_node_tags(self, server: CmlServer, lab_id: str, node_id: str, tags: Sequence[str]) -> None:
        """Replace all tags of a node. The same tags again change nothing."""
        ...

    async def start_lab(self, server: CmlServer, lab_id: str) -> None:
        """Request a start of every node at rest. Starting a running lab succeeds.

        LabRefused if CML cannot: no license, no resources.
        """
        ...

    async def stop_lab(self, server: CmlServer, lab_id: str) -> None:
        """Request a stop of every running node. Stopping a lab at rest succeeds."""
        ...

    async def stop_node(self, server: CmlServer, lab_id: str, node_id: str) -> None:
        """Request a stop of one node. Stopping a node at rest succeeds."""
        ...

    async def wipe_lab(self, server: CmlServer, lab_id: str) -> None:
        """Remove the disks of every node. LabRefused while a node runs; wiping a wiped lab succeeds."""
        ...

    async def delete_lab(self, server: CmlServer, lab_id: str) -> None:
        """Delete a stopped and wiped lab; LabRefused for any other. Deleting an unknown lab succeeds.

        Its success is no proof of absence: `get_lab` is.
        """
        ...

    async def element_states(self, server: CmlServer, lab_id: str) -> ElementStates:
        """The states of every node, interface and link of a lab."""
        ...

    async def has_converged(self, server: CmlServer, lab_id: str) -> bool:
        """Whether no node is about to change its state. True for a lab at rest and for an empty one."""
        ...

    async def extract_configuration(self, server: CmlServer, lab_id: str, node_id: str) -> None:
        """Copy the running configuration of a booted node into the lab.

        LabRefused for a node that is not booted, and for kinds of which CML cannot extract any.
        """
        ...

    async def node_definitions(self, server: CmlServer) -> Sequence[NodeDefinition]:
        """What the nodes of each kind need on this server, those of its operators included."""
        ...

    async def image_definitions(self, server: CmlServer) -> Sequence[ImageDefinition]:
        """The images on this server."""
        ...
