"""Bugs in the placement of lablet sessions: claims, the queue, windows, purchases, repairs."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from lcm.control_plane.commands import detect_idle
from lcm.control_plane.commands.lablets import end_session, schedule_sessions, sweep_claims
from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Records
from lcm.control_plane.store.port import Fence
from lcm.domain import idle
from lcm.domain.idle import PauseGuard
from lcm.domain.lablet import admission, cycle, filters, launches, rooms
from lcm.domain.lablet.claim import Claim
from lcm.domain.lablet.definition import Demand
from lcm.domain.lablet.launches import ScaleUp
from lcm.domain.lablet.ports import PortRange, pick_ports
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.session_changes import schedule
from lcm.domain.lablet.snapshot import Snapshot
from lcm.domain.lablet.timeslot import DEFAULTS, Timeslot, TimeslotPolicy
from lcm.domain.worker import Worker
from lcm.rest.lablets import PlacementResult
from simulation.desk import LIGHT, TODAY
from simulation.planted.base import planted_in, swapped, swapped_in
from simulation.scenarios.scheduling import a_booking_day, a_watched_booking_day

planted = planted_in(a_booking_day)


@planted
def a_claim_without_a_capacity_check() -> Iterator[None]:
    """Neither the engine nor the claim asks whether there is room."""
    with swapped_in(admission, "judge", lambda *_, **__: []):
        yield from swapped(rooms, "fits", lambda needs, free: True)


@planted
def the_session_is_written_before_its_worker() -> Iterator[None]:
    original = schedule_sessions._place

    async def place(
        records: Records,
        policies: Policies,
        worker_id: str,
        sessions: Sequence[LabletSession],
        by: str,
        fence: Fence,
    ) -> list[PlacementResult]:
        for session in sessions:
            await records.sessions.change(
                session.id,
                lambda current: schedule(current, attempt=current.attempt, ports={}, now=records.clock.now()),
                fence=fence,
            )
        return await original(records, policies, worker_id, sessions, by, fence)

    yield from swapped(schedule_sessions, "_place", place)


@planted
def a_claim_takes_what_the_definition_needs_today() -> Iterator[None]:
    original = admission.claim

    def claim(worker: Worker, demand: Demand, **of: Any) -> Worker:
        is_light = demand.needs == LIGHT.demand.needs
        today = TODAY[LIGHT.name].demand.needs if is_light else demand.needs
        return original(worker, replace(demand, needs=today), **of)

    yield from swapped(schedule_sessions, "claim", claim)


@planted
def versions_compare_as_text() -> Iterator[None]:
    def key(text: str) -> tuple[str, ...]:
        return (text,)

    yield from swapped(filters, "version_key", key)


@planted
def the_grace_counts_from_the_end() -> Iterator[None]:
    def is_missed(
        self: Timeslot,
        now: datetime,
        *,
        coming_at: datetime | None = None,
        minutes: float = 30,
        policy: TimeslotPolicy = DEFAULTS,
    ) -> bool:
        return now >= self.end + policy.grace

    yield from swapped(Timeslot, "is_missed", is_missed)


@planted
def a_worker_for_each_session() -> Iterator[None]:
    original = launches.scale_up

    def scale_up(
        snapshot: Snapshot, unplaced: Sequence[LabletSession], ready_at: Mapping[str, datetime]
    ) -> ScaleUp:
        found = original(snapshot, unplaced, ready_at)
        each = (
            replace(launch, seats=tuple((seat,) for seats in launch.seats for seat in seats))
            for launch in found.launches
        )
        return ScaleUp(tuple(each), found.refused)

    yield from swapped(cycle, "scale_up", scale_up)


@planted
def a_class_starts_with_the_seats_that_have_a_place() -> Iterator[None]:
    yield from swapped(cycle.Cycle, "incomplete_gangs", lambda _: {})


@planted
def each_session_counts_its_ports_from_the_lowest() -> Iterator[None]:
    def pick(ports: Any, *, taken: Any, within: PortRange, **known: Any) -> dict[str, int]:
        return pick_ports(ports, taken=frozenset(), within=within, **known)

    yield from swapped(admission, "pick_ports", pick)


@planted
def a_claim_in_use_is_released() -> Iterator[None]:
    """A session whose placement is confirmed does not look as if it were."""
    original = sweep_claims._why_stale

    def why(claim: Claim, worker_id: str, session: LabletSession | None) -> str | None:
        is_confirmed = session is not None and session.scheduled_at is not None
        return "not placed" if is_confirmed else original(claim, worker_id, session)

    yield from swapped(sweep_claims, "_why_stale", why)


@planted
def a_missed_timeslot_is_not_audited() -> Iterator[None]:
    async def forget(*_: Any) -> None:
        return

    yield from swapped(end_session, "audit_end", forget)


@planted_in(a_watched_booking_day)
def a_worker_with_a_session_is_paused() -> Iterator[None]:
    original = idle.pause_guard

    def guard(worker: Worker, *evidence: Any) -> PauseGuard | None:
        return original(replace(worker, claims=(), nominations={}), *evidence)

    yield from swapped(detect_idle, "pause_guard", guard)
