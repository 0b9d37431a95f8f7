"""Known, Absent, Unknown: what may be concluded from what EC2 shows."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from lcm.core.health import Health
from lcm.domain.errors import CredentialsRefused, Throttled, TransientError, Unreachable
from lcm.domain.launch import Ami, InstanceId, LaunchIntent, LaunchSpec, WorkerId
from lcm.domain.lifecycle import RUNNING
from lcm.domain.observation import Absent, Known, Unknown
from lcm.domain.worker import Instance, Worker
from lcm.worker_controller.instances.observer import InstanceObserver
from support import core
from support.memory_cloud import Delays, MemoryCloud
from support.virtual_time import VirtualClock

SPEC = LaunchSpec(
    region="us-east-1",
    image=Ami(id="ami-1", name="CML-1"),
    instance_type="t3.small",
    security_group_ids=("sg-1",),
    subnet_id="subnet-1",
    key_name=None,
    tags={"cml-managed": "true", "worker_id": "w-1"},
)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def cloud(clock: VirtualClock) -> MemoryCloud:
    return MemoryCloud(clock, Delays(launch=1))


@pytest.fixture
def observer(cloud: MemoryCloud, clock: VirtualClock) -> InstanceObserver:
    return InstanceObserver(cloud, clock, Health(clock))


def a_worker(instance_id: str | None = None) -> Worker:
    return core.a_worker(
        aws_region="us-east-1",
        launch_intent=LaunchIntent(generation=1, client_token="lcm-1", spec=SPEC, requested_at=core.NOON),
        launch_generation=1,
        ec2_instance_id=InstanceId(instance_id) if instance_id else None,
    )


def operations(cloud: MemoryCloud) -> list[str]:
    return [call.operation for call in cloud.calls]


async def test_a_worker_that_was_never_launched_has_no_instance(observer: InstanceObserver) -> None:
    assert isinstance(await observer.observe(core.with_fields(a_worker(), launch_intent=None)), Absent)


async def test_one_listing_serves_all_workers_of_a_cycle(
    cloud: MemoryCloud, observer: InstanceObserver
) -> None:
    instance = await cloud.launch_instance(SPEC, "lcm-1")
    await observer.refresh(["us-east-1"])
    for _ in range(100):
        assert isinstance(await observer.observe(a_worker(instance.id)), Known)
    assert operations(cloud) == ["launch_instance", "list_instances"]


@pytest.mark.parametrize(("poll_seconds", "suffices_for"), [(10.0, 10), (30.0, 30), (600.0, 30)])
async def test_a_read_suffices_for_one_poll_and_for_thirty_seconds_at_most(
    cloud: MemoryCloud, clock: VirtualClock, poll_seconds: float, suffices_for: float
) -> None:
    observer = InstanceObserver(cloud, clock, Health(clock), poll_seconds=poll_seconds)
    instance = await cloud.launch_instance(SPEC, "lcm-1")
    await clock.sleep(60)
    worker = a_worker(instance.id)
    await observer.observe(worker)
    await clock.sleep(suffices_for)
    assert observer.saw(worker, "running")
    await clock.sleep(1)
    assert not observer.saw(worker, "running")


async def test_a_worker_just_acted_on_is_observed_anew(
    cloud: MemoryCloud, observer: InstanceObserver, clock: VirtualClock
) -> None:
    instance = await cloud.launch_instance(SPEC, "lcm-1")
    await observer.refresh(["us-east-1"])
    observer.invalidate(WorkerId("w-1"))
    await clock.sleep(2)
    seen = await observer.observe(a_worker(instance.id))
    assert isinstance(seen, Known)
    assert seen.value.state == "running"
    assert operations(cloud)[-1] == "describe_instance"


async def test_a_requested_refresh_observes_ec2_now(
    cloud: MemoryCloud, observer: InstanceObserver, clock: VirtualClock
) -> None:
    instance = await cloud.launch_instance(SPEC, "lcm-1")
    await clock.sleep(2)
    await observer.refresh(["us-east-1"])
    await clock.sleep(2)
    cloud.terminate(instance.id)
    worker = a_worker(instance.id)
    assert await observer.observe(replace(worker, refresh_requested_at=clock.now())) != (
        await observer.observe(worker)
    )
    assert operations(cloud) == ["launch_instance", "list_instances", "describe_instance"]


async def test_a_running_worker_is_reported_stopped_only_after_two_reads(
    cloud: MemoryCloud, observer: InstanceObserver, clock: VirtualClock
) -> None:
    instance = await cloud.launch_instance(SPEC, "lcm-1")
    await clock.sleep(60)
    running = replace(a_worker(instance.id), status=RUNNING)
    cloud.stop(instance.id)
    await clock.sleep(60)
    assert isinstance(await observer.observe(running), Unknown)
    seen = await observer.observe(running)
    assert isinstance(seen, Known)
    assert seen.value.state == "stopped"
    assert operations(cloud)[-2:] == ["describe_instance", "describe_instance"]


async def test_an_old_listing_is_not_trusted(
    cloud: MemoryCloud, observer: InstanceObserver, clock: VirtualClock
) -> None:
    instance = await cloud.launch_instance(SPEC, "lcm-1")
    await observer.refresh(["us-east-1"])
    await clock.sleep(20)
    await observer.observe(a_worker(instance.id))
    assert operations(cloud)[-1] == "describe_instance"


async def test_a_launch_whose_reply_was_lost_is_found_by_the_workers_tag(
    cloud: MemoryCloud, observer: InstanceObserver
) -> None:
    instance = await cloud.launch_instance(SPEC, "lcm-1")
    seen = await observer.observe(a_worker())
    assert isinstance(seen, Known)
    assert seen.value.id == instance.id


async def test_a_dead_instance_with_the_workers_tag_is_not_taken_for_the_worker(
    cloud: MemoryCloud, observer: InstanceObserver
) -> None:
    instance = await cloud.launch_instance(SPEC, "lcm-1")
    cloud.terminate(instance.id)
    assert isinstance(await observer.observe(a_worker()), Unknown)


async def test_an_instance_is_gone_only_after_three_reads_over_five_minutes(
    observer: InstanceObserver, clock: VirtualClock
) -> None:
    worker = a_worker("i-unknown")
    assert isinstance(await observer.observe(worker), Unknown)
    assert isinstance(await observer.observe(worker), Unknown)
    await clock.sleep(299)
    assert isinstance(await observer.observe(worker), Unknown)
    await clock.sleep(1)
    assert isinstance(await observer.observe(worker), Absent)


class JumpingClock(VirtualClock):
    """Its wall time can be set, as by a person or a time server."""

    ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead


async def test_a_wall_clock_set_forward_proves_no_absence(cloud: MemoryCloud) -> None:
    clock = JumpingClock()
    observer = InstanceObserver(cloud, clock, Health(clock))
    for _ in range(5):
        assert isinstance(await observer.observe(a_worker("i-unknown")), Unknown)
        clock.ahead += timedelta(hours=1)
        await clock.sleep(1)


async def test_seeing_it_once_starts_the_count_again(
    cloud: MemoryCloud, observer: InstanceObserver, clock: VirtualClock
) -> None:
    instance = await cloud.launch_instance(SPEC, "lcm-1")
    hidden = cloud.instances.pop(instance.id)
    for _ in range(10):
        await observer.observe(a_worker(instance.id))
        await clock.sleep(29)
    cloud.instances[instance.id] = hidden
    assert isinstance(await observer.observe(a_worker(instance.id)), Known)
    del cloud.instances[instance.id]
    await clock.sleep(60)
    assert isinstance(await observer.observe(a_worker(instance.id)), Unknown)


class RefusingCloud(MemoryCloud):
    """Answers every question with an error."""

    error: TransientError = Unreachable("no answer")

    async def list_instances(self, region: str, tags: Mapping[str, str] | None = None) -> Sequence[Instance]:
        raise self.error

    async def describe_instance(self, region: str, instance_id: InstanceId) -> Instance | None:
        raise self.error


@pytest.mark.parametrize("error", [Unreachable("x"), Throttled("x"), CredentialsRefused("x")])
async def test_an_error_is_never_read_as_gone(error: TransientError, clock: VirtualClock) -> None:
    cloud = RefusingCloud(clock)
    cloud.error = error
    health = Health(clock)
    observer = InstanceObserver(cloud, clock, health)
    for _ in range(20):
        await observer.refresh(["us-east-1"])
        assert isinstance(await observer.observe(a_worker("i-1")), Unknown)
        assert health.freeze_reasons
        await clock.sleep(60)
