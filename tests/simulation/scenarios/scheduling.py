"""Lablet sessions: booked, placed by schedulers that compete, and ended while workers come and go."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

from lcm.domain.lablet.states import EXPIRED, PENDING, PENDING_SCHEDULING, SCHEDULED
from lcm.domain.lablet.timeslot import book_in_zone
from lcm.domain.lifecycle import RUNNING, STOPPED
from simulation.desk import HUGE, LIGHT, NEWER, WHOLE, Desk, define
from simulation.scenarios.base import drawn_by, under
from simulation.scenarios.lifecycle import disturb
from simulation.story import Story
from simulation.world.knobs import Knobs

BOOKINGS = Knobs(
    schedulers=2,
    controllers=1,
    max_workers=3,
    scale_up_cooldown_seconds=60.0,
    heartbeat_seconds=600.0,
    publish_sweep_seconds=60.0,
    election_retry_seconds=15.0,
)
"""Two schedulers and a fleet that may grow a little."""


@under(replace(BOOKINGS, max_workers=1))
async def sessions_are_placed_and_ended(story: Story) -> None:
    """Two share the only worker; the third has its place when one of them ends."""
    desk = Desk(story)
    worker = await desk.create("ada")
    await desk.until(worker, RUNNING)
    first, second = await desk.book(), await desk.book()
    await desk.until_session(first, SCHEDULED)
    await desk.until_session(second, SCHEDULED)
    third = await desk.book()
    await desk.until_session(third, PENDING_SCHEDULING)
    await desk.pause(5)
    await desk.end(first)
    await desk.until_session(third, SCHEDULED)
    await desk.end_all()


@under(BOOKINGS)
async def a_class_makes_the_fleet_grow(story: Story) -> None:
    """As a whole or not at all: two workers are requested at once, and no seat is placed before both run."""
    desk = Desk(story)
    seats = await desk.book_class(2, WHOLE, is_all_or_nothing=True)
    assert await desk.book(HUGE) == "", "a session that can never be placed is refused"
    for seat in seats:
        await desk.until_session(seat, SCHEDULED)
    await desk.end_all()


@under(replace(BOOKINGS, max_workers=1))
async def windows_open_and_close(story: Story) -> None:
    """One slot is kept and runs out, one is missed because its worker is taken, one is cancelled early."""
    desk = Desk(story)
    worker = await desk.create("ada")
    later = await desk.book(WHOLE, desk.slot(12, 3))
    cancelled = await desk.book(LIGHT, desk.slot(30, 10))
    missed = await desk.book(WHOLE, desk.slot(13, 10))
    assert desk.session(cancelled).status is PENDING
    await desk.until(worker, RUNNING)
    await desk.until_session(later, SCHEDULED)
    await desk.extend(later, 2)
    await desk.end(cancelled)
    await desk.until_session(missed, EXPIRED)
    await desk.until_session(later, EXPIRED)


@under(BOOKINGS)
async def a_worker_with_claims_is_lost(story: Story) -> None:
    """Stopped in the console with two sessions: they are placed on another one."""
    desk = Desk(story)
    first = await desk.create("ada")
    await desk.until(first, RUNNING)
    sessions = [await desk.book(), await desk.book()]
    for session in sessions:
        await desk.until_session(session, SCHEDULED)
    for instance in story.world.cloud.live_instances(first):
        if instance.state == "running":
            story.world.cloud.terminate(instance.id)
    second = await desk.create("bob")
    await desk.pause(200)
    for session in sessions:
        await desk.until_session(session, SCHEDULED)
    await desk.until(second, RUNNING)
    await desk.switch_template("micro", "disable")
    await desk.act(second, "drain")
    await desk.switch_template("micro", "enable")
    await desk.end_all()


@under(BOOKINGS)
async def a_claim_that_arrives_late_is_swept(story: Story) -> None:
    """Its session has ended, so nothing else would ever release it."""
    desk = Desk(story)
    worker = await desk.create("ada")
    await desk.until(worker, RUNNING)
    session = await desk.book()
    await desk.until_session(session, SCHEDULED)
    await desk.end(session)
    await desk.until_released(worker)
    await desk.claim_late(worker, session)
    await desk.until_released(worker)


@under(BOOKINGS)
async def a_stopped_worker_is_started_for_a_session(story: Story) -> None:
    """The schedulers' clocks are wrong by five minutes, in both directions."""
    desk, world = Desk(story), story.world
    worker = await desk.create("ada")
    await desk.until(worker, RUNNING)
    await desk.act(worker, "stop")
    await desk.until(worker, STOPPED)
    for process, minutes in zip(world.schedulers, (-5, 5), strict=True):
        process.skew = timedelta(minutes=minutes)
    session = await desk.book()
    booked = await desk.book(LIGHT, desk.slot(11, 4))
    await desk.until_session(session, SCHEDULED)
    world.schedulers[0].crash()
    await desk.until_session(booked, SCHEDULED)
    await desk.end(session)
    await desk.until_session(booked, EXPIRED)


@under(replace(BOOKINGS, begins=datetime(2026, 10, 25, 0, 30, tzinfo=UTC)))
async def a_class_in_the_night_when_clocks_are_set_back(story: Story) -> None:
    """02:48 in Berlin exists twice; the first one is meant, and both schedulers agree."""
    desk = Desk(story)
    local = datetime.fromisoformat("2026-10-25T02:48")
    slot = book_in_zone(local, local + timedelta(minutes=6), "Europe/Berlin")
    assert slot.start == datetime(2026, 10, 25, 0, 48, tzinfo=UTC)
    (seat,) = await desk.book_class(1, LIGHT, slot)
    assert desk.session(seat).status is PENDING
    await desk.until_session(seat, SCHEDULED)
    await desk.until_session(seat, EXPIRED)


@under(
    replace(
        BOOKINGS,
        people=True,
        monitoring=True,
        statistics_seconds=60.0,
        idle_timeout_seconds=300.0,
        idle_check_seconds=60.0,
        lease_ttl=30,
        instance_seconds=200.0,
        boot_minutes=8.0,
        max_workers=2,
    )
)
async def a_worker_that_a_class_counts_on_is_not_paused(story: Story) -> None:
    """One seat has it, and it is idle for minutes, because the other seat waits for a worker's launch."""
    desk = Desk(story)
    worker = await desk.create("ada")
    await desk.until(worker, RUNNING)
    await desk.pause(100)
    seats = await desk.book_class(2, WHOLE, is_all_or_nothing=True)
    for seat in seats:
        await desk.until_session(seat, SCHEDULED)
    assert story.world.disk.peek(worker) is not None
    await desk.end_all()


@under(
    replace(
        BOOKINGS,
        people=True,
        monitoring=True,
        statistics_seconds=20.0,
        idle_timeout_seconds=60.0,
        idle_check_seconds=20.0,
        scale_down=True,
        lease_ttl=30,
    )
)
async def a_drain_by_scale_down_is_cancelled_for_a_session(story: Story) -> None:
    """The controllers stand still for a moment, so the worker still drains when the session is booked."""
    desk, world = Desk(story), story.world
    worker = await desk.create("ada")
    await desk.until(worker, RUNNING)
    await desk.until_a_drain_begins(worker)
    for process in world.controllers:
        process.freeze(5.0)
    session = await desk.book()
    await desk.until_session(session, SCHEDULED)
    await desk.act(worker, "start")
    await desk.until(worker, RUNNING)
    await desk.end_all()


# The random story.


@drawn_by(Knobs.draw_with_sessions)
async def a_booking_day(story: Story) -> None:
    """People book, extend and end sessions and classes; workers come and go; clocks are wrong."""
    world, desk = story.world, Desk(story)
    rng = Random(f"bookings/{world.faults.seed}")
    for number in range(rng.choice([0, 1, 1, 2])):
        await desk.create(f"w-{number}", "medium")
    for step in range(rng.randint(7, 12)):
        await desk.pause(rng.choice([0.0, 0.2, 3.0, 20.0, 60.0, 120.0]))
        match rng.choices(range(6), [8, 3, 4, 3, 2, 3])[0]:
            case 0:
                await _book(desk, rng)
            case 1:
                seats, definition = rng.randint(2, 4), rng.choice([LIGHT, LIGHT, WHOLE])
                slot = desk.slot(rng.choice([0.5, 6, 12]), 4) if rng.random() < 0.5 else None
                await desk.book_class(seats, definition, slot, is_all_or_nothing=rng.random() < 0.5)
            case 2 if desk.session_ids:
                await desk.end(rng.choice(desk.session_ids))
            case 3:
                await _change_workers(desk, rng, step)
            case 4:
                await _change_rules(desk, rng, step)
            case _:
                await _disturb(story, rng)
    await desk.pause(rng.choice([0.0, 60.0, 300.0]))
    if rng.random() < 0.5:
        await _go_on_in_peace(desk, rng)
    await desk.end_all()


async def _go_on_in_peace(desk: Desk, rng: Random) -> None:
    """How soon something happens can be judged only while nothing goes wrong."""
    desk.world.heal()
    for definition in (WHOLE, LIGHT, LIGHT):
        slot = desk.slot(rng.choice([0.2, 3]), 6) if rng.random() < 0.6 else None
        await desk.book(definition, slot)
        await desk.pause(rng.choice([10.0, 60.0, 120.0]))
        await desk.end(rng.choice(desk.session_ids))
    await desk.pause(400)


@drawn_by(Knobs.draw_with_watched_sessions)
async def a_watched_booking_day(story: Story) -> None:
    """A class has a worker that is idle while another one is launched for its other seats."""
    world, desk = story.world, Desk(story)
    rng = Random(f"watched/{world.faults.seed}")
    worker = await desk.create("ada")
    await desk.until(worker, RUNNING)
    for _ in range(rng.randint(1, 2)):
        await desk.pause(rng.choice([20.0, 100.0, 200.0]))
        seats = await desk.book_class(rng.randint(2, 3), WHOLE, is_all_or_nothing=True)
        await desk.pause(rng.choice([30.0, 240.0, 400.0]))
        await _disturb(story, rng)
        await desk.pause(rng.choice([30.0, 240.0, 400.0]))
        await desk.end(rng.choice(seats))
    await desk.end_all()


async def _book(desk: Desk, rng: Random) -> None:
    """One session, several at once, or a booked one; now and then with a priority."""
    definition = rng.choice([LIGHT, LIGHT, LIGHT, WHOLE])
    match rng.randrange(8):
        case 0 | 1 | 2:
            await desk.book(definition, priority=rng.choice([0, 0, 5]))
        case 3:
            for _ in range(rng.randint(4, 10)):
                await desk.book(LIGHT)
        case 4 if desk.session_ids:
            await desk.extend(rng.choice(desk.session_ids), rng.choice([1, 10]))
        case 5 if rng.random() < 0.5:
            await desk.book(rng.choice([HUGE, NEWER]))
        case _:
            slot = desk.slot(rng.choice([0.2, 2, 6, 11, 14]), rng.choice([3, 6, 10]))
            await desk.book(definition, slot, priority=rng.choice([0, 0, 5]))


async def _change_workers(desk: Desk, rng: Random, step: int) -> None:
    workers = [worker.id for worker in desk.world.disk.peek_all()]
    if not workers or rng.random() < 0.2:
        await desk.create(f"w-{step}-new", "medium")
        return
    if rng.random() < 0.5:
        await desk.book()  # which may be placed at the very moment
    await desk.act(rng.choice(workers), rng.choice(["stop", "stop", "start", "drain", "delete"]))


async def _change_rules(desk: Desk, rng: Random, step: int) -> None:
    """A definition is edited, or a template is disabled or enabled again."""
    if rng.random() < 0.4:
        desk.edit(define("light", cpu=2, memory_gb=1.5, version=f"1.{step}.0"))
    else:
        await desk.switch_template(rng.choice(["micro", "small"]), rng.choice(["enable", "disable"]))


async def _disturb(story: Story, rng: Random) -> None:
    world = story.world
    match rng.randrange(5):
        case 0:
            for process in world.schedulers:
                process.skew = timedelta(minutes=rng.choice([-5, -1, 0, 1, 5]))
        case 1:
            rng.choice(world.schedulers).crash()
        case 2:
            rng.choice(world.schedulers).freeze(rng.choice([5.0, 20.0, 60.0]))
        case 3:
            world.cut_link(rng.choice(world.schedulers), rng.choice(["kv", "http"]))
        case _:
            await disturb(story, rng)
