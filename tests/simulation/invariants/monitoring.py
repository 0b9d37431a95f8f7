"""Invariants of live monitoring: activity, connections, logins, polling."""

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from lcm.control_plane.access.secrets import KIND
from lcm.control_plane.commands.change_login import PURPOSE
from lcm.control_plane.store.port import Document, Fence
from lcm.domain.launch import WorkerId
from lcm.domain.lifecycle import RUNNING, TERMINATED
from lcm.domain.worker import Worker
from lcm.worker_controller.monitoring.monitor import CmlWebSocketMonitor
from simulation.invariants.base import Invariant
from simulation.world.calls import Call
from simulation.world.live_fleet import LiveFleet, SimulatedCmlServer
from simulation.world.live_ports import config_of
from simulation.world.processes import ControllerProcess, Process
from simulation.world.world import World

LOGIN = "cml.POST /api/v0/authenticate"
LOAD = "cml.GET /api/v0/system_stats"
LIST = "http.GET /api/internal/workers"
SMALL_SKEW = timedelta(seconds=2)


class LiveInvariant(Invariant):
    """Checks only runs with monitoring."""

    def __init__(self, world: World) -> None:
        if world.live is not None:
            super().__init__(world)
        self.world = world

    @property
    def fleet(self) -> LiveFleet:
        assert self.world.live is not None
        return self.world.live

    def at_rest(self) -> None:
        if self.world.live is not None:
            self.when_monitored_at_rest()

    def when_monitored_at_rest(self) -> None: ...

    def monitored_workers(self) -> list[Worker]:
        return [
            worker
            for worker in self.world.disk.peek_all()
            if worker.is_live and worker.is_trusted and worker.cml.is_ready
        ]

    def monitors_of(self, process: Process) -> list[CmlWebSocketMonitor]:
        """The monitors of a controller that leads and was not frozen a moment ago."""
        is_awake = process.frozen_until < self.world.clock.monotonic() - 5
        if not isinstance(process, ControllerProcess) or process.monitoring is None or not is_awake:
            return []
        return list(process.monitoring.registry.monitors) if process.is_leading else []


class PinsChangeOnlyByPeople(LiveInvariant):
    """The pinned certificate of an instance is replaced only by one that a person accepted."""

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        pinned, now = before.cml.certificate_sha256 if before else None, after.cml.certificate_sha256
        is_replaced = pinned is not None and now not in (None, pinned)
        is_accepted = now in self.world.accepted_certificates
        self.require(not is_replaced or is_accepted, f"{after.name} trusts {now} without a person")


class ActivityCountsOnce(LiveInvariant):
    """A user action is in the record at most once, and at rest exactly once. (Where a clock of LCM was wrong
    by minutes, recorded events cannot be matched with CML telemetry. What concerns labs L25 judges.)"""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._is_left_to_others = bool(world.lablets)

    def on_call(self, process: Process, call: Call) -> None:
        if process.skew and abs(process.skew) > SMALL_SKEW:
            self._is_left_to_others = True

    def on_document(self, before: Document | None, after: Document, fence: Fence | None) -> None:
        worker = self.world.disk.peek(after.id) if after.kind == "worker" else None
        if worker is None or not worker.activity.recent_events or self._is_left_to_others:
            return
        twice = _recorded(worker) - self._done(worker.id)
        self.require(not twice, f"counted more often than done on {worker.name}: {dict(twice)}")

    def when_monitored_at_rest(self) -> None:
        for worker in [] if self._is_left_to_others else self.monitored_workers():
            lost = self._distinguishable(worker.id, worker.instance.id) - _recorded(worker)
            self.require(not lost, f"lost on {worker.name}: {dict(lost)}")

    def _done(self, worker_id: str) -> Counter[tuple[str, str | None]]:
        return Counter(
            (action.category, action.lab_id)
            for action in self.fleet.user_actions
            if action.worker_id == worker_id
        )

    def _distinguishable(self, worker_id: str, on: str | None) -> Counter[tuple[str, str | None]]:
        """User actions of one kind at one moment are one entry of CML telemetry."""
        actions = self.fleet.user_actions
        here = (action for action in actions if (action.worker_id, action.instance_id) == (worker_id, on))
        moments = {(action.category, action.lab_id, action.at) for action in here}
        return Counter((category, lab_id) for category, lab_id, _ in moments)


def _recorded(worker: Worker) -> Counter[tuple[str, str | None]]:
    return Counter((event.category, event.lab_id) for event in worker.activity.recent_events)


class SocketsAreTheLeaders(LiveInvariant):
    """No process connects twice to a server; at rest only the leader is connected, to each worker."""

    def on_call(self, process: Process, call: Call) -> None:
        if call.site == "ws.connect":
            server = self.fleet.server_of(call.subject)
            mine = [s for s in self.fleet.sockets_of(process) if server and s in server.sockets]
            self.require(not mine, f"{process.name} is connected to {call.subject} and connects again")

    def when_monitored_at_rest(self) -> None:
        [leader] = self.world.leaders()
        for process in self.world.controllers:
            held = self.fleet.sockets_of(process)
            expected = len(self.monitored_workers()) if process is leader else 0
            self.require(len(held) == expected, f"{process.name} holds {len(held)} sockets, not {expected}")
            self.require(all(socket.is_authorized for socket in held), "a connection without a login")


class ConnectionChangesArePublishedOnce(LiveInvariant):
    """Pages get connected and disconnected events in turn; at rest record and pages show the actual state."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._published: dict[str, bool] = {}

    def on_event(self, event: str, data: Mapping[str, Any]) -> None:
        if event in ("reset", "connected"):
            self._published.clear()
        elif event in ("worker.ws.connected", "worker.ws.disconnected"):
            is_connected = event == "worker.ws.connected"
            worker_id = data["worker_id"]
            self.require(self._published.get(worker_id) is not is_connected, f"{event} twice for {worker_id}")
            self._published[worker_id] = is_connected

    def when_monitored_at_rest(self) -> None:
        watched = {worker.id for worker in self.monitored_workers()}
        for worker in self.world.disk.peek_all():
            expected = worker.id in watched
            recorded = (worker.connection.is_connected, bool(worker.connection.published))
            self.require(
                recorded == (expected, expected), f"{worker.name}: {worker.connection.status} at rest"
            )
            published = self._published.get(worker.id, expected)
            self.require(published is expected, f"pages show {published} for the connection to {worker.name}")


class RefusedLoginsAreRare(LiveInvariant):
    """A login that an instance refused three times is not tried there again for two minutes. (Refusals are
    known to the leadership that got them: the next one, after an election, has three tries of its own.)"""

    def on_call(self, process: Process, call: Call) -> None:
        server = self.fleet.server_of(call.subject) if call.site == LOGIN else None
        if server is not None:
            self._judge(server)

    def when_monitored_at_rest(self) -> None:
        for worker in self.monitored_workers():
            server = self.fleet.server_of(worker.id)
            if server is not None:
                self._judge(server)

    def _judge(self, server: SimulatedCmlServer) -> None:
        times: dict[tuple[str, str], deque[float]] = defaultdict(lambda: deque(maxlen=4))
        for refusal in server.refusals:
            recent = times[refusal.by, refusal.password]
            recent.append(refusal.at)
            is_often = len(recent) == 4 and recent[-1] - recent[0] < 120
            self.require(not is_often, f"refused at {list(recent)}, and tried again")


class LoginsAreKept(LiveInvariant):
    """The password of a login that a record names can be read."""

    def when_monitored_at_rest(self) -> None:
        for worker in self.world.disk.peek_all():
            if worker.cml.login is not None:
                place = f"{PURPOSE}/{worker.cml.login.secret_ref}"
                self.require(self.world.disk.has(KIND, place), f"the password of {worker.name} is lost")


class ConnectsAreRare(LiveInvariant):
    """However a connection ends, no process connects to a worker more than fifteen times in a minute."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._recent: dict[tuple[str, str], deque[float]] = defaultdict(lambda: deque(maxlen=16))

    def on_call(self, process: Process, call: Call) -> None:
        if call.site == "ws.connect":
            times = self._recent[process.name, call.subject]
            times.append(call.at)
            if len(times) == 16:
                self.require(call.at - times[0] > 60, f"16 connects to {call.subject} in a minute")


class PollingStandsIn(LiveInvariant):
    """While a live connection delivers, its worker is not polled for its load."""

    def on_call(self, process: Process, call: Call) -> None:
        if call.site == LOAD:
            for monitor in self.monitors_of(process):
                seconds = monitor.connected_seconds or 0.0
                is_long = monitor.worker_id == call.subject and seconds > 30
                self.require(not is_long, f"{call.subject} polled, live for {seconds:.0f} s")


class SilenceIsNoticed(LiveInvariant):
    """A connection silent for longer than the health timeout and one sweep is not shown as connected."""

    def on_call(self, process: Process, call: Call) -> None:
        if call.site == LIST:
            config = config_of(self.world.knobs)
            noticed_within = config.health_timeout + config.sweep_seconds + 1
            for monitor in self.monitors_of(process):
                if monitor.is_connected and monitor.last_message_at is not None:
                    silent = call.at - monitor.last_message_at
                    is_noticed = silent <= noticed_within
                    self.require(is_noticed, f"{monitor.worker_id} silent for {silent:.0f} s")


class LiveMemoryIsBounded(LiveInvariant):
    """At rest no report waits, and nothing is kept of terminated workers."""

    def when_monitored_at_rest(self) -> None:
        known = {worker.id for worker in self.world.disk.peek_all() if worker.status is not TERMINATED}
        for process in self.world.leaders():
            assert process.monitoring is not None
            registry, reporter = process.monitoring.registry, process.monitoring.reporter
            for ledger in registry.activity_logs.values():
                self.require(ledger.is_confirmed, f"activity of {ledger.worker_id} is not confirmed")
            self.require(registry.activity_logs.keys() <= known, "ledgers of workers that are gone")
            watched = {monitor.worker_id for monitor in registry.monitors}
            running = {
                WorkerId(w.id) for w in self.world.disk.peek_all() if w.status is RUNNING and w.is_trusted
            }
            self.require(watched == running, f"watched {watched}, running {running}")
            waiting = len(reporter._changes) + len(reporter._activity_logs) + len(reporter._statuses)
            self.require(waiting == 0, f"{waiting} reports are to be told")
