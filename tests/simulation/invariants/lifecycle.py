"""Invariants of workers, instances and leaders."""

import asyncio
from collections import Counter, defaultdict, deque

from lcm.control_plane.store.port import Document, Fence
from lcm.domain.launch import MAX_UNATTENDED_LAUNCHES, WORKER_ID_TAG, WorkerId
from lcm.domain.lifecycle import (
    EC2_STATES,
    PENDING,
    RUNNING,
    STARTING,
    STOPPED,
    STOPPING,
    TERMINATED,
    TERMINATING,
    is_allowed,
)
from lcm.domain.worker import Worker
from simulation.invariants.base import Invariant
from simulation.world.calls import Call
from simulation.world.processes import ControllerProcess, Process
from simulation.world.world import World


class I1OneLiveInstance(Invariant):
    """A worker never has more than one live instance."""

    def on_effect(self, process: Process, call: Call) -> None:
        if call.site == "ec2.launch_instance":
            worker_id = call.subject.split(" ")[0]
            live = self.world.cloud.live_instances(worker_id)
            self.require(len(live) <= 1, f"worker {worker_id} has {len(live)} live instances")


class I2Bijection(Invariant):
    """At rest every live instance of ours has exactly one record, and every record's instance exists."""

    def at_rest(self) -> None:
        workers = {worker.id: worker for worker in self.world.disk.peek_all()}
        for instance in self.world.cloud.instances.values():
            worker_id = instance.spec.tags.get(WORKER_ID_TAG, "")
            if instance.is_gone or worker_id.startswith("foreign"):
                continue
            imported = self.world.disk.owner_of(instance.id)
            worker = workers.get(WorkerId(worker_id)) if worker_id else imported
            self.require(
                worker is not None and worker.instance.id == instance.id,
                f"{instance.id} ({instance.state}) runs without a record",
            )
        for worker in workers.values():
            if worker.status in (RUNNING, STOPPED) and worker.instance.id is not None:
                self.require(
                    worker.instance.id in self.world.cloud.instances,
                    f"{worker.name} names an instance that does not exist",
                )


class I3IntentFirst(Invariant):
    """When EC2 launches, the record already holds that token and those parameters."""

    def on_effect(self, process: Process, call: Call) -> None:
        if call.site == "ec2.launch_instance":
            worker_id, token = call.subject.split(" ")
            worker = self.world.disk.peek(worker_id)
            intent = worker.launch.intent if worker else None
            self.require(intent is not None and intent.client_token == token, f"{token} has no launch intent")
            instance = next(m for m in self.world.cloud.instances.values() if m.token == token)
            assert intent is not None
            self.require(intent.spec == instance.spec, f"{token} has an intent with other parameters")


class I4BoundedLaunches(Invariant):
    """No more instances than launch generations, and at most three of those without a person's request."""

    def on_effect(self, process: Process, call: Call) -> None:
        if call.site == "ec2.launch_instance":
            worker_id = call.subject.split(" ")[0]
            worker = self.world.disk.peek(worker_id)
            created = sum(
                instance.spec.tags.get(WORKER_ID_TAG) == worker_id
                for instance in self.world.cloud.instances.values()
            )
            assert worker is not None
            self.require(created <= worker.launch.generation, f"{created} instances for {worker_id}")
            self.require(worker.launch.unattended <= MAX_UNATTENDED_LAUNCHES, "too many unattended launches")


class I5LegalTransitions(Invariant):
    """Every commit is a row of the table; nothing follows TERMINATED."""

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        if before is None:
            begins = (PENDING, *EC2_STATES.values()) if after.imported else (PENDING,)
            self.require(after.status in begins, f"a worker begins {after.status}")
            return
        self.require(before.status is not TERMINATED, f"{after.name} changed after it was TERMINATED")
        self.require(
            before.status is after.status or is_allowed(before.status, after.status, observed=True),
            f"{before.status} -> {after.status}",
        )


DECIDED = {
    "ec2.start_instance": STARTING,
    "ec2.stop_instance": STOPPING,
    "ec2.terminate_instance": TERMINATING,
}


class I7NewestIntent(Invariant):
    """Every start, stop and terminate was recorded before, and the record still says so."""

    def on_call(self, process: Process, call: Call) -> None:
        decided = DECIDED.get(call.site)
        is_sweep = call.site == "ec2.terminate_instance" and self.world.disk.owner_of(call.subject) is None
        if decided is not None and not is_sweep:  # a sweep is judged by I9
            self.require(call.state.split(">")[0] == decided.value, f"{call.site} while {call.state}")


class I8Fencing(Invariant):
    """Epochs of accepted writes never decrease; no process acts past its deadline; one leads at a time."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._newest: dict[str, int] = defaultdict(int)
        """By service."""

    def on_document(self, before: Document | None, after: Document, fence: Fence | None) -> None:
        if after.kind == "leadership":
            self._newest[after.id] = max(self._newest[after.id], after.version)
        if fence is not None:
            newest = self._newest[fence.id]
            self.require(fence.version >= newest, f"{fence.id}: epoch {fence.version} after {newest}")

    def on_call(self, process: Process, call: Call) -> None:
        leaders = self.world.leaders()
        for rivals in (leaders, self.world.leading_schedulers()):
            if len(rivals) > 1:
                names = [leader.name for leader in rivals]
                self.require(self.world.was_wiped_recently, f"{names} lead at once")
        if call.mutates and call.site.startswith("ec2."):
            self.require(process in leaders, f"{process.name} acts past its deadline")
            if not self.world.was_wiped_recently:
                is_holder = isinstance(process, ControllerProcess) and process.holds_the_lease
                self.require(is_holder, f"{process.name} acts without the lease")


class I11DurableAcknowledgements(Invariant):
    """What was answered with 202 is in the record, unless a newer request replaced it."""

    def at_rest(self) -> None:
        for worker_id, generation in self.world.acknowledged.items():
            worker = self.world.disk.peek(worker_id)
            self.require(
                worker is not None and worker.generation >= generation,
                f"request {generation} of {worker_id} is lost",
            )


class I12NoLostUpdate(Invariant):
    """The versions of a record are 1, 2, 3 … without a gap."""

    def on_document(self, before: Document | None, after: Document, fence: Fence | None) -> None:
        expected = before.version + 1 if before else 1
        self.require(
            after.version == expected, f"{after.kind} {after.id}: {after.version} after {expected - 1}"
        )


class I13Idempotent(Invariant):
    """A creation that is sent again with its idempotency key makes one worker and gets the same answer."""

    def at_rest(self) -> None:
        names = Counter(worker.name for worker in self.world.disk.peek_all())
        twice = [name for name, count in names.items() if count > 1]
        self.require(not twice, f"{twice} were created more than once")


class I14Monotonic(Invariant):
    """Generation never decreases, and a worker's history only grows."""

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        if before is not None:
            self.require(after.generation >= before.generation, "the generation went back")
            self.require(
                after.launch.generation >= before.launch.generation, "the launch generation went back"
            )
            self.require(after.launch.unattended <= MAX_UNATTENDED_LAUNCHES, "too many unattended launches")


class I17Bounded(Invariant):
    """At rest no queue is long and no process has collected tasks."""

    def at_rest(self) -> None:
        workers = len(self.world.disk.peek_all())
        for process in self.world.controllers:
            if process.controller is not None:
                waiting = len(process.controller.loop.queue)
                self.require(waiting <= workers, f"{process.name} has a long queue")
        tasks = len(asyncio.all_tasks())
        self.require(tasks <= 100, f"{tasks} tasks at rest")


class I18Rates(Invariant):
    """No process makes the same call more than twenty times in a second; where labs run, none does for any
    session."""

    MOST = 20

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._recent: dict[tuple[str, str, str], deque[float]] = defaultdict(deque)

    def on_call(self, process: Process, call: Call) -> None:
        if process.role == "user" or call.site.startswith("store."):
            return
        times = self._recent[process.name, call.site, call.subject]
        times.append(call.at)
        if len(times) > self.MOST * self._sessions_of(call):
            since = times.popleft()
            self.require(
                call.at - since > 1.0, f"{call.site} {call.subject} {len(times) + 1} times in a second"
            )

    def _sessions_of(self, call: Call) -> int:
        """The number of sessions for which the call may be made."""
        if not self.world.lablets or call.state == "session":
            return 1
        return max(1, sum(not session.is_ended for session in self.world.disk.sessions()))


class I19UnknownIsNotAValue(Invariant):
    """A worker is recorded stopped, terminated or missing only if it really is. (One that was started within
    two minutes may be recorded stopped: EC2 may still show it so.)"""

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        if before is None or before.status is after.status:
            return
        named = self.world.cloud.instances.get(before.instance.id) if before.instance.id else None
        live = self.world.cloud.live_instances(after.id)
        if named is not None and not named.is_gone and named not in live:
            live.append(named)
        if after.status is TERMINATED or (after.status is PENDING and before.status is RUNNING):
            self.require(not live, f"{after.name} is {after.status} but {[m.id for m in live]} lives")
        if after.status is STOPPED:
            now = self.world.clock.monotonic()
            running = [m for m in live if m.state in ("running", "pending")]
            restarted = [m for m in running if now - m.stopped_until < 120]
            self.require(len(running) == len(restarted), f"{after.name} is {after.status} but runs")


class I21Alive(Invariant):
    """At rest exactly one process of each kind leads, and all loops of the controllers are alive."""

    def at_rest(self) -> None:
        leaders, schedulers = self.world.leaders(), self.world.leading_schedulers()
        self.require(len(leaders) == 1, f"{len(leaders)} leaders at rest")
        self.require(len(schedulers) == bool(self.world.schedulers), f"{len(schedulers)} schedulers lead")
        lablets = [process for process in self.world.lablets if process.is_leading]
        self.require(len(lablets) == bool(self.world.lablets), f"{len(lablets)} lablet controllers lead")
        for process in lablets:
            assert process.lablets is not None
            health = process.lablets.service.loop.health
            self.require(not health.silent_loops, f"silent: {health.silent_loops} of {process.name}")
        controller = leaders[0].controller
        assert controller is not None
        health = controller.loop.health
        self.require(not health.silent_loops, f"silent: {health.silent_loops}")
        self.require(not health.freeze_reasons, f"frozen: {health.freeze_reasons}")
