"""What would happen with so many seats: the plan of the scheduler with sessions that do not exist."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from lcm.control_plane.policies import Policies
from lcm.control_plane.queries.explain_session import reasons_of
from lcm.control_plane.queries.forecast import booking_snapshot
from lcm.control_plane.queries.scheduling import booked_of, read_snapshot
from lcm.control_plane.records.groups import Caches, Records
from lcm.control_plane.records.possibility import refuse_unknown_region
from lcm.domain.lablet import forecast as forecasts
from lcm.domain.lablet.decision import Decision, Eta, Explanation, Outcome, Plan
from lcm.domain.lablet.definition import Demand, LabletDefinition
from lcm.domain.lablet.forecast import Forecast
from lcm.domain.lablet.placement import PlacementEngine
from lcm.domain.lablet.replay import arrival_of, explain, snapshot_at
from lcm.domain.lablet.session import Batch, LabletSession, create_session
from lcm.domain.lablet.snapshot import PlacementWorker, Snapshot
from lcm.domain.lablet.states import PENDING_SCHEDULING
from lcm.domain.lablet.timeslot import Timeslot, check_booking
from lcm.domain.lablet.wording import count_of
from lcm.rest.scheduling import PlannedLaunch, PreviewedSeat, PreviewRequest, SchedulingPreview

LONGEST: Final = 480
"""Minutes that a lab without a definition may run."""


async def preview_seats(
    records: Records, policies: Policies, request: PreviewRequest, *, caches: Caches | None = None
) -> SchedulingPreview:
    """Return the plan at the time at which the window of the seats opens; now, if they have no timeslot."""
    refuse_unknown_region(policies, request.aws_region)
    now = records.clock.now()
    seats = await _seats(records, policies, request, now)
    booked = booked_of(await records.sessions.list_all())
    snapshot = await read_snapshot(records, policies, caches=caches, also=booked)
    forecast = forecasts.forecast(await booking_snapshot(records, policies), seats, now)
    return described(snapshot, seats, forecast, now)


async def _seats(
    records: Records, policies: Policies, request: PreviewRequest, now: datetime
) -> tuple[LabletSession, ...]:
    if request.needs is not None:
        if request.timeslot is not None:
            check_booking(request.timeslot, max_minutes=LONGEST, now=now, policy=policies.times)
        seats = forecasts.seats_of(
            Demand(needs=request.needs, region=request.aws_region),
            request.count,
            timeslot=request.timeslot,
            max_minutes=LONGEST,
            now=now,
            lead=policies.times.lead,
        )
    else:
        stored = await records.definitions.get(request.definition_id or "")
        takes = records.lab_times.expected(stored.definition.lab_yaml_hash)
        seats = _of_definition(stored.definition, policies, request, now, takes)
    return tuple(
        replace(seat, batch=_batch(index, request)) if request.count > 1 else seat
        for index, seat in enumerate(seats)
    )


def _of_definition(
    definition: LabletDefinition,
    policies: Policies,
    request: PreviewRequest,
    now: datetime,
    lab_takes: timedelta,
) -> tuple[LabletSession, ...]:
    first = create_session(
        definition,
        session_id="",
        owner_id="",
        now=now,
        timeslot=request.timeslot,
        region=request.aws_region,
        lab_takes=lab_takes,
        policy=policies.times,
    )
    return tuple(replace(first, id=f"seat-{number:03}") for number in range(request.count))


def _batch(index: int, request: PreviewRequest) -> Batch:
    return Batch(id="preview", index=index, size=request.count, is_all_or_nothing=request.is_all_or_nothing)


def plan_of(
    booked: Snapshot, seats: Sequence[LabletSession], now: datetime, moment: datetime
) -> tuple[Snapshot, Plan]:
    """Return the snapshot of that moment and its plan, with the reasons for the first seat.

    `booked` has the sessions whose window is not open too; those that are over by then are left out.
    """
    times = booked.times
    later = snapshot_at(replace(booked, sessions=(*booked.sessions, *seats)), moment, now)
    snapshot = replace(
        later,
        sessions=tuple(
            each
            for each in later.sessions
            if each.status is PENDING_SCHEDULING and forecasts.span_of(each, moment, times).end > moment
        ),
    )
    return snapshot, PlacementEngine.plan(snapshot, moment, [seats[0].id])


def described(
    booked: Snapshot, seats: Sequence[LabletSession], forecast: Forecast, now: datetime
) -> SchedulingPreview:
    """Return what the plan does with the seats, in the words of the API."""
    slot = seats[0].timeslot
    moment = max(now, slot.opens_at(booked.times)) if slot is not None else now
    snapshot, plan = plan_of(booked, seats, now, moment)
    decisions = [plan.decisions[seat.id] for seat in seats]
    names = {worker.id: worker.name for worker in snapshot.workers}
    brought_back = _brought_back(snapshot, decisions)
    launches = _launches(plan, {seat.id for seat in seats})
    price = _price(brought_back, launches)
    hours = _hours(slot)
    found = decisions[0].explanation or Explanation()
    counts = [sum(each.outcome is outcome for each in decisions) for outcome in Outcome]
    by_outcome = dict(zip(Outcome, counts, strict=True))
    return SchedulingPreview(
        verdict=forecast.verdict,
        text=_text(decisions, by_outcome),
        seats=_previewed(decisions, snapshot, seats, names, moment),
        placed=by_outcome[Outcome.ASSIGN],
        waiting=by_outcome[Outcome.WAIT] + by_outcome[Outcome.SCALE_UP],
        impossible=by_outcome[Outcome.IMPOSSIBLE],
        brought_back=tuple(worker.name for worker in brought_back),
        launches=launches,
        usd_per_hour=price,
        usd_total=None if price is None or hours is None else round(price * hours, 4),
        candidates=found.candidates,
        workers=reasons_of(found, snapshot),
        forecast=forecast,
    )


def _previewed(
    decisions: Sequence[Decision],
    snapshot: Snapshot,
    seats: Sequence[LabletSession],
    names: dict[str, str],
    moment: datetime,
) -> tuple[PreviewedSeat, ...]:
    """Return the seats. Where nothing is on the way only the last gets an estimate: each costs many plans."""
    etas = [_eta(decision, snapshot, moment) for decision in decisions]
    lacking = [index for index, eta in enumerate(etas) if eta is None]
    if lacking:
        seat = next(each for each in snapshot.sessions if each.id == seats[lacking[-1]].id)
        etas[lacking[-1]] = explain(decisions[lacking[-1]], snapshot, seat, moment).eta
    return tuple(_seat(decision, eta, names) for decision, eta in zip(decisions, etas, strict=True))


def _eta(decision: Decision, snapshot: Snapshot, moment: datetime) -> Eta | None:
    arrival = arrival_of(decision, moment)
    if arrival is None:
        return None
    return Eta(earliest=arrival, likely=arrival, basis="from what its decision waits for")


def _seat(decision: Decision, eta: Eta | None, names: dict[str, str]) -> PreviewedSeat:
    counted_on = decision.nomination.worker_id if decision.nomination is not None else None
    worker_id = decision.worker_id or counted_on
    return PreviewedSeat(
        outcome=decision.outcome,
        code=decision.code,
        text=decision.text,
        worker_id=worker_id,
        worker_name=names.get(worker_id) if worker_id is not None else None,
        eta=eta,
    )


def _brought_back(snapshot: Snapshot, decisions: Sequence[Decision]) -> list[PlacementWorker]:
    """Return the workers whose drain is cancelled or that are started for one of the seats."""
    ids = {
        each.nomination.worker_id
        for each in decisions
        if each.outcome is Outcome.SCALE_UP and each.nomination is not None
    }
    return sorted((each for each in snapshot.workers if each.id in ids), key=lambda each: each.name)


def _launches(plan: Plan, seats: set[str]) -> tuple[PlannedLaunch, ...]:
    """Return the new workers that at least one of the seats is for."""
    planned = []
    for launch in plan.launches:
        count = sum(not seats.isdisjoint(each) for each in launch.seats)
        if count:
            price = round(launch.usd_per_hour * count / launch.count, 6)
            planned.append(
                PlannedLaunch(template=launch.template, region=launch.region, count=count, usd_per_hour=price)
            )
    return tuple(planned)


def _price(brought_back: Sequence[PlacementWorker], launches: Sequence[PlannedLaunch]) -> float | None:
    """Return the price of an hour; None if that of one worker is not known."""
    prices = [*(each.usd_per_hour for each in brought_back), *(each.usd_per_hour for each in launches)]
    known = [price for price in prices if price is not None]
    return round(sum(known), 6) if len(known) == len(prices) else None


def _hours(slot: Timeslot | None) -> float | None:
    return slot.duration / timedelta(hours=1) if slot is not None else None


def _text(decisions: Sequence[Decision], by_outcome: dict[Outcome, int]) -> str:
    """One sentence about all seats; that of the first which lacks a place, if there is one."""
    total = count_of(len(decisions), "seat")
    if by_outcome[Outcome.ASSIGN] == len(decisions):
        return decisions[0].text if len(decisions) == 1 else f"All {total} get a worker that is up."
    lacking = next(
        (each for each in decisions if each.outcome is Outcome.IMPOSSIBLE),
        next(each for each in decisions if each.outcome is not Outcome.ASSIGN),
    )
    if len(decisions) == 1:
        return lacking.text
    reason = lacking.text[:1].lower() + lacking.text[1:]
    return f"{by_outcome[Outcome.ASSIGN]} of {total} get a worker that is up; the next: {reason}"
