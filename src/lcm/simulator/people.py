"""People at work on the CML servers of a simulated fleet, and what LCM can learn of them.

What they really do is kept here, apart from what any process was told. CML writes it into its diary,
which can be read, and tells it at once to whoever watches. A machine that works hard without anybody
clicking shows it by its load alone.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from lcm.core.clock import Clock
from lcm.domain.errors import Fenced, LcmError, Unreachable
from lcm.domain.launch import InstanceId, WorkerId
from lcm.domain.live import ActivityEvent, Sample, SampleSource
from lcm.rest.schemas import ActivityReport, LiveReports, TelemetryEvent
from lcm.simulator.memory_cloud import Machine
from lcm.simulator.ports import SimulatedPort
from lcm.worker_controller.monitoring.reporter import UNTOLD
from lcm.worker_controller.monitoring.telemetry_log import signs_of_people
from lcm.worker_controller.ports import LiveControlPlane, MonitorTarget

if TYPE_CHECKING:
    from lcm.simulator.processes import Process

OUR_USER: Final = "lcm"
MEASURE_SECONDS: Final = 60.0
"""How often a machine's load is measured."""
HARD_AT_WORK_PERCENT: Final = 97.0
AT_REST_PERCENT: Final = 5.0


class Use(NamedTuple):
    """One thing that a person did."""

    at: float
    """True seconds, as the world counts them."""
    event: ActivityEvent


class Work(NamedTuple):
    """A machine computes at full load, though nobody clicks."""

    since: float
    until: float
    power_since: float | None


class Load(NamedTuple):
    """As CML measured it."""

    machine: InstanceId
    at: float
    cpu_percent: float


class Told(NamedTuple):
    """A load that the control plane has confirmed to know."""

    measured_at: float
    confirmed_at: float
    plane_incarnation: int
    """It keeps loads in memory: the next one does not know."""
    clocks_agreed: bool
    """Otherwise the control plane could not tell when it was measured."""


@dataclass(frozen=True)
class Reading:
    """CML's diary, and the time on its own clock when it answered."""

    body: bytes
    date: datetime


class People:
    """What they did on each machine, and who listens."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.uses: dict[InstanceId, list[Use]] = defaultdict(list)
        self.read_at: dict[InstanceId, float] = {}
        """When CML last answered what people did."""
        self._work: dict[InstanceId, Work] = {}
        self.told: dict[InstanceId, list[Told]] = defaultdict(list)
        self._listeners: list[asyncio.Queue[tuple[InstanceId, int]]] = []

    def use(self, instance_id: InstanceId, category: str = "start_node") -> None:
        """A person does something in a lab."""
        event = ActivityEvent(category=category, at=self._clock.now())
        uses = self.uses[instance_id]
        uses.append(Use(self._clock.monotonic(), event))
        for listener in self._listeners:
            listener.put_nowait((instance_id, len(uses)))

    def put_to_work(self, machine: Machine, seconds: float) -> None:
        """A long build starts; if one is under way they go on together. It ends with the machine's power."""
        now, since = self._clock.monotonic(), self.at_work_since(machine)
        since = now if since is None else since
        self._work[machine.id] = Work(since, now + seconds, machine.running_since)

    def at_work_since(self, machine: Machine) -> float | None:
        """Without a break; None if it does not work now."""
        work = self._work.get(machine.id)
        is_on = work is not None and work.power_since == machine.running_since
        return work.since if work and is_on and self._clock.monotonic() < work.until else None

    def ever_worked(self, machine: Machine) -> bool:
        """The load of the others is that of any machine that only runs."""
        return machine.id in self._work

    def listen(self) -> asyncio.Queue[tuple[InstanceId, int]]:
        """From now on, the machine and the number of everything that is done."""
        queue: asyncio.Queue[tuple[InstanceId, int]] = asyncio.Queue()
        self._listeners.append(queue)
        return queue

    def leave(self, queue: asyncio.Queue[tuple[InstanceId, int]]) -> None:
        self._listeners.remove(queue)

    def diary(self, instance_id: InstanceId) -> Reading:
        """As `telemetry/events` answers, our own looks included."""
        self.read_at[instance_id] = self._clock.monotonic()
        now = self._clock.now()
        entries = [(use.event.category, use.event.at, "ada") for use in self.uses[instance_id]]
        entries.append(("user_activity", now, OUR_USER))
        body = [
            {"category": category, "timestamp": at.isoformat(), "data": {"user_id": user}}
            for category, at, user in entries
        ]
        return Reading(json.dumps(body).encode(), now)


class SimulatedMonitors(SimulatedPort):
    """A controller's eyes on CML: the diary when it asks, and what people do while it watches."""

    name = "cml"
    error = Unreachable

    def __init__(self, process: "Process", control_plane: LiveControlPlane, clock: Clock) -> None:
        super().__init__(process)
        self._control_plane = control_plane
        self._clock = clock
        self._watched: dict[WorkerId, MonitorTarget] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tell_of_people(), name="people")
            tasks.create_task(self._tell_of_load(), name="load")

    async def _tell_of_people(self) -> None:
        """Tell the control plane what people do, until it has confirmed it."""
        queue = self._world.people.listen()
        try:
            while True:
                instance_id, number = await queue.get()
                for target in list(self._watched.values()):
                    if target.server.instance_id == instance_id and await self._hears(target):
                        await self._report(target, instance_id, number)
        finally:
            self._world.people.leave(queue)

    async def _tell_of_load(self) -> None:
        """As measured now and then; what does not arrive is not worth telling again."""
        while True:
            await self._clock.sleep(MEASURE_SECONDS)
            for target in list(self._watched.values()):
                machine = self._world.cloud.machine_at(target.server.host)
                if machine is not None and self._world.people.ever_worked(machine):
                    await self._measure(target)

    async def _measure(self, target: MonitorTarget) -> None:
        plane = self._world.plane
        told_to = plane.incarnation
        try:
            measured = await self._read("load", target.worker_id, lambda: self._load(target))
            await self._control_plane.report_worker_metrics(
                LiveReports(
                    samples=[
                        Sample(
                            worker_id=target.worker_id,
                            collected_at=self._clock.now(),
                            source=SampleSource.WEBSOCKET,
                            cpu_utilization=measured.cpu_percent,
                        )
                    ]
                )
            )
        except Fenced:
            raise
        except LcmError:
            return
        if plane.incarnation != told_to:
            return  # whoever heard it may be gone by now
        confirmed_at = self._world.clock.monotonic()
        clocks_agreed = self._process.skew == plane.skew
        told = Told(measured.at, confirmed_at, told_to, clocks_agreed)
        self._world.people.told[measured.machine].append(told)

    async def _load(self, target: MonitorTarget) -> Load:
        now, people = self._world.clock.monotonic(), self._world.people
        machine = self._world.cloud.machines[self._answering(target)]
        works = people.at_work_since(machine) is not None
        return Load(machine.id, now, HARD_AT_WORK_PERCENT if works else AT_REST_PERCENT)

    def ensure_monitoring(self, target: MonitorTarget) -> None:
        self._watched[target.worker_id] = target

    def has_account_of(self, worker_id: WorkerId) -> bool:
        return worker_id in self._watched

    def is_watching(self, worker_id: WorkerId) -> bool:
        return worker_id in self._watched

    def measured_seconds_ago(self, worker_id: WorkerId) -> float:
        return 0.0

    def measure_soon(self, worker_id: WorkerId) -> None:
        """The next measurement is never far."""

    def stop_monitoring(self, worker_id: WorkerId, reason: str) -> None:
        self._watched.pop(worker_id, None)

    def forget(self, worker_id: WorkerId) -> None:
        self._watched.pop(worker_id, None)

    async def telemetry_of(self, worker_id: WorkerId) -> Sequence[TelemetryEvent] | None:
        target = self._watched.get(worker_id)
        if target is None:
            return None
        try:
            reading = await self._read("telemetry", worker_id, lambda: self._diary(target))
        except LcmError:
            return None
        events = signs_of_people(
            reading.body, own_user_id=OUR_USER, now=self._clock.now(), server_now=reading.date
        )
        return [TelemetryEvent(category=event.category, timestamp=event.at) for event in events]

    async def _diary(self, target: MonitorTarget) -> Reading:
        return self._world.people.diary(self._answering(target))

    def _answering(self, target: MonitorTarget) -> InstanceId:
        machine = self._world.cloud.machine_at(target.server.host)
        if machine is None or machine.id != target.server.instance_id:
            raise Unreachable(f"CML at {target.server.host}: connection refused")
        return machine.id

    async def _hears(self, target: MonitorTarget) -> bool:
        """A frame of the live connection, which may be broken; then only the diary tells."""

        async def frame() -> None:
            self._answering(target)

        try:
            await self._read("live", target.worker_id, frame)
        except LcmError:
            return False
        return True

    async def _report(self, target: MonitorTarget, instance_id: InstanceId, number: int) -> None:
        use = self._world.people.uses[instance_id][number - 1]
        report = ActivityReport(
            worker_id=target.worker_id,
            activity_events=[ActivityEvent(category=use.event.category, at=self._clock.now())],
            source=SampleSource.WEBSOCKET,
            stream=instance_id,
            last_sequence=number,
        )
        failures = 0
        while target.worker_id in self._watched:
            try:
                await self._control_plane.report_worker_metrics(LiveReports(activity=[report]))
                return
            except Fenced:
                raise
            except LcmError:
                await self._clock.sleep(UNTOLD.delay_seconds(failures))
                failures += 1
