"""Whether a timeslot has room for all that is booked in it, with the engine that places sessions.

A session takes its room from shortly before it starts until it has been torn down, so two that follow each
other without a gap need room for both. At the moments at which most is needed, the engine plans everything
that is booked, the largest first, on the workers that exist, as if all were up, and on those that may be
added. Where that does not succeed, later timeslots are tried at the times at which sessions end.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from lcm.domain.lablet.cycle import plan
from lcm.domain.lablet.decision import Outcome, Plan
from lcm.domain.lablet.definition import Demand
from lcm.domain.lablet.filters import Vector, fits, vector
from lcm.domain.lablet.packing import add, room_of, subtract
from lcm.domain.lablet.possibility import GONE
from lcm.domain.lablet.replay import growth_at
from lcm.domain.lablet.rooms import is_over_at
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.snapshot import Growth, PlacementWorker, Snapshot
from lcm.domain.lablet.states import PENDING, PENDING_SCHEDULING
from lcm.domain.lablet.timeslot import Timeslot, TimeslotPolicy
from lcm.domain.lablet.wording import clock_time, count_of
from lcm.domain.lifecycle import DesiredStatus, WorkerStatus

EMPTY: Final = (0.0, 0.0, 0.0, 0.0)
TRIED: Final = 48
"""So many later timeslots are tried."""
OFFERED: Final = 3
STEP: Final = timedelta(minutes=15)
"""Timeslots that are offered start at a quarter of an hour."""


class FitOfSlot(StrEnum):
    """Whether a timeslot has room."""

    FITS = "fits"
    TIGHT = "tight"
    """Only if every worker that may be added is added."""
    OVER = "over"


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the timeslot has room for all that is booked in it, by what is known now."""

    verdict: FitOfSlot
    text: str
    """One sentence."""
    workers_needed: int
    """For everything in the timeslot."""
    workers_possible: int
    nearest: tuple[Timeslot, ...] = ()
    """The next timeslots of the same length that fit; only where this one does not."""


class Span(NamedTuple):
    """When a session takes room."""

    begin: datetime
    end: datetime


class Usage(NamedTuple):
    """What a moment needs."""

    verdict: FitOfSlot
    moment: datetime
    sessions: int
    unplaced: int
    workers_needed: int
    workers_possible: int


def span_of(session: LabletSession, now: datetime, times: TimeslotPolicy) -> Span:
    """A session without a timeslot is taken to start now and to last as long as it may."""
    due_at = session.lab_due_at(times.lab_lead)
    if session.timeslot is not None and due_at is not None:
        return Span(due_at, session.timeslot.end + times.teardown)
    return Span(now, now + timedelta(minutes=session.max_duration_minutes) + times.teardown)


def seats_of(
    demand: Demand,
    count: int,
    *,
    timeslot: Timeslot | None,
    max_minutes: int,
    now: datetime,
    lead: timedelta,
    lab_lead: timedelta = timedelta(),
) -> tuple[LabletSession, ...]:
    """Sessions that do not exist, to plan with."""
    is_open = timeslot is None or timeslot.start - lead <= now
    return tuple(
        LabletSession(
            id=f"seat-{number:03}",
            definition_id="",
            definition_name="",
            definition_version="",
            lab_yaml_hash="",
            demand=demand,
            max_duration_minutes=max_minutes,
            latest_start_minutes=30,
            owner_id="",
            timeslot=timeslot,
            lab_lead=lab_lead,
            status=PENDING_SCHEDULING if is_open else PENDING,
            created_at=now,
            updated_at=now,
        )
        for number in range(count)
    )


def forecast(snapshot: Snapshot, wanted: Sequence[LabletSession], now: datetime) -> Forecast:
    """Whether `wanted` fits beside all sessions of the snapshot, which has booked ones too."""
    outlook = Outlook(snapshot, now)
    slot = wanted[0].timeslot
    worst = outlook.worst(wanted)
    if worst.verdict is not FitOfSlot.OVER:
        return Forecast(
            verdict=worst.verdict,
            text=_text(worst, wanted[0], now),
            workers_needed=worst.workers_needed,
            workers_possible=worst.workers_possible,
        )
    needed = outlook.usage_at(worst.moment, wanted, is_limited=False).workers_needed
    span = span_of(wanted[0], now, snapshot.times)
    start = slot.start if slot is not None else now
    length = slot.duration if slot is not None else span.end - span.begin - snapshot.times.teardown
    return Forecast(
        verdict=worst.verdict,
        text=_text(worst, wanted[0], now),
        workers_needed=needed,
        workers_possible=worst.workers_possible,
        nearest=outlook.nearest(wanted, start, length, slot.zone if slot is not None else "UTC"),
    )


class Outlook:
    """All that is booked, and the fleet that could serve it."""

    def __init__(self, snapshot: Snapshot, now: datetime) -> None:
        self._snapshot = snapshot
        self._now = now
        self._times = snapshot.times
        self._spans = [(each, span_of(each, now, self._times)) for each in snapshot.sessions]
        self._workers = [worker for worker in snapshot.workers if _is_usable(worker)]
        self._most = _largest_room(snapshot)
        self._moments, self._loads = self._steps()
        self._known: dict[tuple[frozenset[str], frozenset[tuple[str, int]], int], Usage] = {}

    def _steps(self) -> tuple[list[datetime], list[Vector]]:
        """The moments at which the load changes, and the load from each on."""
        changes: dict[datetime, Vector] = {self._now: EMPTY}
        for session, span in self._spans:
            needs = vector(session.demand.needs)
            changes[span.begin] = add(changes.get(span.begin, EMPTY), needs)
            changes[span.end] = subtract(changes.get(span.end, EMPTY), needs)
        for worker in self._workers:
            for claim in worker.claims:
                changes[self._now] = add(changes[self._now], vector(claim.needs))
                if claim.ends_at is not None and not claim.is_retained:
                    end = max(self._now, claim.ends_at + self._times.teardown)
                    changes[end] = subtract(changes.get(end, EMPTY), vector(claim.needs))
        loads, load = [], EMPTY
        moments = sorted(changes)
        for moment in moments:
            load = add(load, changes[moment])
            loads.append(load)
        return moments, loads

    def worst(self, wanted: Sequence[LabletSession]) -> Usage:
        """The moment of the timeslot at which least of what is booked has a worker."""
        span = span_of(wanted[0], self._now, self._times)
        usages = [self.usage_at(moment, wanted) for moment in self._peaks(span)]
        return max(usages, key=lambda each: (_ORDER.index(each.verdict), each.unplaced, each.workers_needed))

    def _peaks(self, span: Span) -> list[datetime]:
        """The moments at which most CPU, memory, disk or nodes are needed."""
        first = max(0, bisect_right(self._moments, span.begin) - 1)
        last = max(first + 1, bisect_left(self._moments, span.end))
        indexes = [
            max(range(first, last), key=lambda index: self._loads[index][kind]) for kind in range(len(EMPTY))
        ]
        return [max(span.begin, self._moments[index]) for index in dict.fromkeys(indexes)]

    def usage_at(
        self, moment: datetime, wanted: Sequence[LabletSession] = (), *, is_limited: bool = True
    ) -> Usage:
        """What the engine makes of everything that takes room at a moment."""
        active = [each for each, span in self._spans if span.begin <= moment < span.end]
        workers = tuple(_up_at(worker, moment, self._times) for worker in self._workers)
        growth = self._growth_at(moment)
        claimed = frozenset((claim.session_id, claim.attempt) for each in workers for claim in each.claims)
        regions = _regions_of(wanted) or frozenset(growth).union(each.region for each in workers)
        left = sum(each.count for region, each in growth.items() if region in regions)
        key = (frozenset(each.id for each in active), claimed, left if is_limited else -1)
        if not wanted and key in self._known:
            return self._known[key]._replace(moment=moment)
        sessions = self._largest_first([*active, *wanted])
        if not is_limited:
            growth = {region: Growth(count=len(sessions)) for region in growth}
        made = plan(
            replace(
                self._snapshot,
                workers=workers,
                sessions=sessions,
                growth=growth,
                queue_limit=len(sessions),
            ),
            moment,
        )
        usage = _usage(moment, made, workers, len(sessions), left, regions)
        if not wanted:
            self._known[key] = usage
        return usage

    def _growth_at(self, moment: datetime) -> dict[str, Growth]:
        return {
            region: Growth(count=growth_at(self._snapshot, region, moment, self._now).count)
            for region in self._snapshot.growth
        }

    def _largest_first(self, sessions: Iterable[LabletSession]) -> tuple[LabletSession, ...]:
        """The sessions as if all waited for a worker now, in the order in which they are best packed."""

        def size(session: LabletSession) -> float:
            pairs = zip(vector(session.demand.needs), self._most, strict=True)
            return max(need / most if most else 0.0 for need, most in pairs)

        ordered = sorted(sessions, key=lambda each: (-size(each), each.id))
        return tuple(
            replace(
                session,
                status=PENDING_SCHEDULING,
                timeslot=None,
                batch=None,
                priority=0,
                nominated=None,
                next_try_at=None,
                avoided_workers={},
                lab_yaml_hash="",
                created_at=self._now + timedelta(microseconds=number),
            )
            for number, session in enumerate(ordered)
        )

    @property
    def capacity(self) -> Vector:
        """What the workers that exist can take in all."""
        total = EMPTY
        for worker in self._workers:
            total = add(total, vector(worker.room)) if worker.room is not None else total
        return total

    def claims_at(self, moment: datetime) -> int:
        """How many claims of today are not over by then."""
        return sum(
            not is_over_at(claim, moment, self._times) for worker in self._workers for claim in worker.claims
        )

    def workers_needed_at(self, moment: datetime) -> int:
        """How many workers everything needs at a moment, more than may be added if need be."""
        usage = self.usage_at(moment)
        if usage.verdict is FitOfSlot.OVER:
            usage = self.usage_at(moment, is_limited=False)
        return usage.workers_needed

    def nearest(
        self, wanted: Sequence[LabletSession], start: datetime, length: timedelta, zone: str
    ) -> tuple[Timeslot, ...]:
        """The next timeslots that fit: room only grows when something ends."""
        latest = self._now + self._times.max_booking
        lead = max(wanted[0].lab_lead, self._times.lab_lead)
        starts = {_next_step(moment + lead) for moment in self._moments}
        found: list[Timeslot] = []
        for moment in sorted(each for each in starts if start < each <= latest)[:TRIED]:
            slot = Timeslot(start=moment, end=moment + length, zone=zone)
            moved = [replace(each, timeslot=slot) for each in wanted]
            if self._may_fit(moved) and self.worst(moved).verdict is not FitOfSlot.OVER:
                found.append(slot)
            if len(found) == OFFERED:
                break
        return tuple(found)

    def _may_fit(self, wanted: Sequence[LabletSession]) -> bool:
        """Whether the sums alone leave room; most timeslots that do not fit are found so."""
        span = span_of(wanted[0], self._now, self._times)
        count = sum(each.count for each in self._growth_at(span.begin).values())
        most = add(self.capacity, _times(self._most, count))
        needs = EMPTY
        for session in wanted:
            needs = add(needs, vector(session.demand.needs))
        return all(fits(add(self.load_at(moment), needs), most) for moment in self._peaks(span))

    def load_at(self, moment: datetime) -> Vector:
        """What is needed at a moment, claims included."""
        index = bisect_right(self._moments, moment) - 1
        return self._loads[index] if index >= 0 else EMPTY


_ORDER: Final = (FitOfSlot.FITS, FitOfSlot.TIGHT, FitOfSlot.OVER)


def _regions_of(wanted: Sequence[LabletSession]) -> frozenset[str]:
    """The region that is required; empty for any."""
    return frozenset(each.demand.region for each in wanted if each.demand.region is not None)


def _is_usable(worker: PlacementWorker) -> bool:
    """Whether the worker can be up at some time without a person."""
    is_known = worker.status is not WorkerStatus.UNKNOWN and worker.status not in GONE
    return is_known and worker.desired_status is not DesiredStatus.TERMINATED


def _up_at(worker: PlacementWorker, moment: datetime, times: TimeslotPolicy) -> PlacementWorker:
    """The worker as if it were up, with the claims that are not over by then."""
    return replace(
        worker,
        status=WorkerStatus.RUNNING,
        desired_status=DesiredStatus.RUNNING,
        is_ready=True,
        is_licensed=None,
        is_overloaded=False,
        quarantined={},
        claims=tuple(
            replace(claim, ends_at=None) for claim in worker.claims if not is_over_at(claim, moment, times)
        ),
    )


def _usage(
    moment: datetime,
    made: Plan,
    workers: Sequence[PlacementWorker],
    sessions: int,
    left: int,
    regions: frozenset[str],
) -> Usage:
    """Count the workers of the regions in which a worker may take what is wanted."""
    present = {worker.id for worker in workers if worker.region in regions}
    used = {worker.id for worker in workers if worker.claims}
    used |= {each.worker_id for each in made.decisions.values() if each.worker_id is not None}
    added = sum(launch.count for launch in made.launches if launch.region in regions)
    unplaced = sum(each.outcome not in (Outcome.ASSIGN, Outcome.SCALE_UP) for each in made.decisions.values())
    verdict = FitOfSlot.TIGHT if added and added >= left else FitOfSlot.FITS
    return Usage(
        FitOfSlot.OVER if unplaced else verdict,
        moment,
        sessions,
        unplaced,
        len(used & present) + added,
        len(present) + left,
    )


def _text(usage: Usage, session: LabletSession, now: datetime) -> str:
    workers = f"{usage.workers_needed} of {count_of(usage.workers_possible, 'possible worker')}"
    verb = "is" if usage.workers_needed == 1 else "are"
    if usage.verdict is FitOfSlot.FITS:
        return f"It fits: {workers} {verb} needed."
    if usage.verdict is FitOfSlot.TIGHT:
        return f"It fits only if every worker that may be added is added: {workers} {verb} needed."
    lacking = f"{usage.unplaced} of {count_of(usage.sessions, 'session')}"
    have = "has" if usage.unplaced == 1 else "have"
    moment = clock_time(usage.moment, session, now)
    return (
        f"It does not fit: at {moment}, {lacking} {have} no room on"
        f" {count_of(usage.workers_possible, 'possible worker')}."
    )


def _largest_room(snapshot: Snapshot) -> Vector:
    rooms = [room_of(template) for template in snapshot.templates if template.is_enabled]
    rooms += [vector(worker.room) for worker in snapshot.workers if worker.room is not None]
    if not rooms:
        return EMPTY
    cpu, memory, storage, nodes = (max(room[kind] for room in rooms) for kind in range(len(EMPTY)))
    return (cpu, memory, storage, nodes)


def _times(room: Vector, count: int) -> Vector:
    return (room[0] * count, room[1] * count, room[2] * count, room[3] * count)


def _next_step(moment: datetime) -> datetime:
    past = timedelta(minutes=moment.minute, seconds=moment.second, microseconds=moment.microsecond) % STEP
    return moment + (STEP - past if past else timedelta())
