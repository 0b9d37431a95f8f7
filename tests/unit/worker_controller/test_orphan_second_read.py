"""Records and instance are read once more right before an orphan is terminated; they have the last word."""

from collections.abc import Awaitable, Callable, Sequence

import msgspec
import pytest

from lcm.core.election import LeadershipLost
from lcm.core.health import Health
from lcm.domain.errors import Unreachable
from lcm.domain.launch import LaunchIntent, WorkerId, client_token
from lcm.domain.lifecycle import RUNNING, TERMINATED
from lcm.domain.orphans import OrphanKind
from lcm.domain.worker import Worker
from lcm.worker_controller.sweeps.orphans import Orphans
from support.core import SPEC, a_worker
from support.fleet import DirectControlPlane, Fleet
from support.memory_cloud import Moment

REGION = "us-east-1"
LOST = WorkerId("w-lost")
TOKEN = client_token(LOST, 1)
TAGS = {"lcm:managed_by": "lablet-cloud-manager", "cml-environment": "production", "worker_id": LOST}
LAUNCHED = msgspec.structs.replace(SPEC, region=REGION, tags=TAGS)


class Records(DirectControlPlane):
    """Counts how often the records are listed, and lets something happen right before one of the reads."""

    reads = 0
    before_read: Callable[[], Awaitable[None]] | None = None

    async def list_resources(self, *, include_terminated: bool = False) -> Sequence[Worker]:
        self.reads += include_terminated  # without them nothing is terminated
        if self.reads == 2 and self.before_read is not None:
            await self.before_read()
        return await super().list_resources(include_terminated=include_terminated)


class Scene:
    """An instance without a record, an orphan for long enough: the next sweep may terminate it."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.records = Records(self.fleet.plane)
        self.is_leading = True
        self.instance = self.fleet.cloud.add(LAUNCHED, TOKEN)
        self.orphans = Orphans(
            self.records,
            self.fleet.cloud,
            self.fleet.clock,
            Health(self.fleet.clock),
            environment="production",
            may_terminate=True,
            check_leadership=self._check_leadership,
            adopt=lambda _: None,
            forget=lambda _: None,
        )

    @property
    def terminations(self) -> int:
        return self.fleet.effects().count("terminate_instance")

    async def add_record(self, worker_id: WorkerId = LOST, **fields: object) -> None:
        worker = a_worker(id=worker_id, name=worker_id, aws_region=REGION, status=RUNNING, **fields)
        await self.fleet.workers.add(worker)

    async def remove_record(self, worker_id: WorkerId) -> None:
        worker = await self.fleet.workers.get(worker_id)
        await self.fleet.store.delete("worker", worker.id, worker.version)

    def at_the_last_look(self, change: "Change") -> None:
        """It comes to pass once the instance itself is read again."""

        async def interfere(moment: Moment, operation: str, subject: str) -> None:
            if operation == "describe_instance":
                await change(self)

        self.fleet.cloud.interfere = interfere

    def _check_leadership(self) -> None:
        if not self.is_leading:
            raise LeadershipLost("the lease could not be renewed in time")


Change = Callable[[Scene], Awaitable[None]]


@pytest.fixture
async def scene() -> Scene:
    scene = Scene()
    await scene.add_record(WorkerId("w-other"))
    await scene.fleet.clock.sleep(600)
    await scene.orphans.sweep(REGION)
    await scene.fleet.clock.sleep(600)
    assert scene.orphans.found[REGION][scene.instance.id].kind is OrphanKind.NO_RECORD
    scene.records.reads = 0
    return scene


async def test_an_orphan_that_is_still_one_at_the_second_read_is_terminated(scene: Scene) -> None:
    await scene.orphans.sweep(REGION)
    assert (scene.terminations, scene.records.reads) == (1, 2)


async def record_is_back(scene: Scene) -> None:
    await scene.add_record(ec2_instance_id=scene.instance.id, launch_generation=1)


async def record_promises_this_launch(scene: Scene) -> None:
    launch = LaunchIntent(
        generation=1, client_token=TOKEN, spec=LAUNCHED, requested_at=scene.fleet.clock.now()
    )
    await scene.add_record(launch_intent=launch, launch_generation=1)


async def another_record_has_imported_it(scene: Scene) -> None:
    await scene.add_record(WorkerId("w-imported"), ec2_instance_id=scene.instance.id, imported=True)


async def record_is_of_another_kind(scene: Scene) -> None:
    """What is known of it for a moment only is not enough."""
    await scene.add_record(launch_generation=1)


async def all_records_are_gone(scene: Scene) -> None:
    await scene.remove_record(WorkerId("w-other"))


async def control_plane_is_away(scene: Scene) -> None:
    scene.records.is_reachable = False


@pytest.mark.parametrize(
    "change",
    [
        record_is_back,
        record_promises_this_launch,
        another_record_has_imported_it,
        record_is_of_another_kind,
        all_records_are_gone,
        control_plane_is_away,
    ],
)
async def test_what_the_records_say_at_the_second_read_keeps_an_instance(
    scene: Scene, change: Change
) -> None:
    scene.records.before_read = lambda: change(scene)
    await scene.orphans.sweep(REGION)
    assert (scene.terminations, scene.records.reads) == (0, 2)


async def it_is_of_another_fleet(scene: Scene) -> None:
    scene.instance.tags["cml-environment"] = "staging"


async def it_is_no_longer_ours(scene: Scene) -> None:
    scene.instance.tags.clear()


async def it_is_gone(scene: Scene) -> None:
    scene.fleet.cloud.forget(scene.instance.id)


async def ec2_does_not_answer(scene: Scene) -> None:
    raise Unreachable("EC2: no answer")


@pytest.mark.parametrize(
    "change", [it_is_of_another_fleet, it_is_no_longer_ours, it_is_gone, ec2_does_not_answer]
)
async def test_what_the_instance_says_at_the_second_read_keeps_it(scene: Scene, change: Change) -> None:
    scene.at_the_last_look(change)
    await scene.orphans.sweep(REGION)
    assert scene.terminations == 0


async def the_lead_is_over(scene: Scene) -> None:
    scene.is_leading = False


async def test_a_lead_that_ends_during_the_second_read_terminates_nothing(scene: Scene) -> None:
    scene.at_the_last_look(the_lead_is_over)
    with pytest.raises(LeadershipLost):
        await scene.orphans.sweep(REGION)
    assert scene.terminations == 0


async def test_without_an_orphan_no_terminated_worker_is_read(scene: Scene) -> None:
    await scene.add_record(ec2_instance_id=scene.instance.id, launch_generation=1)
    await scene.orphans.sweep(REGION)
    assert (scene.orphans.found[REGION], scene.records.reads) == ({}, 0)


async def test_the_instance_of_a_worker_that_was_terminated_a_moment_ago_is_known_as_that(
    scene: Scene,
) -> None:
    await scene.add_record(ec2_instance_id=scene.instance.id, launch_generation=1)
    await scene.fleet.workers.change(LOST, lambda worker: msgspec.structs.replace(worker, status=TERMINATED))
    await scene.orphans.sweep(REGION)
    assert scene.orphans.found[REGION][scene.instance.id].kind is OrphanKind.RECORD_TERMINATED
    assert scene.terminations == 0, "it is an orphan of that kind from now on only"
