"""Bugs in the labs of sessions: imports, ownership, readiness, ends, removal, leaks, activity."""

from collections.abc import Iterator
from datetime import datetime

from msgspec.structs import replace

from lcm.cml.sessions import CmlServer
from lcm.control_plane.commands import report_live
from lcm.control_plane.commands.lablets import abandon_session
from lcm.control_plane.queries import session_topology
from lcm.domain.lablet import admission, lab_discovery, lab_standing
from lcm.domain.lablet.admission import release
from lcm.domain.lablet.lab import CleanupProof
from lcm.domain.lablet.lab_standing import Standing
from lcm.domain.lablet.listed_lab import LabMark, LeakReason
from lcm.domain.lablet.marked_topology import mark_topology
from lcm.domain.lablet.marker import Marker, SeenLab, read_notes
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.states import STOPPING
from lcm.domain.observation import Absent, Known, Observation, Unknown
from lcm.domain.pause import Pause
from lcm.domain.telemetry import LabRecord
from lcm.domain.worker import Worker
from lcm.lablet_controller import decisions, discovery, gate, reconciler
from lcm.lablet_controller.decisions import Clean, Decision, LabView, Situation
from lcm.lablet_controller.observer import LabObserver
from lcm.lablet_controller.ports import CmlNode, ElementState
from lcm.lablet_controller.steps import instantiating, stopping
from lcm.rest.plane_clock import PlaneClock
from simulation.planted.base import planted_in, swapped, swapped_in
from simulation.scenarios.labs import (
    a_lab_ends_by_the_clock_of_the_control_plane,
    a_lab_is_brought_up_and_removed,
    a_stop_waits_for_the_configurations_of_nodes,
    labs_are_adopted_and_disowned,
    labs_that_cannot_be_brought_up,
    people_and_cml_interfere_with_labs,
    workers_of_labs_are_stopped_and_lost,
)


@planted_in(a_lab_is_brought_up_and_removed)
def a_lab_is_marked_with_an_import_that_nobody_intended() -> Iterator[None]:
    def mark(text: str, marker: Marker) -> str:
        return mark_topology(text, marker._replace(generation=marker.generation + 1))

    yield from swapped(session_topology, "mark_topology", mark)


@planted_in(a_lab_is_brought_up_and_removed)
def a_node_that_runs_is_taken_for_booted() -> Iterator[None]:
    def has_booted(node: CmlNode) -> bool:
        return node.state in (ElementState.STARTED, ElementState.BOOTED)

    converged = property(lambda view: True, lambda view, value: None)
    with swapped_in(LabView, "has_converged", converged):
        yield from swapped(decisions, "_has_booted", has_booted)


@planted_in(a_lab_is_brought_up_and_removed)
def a_claim_is_released_before_its_lab_is_deleted() -> Iterator[None]:
    def decide(situation: Situation) -> Decision:
        if isinstance(situation.seen, Known) and situation.is_worker_usable:
            return Clean(CleanupProof.LAB_ABSENT)
        return stopping.decide(situation)

    yield from swapped(reconciler, "STEPS", {**reconciler.STEPS, STOPPING: decide})


@planted_in(people_and_cml_interfere_with_labs)
def a_copy_of_a_lab_goes_with_its_session() -> Iterator[None]:
    """The marker alone makes a lab leaked once its session has ended, whoever started it."""
    original = lab_standing._leak

    def leak(
        lab_id: str, mark: LabMark, instance_id: str | None, session: LabletSession | None
    ) -> LeakReason | None:
        if session is not None and session.is_ended:
            return LeakReason.SESSION_ENDED
        return original(lab_id, mark, instance_id, session)

    yield from swapped(lab_standing, "_leak", leak)


@planted_in(people_and_cml_interfere_with_labs)
def the_notes_alone_mark_a_lab() -> Iterator[None]:
    def marker(lab: SeenLab) -> Marker | None:
        return read_notes(lab.notes)

    with swapped_in(gate, "marker_of", marker):
        yield from swapped(discovery, "marker_of", marker)


@planted_in(people_and_cml_interfere_with_labs)
def a_leaked_lab_is_never_removed() -> Iterator[None]:
    yield from swapped(lab_discovery, "is_leak_confirmed", lambda lab, now: False)


@planted_in(labs_are_adopted_and_disowned)
def a_listing_forgets_who_keeps_a_lab() -> Iterator[None]:
    """The marker counts more than the person: what a session left behind is removed all the same."""
    original = lab_discovery.standing_of

    def standing_of(record: LabRecord, standing: Standing, *, is_full: bool, now: datetime) -> LabRecord:
        judged = original(replace(record, adoption=None), standing, is_full=is_full, now=now)
        return replace(judged, adoption=record.adoption)

    yield from swapped(lab_discovery, "standing_of", standing_of)


@planted_in(a_lab_ends_by_the_clock_of_the_control_plane)
def the_clock_of_the_controller_ends_sessions() -> Iterator[None]:
    yield from swapped(PlaneClock, "learn", lambda clock, answered_at, asked: None)


@planted_in(a_lab_is_brought_up_and_removed)
def a_lab_is_imported_without_a_search() -> Iterator[None]:
    async def search(observer: LabObserver, session: LabletSession, server: CmlServer) -> Absent:
        return Absent("the lab is imported now")

    yield from swapped(LabObserver, "_search", search)


@planted_in(a_lab_is_brought_up_and_removed)
def a_lab_that_cannot_be_read_is_absent() -> Iterator[None]:
    original = LabObserver.observe

    async def observe(
        observer: LabObserver, session: LabletSession, server: CmlServer
    ) -> Observation[LabView]:
        seen = await original(observer, session, server)
        return Absent(seen.reason) if isinstance(seen, Unknown) and seen.is_failure else seen

    yield from swapped(LabObserver, "observe", observe)


@planted_in(people_and_cml_interfere_with_labs)
def a_session_that_moves_on_releases_its_claim() -> Iterator[None]:
    def retain(
        worker: Worker, session_id: str, attempt: int, *, lab_generation: int, now: datetime
    ) -> Worker:
        return release(worker, session_id, attempt, now=now)

    with swapped_in(admission, "retain", retain):
        yield from swapped(abandon_session, "retain", retain)


@planted_in(workers_of_labs_are_stopped_and_lost)
def a_worker_that_is_stopped_is_taken_for_lost() -> Iterator[None]:
    """The sessions in use on it are placed anew, and their labs are still there when it is back."""
    lost = property(lambda situation: not situation.is_worker_usable)
    with swapped_in(Situation, "is_worker_lost", lost):
        yield


@planted_in(labs_that_cannot_be_brought_up)
def a_node_may_boot_for_ever() -> Iterator[None]:
    yield from swapped(instantiating, "_is_late", lambda situation, view, boot: False)


@planted_in(a_stop_waits_for_the_configurations_of_nodes)
def a_stop_does_not_wait_for_configurations() -> Iterator[None]:
    yield from swapped(Pause, "is_extracting", lambda self, now: False)


@planted_in(workers_of_labs_are_stopped_and_lost)
def what_lcm_does_to_labs_is_use() -> Iterator[None]:
    yield from swapped(report_live, "is_own_action", lambda session, at, **_: False)
