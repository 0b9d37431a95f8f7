"""Idle detection: people use workers and leave them; LCM pauses idle workers and no others."""

from dataclasses import replace
from datetime import timedelta
from random import Random

from lcm.domain.lifecycle import RUNNING, STOPPED
from lcm.domain.pause import PauseReason
from simulation.classroom import Classroom
from simulation.scenarios.base import drawn_by, under
from simulation.scenarios.lifecycle import disturb
from simulation.scenarios.monitoring import KEPT, fleet_of, misbehave, until_live
from simulation.story import Story
from simulation.strangers import Stranger
from simulation.world.knobs import Knobs
from simulation.world.live_fleet import SimulatedCmlServer
from simulation.world.live_ports import LOGIN, TELEMETRY_EVENTS
from simulation.world.world import World

HOUR = 3600.0
CLASSROOM = Knobs(
    people=True,
    monitoring=True,
    statistics_seconds=60.0,
    activity_events_kept=KEPT,
    lease_ttl=60,
    reconcile_interval=60.0,
    election_retry_seconds=60.0,
    publish_sweep_seconds=60.0,
    heartbeat_seconds=600.0,
)
"""Idle detection as installed: an hour without activity, checked every five minutes."""


@under(CLASSROOM)
async def an_unused_worker_is_paused_and_started_again(story: Story) -> None:
    people = Classroom(story.world)
    worker = await people.create("ada")
    await people.until(worker, RUNNING)
    await people.pause(HOUR / 4)
    people.use(worker)
    paused = await people.until(worker, STOPPED)
    assert paused.pause.reason is PauseReason.IDLE_TIMEOUT, paused.pause.reason
    await people.ask_for(worker, "start")
    await people.until(worker, RUNNING)
    await people.keep_everything()


@under(CLASSROOM)
async def use_takes_a_decided_pause_back(story: Story) -> None:
    """Between the two idle checks (H1)."""
    people = Classroom(story.world)
    worker = await people.create("ada")
    await people.until(worker, RUNNING)
    await people.until_a_pause_is_decided(2 * HOUR)
    people.use(worker)
    await people.pause(HOUR / 4)
    people.expect_running(worker)
    await people.keep_everything()


@under(replace(CLASSROOM, idle_timeout_seconds=900.0, idle_check_seconds=120.0))
async def only_telemetry_shows_the_use(story: Story) -> None:
    """The live connection has fallen silent, which takes minutes to notice; telemetry is still read."""
    people = Classroom(story.world)
    worker = await people.create("ada")
    await until_live(story, worker)
    await people.pause(740)
    server = fleet_of(story).server_of(worker)
    assert server is not None
    server.is_mute = True
    people.use(worker)
    await people.pause(400)
    people.expect_running(worker)
    server.recover()
    await people.keep_everything()


@under(CLASSROOM)
async def a_person_starts_what_is_being_paused(story: Story) -> None:
    """The newest request wins, however far the pause has got (H5)."""
    people = Classroom(story.world)
    worker = await people.create("ada")
    await people.until(worker, RUNNING)
    await people.until_a_pause_is_wanted(2 * HOUR)
    await people.ask_for(worker, "start")
    await people.pause(120)
    await people.until(worker, RUNNING)
    await people.keep_everything()


@under(CLASSROOM)
async def a_person_stops_what_is_being_paused(story: Story) -> None:
    """Though it is used once more: LCM cancels its own pause, not a person's stop."""
    people = Classroom(story.world)
    worker = await people.create("ada")
    await people.until(worker, RUNNING)
    await people.until_a_pause_is_wanted(2 * HOUR)
    await people.ask_for(worker, "stop")
    people.use(worker)
    await people.until(worker, STOPPED)
    await people.keep_everything()


@under(replace(CLASSROOM, idle_timeout_seconds=900.0, idle_check_seconds=120.0, license_seconds=200.0))
async def a_busy_instance_is_not_paused(story: Story) -> None:
    """Without user actions: a long build, then a license that is registered just before the pause (H3)."""
    people = Classroom(story.world)
    worker = await people.create("ada")
    await people.until(worker, RUNNING)
    await people.pause(120)
    people.build_for(worker, HOUR / 2)
    await people.pause(HOUR / 2 - 10)
    people.expect_running(worker)
    await people.until_a_pause_is_decided(HOUR)
    await people.license(worker)
    await people.pause(150)
    people.expect_running(worker)
    await people.until(worker, STOPPED)
    await people.keep_everything()


@under(replace(CLASSROOM, scale_down=True, min_workers=1))
async def only_what_may_go_is_drained(story: Story) -> None:
    """One is held, then released; one has idle detection disabled; one has a session; one is the minimum."""
    people = Classroom(story.world)
    held, spared, busy = [await people.create(name) for name in ("ada", "bob", "eve")]
    for worker in (held, spared, busy):
        await people.until(worker, RUNNING)
    await people.hold(held, HOUR / 2)
    await people.hold(held, 2 * HOUR)
    await people.ask_for(spared, "idle-detection/disable")
    await people.place(busy, "exam")
    await people.until(held, STOPPED)
    await people.end_session(busy, "exam")
    await people.ask_for(spared, "idle-detection/enable")
    await people.until_so_many_are_stopped(2)
    await people.pause(HOUR / 4)
    await people.keep_everything()


@under(CLASSROOM)
async def a_released_worker_is_paused_and_a_stranger_changes_nothing(story: Story) -> None:
    people, stranger = Classroom(story.world), Stranger(story.world, Random(0))
    worker = await people.create("ada")
    await people.until(worker, RUNNING)
    await people.hold(worker, 24 * HOUR)
    await stranger.try_everything(worker)
    await people.pause(1.5 * HOUR)
    people.expect_running(worker)
    await people.release(worker)
    await people.until(worker, STOPPED)
    await people.keep_everything()


@under(CLASSROOM)
async def cml_cannot_be_asked(story: Story) -> None:
    """Unknown counts as used (H2); a clock that is wrong by an hour is no idle hour (D9)."""
    people, world = Classroom(story.world), story.world
    worker = await people.create("ada")
    await until_live(story, worker)
    server = fleet_of(story).server_of(worker)
    assert server is not None
    for controller in world.controllers:
        world.cut_link(controller, "cml")
    await people.pause(1.2 * HOUR)
    people.expect_running(worker)
    world.mend_links()
    server.failing[TELEMETRY_EVENTS] = 500
    await people.pause(HOUR / 5)
    people.expect_running(worker)
    server.recover()
    people.use(worker)
    world.plane.skew = timedelta(hours=1)
    await people.pause(HOUR / 4)
    people.expect_running(worker)
    world.plane.skew = timedelta()
    await people.keep_everything()


@under(replace(CLASSROOM, idle_timeout_seconds=900.0, idle_check_seconds=120.0, wait_seconds=30.0))
async def a_cml_never_becomes_ready(story: Story) -> None:
    """It is stopped (D-24); started again with a CML that boots, it is a worker like any other."""
    people = Classroom(story.world)
    worker = await people.create("ada")
    story.world.never_ready.add(worker)
    paused = await people.until(worker, STOPPED)
    assert paused.pause.reason is PauseReason.IDLE_TIMEOUT, paused.pause.reason
    story.world.never_ready.clear()
    await people.ask_for(worker, "start")
    await people.until(worker, RUNNING)
    await people.keep_everything()


@drawn_by(Knobs.draw_with_people)
async def a_class_day(story: Story) -> None:
    """People come, work, leave, hold and start what they need; LCM pauses idle workers; faults happen."""
    world, rng = story.world, Random(f"class/{story.world.faults.seed}")
    people, stranger = Classroom(world), Stranger(world, rng)
    instances = Random(f"work/{world.faults.seed}")
    timeout = world.knobs.idle_timeout_seconds
    workers = [await people.create(f"w-{number}") for number in range(rng.choice([1, 2, 2, 3]))]
    for worker in workers:
        if not _has_run(world, worker):
            await people.until(worker, RUNNING)
    for _ in range(rng.randint(4, 7)):
        about = rng.choice(workers)
        when = rng.random()
        if when < 0.35:
            about = await people.until_a_pause_is_decided(1.2 * timeout) or about
            await people.pause(rng.choice([0.0, 0.1, 1.0, 5.0, 14.0]))
        elif when < 0.65:
            about = await people.until_a_pause_is_wanted(1.2 * timeout) or about
            await people.pause(rng.choice([0.0, 0.0, 0.1, 0.5]))
        else:
            await people.pause(rng.choice([0.0, 20.0, timeout / 4, timeout / 2]))
        if rng.random() < 0.75:
            await _do_something(people, about, rng)
        else:
            await disturb_class(story, rng)
        await stranger.intrude(about)
        await _work_on(people, about, instances)
    await people.keep_everything()


def _has_run(world: World, worker_id: str) -> bool:
    """Whether it ever ran: when the last worker runs, the first may be paused again."""
    worker = world.disk.peek(worker_id)
    return worker is not None and any(entry.target is RUNNING for entry in worker.state_history)


async def _do_something(people: Classroom, worker: str, rng: Random) -> None:
    match rng.randrange(15):
        case 0 | 1 | 2 | 3 | 4:
            people.use(worker)
        case 5 | 6:
            await people.hold(worker, rng.choice([10.0, 600.0, 3 * HOUR]))
        case 7:
            await people.release(worker)
        case 8:
            await people.ask_for(worker, "idle-detection/disable")
        case 9:
            await people.ask_for(worker, "idle-detection/enable")
        case 10 | 11:
            await people.ask_for(worker, "start")
        case 12:
            await people.ask_for(worker, "stop")
        case 13:
            await people.ask_again(rng)
        case 14:
            if not await people.place(worker, "exam"):
                await people.end_session(worker, "exam")


async def _work_on(people: Classroom, worker: str, rng: Random) -> None:
    """Keep an instance busy for a while, without user actions."""
    timeout = people.world.knobs.idle_timeout_seconds
    match rng.randrange(10):
        case 0 | 1:
            people.build_for(worker, rng.choice([0.5, 1.5, 3.0]) * timeout)
        case 2:
            await people.license(worker)


def hide_activity(server: SimulatedCmlServer, rng: Random) -> None:
    """Let a CML server not report activity, in one of several ways."""
    match rng.randrange(6):
        case 0:
            server.failing[TELEMETRY_EVENTS] = rng.choice([401, 403, 429, 500])
        case 1:
            server.failing[LOGIN] = rng.choice([429, 500])
            server.expire_tokens()
        case 2:
            server.password = "another"
            server.expire_tokens()
        case 3:
            server.answers_after = rng.choice([4.0, 30.0])
        case 4:
            server.refuses_connections = True
        case _:
            misbehave(server, rng)


async def disturb_class(story: Story, rng: Random) -> None:
    """Inject what can happen to any fleet, CML that cannot be read, or a wrong clock."""
    world, servers = story.world, list(fleet_of(story).servers.values())
    for process in world.processes:
        process.skew = timedelta()  # if all clocks were equally wrong, it could not be noticed
    for server in servers:
        server.recover()  # if all stayed broken, nothing would be paused
    match rng.randrange(7):
        case 0:
            world.cut_link(rng.choice(world.controllers), "cml")
        case 1:
            world.plane.skew = timedelta(minutes=rng.choice([-60, 5, 60, 60]))
        case 2:
            for server in servers:
                hide_activity(server, rng)
        case 3:
            for server in servers:
                server.is_mute = True
        case _:
            await disturb(story, rng)
