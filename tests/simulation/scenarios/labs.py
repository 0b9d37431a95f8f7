"""Sessions whose labs run, what CML and people do to them, and the death of whoever works on them."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from random import Random

from lcm.domain.lablet.definition import LabletDefinition
from lcm.domain.lablet.states import ARCHIVED, FAILED, RUNNING, STOPPING, TERMINATED
from lcm.domain.lifecycle import RUNNING as WORKER_RUNNING
from lcm.domain.lifecycle import STOPPED as WORKER_STOPPED
from lcm.simulator.cml.lab_faults import LabFault, NeverBoots, RefuseLab, SlowStop, StopsAfterBoot
from lcm.simulator.cml.refusal import Refused
from simulation.lab_desk import TEMPLATE, LabDesk
from simulation.scenarios.base import drawn_by, under
from simulation.story import Story
from simulation.world.knobs import Knobs

LABS = Knobs(
    lablet_controllers=2,
    schedulers=1,
    controllers=1,
    monitoring=True,
    people=True,
    statistics_seconds=60.0,
    activity_events_kept=1_000,
    idle_timeout_seconds=3600.0,
    idle_check_seconds=600.0,
    max_workers=2,
    lease_ttl=60,
    reconcile_interval=60.0,
    scale_up_cooldown_seconds=60.0,
    heartbeat_seconds=600.0,
    publish_sweep_seconds=60.0,
    election_retry_seconds=60.0,
)
"""Two lablet controllers, and one of all else."""
RUNNING_AT_REST = replace(LABS, statistics_seconds=20.0)
"""Labs of people run when all is done. A lab of which no statistics came for thirty seconds does not count as
running: with fewer of them the number of running labs would change by chance."""
LISTED_TWICE_SECONDS = 1_200.0
"""Leaked labs are removed by then."""


@under(LABS)
async def a_lab_is_brought_up_and_removed(story: Story) -> None:
    """One session from its booking to nothing left, with its configurations kept."""
    desk = LabDesk(story)
    definition = await desk.define("kept", has_port=False, collect="configs")
    worker = await desk.create("ada", TEMPLATE)
    await desk.until(worker, WORKER_RUNNING)
    session = await desk.book(definition)
    await desk.until_session(session, RUNNING)
    await desk.pause(5)
    await desk.end(session)
    await desk.until_session(session, ARCHIVED, TERMINATED)
    await desk.end_all()


@under(RUNNING_AT_REST)
async def people_and_cml_interfere_with_labs(story: Story) -> None:
    """Labs are copied, stopped and started by people; one is removed for them, one is given up by an admin,
    and a stop takes for ever."""
    desk = LabDesk(story)
    definition = await desk.define("plain")
    worker = await desk.create("ada", TEMPLATE)
    await desk.until(worker, WORKER_RUNNING)
    session = await desk.book(definition)
    await desk.until_session(session, RUNNING)
    server = desk.server_of(session)
    assert server is not None
    own = desk.make_own_lab(server, "my own", tag="serial:2001")
    desk.copy(session)
    desk.copy(session, "a copy of it")
    given_up = await desk.book(definition)
    await desk.until_session(given_up, RUNNING)
    await desk.end(given_up)
    await desk.until_session(given_up, STOPPING, TERMINATED)
    await desk.abandon(given_up)
    desk.stop_lab(session)
    await desk.pause(70)
    desk.start_lab(session)
    await desk.remove_foreign(server, own)
    await desk.until_gone(own)
    server.cml.labs.faults.add(SlowStop(count=1))
    await desk.end(session)
    await desk.until_session(session, STOPPING, TERMINATED)
    for each in (session, given_up):
        await desk.until_no_lab(each)
    await desk.end_all()


@under(LABS)
async def workers_of_labs_are_stopped_and_lost(story: Story) -> None:
    """One worker is stopped and comes back to what it left undone; another one is lost with a lab in use."""
    desk, world = LabDesk(story), story.world
    definition = await desk.define("plain")
    worker = await desk.create("ada", TEMPLATE)
    await desk.until(worker, WORKER_RUNNING)
    first, second = await desk.book(definition), await desk.book(definition)
    for session in (first, second):
        await desk.until_session(session, RUNNING)
    for instance in world.cloud.live_instances(worker):
        world.cloud.stop(instance.id)
    await desk.pause(30)
    await desk.end(first)
    await desk.act(worker, "start")
    await desk.until(worker, WORKER_RUNNING)
    await desk.until_no_lab(first)
    await desk.create("bob", TEMPLATE)
    for instance in world.cloud.live_instances(worker):
        world.cloud.terminate(instance.id)
    await desk.pause(120)
    await desk.until_session(second, RUNNING)
    await desk.end_all()


@under(LABS)
async def labs_that_cannot_be_brought_up(story: Story) -> None:
    """One never boots, one has no room on its worker, one is not to be imported; nothing is left of any."""
    desk = LabDesk(story)
    definition = await desk.define("plain", boot_timeout_seconds=60)
    worker = await desk.create("ada", TEMPLATE)
    await desk.until(worker, WORKER_RUNNING)
    faults = (await desk.a_server(worker)).cml.labs.faults
    faults.add(NeverBoots())
    dark = await desk.book(definition)
    await desk.until_session(dark, FAILED)
    faults.clear()
    faults.add(RefuseLab(action="import", count=1))
    invalid = await desk.book(definition)
    await desk.until_session(invalid, FAILED)
    faults.add(RefuseLab(action="start", reason="resources", count=3))
    crowded = await desk.book(definition)
    await desk.until_session(crowded, RUNNING)
    await desk.end_all()


@under(replace(LABS, extract_seconds=60.0))
async def a_stop_waits_for_the_configurations_of_nodes(story: Story) -> None:
    """Of labs of people too; then the worker is drained, which takes the newest configurations once more."""
    desk = LabDesk(story)
    worker = await desk.create("ada", TEMPLATE)
    await desk.until(worker, WORKER_RUNNING)
    server = await desk.a_server(worker)
    desk.make_own_lab(server, "my own")
    await desk.pause(120)
    await desk.act(worker, "stop")
    await desk.until(worker, WORKER_STOPPED)
    await desk.act(worker, "start")
    await desk.until(worker, WORKER_RUNNING)
    await desk.pause(120)
    await desk.act(worker, "drain")
    await desk.until(worker, WORKER_STOPPED)
    await desk.end_all()


@under(LABS)
async def a_lab_ends_by_the_clock_of_the_control_plane(story: Story) -> None:
    """The clocks of the lablet controllers are five minutes fast; the lab is used until the end."""
    desk = LabDesk(story)
    definition = await desk.define("plain")
    worker = await desk.create("ada", TEMPLATE)
    await desk.until(worker, WORKER_RUNNING)
    for process in story.world.lablets:
        process.skew = timedelta(minutes=5)
    session = await desk.book(definition, desk.slot(2, 8))
    await desk.until_session(session, RUNNING)
    await desk.until_session(session, ARCHIVED)


@under(replace(RUNNING_AT_REST, idle_timeout_seconds=86_400.0))
async def labs_are_adopted_and_disowned(story: Story) -> None:
    """A lab that its session left behind is adopted, and so is one of a person. Both outlast the removal of
    leaked labs; disowned, the first is removed, and the other is the person's as before."""
    desk = LabDesk(story)
    definition = await desk.define("plain")
    worker = await desk.create("ada", TEMPLATE)
    await desk.until(worker, WORKER_RUNNING)
    session = await desk.book(definition)
    await desk.until_session(session, RUNNING)
    server, left = desk.server_of(session), desk.lab_of(session)
    assert server is not None
    own = desk.make_own_lab(server, "my own")
    server.cml.labs.faults.add(SlowStop(count=1))
    await desk.end(session)
    await desk.until_session(session, STOPPING, TERMINATED)
    await desk.abandon(session)
    await desk.until_session(session, TERMINATED)
    if left in server.cml.labs.all():
        await desk.adopt_lab(server, left)
        await desk.adopt_lab(server, own)
        await desk.pause(LISTED_TWICE_SECONDS)
        await desk.disown_lab(server, left)
        await desk.disown_lab(server, own)
        await desk.until_gone(left)
    await desk.end_all()


# The random story.


@drawn_by(Knobs.draw_with_labs)
async def a_lab_day(story: Story) -> None:
    """People book, use, copy, stop and end labs; CML refuses and hangs; workers come and go."""
    desk, rng = LabDesk(story), Random(f"labs/{story.world.faults.seed}")
    definitions = [
        await desk.define("plain"),
        await desk.define(
            "kept", has_port=False, collect=rng.choice(["configs", "topology"]), boot_timeout_seconds=60
        ),
    ]
    for number in range(rng.choice([1, 1, 2])):
        await desk.create(f"w-{number}", TEMPLATE)
    for step in range(rng.randint(6, 10)):
        await desk.pause(rng.choice([0.0, 0.5, 5.0, 20.0, 60.0, 120.0]))
        match rng.choices(range(7), [7, 4, 4, 3, 2, 1, 3])[0]:
            case 0:
                slot = desk.slot(rng.choice([0.5, 2, 6]), rng.choice([4, 8])) if rng.random() < 0.4 else None
                await desk.book(rng.choice(definitions), slot)
            case 1 if desk.session_ids:
                await desk.end(rng.choice(desk.session_ids))
            case 2 if desk.session_ids:
                with suppress(Refused):  # CML refuses people too
                    await _use(desk, rng, rng.choice(desk.session_ids))
            case 3:
                _disturb_cml(desk, rng)
            case 4:
                await _change_workers(desk, rng, step)
            case 5 if desk.session_ids:
                await desk.abandon(rng.choice(desk.session_ids))
            case _:
                _disturb(story, rng)
    await desk.pause(rng.choice([0.0, 60.0, 300.0]))
    if rng.random() < 0.5:
        await _go_on_in_peace(desk, rng, definitions)
    await desk.end_all()


async def _use(desk: LabDesk, rng: Random, session: str) -> None:
    """What people do to a lab on CML's own pages, and to their session."""
    match rng.randrange(9):
        case 0:
            desk.copy(session, rng.choice(["", "", "a copy of it"]))
        case 1:
            desk.stop_lab(session)
        case 2:
            desk.start_lab(session)
        case 3:
            await desk.delete_lab(session)
        case 4:
            desk.rename(session, title="mine now")
        case 5:
            desk.rename(session, notes="")
        case 6:
            desk.retag(session, "serial:2004")
        case 7:
            await desk.extend(session, rng.choice([1, 10]))
        case _:
            server = desk.server_of(session)
            if server is not None:
                desk.make_own_lab(server, "a person's", tag=f"serial:{2000 + rng.randrange(4)}")


def _disturb_cml(desk: LabDesk, rng: Random) -> None:
    """Until it is cleared, or for a while: CML recovers when the world does."""
    some: list[LabFault] = [
        NeverBoots(count=rng.choice([1, 2])),
        NeverBoots(state="QUEUED", count=1),
        StopsAfterBoot(count=1, seconds=rng.choice([0.0, 5.0, 60.0])),
        SlowStop(count=1, seconds=rng.choice([None, 30.0, 200.0])),
        *(
            RefuseLab(
                action=action, reason=rng.choice(["resources", "license", "other"]), count=rng.choice([1, 4])
            )
            for action in ("start", "stop", "wipe", "delete")
        ),
        RefuseLab(action="import", count=1),
    ]
    servers = [server for server in desk.fleet.servers.values() if server.is_up]
    if servers:
        rng.choice(servers).cml.labs.faults.add(rng.choice(some))


async def _change_workers(desk: LabDesk, rng: Random, step: int) -> None:
    workers = [worker.id for worker in desk.world.disk.peek_all()]
    if not workers or rng.random() < 0.2:
        await desk.create(f"w-{step}-new", TEMPLATE)
        return
    worker = rng.choice(workers)
    running = [each for each in desk.world.cloud.live_instances(worker) if each.state == "running"]
    if running and rng.random() < 0.4:
        power_off = rng.choice([desk.world.cloud.stop, desk.world.cloud.terminate])
        power_off(running[0].id)
        return
    await desk.act(worker, rng.choice(["stop", "start", "start", "drain", "delete"]))


def _disturb(story: Story, rng: Random) -> None:
    world = story.world
    match rng.randrange(5):
        case 0:
            for process in world.lablets:
                process.skew = timedelta(minutes=rng.choice([-5, -1, 0, 1, 5]))
        case 1:
            rng.choice(world.processes).crash()
        case 2:
            rng.choice(world.lablets).freeze(rng.choice([5.0, 20.0, 60.0]))
        case 3:
            world.cut_link(rng.choice(world.lablets), rng.choice(["kv", "http", "labs"]))
        case _:
            world.mend_links()


async def _go_on_in_peace(desk: LabDesk, rng: Random, definitions: Sequence[LabletDefinition]) -> None:
    """How soon something happens can be judged only while nothing goes wrong."""
    desk.world.heal()
    session = await desk.book(rng.choice(definitions))
    await desk.pause(rng.choice([60.0, 200.0]))
    await desk.end(session)
    await desk.pause(LISTED_TWICE_SECONDS)
