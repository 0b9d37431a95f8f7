"""Invariants of fleet maintenance: sweeps, licenses, rate limits, and conclusions from reads."""

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from lcm.control_plane.commands.license_worker import DEBT
from lcm.control_plane.store.port import Document, Fence
from lcm.domain.launch import MANAGED_BY, MANAGED_BY_TAG, WORKER_ID_TAG, InstanceId, WorkerId, client_token
from lcm.domain.license import LicenseOperation, LicenseStatus
from lcm.domain.lifecycle import PENDING, RUNNING, STOPPED, TERMINATED
from lcm.domain.observation import ABSENCE_READS, ABSENCE_SPAN
from lcm.domain.orphans import GRACE_SECONDS
from lcm.domain.worker import Instance, Worker
from lcm.worker_controller.sweeps.orphans import OURS, REASON
from simulation.invariants.base import Invariant
from simulation.world.calls import Call
from simulation.world.processes import Process
from simulation.world.world import World
from support.memory_cloud import MemoryInstance

CHANGES: Final = (
    "ec2.launch_instance",
    "ec2.start_instance",
    "ec2.stop_instance",
    "ec2.terminate_instance",
)
RECORDS: Final = "http.GET /api/internal/workers"
TEMPLATES: Final = "http.GET /api/internal/worker-templates/by-name/"
SWEPT_LIST: Final = " ".join(f"{key}={value}" for key, value in OURS.items())
LATEST_LANDING_SECONDS: Final = 300.0

Life = tuple[str, int]
"""One incarnation of a process; what it was shown ends with it."""


def life_of(process: Process) -> Life:
    return process.name, process.incarnation


@dataclass
class Reads:
    """What one incarnation has read."""

    since: float
    ec2_asked_at: float = float("-inf")
    """When it last sent EC2 a read that was answered."""
    listed_at: float = float("-inf")
    """When it last listed the instances with our tags, and got all of them."""
    records_asked_at: float = float("-inf")
    unowned_since: dict[InstanceId, float] = field(default_factory=dict)
    """In every list since then, and owned by no record."""
    described_at: dict[str, float] = field(default_factory=dict)
    """When it last described each single instance."""


class I9DestructionGuard(Invariant):
    """Nothing changes at EC2 on a read older than two polls. A swept instance carries our tags, was never
    imported, was unowned in complete lists ten minutes apart, the records read after the last of them, and
    was itself described once more; sweeps are switched on, not within ten minutes of a start, and at most a
    tenth of the fleet, at least one, in ten minutes."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._reads: dict[Life, Reads] = {}
        self._swept: deque[float] = deque()
        self._ended: deque[float] = deque()

    def on_call(self, process: Process, call: Call) -> None:
        if process.role != "controller":
            return
        reads = self._reads.get(life_of(process))
        if reads is None:
            reads = self._reads[life_of(process)] = Reads(call.at)
        if call.site in CHANGES:
            knobs = self.world.knobs
            oldest = 2 * (knobs.reconcile_interval + knobs.no_answer_seconds) + 5.0
            age = call.at - reads.ec2_asked_at
            self.require(age <= oldest, f"{call.site} {call.subject} on a read {age:.0f} s old")
        if call.site in CHANGES[1:] and self.world.disk.owner_of(call.subject) is None:
            self._judge_sweep(reads, call)

    def on_answer(self, process: Process, call: Call, answer: Any) -> None:
        if process.role != "controller" or call.mutates:
            return
        reads = self._reads[life_of(process)]
        if call.site.startswith("ec2."):
            reads.ec2_asked_at = max(reads.ec2_asked_at, call.at)
        if call.site == "ec2.describe_instance":
            reads.described_at[call.subject] = call.at
        if call.site == RECORDS:
            reads.records_asked_at = max(reads.records_asked_at, call.at)  # answers may overtake each other
        if call.site == "ec2.list_instances" and call.subject == SWEPT_LIST:
            reads.listed_at = call.at
            unowned = (i.id for i in answer if not i.is_gone and self.world.disk.owner_of(i.id) is None)
            reads.unowned_since = {i: reads.unowned_since.get(i, call.at) for i in unowned}

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        is_ended = before is not None and before.status is not after.status
        if is_ended and after.status is TERMINATED and after.status_reason.startswith(REASON):
            # What was decided ten minutes after the last may have landed late.
            self._spend(self._ended, GRACE_SECONDS - LATEST_LANDING_SECONDS)

    def _judge_sweep(self, reads: Reads, call: Call) -> None:
        instance, now = self.world.cloud.instances[InstanceId(call.subject)], call.at
        is_imported = any(w.imported and w.instance.id == instance.id for w in self.world.disk.peek_all())
        owner = WorkerId(instance.tags.get(WORKER_ID_TAG, ""))
        self.require(
            call.site == "ec2.terminate_instance", f"{call.site} of {instance.id}, which has no owner"
        )
        self.require(self.world.knobs.orphan_termination, f"{instance.id} is swept, which is switched off")
        self.require(instance.tags.get(MANAGED_BY_TAG) == MANAGED_BY, f"{instance.id} is not ours")
        launches = {client_token(owner, generation) for generation in range(1, 10)}
        self.require(instance.token in launches, f"no launch of ours made {instance.id}")
        self.require(not is_imported, f"{instance.id} was imported")
        age = now - reads.listed_at
        self.require(age <= 2 * self.world.knobs.discovery_interval, f"swept by a list {age:.0f} s old")
        self.require(reads.records_asked_at >= reads.listed_at, "records are read after the list")
        is_read_again = reads.described_at.get(instance.id, float("-inf")) >= reads.listed_at
        self.require(is_read_again, f"{instance.id} is swept without a second read")
        self.require(now - reads.since >= GRACE_SECONDS, "swept soon after a start")
        since = reads.unowned_since.get(instance.id, now)
        self.require(now - since >= GRACE_SECONDS, f"{instance.id} was unowned for {now - since:.0f} s")
        self._spend(self._swept, GRACE_SECONDS)

    def _spend(self, times: deque[float], window: float) -> None:
        now = self.world.clock.monotonic()
        while times and now - times[0] >= window:
            times.popleft()
        times.append(now)
        fleet = sum(worker.status is not TERMINATED for worker in self.world.disk.peek_all())
        self.require(len(times) <= max(1, fleet // 10), f"{len(times)} of {fleet} swept in ten minutes")


class NoLoginBeforeTrust(Invariant):
    """No login of LCM reaches a server that nobody trusted: LCM launched its instance, the allow-list has it,
    or an admin requested its adoption. Its tags say nothing."""

    def on_login(self, instance: MemoryInstance) -> None:
        owner = WorkerId(instance.spec.tags.get(WORKER_ID_TAG, ""))
        is_ours = instance.token in {client_token(owner, generation) for generation in range(1, 10)}
        is_trusted = self.world.knobs.is_import_allowed or instance.id in self.world.adopted
        self.require(is_ours or is_trusted, f"the CML of {instance.id} gets a login and is not adopted")


class I16Licenses(Invariant):
    """No instance is terminated while the pool counts a license for it, unless that is recorded as a debt;
    no more workers are and stay registered than the pool has licenses; at rest every license that the pool
    counts and no worker has is a debt."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._debts: set[str] = set()

    def on_document(self, before: Document | None, after: Document, fence: Fence | None) -> None:
        if after.kind == DEBT:
            self._debts.add(after.id)

    def on_effect(self, process: Process, call: Call) -> None:
        if call.site == "ec2.terminate_instance" and call.subject in self.world.licensing.registered:
            self.require(self._is_debt(call.subject), f"{call.subject} is terminated with its license")

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        if _is_licensed(after):
            licensed = sum(map(_is_licensed, self.world.disk.peek_all()))
            self.require(licensed <= self.world.licensing.pool.size, f"{licensed} are registered")

    def at_rest(self) -> None:
        licensing = self.world.licensing
        for instance_id in sorted(licensing.held):
            is_lost = (
                instance_id in licensing.owed or self.world.cloud.instances[InstanceId(instance_id)].is_gone
            )
            self.require(
                not is_lost or self._is_debt(instance_id), f"no debt for the license of {instance_id}"
            )

    def _is_debt(self, instance_id: str) -> bool:
        tagged = self.world.cloud.instances[InstanceId(instance_id)].spec.tags.get(WORKER_ID_TAG)
        recorded = (w.id for w in self.world.disk.peek_all() if w.instance.id == instance_id)
        return tagged in self._debts or any(worker_id in self._debts for worker_id in recorded)


class I16Terms(Invariant):
    """A registration that was requested with terms is complete only when the server has them."""

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        if before is None or before.license.pending_operation is not LicenseOperation.REGISTER:
            return
        instance_id, terms = after.instance.id, before.license.terms
        is_complete = _is_licensed(after) and not _is_licensed(before)
        if not is_complete or instance_id not in self.world.licensing.registered:
            return
        state = self.world.licensing.truth_of(instance_id)
        has_product = terms.product_license in (None, state.tier)
        self.require(has_product, f"{after.name} is registered as {state.tier}, not as requested")
        has_nodes = terms.node_count in (None, state.node_count)
        self.require(has_nodes, f"{after.name} is registered with {state.node_count} more nodes")


class I16RecordsFollowCml(Invariant):
    """At rest, where licenses are read, a worker is recorded as registered if and only if its server is."""

    def at_rest(self) -> None:
        if self.world.live is None:
            return
        registered = self.world.licensing.registered
        for worker in self.world.disk.peek_all():
            if worker.status is RUNNING and worker.cml.is_ready and not worker.license.pending_operation:
                is_recorded = worker.license.status is LicenseStatus.REGISTERED
                is_held = worker.instance.id in registered
                text = f"{worker.name} is recorded {worker.license.status}, and registered: {is_held}"
                self.require(is_recorded is is_held, text)


def _is_licensed(worker: Worker) -> bool:
    """Whether its record says so; one that deregisters may no longer have a license."""
    return worker.license.status is LicenseStatus.REGISTERED and worker.license.pending_operation is None


class I18Buckets(Invariant):
    """A controller changes things at EC2 no faster than its rate limit allows."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._last: dict[tuple[Life, str], float] = {}

    def on_call(self, process: Process, call: Call) -> None:
        rate = self.world.knobs.ec2_changes_per_second
        if rate and call.site in CHANGES:
            key = (life_of(process), call.site)
            gap = call.at - self._last.get(key, float("-inf"))
            self._last[key] = call.at
            self.require(gap >= 1 / rate - 0.01, f"{call.site} {gap:.2f} s after the last")


def _of_last_minute(times: deque[float], now: float) -> int:
    """Their number in the last minute, with this one."""
    times.append(now)
    while now - times[0] > 60:
        times.popleft()
    return len(times)


@dataclass
class Attempts:
    """One call that a controller repeats."""

    in_a_row: int = 0
    """Attempts since the last answer."""
    first_at: float = 0.0
    retried_at: deque[float] = field(default_factory=deque)
    """In the last minute, without an answer to the one before."""


class I18Retries(Invariant):
    """What EC2 or the control plane does not answer is repeated at most ten times in a minute, and as often
    as a tenth of all the calls of that controller; a change at EC2 that is not answered eight times in a
    row took at least a minute over it. (Two loops read the records, the poll and the watch. The template is
    asked for by each launch. Elections and CML boots are waited for.)"""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._attempts: dict[tuple[Life, str, str], Attempts] = {}
        self._minute: dict[Life, deque[float]] = defaultdict(deque)

    def on_call(self, process: Process, call: Call) -> None:
        if process.role != "controller":
            return
        calls = _of_last_minute(self._minute[life_of(process)], call.at)
        if not call.site.startswith(("ec2.", "http.")):
            return
        asked = self._attempts.setdefault((life_of(process), call.site, call.subject), Attempts())
        asked.in_a_row += 1
        if asked.in_a_row == 1:
            asked.first_at = call.at
            return
        what, took = f"{call.site} {call.subject}", call.at - asked.first_at
        retries = _of_last_minute(asked.retried_at, call.at)
        loops = self._loops_that_call(call.site)
        self.require(retries <= 10 * loops + 0.1 * calls, f"{what}: repeated {retries} times in a minute")
        is_too_quick = call.site in CHANGES and asked.in_a_row >= 8 and took < 60
        self.require(not is_too_quick, f"{what}: {asked.in_a_row} attempts within {took:.0f} s")

    def _loops_that_call(self, site: str) -> int:
        if site.startswith(TEMPLATES):
            return max(1, sum(worker.status is PENDING for worker in self.world.disk.peek_all()))
        return 2 if site == RECORDS else 1

    def on_answer(self, process: Process, call: Call, answer: Any) -> None:
        asked = self._attempts.get((life_of(process), call.site, call.subject))
        if asked is not None:
            asked.in_a_row = 0


@dataclass
class Observed:
    """What one incarnation was shown of one instance; an older answer may arrive while it reports a newer."""

    shown_at: dict[str, float] = field(default_factory=dict)
    """When it last sent a read that showed each state."""
    misses: int = 0
    missed_since: float = 0.0
    was_missing: bool = False
    """Missing often enough, over enough time."""


class I19OnlyWhatWasObserved(Invariant):
    """A worker is recorded stopped or terminated only after EC2 reported it since the last requested change,
    and missing only after three complete reads over five minutes did not show it."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._observed: dict[tuple[Life, InstanceId], Observed] = defaultdict(Observed)
        self._changed_at: dict[str, float] = {}

    def on_call(self, process: Process, call: Call) -> None:
        if call.site in CHANGES[1:]:
            self._changed_at[call.subject] = call.at

    def on_answer(self, process: Process, call: Call, answer: Any) -> None:
        life = life_of(process)
        match call.site:
            case "ec2.list_instances":
                self._see(life, answer, call.at)
            case "ec2.describe_instance":
                self._see(life, [answer] if answer else [], call.at)
                if answer is None:
                    self._miss(life, InstanceId(call.subject), call.at)
            case "ec2.describe_instances":
                self._see(life, answer, call.at)
                for missing in set(call.subject.split()) - {instance.id for instance in answer}:
                    self._miss(life, InstanceId(missing), call.at)

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        if before is None or before.status is after.status or before.instance.id is None:
            return
        is_lost = after.status is PENDING and before.status is RUNNING
        if after.status is STOPPED:
            self.require(self._was_shown(before, "stopped"), f"{after.name} was not observed stopped")
        elif after.status is TERMINATED or is_lost:
            is_seen = self._was_shown(before, "terminated")
            self.require(is_seen, f"{after.name} is {after.status} and was not observed gone")

    def _was_shown(self, worker: Worker, state: str) -> bool:
        assert worker.instance.id is not None
        changed_at = self._changed_at.get(worker.instance.id, float("-inf"))
        sights = self._observed_of(worker.instance.id)
        return any(s.was_missing or s.shown_at.get(state, float("-inf")) >= changed_at for s in sights)

    def _observed_of(self, instance_id: InstanceId) -> list[Observed]:
        return [sight for (_, seen_id), sight in self._observed.items() if seen_id == instance_id]

    def _see(self, life: Life, instances: Iterable[Instance], at: float) -> None:
        for instance in instances:
            sight = self._observed[life, instance.id]
            sight.shown_at[instance.state] = at
            sight.misses = 0

    def _miss(self, life: Life, instance_id: InstanceId, at: float) -> None:
        sight = self._observed[life, instance_id]
        if not sight.misses:
            sight.missed_since = at
        sight.misses += 1
        span = at - sight.missed_since
        if sight.misses >= ABSENCE_READS and span >= ABSENCE_SPAN.total_seconds():
            sight.was_missing = True
