"""Live monitoring of workers, and everything that can fail between a monitor and its worker."""

from collections.abc import Callable
from datetime import timedelta
from random import Random

from lcm.domain.lifecycle import RUNNING
from lcm.domain.telemetry import MonitorState
from lcm.domain.worker import Worker
from lcm.worker_controller.ports import MAX_MESSAGE_BYTES
from simulation.scenarios.base import random_story_with, under
from simulation.story import PATIENCE_SECONDS, Story, TooLate
from simulation.world.knobs import Knobs
from simulation.world.live_fleet import USER_ACTIONS, LiveFleet, SimulatedCmlServer

KEPT = 1_000
"""The record keeps so many activity events that none is dropped."""

WATCHED = Knobs(monitoring=True, activity_events_kept=KEPT)


def fleet_of(story: Story) -> LiveFleet:
    assert story.world.live is not None
    return story.world.live


async def until(story: Story, worker_id: str, is_true: Callable[[Worker], bool], what: str) -> None:
    """Wait until a record satisfies the condition."""
    ends = story.world.clock.monotonic() + PATIENCE_SECONDS
    while story.world.clock.monotonic() < ends:
        worker = story.world.disk.peek(worker_id)
        if worker is not None and is_true(worker):
            return
        await story.pause(1.0)
    raise TooLate(f"{worker_id} is not {what}")


async def until_live(story: Story, worker_id: str) -> None:
    await until(story, worker_id, lambda worker: worker.connection.is_connected, "connected")


async def until_lost(story: Story, worker_id: str) -> None:
    await until(story, worker_id, lambda worker: not worker.connection.is_connected, "disconnected")


async def a_watched_worker(story: Story, name: str = "ada") -> tuple[str, SimulatedCmlServer]:
    """Create a monitored worker, and use it."""
    worker = await story.create(name)
    await story.until(worker, RUNNING)
    await until_live(story, worker)
    server = fleet_of(story).server_of(worker)
    assert server is not None
    await work(story, worker)
    return worker, server


async def work(story: Story, worker_id: str, seconds: float = 2.0) -> None:
    """Start a node of a lab, as a person."""
    for category in ("queue_node", "start_node"):
        fleet_of(story).use(worker_id, category)
        await story.pause(seconds / 2)


@under(WATCHED)
async def a_renewed_certificate_is_trusted_once_a_person_accepts_it(story: Story) -> None:
    """Until then nothing is sent to the server; another fingerprint than the one that it shows is refused."""
    worker, server = await a_watched_worker(story)
    renewed = "e" * 64
    server.renew_certificate(renewed)
    server.drop(1006)
    await until(story, worker, lambda w: w.cml.refused_certificate_sha256 == renewed, "refused")
    assert await story.accept_certificate(worker, "d" * 64) == 409
    await story.accept_certificate(worker, renewed)
    await until(story, worker, lambda w: w.cml.certificate_sha256 == renewed, "accepted")
    await until_live(story, worker)
    await work(story, worker)


@under(WATCHED)
async def a_live_connection_is_cut_until_it_is_given_up(story: Story) -> None:
    """Polling takes over; pages are notified once of the loss and once of the recovery."""
    worker, server = await a_watched_worker(story)
    server.refuses_sockets = True
    server.drop(1006)
    await work(story, worker)
    await until(story, worker, lambda now: now.connection.status is MonitorState.FAILED, "given up")
    asked = len(server.requests)
    await work(story, worker)
    while not any(path.endswith("system_stats") for _, path in server.requests[asked:]):
        await story.pause(5)
    await work(story, worker)
    server.refuses_sockets = False
    await until_live(story, worker)
    await work(story, worker)


@under(WATCHED)
async def a_live_connection_falls_silent(story: Story) -> None:
    """The socket stays open and answers pings, but delivers no event."""
    worker, server = await a_watched_worker(story)
    await story.pause(30)
    server.is_mute = True
    await work(story, worker)
    await until_lost(story, worker)
    server.is_mute = False
    await until_live(story, worker)
    await work(story, worker)


@under(WATCHED)
async def a_live_feed_closes_politely_again_and_again(story: Story) -> None:
    worker, server = await a_watched_worker(story)
    server.closes_with = (1000, "bye")
    server.drop(1000, "bye")
    for _ in range(6):
        await story.pause(20)
        await work(story, worker)
    server.closes_with = None
    await until_live(story, worker)


@under(WATCHED)
async def the_password_is_wrong(story: Story) -> None:
    worker, server = await a_watched_worker(story)
    server.password = "another"
    server.expire_tokens()
    server.drop(3000, "Unauthorized")
    await work(story, worker)
    await story.pause(400)
    server.password = "secret"
    await until_live(story, worker)


@under(WATCHED)
async def people_change_the_password_of_one_worker(story: Story) -> None:
    """Logins are refused until the new login is set, then work at once; later the fleet's login is back."""
    worker, server = await a_watched_worker(story)
    server.change_password("its own", "teacher")
    await work(story, worker)
    await story.pause(60)
    await story.log_in_as(worker, "teacher", "its own")
    await until_live(story, worker)
    await work(story, worker)
    server.change_password("secret")
    await story.pause(60)
    await story.log_in_as_everywhere(worker)
    await until_live(story, worker)
    await work(story, worker)
    server.change_password("its own again", "teacher")
    await story.log_in_as(worker, "teacher", "its own again")
    await story.pause(60)


@under(Knobs(instance_seconds=1.0, monitoring=True, activity_events_kept=KEPT))
async def a_watched_worker_gets_another_address(story: Story) -> None:
    worker, server = await a_watched_worker(story)
    cloud = story.world.cloud
    cloud.stop(server.instance.id)
    await story.pause(1)
    cloud.start(server.instance.id)
    await story.pause(1)
    await until_lost(story, worker)
    await until_live(story, worker)
    await work(story, worker)


@under(WATCHED)
async def the_lead_changes_while_people_work(story: Story) -> None:
    """By a resignation, then by a crash; each time people act while no monitor is connected."""
    worker, _ = await a_watched_worker(story)
    for leader in story.world.leaders():
        assert leader.controller is not None
        leader.controller.election.resign()
    await work(story, worker)
    await story.pause(60)
    await work(story, worker)
    for leader in story.world.leaders():
        leader.crash()
    await work(story, worker)
    await story.pause(60)


@under(WATCHED)
async def the_control_plane_is_away_while_people_work(story: Story) -> None:
    """It hangs, then it crashes; the connection to the worker is lost and restored meanwhile."""
    worker, server = await a_watched_worker(story)
    story.world.plane.freeze(90)
    await work(story, worker)
    server.drop(1012)
    await work(story, worker)
    await story.pause(60)
    story.world.plane.crash()
    await work(story, worker)
    await story.pause(60)


CLOSE_CODES = (1000, 1001, 1006, 1008, 1009, 1011, 1012, 3000, 4711)


@random_story_with(monitoring=True, activity_events_kept=KEPT)
async def a_live_fleet(story: Story) -> None:
    """People use workers, and every link between CML and the record breaks at any time."""
    rng = Random(f"live/{story.world.faults.seed}")
    fleet = fleet_of(story)
    fleet.clock_error = rng.choice(
        [timedelta(), timedelta(), timedelta(minutes=-20), timedelta(seconds=3), timedelta(minutes=7)]
    )
    workers = [await story.create(f"w-{number}") for number in range(rng.choice([1, 1, 2]))]
    await story.pause(rng.choice([60.0, 100.0]))
    for _ in range(rng.randint(8, 20)):
        await story.pause(rng.choice([0.0, 0.3, 2.0, 7.0, 20.0, 65.0]))
        worker = rng.choice(workers)
        server = fleet.server_of(worker)
        draw = rng.random()
        if draw < 0.45:
            await be_busy(story, worker, rng)
        elif draw < 0.75 and server is not None:
            if rng.random() < 0.4:
                server.recover()
            else:
                misbehave(server, rng)
                await story.pause(rng.choice([0.0, 8.0]))
                await be_busy(story, worker, rng)
        elif draw < 0.83 and server is not None:
            await work_while_the_plane_hangs(story, worker, server, rng)
        elif draw < 0.94:
            meddle(story, rng)
        else:
            await story.act(worker, rng.choice(["stop", "start", "start"]))


async def be_busy(story: Story, worker_id: str, rng: Random) -> None:
    """Do a few user actions, sometimes of one kind on one lab: only their times differ."""
    for _ in range(rng.choice([1, 1, 3])):
        fleet_of(story).use(worker_id, rng.choice(list(USER_ACTIONS)), rng.choice(["lab-1", "lab-2"]))
        await story.pause(rng.choice([0.1, 1.0, 4.0]))


async def work_while_the_plane_hangs(
    story: Story, worker_id: str, server: SimulatedCmlServer, rng: Random
) -> None:
    """Freeze the control plane while a connection is lost and restored: reports queue up."""
    story.world.plane.freeze(rng.choice([10.0, 60.0]))
    await be_busy(story, worker_id, rng)
    server.drop(rng.choice(CLOSE_CODES))
    await be_busy(story, worker_id, rng)
    await story.pause(5.0)
    await be_busy(story, worker_id, rng)


def misbehave(server: SimulatedCmlServer, rng: Random) -> None:
    """Break a CML server or the way to it."""
    match rng.randrange(17):
        case 0 | 1 | 2:
            server.drop(rng.choice(CLOSE_CODES))
        case 3:
            server.is_mute = True
        case 4:
            server.is_frozen = True
        case 5:
            server.refuses_sockets = True
            server.drop(1006)
        case 6:
            server.refuses_connections = True
            server.drop(1006)
        case 7:
            server.refuses_tokens = True
            server.drop(3000)
        case 8:
            server.closes_with = (rng.choice(CLOSE_CODES), "")
            server.drop(1012)
        case 9:
            path = rng.choice(["authenticate", "telemetry/events", "system_stats", "system_health"])
            server.failing[f"/api/v0/{path}"] = rng.choice([401, 403, 429, 500, 502])
        case 10:
            server.answers_after = rng.choice([1.0, 4.0, 30.0])
        case 11:
            server.push_bytes(rng.choice([b"\x00\xff", b"{", b'{"event_type":7}', b"[" * 5_000]))
        case 12:
            server.push_bytes(b"x" * (MAX_MESSAGE_BYTES + 1))
        case 13:
            server.expire_tokens()
            server.cml.sessions.lifetime_seconds = rng.choice([90, 86_400])
            server.password = rng.choice(["secret", "another"])
        case 14:
            server.certificate_sha256 = "f" * 64
            server.drop(1006)
        case _:
            server.is_mute = True


def meddle(story: Story, rng: Random) -> None:
    """Disturb LCM itself."""
    world = story.world
    match rng.randrange(8):
        case 0:
            rng.choice(world.processes).crash()
        case 1:
            rng.choice(world.processes).freeze(rng.choice([5.0, 20.0, 60.0]))
        case 2:
            world.cut_link(rng.choice(world.controllers), rng.choice(["kv", "http", "ws", "cml"]))
        case 3:
            world.mend_links()
        case 4:
            world.wipe_kv()
        case 5:
            rng.choice(world.processes).skew = timedelta(seconds=rng.choice([-1.0, 1.0]))
        case 6:
            for leader in world.leaders():
                assert leader.controller is not None
                leader.controller.election.resign()
        case 7:
            instances = [m for m in world.cloud.instances.values() if m.state == "running"]
            if instances:
                world.cloud.stop(rng.choice(instances).id)
