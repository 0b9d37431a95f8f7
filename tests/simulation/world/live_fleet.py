"""CML servers on the simulated instances: user actions, open sockets, labs and faults.

The real user actions are kept here, apart from what monitors received and records hold. An instance that is
busy without user actions shows it by its load alone.
"""

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from lcm.core.timeouts import timeout
from lcm.domain.errors import Unreachable
from lcm.domain.lablet.marker import Marker, SeenLab, marker_of, read_notes
from lcm.domain.launch import WORKER_ID_TAG, InstanceId, WorkerId
from lcm.simulator.cml.api.routing import Answer
from lcm.simulator.cml.lab import Lab
from lcm.simulator.pace import Pace
from lcm.worker_controller.monitoring.metrics import LICENSING_PATH
from lcm.worker_controller.ports import WebSocketListener
from support.memory_cloud import MemoryInstance
from support.memory_live import (
    AT_ONCE,
    AT_REST_PERCENT,
    INSTANCE,
    MemoryLiveServer,
    MemorySocket,
    SteadyLoad,
)

if TYPE_CHECKING:
    from simulation.world.processes import Process
    from simulation.world.world import World

BOOT_SECONDS: Final = 30.0
BUSY_PERCENT: Final = 97.0
LEAST_PAUSE_SECONDS: Final = 0.001

USER_ACTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "start_lab": {"event_type": "lab_event", "event": "state", "data": {"state": "STARTED"}},
    "stop_lab": {"event_type": "lab_event", "event": "state", "data": {"state": "STOPPED"}},
    "queue_node": {"event_type": "state_change", "element_type": "node", "event": "QUEUED"},
    "start_node": {"event_type": "state_change", "element_type": "node", "event": "STARTED"},
}
"""User actions by the category of their telemetry entry, with the frame that reports each."""


@dataclass(frozen=True)
class UserAction:
    """Something that a person really did."""

    worker_id: WorkerId
    instance_id: InstanceId
    category: str
    lab_id: str
    at: float


class Work(NamedTuple):
    """An instance computes at full load, without user actions."""

    since: float
    until: float
    power_since: float | None


class Import(NamedTuple):
    """A lab that LCM made, whatever its title and notes say by now."""

    marker: Marker
    instance_id: InstanceId
    at: float


class Refusal(NamedTuple):
    """A login that a server refused."""

    at: float
    by: str
    """The leadership that sent it."""
    password: str


class SimulatedCmlServer(MemoryLiveServer):
    """The CML server of one instance: it is up while the instance runs."""

    def __init__(self, world: "World", instance: MemoryInstance) -> None:
        keeps_labs = bool(world.knobs.lablet_controllers)
        self.listed = replace(INSTANCE, private_ip=instance.private_ip) if keeps_labs else INSTANCE
        super().__init__(
            world.clock,
            certificate_of(instance),
            _LoadOfWork(self),
            instance=self.listed,
            pace=Pace(seed=world.faults.seed, speed=1.0) if keeps_labs else AT_ONCE,
        )
        self._world = world
        self.instance = instance
        self.booted_at = instance.running_since
        self.refusals: list[Refusal] = []
        self.telemetry_read_at = float("-inf")
        """When it last answered a read of its telemetry."""
        self._work: Work | None = None
        self.removed_at: datetime | None = None
        """When a lab was last deleted."""

    @property
    def is_up(self) -> bool:
        since = self.instance.running_since
        return (
            self.instance.state == "running"
            and self.instance.spec.tags.get(WORKER_ID_TAG) not in self._world.never_ready
            and since is not None
            and self.clock.monotonic() - since >= BOOT_SECONDS
        )

    @property
    def at_work_since(self) -> float | None:
        """Since when it has been busy without a break; None if it is not."""
        work = self._work
        is_on = work is not None and work.power_since == self.instance.running_since
        return work.since if work and is_on and self.clock.monotonic() < work.until else None

    def put_to_work(self, seconds: float) -> None:
        """Start a long build, beside one that is under way. It ends when the instance stops."""
        now, since = self.clock.monotonic(), self.at_work_since
        self._work = Work(now if since is None else since, now + seconds, self.instance.running_since)

    def answer(self, method: str, path: str, token: str | None, body: bytes | None) -> Answer:
        """The answer to one request. Its license is that of its instance, whoever asks for it."""
        answer = super().answer(method, path, token, body)
        if path != LICENSING_PATH or answer.status != 200:
            return answer
        license_ = self._world.licensing.agent_of(self.instance.id)
        return replace(answer, body=msgspec.json.encode(license_.status(now=0.0)))

    def follow_the_instance(self) -> None:
        """Drop the connections of an instance that was down, however briefly."""
        if self.instance.running_since != self.booted_at:
            self.booted_at = self.instance.running_since
            self.drop(1006)
            self.cml.power_on(replace(self.listed, running_since=self.unix_time))

    def advance_labs(self) -> float | None:
        """Apply what is due in its labs; return when the next is, None while nothing will happen."""
        if not self.is_up:
            return None
        self.follow_the_instance()
        self.cml.labs.advance(self.clock.now().timestamp())
        return self.cml.labs.next_change_at()


class _LoadOfWork(SteadyLoad):
    def __init__(self, server: SimulatedCmlServer) -> None:
        super().__init__()
        self._server = server

    def cpu_percent(self, seconds_up: float) -> float:
        return AT_REST_PERCENT if self._server.at_work_since is None else BUSY_PERCENT


def certificate_of(instance: MemoryInstance) -> str:
    return hashlib.sha256(instance.id.encode()).hexdigest()


class Wire:
    """From a server to one process: messages to a frozen process are delivered when it wakes."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        self._incarnation = process.incarnation
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_cut = False

    @property
    def is_held(self) -> bool:
        """Whether the process that opened it is still alive."""
        return self._process.is_alive and self._process.incarnation == self._incarnation

    @property
    def process(self) -> "Process":
        return self._process

    def carry(self, hear: Callable[[], None]) -> None:
        world = self._process.world
        # After one lost message no later one may arrive.
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
    """A connection of a known process."""

    def __init__(self, server: SimulatedCmlServer, listener: WebSocketListener, wire: Wire) -> None:
        super().__init__(server, listener, wire.carry)
        self.wire = wire


class LiveFleet:
    """A CML server on every running instance."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.servers: dict[InstanceId, SimulatedCmlServer] = {}
        self.user_actions: list[UserAction] = []
        self.clock_error = timedelta()
        """The permanent error of the wall clocks of new servers."""
        self.imports: dict[str, Import] = {}
        """The labs that LCM made, by id."""
        self.touched: dict[str, float] = {}
        """When people last changed a lab themselves, by its id."""
        self.removable: set[str] = set()
        """The labs of people whose removal they requested of LCM."""
        self.disowned: set[str] = set()
        """The labs that people adopted and gave up again."""
        self._labs_changed = asyncio.Event()

    async def run(self) -> None:
        """Push statistics to every open socket, as CML does."""
        while True:
            await self._world.clock.sleep(self._world.knobs.statistics_seconds)
            self._world.cloud.settle()
            for server in self.servers.values():
                server.follow_the_instance()
                for socket in [s for s in server.sockets if isinstance(s, LiveSocket) and not s.wire.is_held]:
                    socket.close()
                if server.is_up:
                    server.push_stats()

    async def run_labs(self) -> None:
        """Let nodes boot and stop when they are due, so that their events are pushed then."""
        while True:
            self._labs_changed.clear()
            due = [at for server in self.servers.values() if (at := server.advance_labs()) is not None]
            pause = max(LEAST_PAUSE_SECONDS, min(due) - self._world.clock.now().timestamp()) if due else None
            try:
                async with timeout(pause):
                    await self._labs_changed.wait()
            except TimeoutError:
                continue

    def on_labs_changed(self) -> None:
        """Something may be due earlier than before."""
        self._labs_changed.set()

    def note_import(self, host: str, lab_id: str, notes: str) -> None:
        marker = read_notes(notes)
        assert marker is not None, "LCM imports no lab without its marker"
        server = self.server_at(host)
        self.imports[lab_id] = Import(marker, server.instance.id, self._world.clock.monotonic())

    def session_of(self, lab_id: str, notes: str = "") -> str | None:
        """The session that a lab was imported for, or is about to be."""
        known = self.imports.get(lab_id)
        marker = known.marker if known is not None else read_notes(notes)
        return marker.session_id if marker is not None else None

    def lab(self, lab_id: str, instance_id: str | None) -> Lab | None:
        """A lab as it really is; None if it does not exist, also because its instance is gone."""
        server = self.servers.get(InstanceId(instance_id or ""))
        if server is None or server.instance.is_gone:
            return None
        return next((lab for lab in server.cml.labs.all() if lab.id == lab_id), None)

    def labs(self) -> Iterator[tuple[SimulatedCmlServer, Lab]]:
        """Every lab that exists."""
        for server in self.servers.values():
            if not server.instance.is_gone:
                yield from ((server, lab) for lab in server.cml.labs.all())

    def left_behind(self) -> Iterator[tuple[SimulatedCmlServer, Lab]]:
        """The labs with LCM's marker whose sessions have ended."""
        for server, lab in self.labs():
            known = self.imports.get(lab.id)
            if known is None or marker_of(SeenLab(lab.id, lab.title, lab.notes)) != known.marker:
                continue  # people made it, or took it over
            if self.is_adopted(server, lab):
                continue
            session = self._world.disk.session(known.marker.session_id)
            if session is None or session.is_ended:
                yield server, lab

    def is_adopted(self, server: SimulatedCmlServer, lab: Lab) -> bool:
        """Whether LCM has recorded that people keep the lab."""
        worker_id = server.instance.spec.tags.get(WORKER_ID_TAG, "")
        return self._world.disk.adoption_of(worker_id, lab.id) is not None

    @property
    def has_lab_faults(self) -> bool:
        return any(server.cml.labs.faults.is_any for server in self.servers.values())

    def on_person(self, lab: Lab) -> None:
        """A person changes a lab on CML's own pages."""
        self.touched[lab.id] = self._world.clock.monotonic()
        self.on_labs_changed()

    def seconds_since_touched(self, lab_id: str) -> float:
        return self._world.clock.monotonic() - self.touched.get(lab_id, float("-inf"))

    def heal(self) -> None:
        for server in self.servers.values():
            server.recover()
            server.cml.labs.faults.clear()

    def server_of(self, worker_id: str) -> SimulatedCmlServer | None:
        """The CML server of a worker, if it is up."""
        instances = self._world.cloud.live_instances(worker_id)
        server = self._server(instances[0]) if instances else None
        return server if server is not None and server.is_up else None

    def server_at(self, host: str) -> SimulatedCmlServer:
        instance = self._world.cloud.instance_at(host)
        server = self._server(instance) if instance is not None else None
        if server is None or not server.is_up:
            raise Unreachable(f"CML at {host}: connection refused")
        server.follow_the_instance()
        return server

    def worker_at(self, host: str) -> str:
        instance = self._world.cloud.instance_at(host)
        return instance.spec.tags.get(WORKER_ID_TAG, "") if instance is not None else ""

    def use(self, worker_id: str, category: str, lab_id: str = "lab-1") -> SimulatedCmlServer | None:
        """Do a user action, if a CML server is up: it is recorded in telemetry and pushed to every socket."""
        server = self.server_of(worker_id)
        if server is None or server.is_frozen:
            return None
        server.follow_the_instance()
        now = self._world.clock.monotonic()
        self.user_actions.append(UserAction(WorkerId(worker_id), server.instance.id, category, lab_id, now))
        server.note(category, server.wall_time, lab_id=lab_id, user_id="a-person")
        server.push({**USER_ACTIONS[category], "lab_id": lab_id, "element_id": "n-1"})
        return server

    def sockets_of(self, process: "Process") -> list[LiveSocket]:
        """The open sockets of a process."""
        return [
            socket
            for server in self.servers.values()
            for socket in server.sockets
            if isinstance(socket, LiveSocket) and socket.wire.process is process
        ]

    def _server(self, instance: MemoryInstance) -> SimulatedCmlServer:
        server = self.servers.get(instance.id)
        if server is None:
            server = self.servers[instance.id] = SimulatedCmlServer(self._world, instance)
            server.clock_error = self.clock_error
        return server
