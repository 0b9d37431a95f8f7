"""Fleet maintenance: foreign instances, orphans, licenses, lost credentials, a slow EC2."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from lcm.domain.errors import CredentialsRefused, LcmError, Throttled, Unreachable
from lcm.domain.launch import (
    DISCOVERY_TAG,
    ENVIRONMENT_TAG,
    MANAGED_BY,
    MANAGED_BY_TAG,
    WORKER_ID_TAG,
    Ami,
    LaunchSpec,
    WorkerId,
    client_token,
)
from lcm.domain.license import LicenseStatus
from lcm.domain.lifecycle import RUNNING, STOPPED, TERMINATED
from lcm.domain.worker import Worker
from simulation.scenarios.base import drawn_by, scenario, under
from simulation.scenarios.lifecycle import disturb
from simulation.story import PATIENCE_SECONDS, Story, TooLate
from simulation.world.knobs import Knobs
from simulation.world.world import World
from support.memory_cloud import MemoryInstance, Moment
from support.memory_licensing import TOKEN

DISCOVERING = Knobs(discovery=True, discovery_interval=60.0)
TERMS: Final[Mapping[str, Any]] = {"product_license": "CML_Education", "node_count": 40}
ADOPTING = replace(DISCOVERING, is_import_allowed=False)
SWEEPING = replace(DISCOVERING, orphan_termination=True)


# Events outside LCM.


def launch_foreign(story: Story, name: str) -> MemoryInstance:
    """Launch an instance outside LCM that is to be imported."""
    instance = story.world.cloud.add(_spec({DISCOVERY_TAG: "true", "Name": name}))

    def is_missing() -> str | None:
        is_known = instance.is_gone or story.world.disk.owner_of(instance.id) is not None
        return None if is_known else f"{name} is not imported"

    story.expectations.append(is_missing)
    return instance


def leave_behind(story: Story, name: str, *, is_ours: bool = True) -> MemoryInstance:
    """Launch an instance with our tags, without a record; without our client token it is foreign."""
    owner = WorkerId(f"foreign-{name}")
    tags = {MANAGED_BY_TAG: MANAGED_BY, WORKER_ID_TAG: owner, ENVIRONMENT_TAG: "production"}
    instance = story.world.cloud.add(_spec(tags), client_token(owner, 1) if is_ours else "copied-tags")
    if is_ours and story.world.knobs.orphan_termination:
        story.expectations.append(lambda: None if instance.is_gone else f"{instance.id} is not swept")
    return instance


def _spec(tags: dict[str, str]) -> LaunchSpec:
    return LaunchSpec(
        region="us-east-1",
        image=Ami(id="ami-2", name="CML-2.9.1-20260415"),
        instance_type="t3.small",
        security_group_ids=("sg-1",),
        subnet_id="subnet-1",
        key_name=None,
        tags=tags,
    )


def refuse_everything(world: World, error: LcmError) -> None:
    """Let EC2 answer every call with this error until the interference is removed."""

    async def refuse(moment: Moment, operation: str, subject: str) -> None:
        if moment == "before":
            raise error

    world.cloud.interfere = refuse


@dataclass
class SlowEc2:
    """Grants each operation once in so many seconds over all callers, and refuses the rest."""

    world: World
    seconds: float
    _granted_at: dict[str, float] = field(default_factory=dict)

    async def __call__(self, moment: Moment, operation: str, subject: str) -> None:
        now = self.world.clock.monotonic()
        if moment == "before":
            if now - self._granted_at.get(operation, float("-inf")) < self.seconds:
                raise Throttled("RequestLimitExceeded")
            self._granted_at[operation] = now


async def until_imported(story: Story, instance: MemoryInstance) -> Worker:
    ends = story.world.clock.monotonic() + PATIENCE_SECONDS
    while (owner := story.world.disk.owner_of(instance.id)) is None:
        if story.world.clock.monotonic() > ends:
            raise TooLate(f"{instance.id} is not imported")
        await story.pause(1)
    return owner


async def until_licensed(story: Story, worker_id: str, status: LicenseStatus, *, asks: bool = True) -> None:
    """Wait for a license status, and request again where a person would, if that one is asked."""
    ends = story.world.clock.monotonic() + PATIENCE_SECONDS
    while (worker := story.world.disk.peek(worker_id)) is None or worker.license.status is not status:
        if story.world.clock.monotonic() > ends:
            raise TooLate(f"the license of {worker_id} is not {status}")
        if asks and worker is not None and worker.license.pending_operation is None:
            await story.license(worker_id)
        await story.pause(1)


async def until_unlicensed(story: Story, worker_id: str) -> None:
    """Wait until the worker holds no license, and request that again where a person would."""
    ends = story.world.clock.monotonic() + PATIENCE_SECONDS
    while (
        worker := story.world.disk.peek(worker_id)
    ) is None or worker.license.status is LicenseStatus.REGISTERED:
        if story.world.clock.monotonic() > ends:
            raise TooLate(f"{worker_id} still has a license")
        if worker is not None and worker.license.pending_operation is None:
            await story.deregister_license(worker_id)
        await story.pause(1)


async def until_ready(story: Story, worker_id: str) -> None:
    while (worker := story.world.disk.peek(worker_id)) is None or not worker.cml.is_ready:
        await story.pause(1)


def register_outside(story: Story, worker_id: str) -> None:
    """A person registers a server in CML's own pages, if LCM has reached it and it is not registered."""
    worker, licensing = story.world.disk.peek(worker_id), story.world.licensing
    if worker is None or not worker.cml.is_ready or licensing.unreachable is not None:
        return
    for instance in story.world.cloud.live_instances(worker_id):
        if not licensing.begin(instance.id, TOKEN):
            licensing.finish(instance.id)


async def a_licensed_worker(story: Story) -> str:
    worker = await story.create("ada")
    await story.until(worker, RUNNING)
    await story.license(worker)
    await until_licensed(story, worker, LicenseStatus.REGISTERED)
    return worker


# Scenarios.


@under(Knobs(license_pool=1, license_seconds=5.0))
async def license_exhausted_then_freed(story: Story) -> None:
    ada, bob = await story.create("ada"), await story.create("bob")
    await story.until(ada, RUNNING)
    await story.until(bob, RUNNING)
    await story.license(ada)
    await until_licensed(story, ada, LicenseStatus.REGISTERED)
    await story.license(bob)
    await until_licensed(story, bob, LicenseStatus.FAILED)
    await story.deregister_license(ada)
    await until_licensed(story, bob, LicenseStatus.REGISTERED)
    await story.act(bob, "delete")
    await story.until(bob, TERMINATED)


@scenario
async def a_license_that_cannot_be_deregistered_is_a_debt(story: Story) -> None:
    worker = await a_licensed_worker(story)
    story.world.licensing.unreachable = Unreachable("no route to CML")
    await story.act(worker, "delete")
    await story.until(worker, TERMINATED)


@scenario
async def a_deregistration_that_cisco_does_not_receive_is_a_debt(story: Story) -> None:
    worker = await a_licensed_worker(story)
    story.world.licensing.pool.loses_deregistrations = True
    await story.act(worker, "delete")
    await story.until(worker, TERMINATED)


@scenario
async def a_debt_is_settled_by_a_deregistration_that_cisco_receives(story: Story) -> None:
    """Not at the first attempt: the worker is registered and deregistered once more."""
    worker = await a_licensed_worker(story)
    pool = story.world.licensing.pool
    pool.loses_deregistrations = True
    await story.deregister_license(worker)
    await until_unlicensed(story, worker)
    pool.loses_deregistrations = False
    await until_licensed(story, worker, LicenseStatus.REGISTERED)
    await story.deregister_license(worker)
    await until_unlicensed(story, worker)
    await story.act(worker, "delete")
    await story.until(worker, TERMINATED)


@scenario
async def a_license_registered_outside_is_deregistered(story: Story) -> None:
    """LCM did not request it, and asks CML before it terminates the instance (D-23)."""
    worker = await story.create("ada")
    await story.until(worker, RUNNING)
    await until_ready(story, worker)
    register_outside(story, worker)
    await story.act(worker, "delete")
    await story.until(worker, TERMINATED)


@under(Knobs(license_seconds=5.0))
async def a_license_has_the_terms_that_were_requested(story: Story) -> None:
    """The product before the registration, the nodes after it."""
    worker = await story.create("ada")
    await story.until(worker, RUNNING)
    await story.license(worker, **TERMS)
    await until_licensed(story, worker, LicenseStatus.REGISTERED)
    await story.act(worker, "delete")
    await story.until(worker, TERMINATED)


@under(Knobs(monitoring=True, statistics_seconds=60.0))
async def a_license_that_is_lost_is_noticed(story: Story) -> None:
    """A person deregisters it in CML's own pages; it is requested again once the record says so."""
    worker = await a_licensed_worker(story)
    for instance in story.world.cloud.live_instances(worker):
        story.world.licensing.give_back(instance.id)
    await until_licensed(story, worker, LicenseStatus.UNLICENSED, asks=False)
    await until_licensed(story, worker, LicenseStatus.REGISTERED)


@under(DISCOVERING)
async def an_imported_worker_brings_its_license(story: Story) -> None:
    """It is licensed before LCM knows it; when its CML does not answer, that is a debt."""
    instance = launch_foreign(story, "eve")
    licensing = story.world.licensing
    assert not licensing.begin(instance.id, TOKEN)
    licensing.finish(instance.id)
    worker = await until_imported(story, instance)
    await story.until(worker.id, RUNNING)
    licensing.unreachable = Unreachable("no route to CML")
    await story.act(worker.id, "delete")
    await story.until(worker.id, TERMINATED)


@under(ADOPTING)
async def import_then_release(story: Story) -> None:
    instance = launch_foreign(story, "eve")
    worker = await until_imported(story, instance)
    await story.until(worker.id, RUNNING)
    await story.adopt(worker.id)
    await until_imported(story, launch_foreign(story, "dan"))
    await story.act(worker.id, "stop")
    await story.until(worker.id, STOPPED)
    await story.act(worker.id, "delete")
    await story.until(worker.id, TERMINATED)


@under(replace(ADOPTING, monitoring=True))
async def one_of_two_strangers_is_adopted(story: Story) -> None:
    """Both have the tag. Only the one that an admin adopts is logged in to."""
    eve = await until_imported(story, launch_foreign(story, "eve"))
    mallory = await until_imported(story, launch_foreign(story, "mallory"))
    await until_ready(story, eve.id)
    await until_ready(story, mallory.id)
    await story.license(mallory.id)
    await story.pause(60)
    await story.adopt(eve.id)
    await story.license(eve.id)
    await until_licensed(story, eve.id, LicenseStatus.REGISTERED)
    await story.act(mallory.id, "delete")
    await story.until(mallory.id, TERMINATED)


@under(ADOPTING)
async def an_imported_instance_is_terminated_in_the_console(story: Story) -> None:
    """It is never launched again."""
    instance = launch_foreign(story, "eve")
    worker = await until_imported(story, instance)
    await story.until(worker.id, RUNNING)
    story.world.cloud.terminate(instance.id)
    await story.until(worker.id, TERMINATED)


@under(SWEEPING)
async def a_sweep_meets_a_launch(story: Story) -> None:
    """An orphan is swept; an instance that is being launched is not."""
    await story.create("ada")
    orphan = leave_behind(story, "ghost")
    copied = leave_behind(story, "copy", is_ours=False)
    await story.pause(1_190)
    await story.create("bob")
    await story.settle(PATIENCE_SECONDS)
    assert orphan.is_gone
    assert not copied.is_gone


@under(SWEEPING)
async def lists_with_gaps(story: Story) -> None:
    """A page is missing, then all of them: no worker is taken for gone."""
    ada, bob = await story.create("ada"), await story.create("bob")
    await story.until(ada, RUNNING)
    await story.until(bob, RUNNING)
    cloud = story.world.cloud
    cloud.unlisted.update(instance.id for instance in cloud.live_instances(ada))
    await story.act(ada, "stop")
    await story.until(ada, STOPPED)
    cloud.unlisted.update(cloud.instances)
    await story.pause(700)
    cloud.unlisted.clear()


@scenario
async def credentials_lost(story: Story) -> None:
    ada, bob = await story.create("ada"), await story.create("bob")
    await story.until(ada, RUNNING)
    await story.until(bob, RUNNING)
    refuse_everything(story.world, CredentialsRefused("UnauthorizedOperation"))
    await story.act(ada, "stop")
    await story.act(bob, "delete")
    await story.create("eve")
    await story.pause(400)
    story.world.cloud.interfere = None
    await story.until(ada, STOPPED)
    await story.until(bob, TERMINATED)


@under(Knobs(ec2_changes_per_second=0.5))
async def throttled_recovery(story: Story) -> None:
    """EC2 throttles every call for five minutes, and then most of them."""
    workers = [await story.create(f"w-{number}") for number in range(3)]
    refuse_everything(story.world, Throttled("RequestLimitExceeded"))
    await story.pause(300)
    story.world.cloud.interfere = SlowEc2(story.world, 7.0)
    for worker in workers:
        await story.until(worker, RUNNING)


@under(Knobs(instance_seconds=120.0))
async def ec2_answers_now_and_then(story: Story) -> None:
    """Each operation once in four seconds, while an instance takes minutes to stop and to start."""
    worker = await story.create("ada")
    await story.until(worker, RUNNING)
    story.world.cloud.interfere = SlowEc2(story.world, 4.0)
    await story.act(worker, "stop")
    await story.until(worker, STOPPED)
    await story.act(worker, "start")
    await story.until(worker, RUNNING)


# The random stories.


def draw(seed: int) -> Knobs:
    rng = Random(f"tended/{seed}")
    return replace(
        Knobs.draw(seed),
        discovery=True,
        discovery_interval=rng.choice([300.0, 60.0]),
        orphan_termination=rng.random() < 0.4,
        license_pool=rng.choice([1, 2, 100]),
        license_seconds=rng.choice([0.0, 5.0, 60.0, 150.0]),
        ec2_changes_per_second=rng.choice([0.0, 0.5]),
    )


@drawn_by(draw)
async def a_maintained_fleet(story: Story) -> None:
    """Foreign instances appear, licenses run short, and EC2 fails in changing ways."""
    rng = Random(f"tended fleet/{story.world.faults.seed}")
    workers = [await story.create("w-0")]
    foreign: list[MemoryInstance] = []
    for step in range(1, rng.randint(6, 12)):
        await story.pause(rng.choice([0.0, 2.0, 15.0, 60.0, 150.0]))
        match rng.choices(range(7), [3, 3, 6, 6, 3, 4, 2])[0]:
            case 0 if len(workers) < 3:
                workers.append(await story.create(f"w-{step}"))
            case 1 if len(foreign) < 2:
                foreign.append(launch_foreign(story, f"brought-{step}"))
            case 2:
                await story.act(rng.choice(_known(story)), rng.choice(["stop", "start", "delete"]))
            case 3:
                worker = rng.choice(_known(story))
                request = rng.choices([story.license, story.deregister_license], [3, 1])[0]
                await request(worker)
            case 4:
                leave_behind(story, f"ghost-{step}", is_ours=rng.random() < 0.5)
            case 5:
                _change_faults(story.world, rng)
            case _:
                await disturb(story, rng)
    await story.pause(rng.choice([0.0, 60.0, 400.0]))


def _known(story: Story) -> list[str]:
    return [worker.id for worker in story.world.disk.peek_all()]


def _change_faults(world: World, rng: Random) -> None:
    cloud = world.cloud
    match rng.randrange(7):
        case 0:
            refuse_everything(world, CredentialsRefused("ExpiredToken"))
        case 1:
            refuse_everything(world, Throttled("RequestLimitExceeded"))
        case 2:
            cloud.interfere = SlowEc2(world, rng.choice([2.0, 20.0]))
        case 3:
            cloud.unlisted = {instance for instance in cloud.instances if rng.random() < 0.5}
        case 4:
            world.licensing.unreachable = Unreachable("no route to CML")
        case 5:
            world.licensing.pool.loses_deregistrations = True
        case _:
            cloud.interfere, world.licensing.unreachable = None, None
            world.licensing.pool.loses_deregistrations = False
            cloud.unlisted.clear()


def draw_licenses(seed: int) -> Knobs:
    rng = Random(f"licenses/{seed}")
    return replace(
        Knobs.draw(seed),
        license_pool=rng.choice([1, 100]),
        license_seconds=rng.choice([0.0, 5.0, 60.0]),
    )


@drawn_by(draw_licenses)
async def licenses_come_and_go(story: Story) -> None:
    """Workers are licensed, deregistered and deleted, while CML and Cisco are not always reachable."""
    rng, licensing = Random(f"come and go/{story.world.faults.seed}"), story.world.licensing
    people = Random(f"outside/{story.world.faults.seed}")
    for step in range(rng.randint(1, 2)):
        worker = await story.create(f"w-{step}")
        await story.until(worker, RUNNING)
        if people.random() < 0.4:
            register_outside(story, worker)
        for _ in range(rng.randint(1, 3)):
            await story.license(worker)
            await story.pause(rng.choice([2.0, 20.0, 90.0]))
            licensing.pool.loses_deregistrations = rng.random() < 0.6
            licensing.unreachable = Unreachable("no route to CML") if rng.random() < 0.1 else None
            await story.deregister_license(worker)
            await story.pause(rng.choice([0.5, 5.0, 60.0]))
        await story.license(worker)
        await story.pause(rng.choice([5.0, 90.0]))
        await story.act(worker, "delete")
        await story.pause(rng.choice([5.0, 150.0]))
