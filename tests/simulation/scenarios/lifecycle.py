"""Workers from their creation to their termination, and the events in between."""

from datetime import timedelta
from random import Random
from typing import Any

from lcm.domain.errors import CapacityShortage
from lcm.domain.launch import Ami, LaunchSpec
from lcm.domain.lifecycle import FAILED, PROVISIONING, RUNNING, STOPPED, TERMINATED
from simulation.scenarios.base import random_story, scenario, under
from simulation.story import Story
from simulation.world.knobs import CALM, Knobs
from support.memory_cloud import Moment

DAY_SECONDS = 86_400.0


@scenario
async def create_ready_delete(story: Story) -> None:
    worker = await story.create("ada")
    await story.until(worker, RUNNING)
    await story.pause(60)
    await story.read_all()
    await story.act(worker, "delete")
    await story.until(worker, TERMINATED)


@scenario
async def stop_start(story: Story) -> None:
    worker = await story.create("ada")
    await story.until(worker, RUNNING)
    await story.act(worker, "stop")
    await story.until(worker, STOPPED)
    await story.act(worker, "start")
    await story.until(worker, RUNNING)


@scenario
async def a_worker_with_kvm(story: Story) -> None:
    """EC2 is asked what the type can before the launch intent is stored."""
    worker = await story.create("ada", "kvm-small")
    await story.until(worker, RUNNING)


@scenario
async def drought_at_launch(story: Story) -> None:
    await with_drought(story, "launch_instance")
    worker = await story.create("ada")
    await story.pause(400)
    story.world.cloud.interfere = None
    await story.until(worker, RUNNING)


@scenario
async def drought_at_start(story: Story) -> None:
    worker = await story.create("ada")
    await story.until(worker, RUNNING)
    await story.act(worker, "stop")
    await story.until(worker, STOPPED)
    await with_drought(story, "start_instance")
    await story.act(worker, "start")
    await story.pause(400)
    story.world.cloud.interfere = None
    await story.until(worker, RUNNING)


async def with_drought(story: Story, starved: str) -> None:
    async def no_capacity(moment: Moment, operation: str, subject: str) -> None:
        if operation == starved and moment == "before":
            raise CapacityShortage("InsufficientInstanceCapacity")

    story.world.cloud.interfere = no_capacity


@scenario
async def from_none_to_twenty_and_back(story: Story) -> None:
    workers = [await story.create(f"w-{number}") for number in range(20)]
    for worker in workers:
        await story.until(worker, RUNNING)
    for worker in workers:
        await story.act(worker, "delete")
    for worker in workers:
        await story.until(worker, TERMINATED)


@scenario
async def a_foreign_instance_with_our_tags_is_left_alone(story: Story) -> None:
    spec = LaunchSpec(
        region="us-east-1",
        image=Ami(id="ami-2", name="CML-2.9.1-20260415"),
        instance_type="t3.small",
        security_group_ids=("sg-1",),
        subnet_id="subnet-1",
        key_name=None,
        tags={"cml-managed": "true", "worker_id": "foreign-1"},
    )
    instance = await story.world.cloud.launch_instance(spec, "foreign-token")
    worker = await story.create("ada")
    await story.until(worker, RUNNING)
    await story.act(worker, "delete")
    await story.until(worker, TERMINATED)
    assert not story.world.cloud.instances[instance.id].is_gone


@scenario
async def template_changed_mid_launch(story: Story) -> None:
    worker = await story.create("ada", "small")
    for entry in story.world.templates["worker_templates"]:
        if entry["name"] == "small":
            entry["instance_type"] = "t3.large"
    story.world.plane.crash()  # templates are read at start
    await story.until(worker, RUNNING)


@scenario
async def leader_changes_every_thirty_seconds(story: Story) -> None:
    workers = [await story.create(f"w-{number}") for number in range(3)]
    for action in ("stop", "start", "delete"):
        for worker in workers:
            await story.act(worker, action)
        for _ in range(3):
            await story.pause(30)
            for leader in story.world.leaders():
                assert leader.controller is not None
                leader.controller.election.resign()
    for worker in workers:
        await story.until(worker, TERMINATED)


@scenario
async def control_plane_restarts(story: Story) -> None:
    workers = [await story.create(f"w-{number}") for number in range(3)]
    for action in ("stop", "start", "delete"):
        for worker in workers:
            await story.act(worker, action)
            story.world.plane.crash()
            await story.pause(7)
    for worker in workers:
        await story.until(worker, TERMINATED)


@scenario
async def coordination_store_wiped(story: Story) -> None:
    first = await story.create("ada")
    await story.until(first, RUNNING)
    story.world.wipe_kv()
    await story.act(first, "stop")
    second = await story.create("bob")
    await story.until(first, STOPPED)
    await story.until(second, RUNNING)
    story.world.wipe_kv()
    await story.act(second, "delete")
    await story.until(second, TERMINATED)


@scenario
async def a_human_stops_and_terminates_in_the_console(story: Story) -> None:
    first, second = await story.create("ada"), await story.create("bob")
    running = [await story.until(worker, RUNNING) for worker in (first, second)]
    await story.pause(60)
    cloud = story.world.cloud
    for worker, click in zip(running, (cloud.stop, cloud.terminate), strict=True):
        live = cloud.live_instances(worker.id)
        if live and live[0].state == "running":
            click(live[0].id)
    await story.pause(120)


@scenario
async def an_instance_dies_while_it_launches(story: Story) -> None:
    worker = await story.create("ada")
    await story.until(worker, PROVISIONING)
    for instance in story.world.cloud.live_instances(worker):
        story.world.cloud.terminate(instance.id, "Server.InternalError")
    await story.until(worker, RUNNING)


@scenario
async def a_person_retries_when_three_launches_failed(story: Story) -> None:
    world = story.world
    worker = await story.create("ada")
    while (record := world.disk.peek(worker)) is None or record.status is not FAILED:
        for instance in world.cloud.live_instances(worker):
            world.cloud.terminate(instance.id, "Server.InternalError")
        await story.pause(1)
    await story.until(worker, RUNNING)


@under(Knobs(instance_seconds=1.0))
async def a_human_restarts_in_the_console(story: Story) -> None:
    """Too quickly to be observed: the worker stays RUNNING, and has another address."""
    worker = await story.create("ada")
    await story.until(worker, RUNNING)
    cloud = story.world.cloud
    for instance in cloud.live_instances(worker):
        if instance.state == "running":
            cloud.stop(instance.id)
            await story.pause(1)
            cloud.start(instance.id)
    await story.pause(120)


@scenario
async def the_desired_status_flips_inside_a_reconcile(story: Story) -> None:
    worker = await story.create("ada")
    rng = Random(story.world.faults.seed)
    for _ in range(12):
        await story.act(worker, rng.choice(["stop", "start"]))
        await story.pause(rng.choice([0.01, 0.1, 0.5, 1.0, 11.0]))


@scenario
async def an_idle_day(story: Story) -> None:
    worker = await story.create("ada")
    await story.until(worker, RUNNING)
    await story.pause(DAY_SECONDS)


@under(CALM)
async def thirty_idle_days(story: Story) -> None:
    """Nothing accumulates: a running and a stopped worker are the same after a month."""
    running, stopped = await story.create("ada"), await story.create("bob")
    for worker in (running, stopped):
        await story.until(worker, RUNNING)
    await story.act(stopped, "stop")
    await story.until(stopped, STOPPED)
    await story.pause(30 * DAY_SECONDS)
    await story.act(stopped, "start")
    await story.until(stopped, RUNNING)
    await story.act(running, "delete")
    await story.until(running, TERMINATED)


@random_story
async def wander(story: Story) -> None:
    """People send any request at any time, and any event outside LCM happens."""
    rng = Random(f"wander/{story.world.faults.seed}")
    workers: list[str] = []
    for step in range(rng.randint(6, 14)):
        await story.pause(rng.choice([0.0, 0.3, 2.0, 15.0, 60.0]))
        if len(workers) < 3 and (not workers or rng.random() < 0.4):
            workers.append(await story.create(f"w-{step}"))
        elif rng.random() < 0.7:
            action = rng.choices(["stop", "start", "delete"], [5, 5, 2])[0]
            await story.act(rng.choice(workers), action)
        elif rng.random() < 0.2:
            await story.read_all()
        else:
            await disturb(story, rng)
    await story.pause(rng.choice([0.0, 60.0, 180.0]))  # the last requests, too, are carried out under faults


async def disturb(story: Story, rng: Random) -> None:
    """Inject an event that belongs to no call site."""
    world = story.world
    processes = world.processes
    match rng.randrange(8):
        case 0:
            rng.choice(processes).crash()
        case 1:
            rng.choice(processes).freeze(rng.choice([5.0, 20.0, 60.0]))
        case 2:
            world.cut_link(rng.choice(world.controllers), rng.choice(["kv", "http", "ec2"]))
        case 3:
            world.cut_link(world.plane, "kv")
        case 4:
            world.mend_links()
        case 5:
            world.wipe_kv()
        case 6:
            rng.choice(processes).skew = timedelta(minutes=rng.choice([-60, -5, 5, 60]))
        case 7:
            instances = [m for m in world.cloud.instances.values() if m.state == "running"]
            if instances:
                click: Any = rng.choice([world.cloud.stop, world.cloud.stop, world.cloud.terminate])
                click(rng.choice(instances).id)
