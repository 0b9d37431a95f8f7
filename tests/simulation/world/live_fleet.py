"""CML on the machines of a simulated world: what people do there, who listens, and what goes wrong.

The truth about people is kept here, apart from what monitors heard and what the records say. A machine that
works hard without anybody clicking shows it by its load alone.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lcm.domain.errors import Unreachable
from lcm.domain.launch import WORKER_ID_TAG, InstanceId, WorkerId
from lcm.worker_controller.ports import WebSocketListener
from support.memory_cloud import MemoryInstance
from support.memory_live import AT_REST_PERCENT, MemoryLiveServer, MemorySocket

if TYPE_CHECKING:
    from simulation.world.processes import Process
    from simulation.world.world import World

BOOT_SECONDS: Final = 30.0
HARD_AT_WORK_PERCENT: Final = 97.0

DEEDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "start_lab": {"event_type": "lab_event", "event": "state", "data": {"state": "STARTED"}},
    "stop_lab": {"event_type": "lab_event", "event": "state", "data": {"state": "STOPPED"}},
    "queue_node": {"event_type": "state_change", "element_type": "node", "event": "QUEUED"},
    "start_node": {"event_type": "state_change", "element_type": "node", "event": "STARTED"},
}
"""What people do, by the category of its entry in the diary, and the frame that tells it."""


@dataclass(frozen=True)
class Deed:
    """Something a person really did."""

    worker_id: WorkerId
    instance_id: InstanceId
    category: str
    lab_id: str
    at: float


class Work(NamedTuple):
    """A machine computes at full load, though nobody clicks."""

    since: float
    until: float
    power_since: float | None


class Refusal(NamedTuple):
    """A login that a server did not take."""

    at: float
    by: str
    """The leadership that tried it."""
    password: str


class WorldServer(MemoryLiveServer):
    """The CML of one machine, with the machine's life."""

    def __init__(self, world: "World", machine: MemoryInstance) -> None:
        super().__init__(world.clock, certificate_of(machine))
        self.machine = machine
        self.booted_at = machine.running_since
        self.refusals: list[Refusal] = []
        self.diary_read_at = float("-inf")
        """When it last answered what people did."""
        self._work: Work | None = None

    @property
    def is_up(self) -> bool:
        since = self.machine.running_since
        return (
            self.machine.state == "running"
            and since is not None
            and self.clock.monotonic() - since >= BOOT_SECONDS
        )

    @property
    def cpu_percent(self) -> float:
        return AT_REST_PERCENT if self.at_work_since is None else HARD_AT_WORK_PERCENT

    @property
    def at_work_since(self) -> float | None:
        """Without a break; None if it does not work now."""
        work = self._work
        is_on = work is not None and work.power_since == self.machine.running_since
        return work.since if work and is_on and self.clock.monotonic() < work.until else None

    def put_to_work(self, seconds: float) -> None:
        """A long build starts; if one is under way they go on together. It ends with the machine's power."""
        now, since = self.clock.monotonic(), self.at_work_since
        self._work = Work(now if since is None else since, now + seconds, self.machine.running_since)

    def be_well(self) -> None:
        """No more faults."""
        fresh = MemoryLiveServer(self.clock, certificate_of(self.machine))
        for name in (
            "certificate_sha256",
            "token_seconds",
            "refuses_connections",
            "refuses_sockets",
            "refuses_tokens",
            "is_mute",
            "is_frozen",
            "closes_with",
            "failing",
            "answers_after",
        ):
            setattr(self, name, getattr(fresh, name))
        self.password = self.right_password

    def live_with_the_machine(self) -> None:
        """A machine that went down, however short, took its connections with it."""
        if self.machine.running_since != self.booted_at:
            self.booted_at = self.machine.running_since
            self.drop(1006)


def certificate_of(machine: MemoryInstance) -> str:
    return machine.id.ljust(64, "0")


class Wire:
    """From a server to one process: what comes while the process is frozen is heard when it wakes."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        self._incarnation = process.incarnation
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_cut = False

    @property
    def is_held(self) -> bool:
        """Whether the process that opened it still lives."""
        return self._process.is_alive and self._process.incarnation == self._incarnation

    @property
    def process(self) -> "Process":
        return self._process

    def carry(self, hear: Callable[[], None]) -> None:
        world = self._process.world
        # What got lost on the way once is not made good by what comes later.
        self._is_cut = self._is_cut or world.is_cut(self._process, "ws")
        if self._is_cut or not self.is_held:
            return
        if not self._waiting and self._process.frozen_until <= world.clock.monotonic():
            hear()
            return
        self._waiting.append(hear)
        if len(self._waiting) == 1:
            world.start(self._deliver_when_awake(), "wire")

    async def _deliver_when_awake(self) -> None:
        await self._process.awake()
        while self._waiting:
            hear = self._waiting.popleft()
            if self.is_held:
                hear()


class LiveSocket(MemorySocket):
    """A connection that knows whose it is."""

    def __init__(self, server: WorldServer, listener: WebSocketListener, wire: Wire) -> None:
        super().__init__(server, listener, wire.carry)
        self.wire = wire


class LiveFleet:
    """A CML on every running machine."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.servers: dict[InstanceId, WorldServer] = {}
        self.deeds: list[Deed] = []
        self.clock_error = timedelta()
        """How wrong the wall clocks of new servers are, for as long as they live."""

    async def run(self) -> None:
        """Statistics for who listens, as CML sends them."""
        while True:
            await self._world.clock.sleep(self._world.knobs.statistics_seconds)
            self._world.cloud.instance_at("")  # machines change when somebody looks
            for server in self.servers.values():
                server.live_with_the_machine()
                for socket in [s for s in server.sockets if isinstance(s, LiveSocket) and not s.wire.is_held]:
                    socket.close()
                if server.is_up:
                    server.push_stats()

    def heal(self) -> None:
        for server in self.servers.values():
            server.be_well()

    def server_of(self, worker_id: str) -> WorldServer | None:
        """The CML of a worker, if it is up."""
        machines = self._world.cloud.live_instances(worker_id)
        server = self._server(machines[0]) if machines else None
        return server if server is not None and server.is_up else None

    def server_at(self, host: str) -> WorldServer:
        machine = self._world.cloud.instance_at(host)
        server = self._server(machine) if machine is not None else None
        if server is None or not server.is_up:
            raise Unreachable(f"CML at {host}: connection refused")
        server.live_with_the_machine()
        return server

    def worker_at(self, host: str) -> str:
        machine = self._world.cloud.instance_at(host)
        return machine.spec.tags.get(WORKER_ID_TAG, "") if machine is not None else ""

    def use(self, worker_id: str, category: str, lab_id: str = "lab-1") -> WorldServer | None:
        """Somebody does something, if there is a CML to do it on: it is noted, and told to who listens."""
        server = self.server_of(worker_id)
        if server is None or server.is_frozen:
            return None
        server.live_with_the_machine()
        now = self._world.clock.monotonic()
        self.deeds.append(Deed(WorkerId(worker_id), server.machine.id, category, lab_id, now))
        server.note(category, server.wall_time, lab_id=lab_id, user_id="a-person")
        server.push({**DEEDS[category], "lab_id": lab_id, "element_id": "n-1"})
        return server

    def sockets_of(self, process: "Process") -> list[LiveSocket]:
        """Those whose login was taken."""
        return [
            socket
            for server in self.servers.values()
            for socket in server.sockets
            if isinstance(socket, LiveSocket) and socket.wire.process is process
        ]

    def _server(self, machine: MemoryInstance) -> WorldServer:
        server = self.servers.get(machine.id)
        if server is None:
            server = self.servers[machine.id] = WorldServer(self._world, machine)
            server.clock_error = self.clock_error
        return server
