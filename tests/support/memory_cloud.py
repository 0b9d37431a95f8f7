"""EC2 in memory, on whatever clock it is given: the same behaviour as the simulated AWS, without a wire.

Keeps the truth about its machines apart from what it shows: a new machine can stay invisible for a
while. Passes the same contract suite as the real adapter.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from lcm.core.clock import Clock
from lcm.domain.errors import ImageNotFound, LaunchLapsed, TokenMismatch, Unreachable, WrongInstanceState
from lcm.domain.launch import (
    DISCOVERY_TAG,
    WORKER_ID_TAG,
    Ami,
    InstanceId,
    LaunchSpec,
    WorkerId,
    newest_image,
)
from lcm.domain.worker import Instance

USER_INITIATED = "Client.UserInitiatedShutdown"

Moment = Literal["before", "after"]
Interference = Callable[[Moment, str, str], Awaitable[None]]
"""Called around every effect with the operation and its subject; raise or wait to disturb it."""


@dataclass(frozen=True)
class Delays:
    """Seconds that machines take."""

    launch: float = 20.0
    start: float = 10.0
    stop: float = 10.0
    terminate: float = 10.0
    visibility: float = 0.0
    """How long a new machine is not shown."""


@dataclass
class Machine:
    """The truth about one instance."""

    id: InstanceId
    spec: LaunchSpec
    token: str
    private_ip: str
    created_at: float
    state: str = "pending"
    next_state: str | None = None
    changes_at: float = 0.0
    public_ip: str | None = None
    running_since: float | None = None
    state_reason: str | None = None
    state_reason_code: str | None = None
    stopped_until: float = float("-inf")
    """When it was last started again."""
    tags: dict[str, str] = field(default_factory=dict)
    """Those of the launch, until somebody changes them."""
    moves: list[str] = field(default_factory=list)
    """What really happened to it, in order."""

    @property
    def is_gone(self) -> bool:
        return self.state in {"shutting-down", "terminated"}


@dataclass
class Call:
    """One call, as an audit log would show it."""

    operation: str
    subject: str
    at: float


@dataclass
class MemoryCloud:
    """Implements `CloudProvider`, and lets a human use the console."""

    clock: Clock
    delays: Delays = field(default_factory=Delays)
    machines: dict[InstanceId, Machine] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    interfere: Interference | None = None
    unlisted: set[InstanceId] = field(default_factory=set)
    """Left out of lists, as if a page were missing; shown to whoever asks for them by name."""
    images: tuple[Ami, ...] = (
        Ami(id="ami-1", name="CML-2.8.1-20250310", creation_date="2025-03-10T00:00:00.000Z"),
        Ami(id="ami-2", name="CML-2.9.1-20260415", creation_date="2026-04-15T00:00:00.000Z"),
    )
    _launches: int = 0
    _public_ips: int = 0

    # The port.

    async def list_instances(self, region: str, tags: Mapping[str, str] | None = None) -> Sequence[Instance]:
        await self._called("before", "list_instances", region)
        wanted = (tags or {DISCOVERY_TAG: "true"}).items()
        listed = (m for m in self._shown(region) if m.id not in self.unlisted)
        return [m for m in listed if wanted <= m.tags.items()]

    async def describe_instance(self, region: str, instance_id: InstanceId) -> Instance | None:
        await self._called("before", "describe_instance", instance_id)
        return next((m for m in self._shown(region) if m.id == instance_id), None)

    async def describe_instances(self, region: str, instance_ids: Sequence[InstanceId]) -> Sequence[Instance]:
        await self._called("before", "describe_instances", " ".join(instance_ids))
        return [m for m in self._shown(region) if m.id in instance_ids]

    async def find_instances(self, region: str, worker_id: WorkerId) -> Sequence[Instance]:
        await self._called("before", "find_instances", worker_id)
        return [m for m in self._shown(region) if m.tags.get(WORKER_ID_TAG) == worker_id]

    async def launch_instance(self, spec: LaunchSpec, client_token: str) -> Instance:
        await self._called("before", "launch_instance", client_token)
        machine = self._machine_of(spec, client_token) or self._new_machine(spec, client_token)
        await self._called("after", "launch_instance", client_token)
        return self._show(machine)

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
        if instance_id in self.machines:
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

    async def resolve_ami(self, region: str, name_pattern: str) -> Ami:
        await self._called("before", "resolve_ami", name_pattern)
        prefix = name_pattern.rstrip("*")
        matching = [image for image in self.images if image.name.startswith(prefix)]
        if not matching:
            raise ImageNotFound(f"no AMI named {name_pattern!r} in {region}")
        return newest_image(matching)

    async def list_images(self, region: str, image_ids: Sequence[str]) -> Sequence[Ami]:
        await self._called("before", "list_images", " ".join(image_ids))
        return [image for image in self.images if image.id in image_ids]

    # The console: what a human can do behind our back, and what the port does in the end.

    def start(self, instance_id: InstanceId) -> None:
        machine = self._existing(instance_id)
        if machine.state in {"running", "pending"}:
            return
        if machine.state != "stopped":
            raise WrongInstanceState(f"{instance_id} is {machine.state}")
        self._go(machine, "pending", "running", self.delays.start)

    def stop(self, instance_id: InstanceId) -> None:
        machine = self._existing(instance_id)
        if machine.state in {"stopping", "stopped"}:
            return
        if machine.state != "running":
            raise WrongInstanceState(f"{instance_id} is {machine.state}")
        self._go(machine, "stopping", "stopped", self.delays.stop)

    def terminate(self, instance_id: InstanceId, code: str = USER_INITIATED) -> None:
        """By a person, or with another code by EC2 itself."""
        machine = self._existing(instance_id)
        if machine.is_gone:
            return
        machine.state_reason_code, machine.state_reason = code, f"{code}: the machine was terminated"
        self._go(machine, "shutting-down", "terminated", self.delays.terminate)

    def add(self, spec: LaunchSpec, token: str = "") -> Machine:
        """A machine that was launched by somebody else, or long ago."""
        return self._new_machine(spec, token)

    def retag(self, instance_id: InstanceId, tags: Mapping[str, str]) -> None:
        """Put other tags on a machine, as people do."""
        machine = self._existing(instance_id)
        machine.tags = dict(tags)

    def forget(self, instance_id: InstanceId) -> None:
        """As if it had never been."""
        del self.machines[instance_id]

    # The truth.

    def live_machines(self, worker_id: str) -> list[Machine]:
        """The machines somebody pays for on behalf of a worker."""
        return [
            machine
            for machine in self._current()
            if machine.spec.tags.get(WORKER_ID_TAG) == worker_id and not machine.is_gone
        ]

    def machine_at(self, address: str) -> Machine | None:
        """The running machine that is reached at this address."""
        return next(
            (m for m in self._current() if m.state == "running" and address in (m.public_ip, m.private_ip)),
            None,
        )

    def _machine_of(self, spec: LaunchSpec, token: str) -> Machine | None:
        machine = next((m for m in self._current() if m.token == token), None)
        if machine is None:
            return None
        if machine.spec != spec:
            raise TokenMismatch("IdempotentParameterMismatch: the token was used with other parameters")
        if machine.is_gone:
            raise LaunchLapsed(f"IdempotentInstanceTerminated: {machine.id} is {machine.state}")
        return machine

    def _new_machine(self, spec: LaunchSpec, token: str) -> Machine:
        self._launches += 1
        number = self._launches
        machine = Machine(
            id=InstanceId(f"i-{number:017x}"),
            spec=spec,
            token=token,
            private_ip=f"10.0.{number // 250}.{number % 250 + 4}",
            created_at=self.clock.monotonic(),
            tags=dict(spec.tags),
        )
        self.machines[machine.id] = machine
        self._go(machine, "pending", "running", self.delays.launch)
        return machine

    def _go(self, machine: Machine, now: str, then: str, seconds: float) -> None:
        machine.moves.append(f"{machine.state if machine.moves else 'new'} to {then}")
        if machine.state == "stopped":
            machine.stopped_until = self.clock.monotonic()
        machine.state, machine.next_state = now, then
        machine.changes_at = self.clock.monotonic() + seconds
        if now != "running":
            machine.public_ip = machine.running_since = None

    def _current(self) -> list[Machine]:
        """Every machine, with the changes that are due by now."""
        now = self.clock.monotonic()
        for machine in self.machines.values():
            if machine.next_state is not None and machine.changes_at <= now:
                machine.state, machine.next_state = machine.next_state, None
                if machine.state == "running":
                    self._public_ips += 1
                    machine.public_ip = f"198.51.100.{self._public_ips}"
                    machine.running_since = machine.changes_at
        return list(self.machines.values())

    def _existing(self, instance_id: InstanceId) -> Machine:
        self._current()
        machine = self.machines.get(instance_id)
        if machine is None:
            raise Unreachable(f"InvalidInstanceID.NotFound: {instance_id}")
        return machine

    def _shown(self, region: str) -> list[Instance]:
        visible_since = self.clock.monotonic() - self.delays.visibility
        return [
            self._show(machine)
            for machine in self._current()
            if machine.spec.region == region and machine.created_at <= visible_since
        ]

    def _show(self, machine: Machine) -> Instance:
        return Instance(
            id=machine.id,
            region=machine.spec.region,
            state=machine.state,
            instance_type=machine.spec.instance_type,
            image_id=machine.spec.image.id,
            private_ip=machine.private_ip,
            public_ip=machine.public_ip,
            state_reason=machine.state_reason,
            state_reason_code=machine.state_reason_code,
            client_token=machine.token or None,
            tags=dict(machine.tags),
        )

    async def _called(self, moment: Moment, operation: str, subject: str) -> None:
        if moment == "before":
            self.calls.append(Call(operation, subject, self.clock.monotonic()))
        if self.interfere is not None:
            await self.interfere(moment, operation, subject)
