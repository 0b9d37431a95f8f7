"""EC2 in memory, on any clock: the simulator's model of instances behind the `CloudProvider` port.

State transitions, durations and client tokens are those of `lcm.simulator.aws`. This module adds what the
port shows of an instance, eventual visibility of new instances, and the AWS console. Passes the same contract
suite as the real adapter.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from lcm.core.clock import Clock
from lcm.domain.errors import (
    ImageNotFound,
    InstanceTypeUnfit,
    LaunchLapsed,
    LaunchRefused,
    TokenMismatch,
    Unreachable,
    WrongInstanceState,
)
from lcm.domain.launch import (
    DISCOVERY_TAG,
    WORKER_ID_TAG,
    Ami,
    InstanceId,
    InstanceTypeFacts,
    LaunchSpec,
    WorkerId,
    newest_image,
)
from lcm.domain.template import is_metal
from lcm.domain.worker import Instance
from lcm.simulator.aws.errors import Ec2Error
from lcm.simulator.aws.images import IMAGE_DISK_GB, ROOT_DEVICE, SHARED_BY
from lcm.simulator.aws.instances import (
    GONE,
    RUNNING,
    STOPPED,
    TRANSITIONS,
    SimulatedInstance,
    SimulatedInstances,
)
from lcm.simulator.aws.tokens import LaunchTokens
from lcm.simulator.pace import Delays as MeanDelays
from lcm.simulator.pace import Pace

NESTING = frozenset({"c8i", "m8i", "r8i"})
FAMILIES = NESTING | {"t3", "m5zn"}
OWNER, VPC = "123456789012", "vpc-1"
"""Of every instance."""
USER_INITIATED = "Client.UserInitiatedShutdown"

Moment = Literal["before", "after"]
Interference = Callable[[Moment, str, str], Awaitable[None]]
"""Called around every effect with the operation and its subject; raise or wait to disturb it."""

ERRORS: Mapping[str, type[Exception]] = {
    "IncorrectInstanceState": WrongInstanceState,
    "InvalidInstanceID.NotFound": Unreachable,
    "IdempotentParameterMismatch": TokenMismatch,
    "IdempotentInstanceTerminated": LaunchLapsed,
}
"""What the real adapter raises for EC2's error codes."""


@dataclass(frozen=True)
class Delays:
    """Exact seconds that state transitions take."""

    launch: float = 20.0
    start: float = 10.0
    stop: float = 10.0
    terminate: float = 10.0
    visibility: float = 0.0
    """How long a new instance is not shown."""

    @property
    def of_model(self) -> MeanDelays:
        """A terminated instance is described for ever."""
        return MeanDelays(
            launch_seconds=self.launch,
            start_seconds=self.start,
            stop_seconds=self.stop,
            terminate_seconds=self.terminate,
            forget_seconds=float("inf"),
        )


@dataclass
class MemoryInstance:
    """The actual state of one instance, whatever the port shows of it."""

    model: SimulatedInstance
    spec: LaunchSpec
    token: str
    private_ip: str
    created_at: float
    state_reason: str | None = None
    state_reason_code: str | None = None
    stopped_until: float = float("-inf")
    """When it was last started again."""
    tags: dict[str, str] = field(default_factory=dict)
    """Those of the launch, until a person changes them."""
    transitions: list[str] = field(default_factory=list)
    """The state transitions that really began, in order."""

    @property
    def id(self) -> InstanceId:
        return InstanceId(self.model.id)

    @property
    def state(self) -> str:
        return self.model.state

    @property
    def running_since(self) -> float | None:
        return self.model.running_since

    @property
    def public_ip(self) -> str | None:
        return self.model.public_ip

    @public_ip.setter
    def public_ip(self, address: str) -> None:
        self.model.public_ip = address

    @property
    def is_gone(self) -> bool:
        return self.model.state in GONE


@dataclass
class Call:
    """One call, as an audit log would show it."""

    operation: str
    subject: str
    at: float


class _NoView:
    """Nothing follows the instances: the port reads them when it is called."""

    def show(self, instance: SimulatedInstance) -> None:
        pass

    def drop(self, instance: SimulatedInstance) -> None:
        pass


class MemoryCloud:
    """Implements `CloudProvider`, and the actions of a person in the AWS console."""

    def __init__(self, clock: Clock, delays: Delays | None = None) -> None:
        self.clock = clock
        self._delays = delays or Delays()
        self.instances: dict[InstanceId, MemoryInstance] = {}
        self.calls: list[Call] = []
        self.interfere: Interference | None = None
        self.unlisted: set[InstanceId] = set()
        """Left out of lists, as if a page were missing; shown in reads that name them."""
        self.images: tuple[Ami, ...] = (
            _image("ami-1", "CML-2.8.1-20250310", "2025-03-10T00:00:00.000Z"),
            _image("ami-2", "CML-2.9.1-20260415", "2026-04-15T00:00:00.000Z"),
        )
        """The account's own."""
        self.shared_images = (_image("ami-3", "CML-2.9.1-shared-20260510", "2026-05-10T00:00:00.000Z"),)
        """Those of the account `SHARED_BY`."""
        self._model = SimulatedInstances(
            pace=Pace(seed=0, speed=1.0, spread=0.0),
            delays=self._delays.of_model,
            view=_NoView(),
            now=clock.monotonic,
        )
        self._tokens = LaunchTokens(self._model)
        self._launches = 0

    @property
    def delays(self) -> Delays:
        return self._delays

    @delays.setter
    def delays(self, delays: Delays) -> None:
        self._delays, self._model.delays = delays, delays.of_model

    # The port.

    async def list_instances(self, region: str, tags: Mapping[str, str] | None = None) -> Sequence[Instance]:
        await self._called("before", "list_instances", region)
        wanted = (tags or {DISCOVERY_TAG: "true"}).items()
        listed = (shown for shown in self._shown(region) if shown.id not in self.unlisted)
        return [instance for instance in listed if wanted <= instance.tags.items()]

    async def describe_instance(self, region: str, instance_id: InstanceId) -> Instance | None:
        await self._called("before", "describe_instance", instance_id)
        return next((shown for shown in self._shown(region) if shown.id == instance_id), None)

    async def describe_instances(self, region: str, instance_ids: Sequence[InstanceId]) -> Sequence[Instance]:
        await self._called("before", "describe_instances", " ".join(instance_ids))
        return [shown for shown in self._shown(region) if shown.id in instance_ids]

    async def find_instances(self, region: str, worker_id: WorkerId) -> Sequence[Instance]:
        await self._called("before", "find_instances", worker_id)
        return [shown for shown in self._shown(region) if shown.tags.get(WORKER_ID_TAG) == worker_id]

    async def launch_instance(self, spec: LaunchSpec, client_token: str) -> Instance:
        await self._called("before", "launch_instance", client_token)
        self._model.settle()
        volume = spec.root_volume
        if volume is not None and volume.size_gb < spec.image.disk_gb:
            raise LaunchRefused(f"InvalidBlockDeviceMapping: {volume.size_gb} GB is smaller than the image")
        nests = spec.instance_type.partition(".")[0] in NESTING and not is_metal(spec.instance_type)
        if spec.nested_virtualization and not nests:
            raise LaunchRefused("InvalidParameterCombination: nested virtualization is not supported")
        with _errors_of_the_adapter():
            known: MemoryInstance | None = self._tokens.recall(spec.region, client_token, spec)
        instance = known or self.add(spec, client_token)
        await self._called("after", "launch_instance", client_token)
        return self._show(instance)

    async def start_instance(self, region: str, instance_id: InstanceId) -> None:
        await self._called("before", "start_instance", instance_id)
        self.start(instance_id)
        await self._called("after", "start_instance", instance_id)

    async def stop_instance(self, region: str, instance_id: InstanceId) -> None:
        await self._called("before", "stop_instance", instance_id)
        self.stop(instance_id)
        await self._called("after", "stop_instance", instance_id)

    async def terminate_instance(self, region: str, instance_id: InstanceId) -> None:
        await self._called("before", "terminate_instance", instance_id)
        if instance_id in self.instances:
            self.terminate(instance_id)
        await self._called("after", "terminate_instance", instance_id)

    async def tag_instance(self, region: str, instance_id: InstanceId, tags: Mapping[str, str]) -> None:
        await self._called("before", "tag_instance", instance_id)
        self._existing(instance_id).tags.update(tags)
        await self._called("after", "tag_instance", instance_id)

    async def untag_instance(self, region: str, instance_id: InstanceId, keys: Sequence[str]) -> None:
        await self._called("before", "untag_instance", instance_id)
        for key in keys:
            self._existing(instance_id).tags.pop(key, None)
        await self._called("after", "untag_instance", instance_id)

    async def resolve_ami(self, region: str, name_pattern: str, owners: Sequence[str]) -> Ami:
        await self._called("before", "resolve_ami", name_pattern)
        prefix = name_pattern.rstrip("*")
        offered = [
            *(self.images if "self" in owners else ()),
            *(self.shared_images if SHARED_BY in owners else ()),
        ]
        matching = [image for image in offered if image.name.startswith(prefix)]
        if not matching:
            raise ImageNotFound(f"no AMI named {name_pattern!r} in {region}")
        return newest_image(matching)

    async def describe_instance_type(self, region: str, instance_type: str) -> InstanceTypeFacts:
        await self._called("before", "describe_instance_type", instance_type)
        family = instance_type.partition(".")[0]
        if family not in FAMILIES:
            raise InstanceTypeUnfit(f"{region} has no instance type {instance_type!r}")
        metal = is_metal(instance_type)
        return InstanceTypeFacts(is_bare_metal=metal, can_nest=family in NESTING and not metal)

    async def list_images(self, region: str, image_ids: Sequence[str]) -> Sequence[Ami]:
        await self._called("before", "list_images", " ".join(image_ids))
        return [image for image in (*self.images, *self.shared_images) if image.id in image_ids]

    # The AWS console: what a person can do outside LCM, and what the port does in the end.

    def start(self, instance_id: InstanceId) -> None:
        self._change_state("start", instance_id)

    def stop(self, instance_id: InstanceId) -> None:
        self._change_state("stop", instance_id)

    def terminate(self, instance_id: InstanceId, code: str = USER_INITIATED) -> None:
        """By a person, or with another code by EC2 itself."""
        instance = self._existing(instance_id)
        if self._change_state("terminate", instance_id):
            instance.state_reason_code, instance.state_reason = code, f"{code}: the instance was terminated"

    def add(self, spec: LaunchSpec, token: str = "") -> MemoryInstance:
        """Launch an instance outside LCM, or long ago."""
        self._launches += 1
        number = self._launches
        instance = MemoryInstance(
            model=self._model.launch(
                f"i-{number:017x}", spec.region, has_public_address=spec.associate_public_ip is not False
            ),
            spec=spec,
            token=token,
            private_ip=f"10.0.{number // 250}.{number % 250 + 4}",
            created_at=self.clock.monotonic(),
            tags=dict(spec.tags),
            transitions=[f"new to {RUNNING}"],
        )
        self.instances[instance.id] = instance
        self._tokens.remember(spec.region, token, spec, [instance.id], instance)
        return instance

    def retag(self, instance_id: InstanceId, tags: Mapping[str, str]) -> None:
        """Put other tags on an instance, as people do."""
        self._existing(instance_id).tags = dict(tags)

    def forget(self, instance_id: InstanceId) -> None:
        """Remove an instance as if it had never existed."""
        instance = self.instances.pop(instance_id)
        self._model.forget(instance.spec.region, instance_id)

    # The actual state.

    def live_instances(self, worker_id: str) -> list[MemoryInstance]:
        """The instances that cost money on behalf of a worker."""
        return [
            instance
            for instance in self._current()
            if instance.spec.tags.get(WORKER_ID_TAG) == worker_id and not instance.is_gone
        ]

    def instance_at(self, address: str) -> MemoryInstance | None:
        """The running instance that is reached at this address."""
        return next(
            (
                instance
                for instance in self._current()
                if instance.state == RUNNING and address in (instance.public_ip, instance.private_ip)
            ),
            None,
        )

    def settle(self) -> None:
        """Apply the state transitions that are due by now."""
        self._model.settle()

    def _current(self) -> list[MemoryInstance]:
        self.settle()
        return list(self.instances.values())

    def _change_state(self, name: str, instance_id: InstanceId) -> bool:
        """Whether the state transition began; False if there was nothing to change."""
        instance = self._existing(instance_id)
        with _errors_of_the_adapter():
            [change] = self._model.change_state(name, instance.spec.region, [instance_id])
        transition = TRANSITIONS[name]
        if change.previous not in transition.from_states:
            return False
        instance.transitions.append(f"{change.previous} to {transition.to}")
        if change.previous == STOPPED:
            instance.stopped_until = self.clock.monotonic()
        return True

    def _existing(self, instance_id: InstanceId) -> MemoryInstance:
        self.settle()
        instance = self.instances.get(instance_id)
        if instance is None:
            raise Unreachable(f"InvalidInstanceID.NotFound: {instance_id}")
        return instance

    def _shown(self, region: str) -> list[Instance]:
        visible_since = self.clock.monotonic() - self.delays.visibility
        return [
            self._show(instance)
            for instance in self._current()
            if instance.spec.region == region and instance.created_at <= visible_since
        ]

    def _show(self, instance: MemoryInstance) -> Instance:
        return Instance(
            id=instance.id,
            region=instance.spec.region,
            state=instance.state,
            instance_type=instance.spec.instance_type,
            image_id=instance.spec.image.id,
            private_ip=instance.private_ip,
            public_ip=instance.public_ip,
            state_reason=instance.state_reason,
            state_reason_code=instance.state_reason_code,
            client_token=instance.token or None,
            owner_id=OWNER,
            vpc_id=VPC,
            subnet_id=instance.spec.subnet_id,
            tags=dict(instance.tags),
        )

    async def _called(self, moment: Moment, operation: str, subject: str) -> None:
        if moment == "before":
            self.calls.append(Call(operation, subject, self.clock.monotonic()))
        if self.interfere is not None:
            await self.interfere(moment, operation, subject)


def _image(image_id: str, name: str, created: str) -> Ami:
    return Ami(id=image_id, name=name, creation_date=created, root_device=ROOT_DEVICE, disk_gb=IMAGE_DISK_GB)


@contextmanager
def _errors_of_the_adapter() -> Iterator[None]:
    try:
        yield
    except Ec2Error as refusal:
        raise ERRORS[refusal.code](f"{refusal.code}: {refusal.message}") from refusal
