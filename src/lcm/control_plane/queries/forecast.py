"""Whether a timeslot has room for a booking beside everything that is booked already."""

from collections.abc import Collection
from datetime import datetime, timedelta

from msgspec.structs import replace

from lcm.control_plane.policies import Policies
from lcm.control_plane.queries.scheduling import booked_of, read_snapshot
from lcm.control_plane.records.groups import Records
from lcm.domain.errors import NoCapacityInSlot
from lcm.domain.lablet import forecast as forecasts
from lcm.domain.lablet.claim import Claim
from lcm.domain.lablet.definition import Demand
from lcm.domain.lablet.forecast import FitOfSlot, Forecast
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.snapshot import Snapshot
from lcm.domain.lablet.timeslot import Timeslot


async def forecast(
    records: Records,
    policies: Policies,
    definition_demand: Demand,
    *,
    seats: int,
    timeslot: Timeslot | None,
    max_minutes: int,
    lab_lead: timedelta = timedelta(),
    without: Collection[str] = (),
) -> Forecast:
    """Return whether so many seats fit; ask before they are recorded, or name their ids in `without`."""
    now = records.clock.now()
    snapshot = await booking_snapshot(records, policies, without=without)
    wanted = forecasts.seats_of(
        definition_demand,
        seats,
        timeslot=timeslot,
        max_minutes=max_minutes,
        now=now,
        lead=policies.times.lead,
        lab_lead=lab_lead,
    )
    return forecasts.forecast(snapshot, wanted, now)


def refuse_overbooking(policies: Policies, found: Forecast) -> None:
    """Raise NoCapacityInSlot for a timeslot without room, if such bookings are refused."""
    if not policies.refuses_overbooking or found.verdict is not FitOfSlot.OVER:
        return
    nearest = ", ".join(f"{slot.start.isoformat()} to {slot.end.isoformat()}" for slot in found.nearest)
    advice = f"the nearest timeslots that have room: {nearest}" if nearest else "no later timeslot has room"
    raise NoCapacityInSlot(f"{found.text} Book another time; {advice}")


async def booking_snapshot(
    records: Records, policies: Policies, *, without: Collection[str] = ()
) -> Snapshot:
    """Return the fleet and everything that is booked on it; every claim has an end, if only a likely one."""
    sessions = await records.sessions.list_all()
    snapshot = await read_snapshot(records, policies, also=booked_of(sessions))
    by_id = {session.id: session for session in sessions}
    now = records.clock.now()
    return replace(
        snapshot,
        sessions=tuple(each for each in snapshot.sessions if each.id not in without),
        workers=tuple(
            replace(worker, claims=tuple(_with_end(claim, by_id, now) for claim in worker.claims))
            for worker in snapshot.workers
        ),
    )


def _with_end(claim: Claim, sessions: dict[str, LabletSession], now: datetime) -> Claim:
    """A session without a timeslot is taken to last as long as it may, from its start or from now."""
    session = sessions.get(claim.session_id)
    if claim.ends_at is not None or claim.is_retained or session is None:
        return claim
    end = session.ends_at or now + timedelta(minutes=session.max_duration_minutes)
    return replace(claim, ends_at=max(end, now))
