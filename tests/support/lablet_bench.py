"""A control plane, one worker whose CML keeps labs in memory, and lablet controllers that die anywhere.

On virtual time. A controller is driven by hand, one reconcile after the other, so that a test can end it
after any call and continue with a new one.
"""

from collections.abc import Callable, Container, Mapping
from datetime import timedelta
from typing import Any, Final

from msgspec.structs import replace

from lcm.cml.sessions import server_of
from lcm.control_plane.commands.lablets.create_session import find_session
from lcm.core.clock import Clock
from lcm.core.election import LeadershipLost
from lcm.core.results import Requeue, Retry
from lcm.core.telemetry import Telemetry
from lcm.domain.errors import Unreachable
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.states import SessionStatus
from lcm.domain.launch import InstanceId
from lcm.domain.worker import Worker, WorkerInstance
from lcm.lablet_controller.gate import LabGate
from lcm.lablet_controller.observer import LabObserver
from lcm.lablet_controller.ports import PortProbe
from lcm.lablet_controller.reconciler import LabletReconciler
from lcm.lablet_controller.stats import Stats
from lcm.rest.lablet_client import LabletClient
from lcm.rest.lablets import PlacementOrder
from lcm.rest.plane_clock import PlaneClock
from lcm.rest.scheduling_client import SchedulingClient
from lcm.rest.schemas import LABLET_CONTROLLER
from lcm.simulator.cml.server import CmlServer as SimulatedCml
from support import asgi
from support.labs_over_tls import simulated_cml
from support.memory_labs import MemoryCmlLabs
from support.memory_ports import MemoryPortProbe
from support.people import KEYS, PublicDesk

HOST: Final = "10.0.0.1"
LAB: Final = """\
lab: {title: Pair, notes: by ann, version: 0.3.0}
nodes:
- id: n0
  label: pc1
  node_definition: alpine
  x: 0
  y: 0
  tags: ['serial:5001']
  interfaces: [{id: i0, label: eth0, slot: 0, type: physical}]
- id: n1
  label: sw
  node_definition: unmanaged_switch
  x: 9
  y: 0
  interfaces: [{id: i0, label: port0, slot: 0, type: physical}]
links: [{id: l0, n1: n0, i1: i0, n2: n1, i2: i0}]
"""


class Killed(BaseException):
    """The process of the controller ended."""


class Disturbed:
    """Passes calls on; `disturb` is called with the name before and after each and may raise."""

    def __init__(
        self, real: Any, disturb: Callable[[str, bool], None], skipped: Container[str] = frozenset()
    ) -> None:
        self._real = real
        self._disturb = disturb
        self._skipped = skipped
        """Calls that are answered and have no effect."""

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._real, name)

        async def disturbed(*arguments: Any, **options: Any) -> Any:
            self._disturb(name, False)
            answer = None if name in self._skipped else await call(*arguments, **options)
            self._disturb(name, True)
            return answer

        return disturbed


class LabletBench(PublicDesk):
    """People, a worker `w1` with a CML, a placed session, and a controller."""

    options: Mapping[str, Any] = {}
    """Options of the definition that is booked."""
    lab_yaml = LAB

    async def open(self, **booking: Any) -> "LabletBench":
        await super().open()
        self.cml = simulated_cml(host=HOST, running_since=self.clock.now().timestamp())
        self.labs = MemoryCmlLabs(self.clock)
        self.labs.servers[HOST] = self.cml
        self.ports = MemoryPortProbe(self.clock, self.labs.servers)
        self.controller_clock: Clock = self.clock
        """The controller's own clock."""
        self.port_probe: PortProbe | None = self.ports
        await self.change_worker(
            lambda worker: replace(
                worker, instance=WorkerInstance(id=InstanceId("i-1"), public_ip=HOST, type="m5zn.metal")
            )
        )
        self.epochs: dict[str, int] = {}
        self.scheduler = SchedulingClient(
            self, KEYS.controller, "resource-scheduler", lambda: self.epochs["resource-scheduler"]
        )
        self.epochs["resource-scheduler"] = 0
        self.epochs["resource-scheduler"] = await self.scheduler.claim_leadership("etcd", 1, "s")
        self.calls: list[str] = []
        self.disturb: Callable[[int, str, bool], None] = lambda number, name, is_done: None
        """Called with the number and the name of each call of the controller."""
        self.skipped: set[str] = set()
        """Calls of CML that are answered and have no effect."""
        self.revision = 0
        await self.define(lab_yaml=self.lab_yaml, options=dict(self.options))
        await self.restart_controller()
        self.session_id = (await self.book(**booking))["id"]
        await self.place()
        return self

    async def send(self, method: str, path: str, headers: Any, body: bytes | None) -> tuple[int, bytes]:
        return await asgi.request(self.parts.app, method, path, headers, body)

    async def place(self) -> None:
        session = await self.session()
        order = PlacementOrder(session_id=session.id, worker_id="w1", attempt=session.attempt + 1)
        [result] = await self.scheduler.schedule([order])
        assert result.outcome == "scheduled", result

    async def restart_controller(self) -> LabletReconciler:
        """Another process is elected; it knows nothing."""
        self.revision += 1
        self.reconciler = await self.new_controller(self.revision)
        return self.reconciler

    async def new_controller(self, revision: int) -> LabletReconciler:
        epoch = [0]
        plane_clock = PlaneClock(self.controller_clock)
        client = LabletClient(self, KEYS.controller, LABLET_CONTROLLER, lambda: epoch[0], plane_clock)
        epoch[0] = await client.claim_leadership("etcd", revision, f"c{revision}")
        plane: Any = Disturbed(client, self._note)
        labs: Any = Disturbed(self.labs, self._note, self.skipped)

        def check_leadership() -> None:
            if revision != self.revision:
                raise LeadershipLost("the lease is over")

        observer = LabObserver(labs, plane, plane_clock, lands_within_seconds=120)
        return LabletReconciler(
            plane,
            observer,
            LabGate(labs, plane, observer.fleet_id, check_leadership),
            lambda worker: server_of(worker, use_private_ip=False),
            plane_clock,
            Stats(Telemetry()),
            lab_lead=timedelta(minutes=5),
            start_timeout=timedelta(seconds=300),
            port_probe=self.port_probe,
        )

    def _note(self, name: str, is_done: bool) -> None:
        if not is_done:
            self.calls.append(name)
        self.disturb(len(self.calls), name, is_done)

    def die_once_after(self, name: str) -> list[str]:
        """End the controller after the next call of this name; it is named in the list then."""
        died: list[str] = []

        def die(_: int, called: str, is_done: bool) -> None:
            if called == name and is_done and not died:
                died.append(name)
                raise Killed

        self.disturb = die
        return died

    async def step(self, reconciler: LabletReconciler | None = None) -> None:
        """One reconcile, and the wait that follows from it."""
        reconciler = reconciler or self.reconciler
        try:
            session = await reconciler.fetch_single_resource(self.session_id)
            if session is None:
                return
            result = await reconciler.reconcile_resource(session)
        except Unreachable as error:
            result = Retry(str(error))
        except Killed:
            await self.restart_controller()
            return
        match result:
            case Requeue(_, seconds):
                await self.clock.sleep(seconds or 0.01)
            case Retry(_, at_least):
                await self.clock.sleep(max(at_least, 1.0))

    async def reconcile_as(self, reconciler: LabletReconciler) -> None:
        """One reconcile of a controller that may have been replaced."""
        await reconciler.reconcile_resource(await self.session())

    async def drive(self, *until: SessionStatus, steps: int = 200) -> LabletSession:
        for _ in range(steps):
            session = await self.session()
            if session.status in until:
                return session
            await self.step()
        raise AssertionError(f"still {(await self.session()).status}: {(await self.session()).status_reason}")

    async def end(self) -> None:
        answer = await self.operator.post(f"/api/lablet-sessions/{self.session_id}/end")
        assert answer.status == 202, answer.text

    async def session(self) -> LabletSession:
        session = await find_session(self.records, self.session_id)
        assert session is not None
        return session

    async def worker(self) -> Worker:
        return await self.records.workers.get("w1")

    async def change_worker(self, change: Callable[[Worker], Worker]) -> None:
        await self.records.workers.change("w1", change)

    def titles(self, cml: SimulatedCml | None = None) -> list[str]:
        return [lab.title for lab in (cml or self.cml).labs.all()]
