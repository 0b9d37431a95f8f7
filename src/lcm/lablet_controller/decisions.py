"""The decisions of a step, and what a step decides on. One is carried out before CML is observed again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from lcm.domain.lablet.lab import CleanupProof, LabCleanup, ProbedPorts, StepReport
from lcm.domain.lablet.node_definitions import EXTERNAL_CONNECTOR, UNMANAGED_SWITCH
from lcm.domain.lablet.session import LabletSession, SessionDesiredStatus
from lcm.domain.lablet.session_changes import is_over
from lcm.domain.lablet.states import READY, RUNNING, STOPPING, EndReason, SessionStatus
from lcm.domain.lifecycle import (
    DRAINING,
    PENDING,
    PROVISIONING,
    STARTING,
    TERMINATED,
    UNKNOWN,
)
from lcm.domain.lifecycle import RUNNING as WORKER_RUNNING
from lcm.domain.observation import Observation
from lcm.domain.worker import Worker
from lcm.lablet_controller.ports import CmlNode, ElementState

POLL_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 60.0
"""How often a lab in use is observed."""
WITHOUT_LAB: Final = timedelta(minutes=15)
"""A session that is due and gets no lab on its worker for this long is placed again."""
STUCK_SECONDS: Final = 300.0
"""How often a removal that CML refuses is tried."""
WITHOUT_VM: Final = frozenset({UNMANAGED_SWITCH, EXTERNAL_CONNECTOR})
AT_REST: Final = frozenset({ElementState.DEFINED_ON_CORE, ElementState.STOPPED})
COMES_UP: Final = frozenset({PROVISIONING, STARTING, WORKER_RUNNING, UNKNOWN})
"""Statuses of a worker that a session without a lab waits on."""


@dataclass(frozen=True)
class LabView:
    """A lab as CML shows it."""

    lab_id: str
    state: ElementState | None = None
    """As a whole; only of a lab in use."""
    nodes: Sequence[CmlNode] = ()
    has_converged: bool = False
    expected: Mapping[str, tuple[str, ...]] | None = None
    """The tags of every node that was imported, by its label."""
    boot_seconds: int = 0
    """How long CML waits for the slowest of its nodes."""

    @property
    def is_complete(self) -> bool:
        """Whether it has exactly the nodes that were imported."""
        return self.expected is not None and sorted(self.expected) == sorted(
            node.label for node in self.nodes
        )

    @property
    def wrong_tags(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The nodes whose tags are not those of the claim, with the right ones."""
        expected = self.expected or {}
        return tuple(
            (node.id, expected[node.label])
            for node in self.nodes
            if node.label in expected and sorted(node.tags) != sorted(expected[node.label])
        )

    @property
    def not_booted(self) -> list[str]:
        return sorted(node.label for node in self.nodes if not _has_booted(node))

    @property
    def states(self) -> dict[str, str]:
        return {node.label: str(node.state) for node in self.nodes}


def _has_booted(node: CmlNode) -> bool:
    if node.state is ElementState.BOOTED:
        return True
    return node.node_definition in WITHOUT_VM and node.state is ElementState.STARTED


def has_configuration(node: CmlNode) -> bool:
    """Whether it runs a configuration that CML may extract."""
    return node.state is ElementState.BOOTED and node.node_definition not in WITHOUT_VM


@dataclass(frozen=True)
class Move:
    """Record another status, then continue with the step of that status."""

    target: SessionStatus
    reason: str
    end_reason: EndReason | None = None


@dataclass(frozen=True)
class Unschedule:
    """Let the scheduler find another worker."""

    reason: str
    is_worker_lost: bool = False
    is_lab_gone: bool = False
    """Its lab is proven gone, so that its worker need not keep the claim."""


@dataclass(frozen=True)
class IntendImport:
    """Record that a lab is about to be imported."""

    generation: int
    is_previous_gone: bool = False


@dataclass(frozen=True)
class Import:
    """Import the lab whose import is intended, and record its id."""


@dataclass(frozen=True)
class Adopt:
    """Record the id of a lab that was found by its marker."""

    lab_id: str


@dataclass(frozen=True)
class SetTags:
    """Put the granted ports on nodes that lack them."""

    nodes: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Start:
    """Start the lab."""


@dataclass(frozen=True)
class Probe:
    """Test the granted ports."""

    attempt: int


@dataclass(frozen=True)
class Collect:
    """Extract configurations as far as that works in time, then keep the topology with them."""

    attempt: int
    node_ids: tuple[str, ...]
    seconds: float
    """How long the extraction may take."""


@dataclass(frozen=True)
class Stop:
    """Stop the lab; node by node if it did not stop otherwise."""

    attempt: int
    node_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wipe:
    """Remove the disks of the lab."""


@dataclass(frozen=True)
class Delete:
    """Delete the lab."""


@dataclass(frozen=True)
class Clean:
    """Report that nothing is left, and why that is certain."""

    proof: CleanupProof


@dataclass(frozen=True)
class Report:
    """Record progress, then decide again on the same observation."""

    steps: tuple[StepReport, ...] = ()
    nodes: Mapping[str, str] | None = None
    probed: ProbedPorts | None = None
    cleanup: LabCleanup | None = None


@dataclass(frozen=True)
class Wait:
    """Nothing to do for a while."""

    reason: str
    seconds: float = POLL_SECONDS


LabChange = Import | SetTags | Start | Collect | Stop | Wipe | Delete
Decision = Move | Unschedule | IntendImport | Adopt | Clean | Probe | Report | Wait | LabChange


@dataclass(frozen=True)
class Situation:
    """The input of a step."""

    session: LabletSession
    worker: Worker | None
    seen: Observation[LabView]
    """The recorded lab; as long as no id is recorded, the lab with the marker of the session."""
    now: datetime
    """By the control plane's clock, like every time of the session and of the worker."""
    lab_lead: timedelta
    start_timeout: timedelta
    restarts_stopped_labs: bool = False

    @property
    def has_worker_restarted(self) -> bool:
        """Whether the worker came up after the lab was started: CML shows its nodes stopped then."""
        lab = self.session.lab
        came_up_at = self.worker.came_up_at if self.worker is not None else None
        if came_up_at is None or lab is None or lab.started_at is None:
            return False
        return lab.started_at < came_up_at

    @property
    def is_worker_lost(self) -> bool:
        """Whether the worker, or the instance that the lab was imported on, is gone for good."""
        worker, lab = self.worker, self.session.lab
        if worker is None or worker.status in (PENDING, TERMINATED):
            return True
        return lab is not None and worker.instance.id != lab.instance_id

    @property
    def does_worker_leave(self) -> bool:
        """Whether a session without a lab has to look for another worker."""
        return self.worker is None or self.worker.status not in COMES_UP

    @property
    def is_worker_usable(self) -> bool:
        return is_usable(self.worker)

    @property
    def must_end(self) -> bool:
        wanted = self.session.desired_status is not SessionDesiredStatus.TERMINATED
        return not wanted or is_over(self.session, now=self.now)

    def end(self) -> Move:
        """Stop a session whose end is requested or whose time is over."""
        session = self.session
        was_ready = session.status in (READY, RUNNING) or session.ready_at is not None
        why = session.end_reason or (EndReason.COMPLETED if was_ready else EndReason.EXPIRED)
        return Move(STOPPING, session.end_text or "its time is over", why)

    def seconds_until(self, moment: datetime | None, at_most: float = LOOK_SECONDS) -> float:
        if moment is None:
            return at_most
        return min(at_most, max(0.0, (moment - self.now).total_seconds()))

    def describe_worker(self) -> str:
        worker = self.worker
        if worker is None:
            return "the worker is gone"
        return f"worker {worker.name} is {worker.status}" + (
            "" if worker.cml.is_ready else ", its CML not ready"
        )


def is_usable(worker: Worker | None) -> bool:
    """Whether CML of the worker can be used now. One that drains finishes the labs it has."""
    return worker is not None and worker.status in (WORKER_RUNNING, DRAINING) and worker.cml.is_ready


def fail(reason: str) -> Move:
    return Move(STOPPING, reason, EndReason.FAILED)
