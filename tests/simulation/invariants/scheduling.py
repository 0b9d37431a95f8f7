"""Invariants of lablet sessions: their claims on workers, the queue, windows, and what schedulers decide."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from lcm.control_plane.store.port import Document, Fence
from lcm.domain.capacity import Capacity
from lcm.domain.lablet.audit import LabletAuditEntry, LabletEvent
from lcm.domain.lablet.claim import Claim
from lcm.domain.lablet.cycle import queue_order
from lcm.domain.lablet.decision import Decision, Outcome
from lcm.domain.lablet.placement import PlacementEngine
from lcm.domain.lablet.session import LabletSession, SessionDesiredStatus
from lcm.domain.lablet.session_changes import TIMESLOT_MISSED
from lcm.domain.lablet.snapshot import Snapshot
from lcm.domain.lablet.states import (
    PENDING,
    PENDING_SCHEDULING,
    SCHEDULED,
    STOPPING,
    WITHOUT_CLAIM,
    SessionStatus,
    is_allowed,
)
from lcm.domain.lifecycle import (
    FAILED,
    PROVISIONING,
    RUNNING,
    STARTING,
    STOPPED,
    TERMINATED,
    TERMINATING,
    DesiredStatus,
)
from lcm.domain.lifecycle import PENDING as WORKER_PENDING
from lcm.domain.worker import Worker
from lcm.rest.lablets import PlacementOrders, SessionRejected, WaitingReport
from simulation.invariants.base import Invariant
from simulation.invariants.idle import is_new_stop_request
from simulation.world.calls import Call
from simulation.world.processes import Process, ProcessClock, SchedulerProcess, times_of
from simulation.world.world import World

SNAPSHOT: Final = "/api/internal/scheduling/snapshot"
SCHEDULE: Final = "/api/internal/lablet-sessions/schedule"
WAITING: Final = "/api/internal/lablet-sessions/waiting"
REJECT: Final = "/reject"

STALE_SECONDS: Final = 180.0
"""A sweep each minute, two of them a minute apart, and the minute before the first."""
SCAN_SECONDS: Final = 60.0
CYCLE_SECONDS: Final = 30.0
SLACK_SECONDS: Final = 15.0
LEAST_USE: Final = timedelta(minutes=5)
"""A session that could not be used for that long is missed earlier."""
AMOUNTS: Final = ("cpu", "memory_gb", "storage_gb", "nodes")

ClaimKey = tuple[str, int]
"""A session and its attempt."""


def key_of(claim: Claim) -> ClaimKey:
    return claim.session_id, claim.attempt


def claims_of(worker: Worker | None) -> dict[ClaimKey, Claim]:
    return {key_of(claim): claim for claim in worker.claims} if worker is not None else {}


def new_claims(before: Worker | None, after: Worker) -> list[Claim]:
    known = claims_of(before)
    return [claim for claim in after.claims if key_of(claim) not in known]


class _SessionInvariant(Invariant):
    """What invariants of sessions have in common; it checks nothing by itself."""

    @staticmethod
    def applies_to(world: World) -> bool:
        return bool(world.schedulers)

    def healthy_seconds(self, since: float) -> float:
        """How long since then nothing has gone wrong, with time for recovery from what did."""
        recovery = 2 * self.world.knobs.lease_ttl + self.world.knobs.election_retry_seconds
        now = self.world.clock.monotonic()
        return min(now - since, self.world.calm_seconds - recovery)

    @property
    def plane_time(self) -> datetime:
        """What the clock of the control plane says."""
        return self.world.clock.now() + self.world.plane.skew


class L1OneClaim(_SessionInvariant):
    """A placement is claimed on one worker at most, a session is SCHEDULED only if its worker holds its
    claim, and a claim that no session uses is gone within three minutes of a healthy control plane; so is
    one that its session could use, but was not confirmed."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._stale_since: dict[tuple[str, ClaimKey], float] = {}
        self._unconfirmed_since: dict[str, float] = {}

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        held = [key_of(claim) for claim in after.claims]
        self.require(len(set(held)) == len(held), f"{after.name} holds a claim twice: {held}")
        for claim in new_claims(before, after):
            others = [
                worker.name
                for worker in self.world.disk.peek_all()
                if worker.id != after.id and key_of(claim) in claims_of(worker)
            ]
            self.require(not others, f"{after.name} and {others} hold {key_of(claim)}")
        if claims_of(before).keys() != claims_of(after).keys():
            self._find_stale()

    def on_session(self, before: LabletSession | None, after: LabletSession, fence: Fence | None) -> None:
        if after.status is SCHEDULED and before is not None and before.status is not SCHEDULED:
            worker = self.world.disk.peek(after.worker_id or "")
            is_held = (after.id, after.attempt) in claims_of(worker)
            self.require(is_held, f"session {after.id} is SCHEDULED without its claim")
        is_begun = after.status is PENDING_SCHEDULING and after.placement is not None
        _keep(self._unconfirmed_since, after.id, self.world.clock.monotonic(), is_begun)
        self._find_stale()

    def _find_stale(self) -> None:
        now = self.world.clock.monotonic()
        found = {
            (worker.id, key_of(claim)): now
            for worker in self.world.disk.peek_all()
            for claim in worker.claims
            if not claim.is_retained and self._is_stale(worker.id, claim)
        }
        self._stale_since = {key: self._stale_since.get(key, since) for key, since in found.items()}

    def _is_stale(self, worker_id: str, claim: Claim) -> bool:
        session = self.world.disk.session(claim.session_id)
        if session is None or session.is_ended or session.attempt != claim.attempt:
            return True
        holder = session.placement.worker_id if session.placement is not None else session.worker_id
        return holder != worker_id

    def on_call(self, process: Process, call: Call) -> None:
        for key, since in self._stale_since.items():
            age = self.healthy_seconds(since)
            self.require(age <= STALE_SECONDS + SLACK_SECONDS, f"claim {key} is stale for {age:.0f} s")
        for session_id, since in self._unconfirmed_since.items():
            if self.healthy_seconds(since) > STALE_SECONDS + SLACK_SECONDS:
                self.require(not self._is_claimed(session_id), f"the claim of {session_id} is not confirmed")

    def _is_claimed(self, session_id: str) -> bool:
        session = self.world.disk.session(session_id)
        if session is None or session.placement is None:
            return False
        worker = self.world.disk.peek(session.placement.worker_id)
        return (session.id, session.placement.attempt) in claims_of(worker)

    def at_rest(self) -> None:
        self.require(not self._stale_since, f"stale claims at rest: {list(self._stale_since)}")
        for session in self.world.disk.sessions():
            if session.status is SCHEDULED:
                worker = self.world.disk.peek(session.worker_id or "")
                is_held = (session.id, session.attempt) in claims_of(worker)
                self.require(is_held, f"session {session.id} has lost its claim")


class L2Capacity(_SessionInvariant):
    """No commit that adds a claim leaves the claims of a worker above what it may give."""

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        if not new_claims(before, after):
            return
        declared, reserve = after.declared_capacity, after.reserve
        self.require(declared is not None, f"{after.name} is of unknown size")
        assert declared is not None
        for amount in AMOUNTS:
            most = getattr(declared, amount)
            if amount == "cpu":
                most *= reserve.cpu_overcommit
            most -= getattr(reserve, amount, 0.0)
            taken = sum(getattr(claim.needs, amount) for claim in after.claims)
            self.require(taken <= most + 1e-6, f"{after.name}: {amount} {taken} of {most} is claimed")


class L3Ports(_SessionInvariant):
    """No port is granted twice on a worker, none outside the range, and none that a lab of people uses."""

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        if not new_claims(before, after):
            return
        granted = [port for claim in after.claims for port in claim.ports.values()]
        self.require(len(set(granted)) == len(granted), f"{after.name} grants a port twice: {granted}")
        wrong = [port for port in granted if not 2000 <= port <= 9999 or port == 9090]
        self.require(not wrong, f"{after.name} grants {wrong}")
        foreign = set(before.cml.labs.foreign_ports if before is not None else ())
        used = [
            port for claim in new_claims(before, after) for port in claim.ports.values() if port in foreign
        ]
        self.require(not used, f"{after.name} grants {used}, which labs of people use")
        for claim in after.claims:
            session = self.world.disk.session(claim.session_id)
            if session is not None:
                names = sorted(spec.name for spec in session.demand.ports)
                self.require(sorted(claim.ports) == names, f"{key_of(claim)} has the ports {claim.ports}")


class L4ReadyWorkers(_SessionInvariant):
    """A claim is added only to a worker that runs, is to run, and whose CML answers and is new enough."""

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        if new_claims(before, after):
            is_open = after.status is RUNNING and after.desired_status is DesiredStatus.RUNNING
            state = f"{after.status}>{after.desired_status}, ready {after.cml.is_ready}"
            self.require(is_open and after.cml.is_ready, f"{after.name} takes a claim while {state}")
        for claim in new_claims(before, after):
            session = self.world.disk.session(claim.session_id)
            least = session.demand.cml_version_min if session is not None else None
            if least is not None and after.cml.version is not None:
                is_new = _numbers(after.cml.version) >= _numbers(least)
                self.require(is_new, f"{after.cml.version} takes a session that needs {least}")


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.partition("+")[0].split(".")]


class L9LegalSessions(_SessionInvariant):
    """Every commit of a session is a row of the table; an ended session never changes, and the claim that it
    used is gone. (A claim that it never used may arrive after its end; L1 says how soon that one goes.)"""

    def on_session(self, before: LabletSession | None, after: LabletSession, fence: Fence | None) -> None:
        if before is None:
            self.require(after.status in (PENDING, PENDING_SCHEDULING), f"a session begins {after.status}")
            return
        self.require(not before.is_ended, f"session {after.id} changed after it was {before.status}")
        is_row = before.status is after.status or is_allowed(before.status, after.status, is_worker_lost=True)
        self.require(is_row, f"{before.status} -> {after.status}")
        if after.is_ended:
            self.require(after.end_reason is not None, f"session {after.id} ended without a reason")
            used = (after.id, after.attempt if before.worker_id is not None else 0)
            holders = [worker.name for worker in self.world.disk.peek_all() if used in claims_of(worker)]
            self.require(not holders, f"session {after.id} is {after.status}, claimed on {holders}")

    def at_rest(self) -> None:
        for session_id, is_end_wanted in self.world.session_requests.items():
            session = self.world.disk.session(session_id)
            self.require(session is not None, f"session {session_id} is lost")
            assert session is not None
            is_wanted = session.desired_status is SessionDesiredStatus.RUNNING
            self.require(
                not (is_end_wanted and is_wanted and not session.is_ended),
                f"the end of {session_id} is lost",
            )


class L10NoSilence(_SessionInvariant):
    """A session whose window is open is placed, or has a reason within a minute; it never waits for more
    than two cycles for a worker that is gone."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._silent_since: dict[str, float] = {}
        self._hopeless_since: dict[str, float] = {}

    def on_session(self, before: LabletSession | None, after: LabletSession, fence: Fence | None) -> None:
        self._judge(after)

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        if before is not None and before.status is not after.status:
            for session in self.world.disk.sessions():
                self._judge(session)

    def _judge(self, session: LabletSession) -> None:
        now = self.world.clock.monotonic()
        waits = (
            session.status is PENDING_SCHEDULING and session.desired_status is SessionDesiredStatus.RUNNING
        )
        _keep(self._silent_since, session.id, now, waits and session.waits_for is None)
        nominated = self.world.disk.peek(session.nominated.worker_id) if session.nominated else None
        is_gone = nominated is not None and nominated.status in (TERMINATING, TERMINATED, FAILED)
        _keep(self._hopeless_since, session.id, now, waits and is_gone)

    def on_call(self, process: Process, call: Call) -> None:
        for session_id, since in self._silent_since.items():
            age = self.healthy_seconds(since)
            self.require(age <= 60.0 + SLACK_SECONDS, f"{session_id} waits without a reason for {age:.0f} s")
        for session_id, since in self._hopeless_since.items():
            age = self.healthy_seconds(since)
            most = 2 * CYCLE_SECONDS + SLACK_SECONDS
            self.require(age <= most, f"{session_id} waits for a worker that is gone for {age:.0f} s")


def _keep(times: dict[str, float], key: str, now: float, is_so: bool) -> None:
    if is_so:
        times.setdefault(key, now)
    else:
        times.pop(key, None)


class L13ReleasedOnce(_SessionInvariant):
    """A claim that a session used is released once, and only if the session does not use it any more: it
    ended, ends without a lab or with the proof that it is gone, or moved on; or its worker was lost. (The
    claim of a session that never had a lab is released right before it moves on.)"""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._used: set[ClaimKey] = set()
        self._released: set[ClaimKey] = set()

    def on_session(self, before: LabletSession | None, after: LabletSession, fence: Fence | None) -> None:
        if after.status is SCHEDULED:
            self._used.add((after.id, after.attempt))

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        for claim in new_claims(before, after):
            self.require(key_of(claim) not in self._released, f"{key_of(claim)} is claimed again")
        gone = claims_of(before).keys() - claims_of(after).keys()
        self._released |= gone & self._used
        if after.status in (STOPPED, TERMINATED, WORKER_PENDING):
            return
        for session_id, attempt in sorted(gone):
            session = self.world.disk.session(session_id)
            is_let_go = session is not None and session.lab is None and bool(self.world.lablets)
            is_used = session is not None and not is_let_go and _uses(session, after.id, attempt)
            self.require(not is_used, f"{after.name} released {session_id}, which uses it")


def _uses(session: LabletSession, worker_id: str, attempt: int) -> bool:
    """Whether the session relies on this claim."""
    is_own = session.attempt == attempt and session.worker_id == worker_id
    return is_own and session.status not in WITHOUT_CLAIM and not (session.is_ended or _may_end(session))


def _may_end(session: LabletSession) -> bool:
    is_clean = not session.lab_generation or session.cleanup.proof is not None
    return session.status is STOPPING and is_clean


class L14NewestEpoch(_SessionInvariant):
    """A placement is begun by the newest leader of the schedulers."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._newest = 0

    def on_document(self, before: Document | None, after: Document, fence: Fence | None) -> None:
        if after.kind == "leadership" and after.id == "resource-scheduler":
            self._newest = max(self._newest, after.version)

    def on_session(self, before: LabletSession | None, after: LabletSession, fence: Fence | None) -> None:
        known = before.placement if before is not None else None
        if after.placement is not None and after.placement != known:
            epoch = after.placement.epoch
            self.require(epoch >= self._newest, f"placed in epoch {epoch} after {self._newest}")


class L15CopiedNeeds(_SessionInvariant):
    """What a session needs is what it was created with, whatever authors do to its definition; and so is
    what its claims take."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._needs: dict[str, Capacity] = {}

    def on_session(self, before: LabletSession | None, after: LabletSession, fence: Fence | None) -> None:
        needs = self._needs.setdefault(after.id, after.demand.needs)
        self.require(after.demand.needs == needs, f"the needs of {after.id} changed")

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        for claim in new_claims(before, after):
            needs = self._needs.get(claim.session_id)
            self.require(claim.needs == needs, f"{key_of(claim)} takes {claim.needs}, not {needs}")


class L16Purchases(_SessionInvariant):
    """Schedulers never request more workers of a template than the sessions that wait, or did a few minutes
    ago, need when each is put into the first worker with room; one more is allowed."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._waited_until: dict[str, float] = {}

    def on_session(self, before: LabletSession | None, after: LabletSession, fence: Fence | None) -> None:
        if after.status is PENDING_SCHEDULING or (before and before.status is PENDING_SCHEDULING):
            self._waited_until[after.id] = self.world.clock.monotonic()

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        if before is not None or not _is_bought(after) or after.declared_capacity is None:
            return
        coming = [worker for worker in self.world.disk.peek_all() if _is_coming(worker, after.template_name)]
        now = self.world.clock.monotonic()
        needs = [
            session.demand.needs
            for session in self.world.disk.sessions()
            if session.status is PENDING_SCHEDULING or now - self._waited_until.get(session.id, 0.0) < 300.0
        ]
        most = _bins(needs, after.declared_capacity) + 1
        self.require(len(coming) <= most, f"{len(coming)} workers come up, {most} are enough")


def _is_bought(worker: Worker) -> bool:
    return bool(worker.state_history) and worker.state_history[0].by == "resource-scheduler"


def _is_coming(worker: Worker, template: str) -> bool:
    is_up = worker.status is RUNNING and worker.cml.is_ready
    is_on_its_way = worker.status in (WORKER_PENDING, PROVISIONING, STARTING, RUNNING) and not is_up
    return worker.template_name == template and is_on_its_way and _is_bought(worker)


def _bins(needs: Iterable[Capacity], size: Capacity) -> int:
    """How many workers first-fit-decreasing takes, by the largest share; what never fits takes none."""

    def shares(need: Capacity) -> list[float]:
        return [getattr(need, amount) / (getattr(size, amount) or 1.0) for amount in AMOUNTS]

    used: list[list[float]] = []
    for each in sorted(map(shares, needs), key=max, reverse=True):
        if max(each) > 1 + 1e-6:
            continue
        for bin_ in used:
            if all(a + b <= 1 + 1e-6 for a, b in zip(bin_, each, strict=True)):
                bin_[:] = [a + b for a, b in zip(bin_, each, strict=True)]
                break
        else:
            used.append(each)
    return len(used)


class L17UsedWorkers(_SessionInvariant):
    """LCM never stops by itself a worker that has a claim, or that a session counts on within the lead."""

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        if before is None or not is_new_stop_request(before, after):
            return
        near = self.plane_time + times_of(self.world.knobs).lead
        counted_on = [session for session, at in before.nominations.items() if at <= near]
        holders = [claim.session_id for claim in before.claims]
        self.require(not holders, f"{after.name} is to be stopped with the claims of {holders}")
        self.require(not counted_on, f"{after.name} is to be stopped though {counted_on} count on it")


class L18Secrets(_SessionInvariant):
    """No event of a session shows its ports: they are shown only to those who may have them."""

    def on_event(self, event: str, data: Mapping[str, Any]) -> None:
        session = data.get("session")
        if isinstance(session, dict):
            self.require("ports" not in session, f"{event} shows {session.get('ports')}")


class L21Windows(_SessionInvariant):
    """Windows open, and slots are missed, when the clock of the control plane says so, at most one scan
    later, however wrong the clocks of schedulers are."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._due: dict[str, datetime] = {}
        """When the window of each session that is PENDING opens."""
        self._latest: dict[str, datetime] = {}
        """When each booked session without a worker can start at the latest."""

    def on_session(self, before: LabletSession | None, after: LabletSession, fence: Fence | None) -> None:
        times = times_of(self.world.knobs)
        if after.timeslot is None:
            return
        opens_at = after.timeslot.opens_at(times)
        if after.status is PENDING:
            self._due[after.id] = opens_at
        else:
            self._due.pop(after.id, None)
        if after.status in WITHOUT_CLAIM:
            self._latest[after.id] = after.timeslot.latest_start(after.latest_start_minutes, times)
        else:
            self._latest.pop(after.id, None)
        now = self.plane_time + timedelta(seconds=1)
        if before is not None and before.status is PENDING and after.status is PENDING_SCHEDULING:
            self.require(now >= opens_at, f"the window of {after.id} opened {opens_at - now} early")
        if after.end_text == TIMESLOT_MISSED and before is not None and not before.end_text:
            last = max(timedelta(), after.timeslot.duration - LEAST_USE)
            grace = after.timeslot.start + min(times.grace, last)
            self.require(now >= grace, f"{after.id} was missed {grace - now} before its grace was over")

    def on_call(self, process: Process, call: Call) -> None:
        if self.world.plane.skew:
            return
        for session_id, opens_at in self._due.items():
            self._require_in_time(opens_at, f"the window of {session_id} opens")
        for session_id, latest in self._latest.items():
            self._require_in_time(latest, f"the end of {session_id}, which missed its slot, is")

    def _require_in_time(self, moment: datetime, what: str) -> None:
        late = min((self.plane_time - moment).total_seconds(), self.healthy_seconds(0.0))
        self.require(late <= SCAN_SECONDS + SLACK_SECONDS, f"{what} {late:.0f} s late")


class L22NoLostSlot(_SessionInvariant):
    """A booked session that missed its slot is EXPIRED with a reason, and the audit log says so."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._audited: set[str] = set()
        self._missed: set[str] = set()

    def on_document(self, before: Document | None, after: Document, fence: Fence | None) -> None:
        if after.kind == "lablet-audit":
            entry = msgspec.json.decode(after.body, type=LabletAuditEntry)
            if entry.event is LabletEvent.TIMESLOT_MISSED and entry.session_id is not None:
                self._audited.add(entry.session_id)

    def on_session(self, before: LabletSession | None, after: LabletSession, fence: Fence | None) -> None:
        if after.is_ended and after.timeslot is not None and after.scheduled_at is None:
            is_asked = after.end_text == TIMESLOT_MISSED
            if is_asked:
                self._missed.add(after.id)
                is_told = after.status is SessionStatus.EXPIRED and bool(after.status_reason)
                self.require(is_told, f"{after.id} is {after.status}: {after.status_reason!r}")

    def at_rest(self) -> None:
        lost = sorted(self._missed - self._audited)
        self.require(not lost, f"{lost} missed their slots without an audit entry")
        for session in self.world.disk.sessions():
            if session.status in WITHOUT_CLAIM and session.timeslot is not None:
                is_past = session.timeslot.end < self.plane_time
                self.require(not is_past, f"the slot of {session.id} passed, it is {session.status}")


class L23FirstComes(_SessionInvariant):
    """A session is not placed while one that comes before it in the queue, with equal needs and nothing
    that holds it back, has waited for a worker for a minute."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._waits_since: dict[str, float] = {}

    def on_session(self, before: LabletSession | None, after: LabletSession, fence: Fence | None) -> None:
        is_waiting = after.status is PENDING_SCHEDULING and after.placement is None
        _keep(self._waits_since, after.id, self.world.clock.monotonic(), is_waiting)
        if after.status is not SCHEDULED or before is None or before.status is SCHEDULED:
            return
        for other in self.world.disk.sessions():
            since = self._waits_since.get(other.id)
            if since is None or other.demand != after.demand or queue_order(other) >= queue_order(after):
                continue
            is_free = not (other.place_attempts or other.avoided_workers or other.batch or after.batch)
            is_free &= other.desired_status is SessionDesiredStatus.RUNNING
            is_free &= other.nominated is None and other.status is PENDING_SCHEDULING
            age = self.healthy_seconds(since)
            self.require(not is_free or age < 60.0, f"{after.id} is placed before {other.id}")


class _SnapshotInvariant(_SessionInvariant):
    """Reads the snapshots that schedulers decide on."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._snapshots: dict[str, Snapshot] = {}
        """The newest that each incarnation has; it is not sent again while it stays the same."""

    def on_answer(self, process: Process, call: Call, answer: Any) -> None:
        if isinstance(process, SchedulerProcess) and call.site.endswith(SNAPSHOT):
            status, body = answer
            if status == 200:
                self._snapshots[_life(process)] = msgspec.json.decode(body, type=Snapshot)
            snapshot = self._snapshots.get(_life(process))
            if snapshot is not None and status in (200, 304):
                self.on_snapshot(process, snapshot)

    def on_snapshot(self, process: SchedulerProcess, snapshot: Snapshot) -> None:
        """A cycle of this scheduler decides on it."""


def _life(process: Process) -> str:
    return f"{process.name}#{process.incarnation}"


class L24Explained(_SnapshotInvariant):
    """What an explanation says of a session is what the next cycle does with it: both ask one engine. The
    cycle reads a snapshot; what is explained of the same snapshot is compared with the cycle's requests."""

    SOME = 3

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._verdicts: dict[str, dict[str, Decision]] = {}
        self._leaderships: dict[str, str] = {}
        self._cycles = 0

    def on_snapshot(self, process: SchedulerProcess, snapshot: Snapshot) -> None:
        now = ProcessClock(process).now()
        self._cycles += 1
        some = _some_of(snapshot.sessions, self._cycles, self.SOME)
        self._verdicts[process.name] = {
            session.id: PlacementEngine.decide(snapshot, session, now) for session in some
        }
        self._leaderships[process.name] = process.leadership_id

    def on_sent(self, process: Process, method: str, path: str, body: bytes | None) -> None:
        verdicts = self._verdicts.get(process.name)
        if verdicts is None or not isinstance(process, SchedulerProcess):
            return
        if self._leaderships[process.name] != process.leadership_id:
            self._verdicts.pop(process.name)
            return
        placed = {id_: d.worker_id for id_, d in verdicts.items() if d.outcome is Outcome.ASSIGN}
        if path == SCHEDULE:
            ordered = {
                order.session_id: order.worker_id
                for order in msgspec.json.decode(body or b"", type=PlacementOrders).orders
            }
            for session_id in verdicts.keys() & (ordered.keys() | placed.keys()):
                said, done = placed.get(session_id), ordered.get(session_id)
                self.require(said == done, f"{session_id}: explained as {said}, ordered on {done}")
            for session_id in placed:
                del verdicts[session_id]
            return
        self.require(not placed, f"{sorted(placed)} were explained as placed, and {path} was sent")
        if path == WAITING:
            for item in msgspec.json.decode(body or b"", type=WaitingReport).items:
                said_of = verdicts.get(item.session_id)
                if said_of is not None:
                    said_code = (said_of.code, said_of.nomination, said_of.text)
                    reported = (item.code, item.nominated, item.text)
                    self.require(said_code == reported, f"explained as {said_code}, reported as {reported}")
        if path.endswith(REJECT):
            rejected = path.split("/")[-2]
            said_of = verdicts.get(rejected)
            if said_of is not None:
                reason = msgspec.json.decode(body or b"", type=SessionRejected).reason
                is_same = said_of.outcome is Outcome.IMPOSSIBLE and said_of.text == reason
                self.require(is_same, f"explained as {said_of.text}, rejected because {reason}")


def _some_of(sessions: Sequence[LabletSession], turn: int, count: int) -> Sequence[LabletSession]:
    """A few, other ones in each turn."""
    if len(sessions) <= count:
        return sessions
    first = turn * count % len(sessions)
    return [*sessions, *sessions][first : first + count]


class L26PureEngine(_SessionInvariant):
    """Equal snapshots lead to equal decisions; the order of workers and sessions in them does not matter."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._rng = Random(f"order/{world.faults.seed}")
        self._seen: set[str] = set()

    def on_answer(self, process: Process, call: Call, answer: Any) -> None:
        if process.role != "scheduler" or not call.site.endswith(SNAPSHOT) or answer[0] != 200:
            return
        snapshot = msgspec.json.decode(answer[1], type=Snapshot)
        if not snapshot.sessions or snapshot.revision in self._seen:
            return
        self._seen.add(snapshot.revision)
        shuffled = replace(
            snapshot,
            workers=self._shuffled(snapshot.workers),
            sessions=self._shuffled(snapshot.sessions),
            templates=self._shuffled(snapshot.templates),
        )
        now = self.world.clock.now()
        one, other = PlacementEngine.plan(snapshot, now), PlacementEngine.plan(shuffled, now)
        self.require(one == other, "another order of workers leads to other decisions")

    def _shuffled(self, items: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(self._rng.sample(items, len(items)))


class WholeClasses(_SnapshotInvariant):
    """Of a class that starts as a whole no seat is placed while another has neither a place nor a worker
    that comes, and never had. The decision that places the one may count on a worker for the other and be the
    last of its scheduler: that worker is never reported."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._alone_since: dict[str, float] = {}
        self._had_prospects: set[str] = set()

    def on_session(self, before: LabletSession | None, after: LabletSession, fence: Fence | None) -> None:
        if after.batch is None or not after.batch.is_all_or_nothing:
            return
        if after.nominated is not None or after.placement is not None or after.attempt:
            self._had_prospects.add(after.id)
        members = [
            session
            for session in self.world.disk.sessions()
            if session.batch is not None and session.batch.id == after.batch.id and not session.is_ended
        ]
        is_begun = any(member.status is SCHEDULED for member in members)
        now = self.world.clock.monotonic()
        for member in members:
            is_wanted = member.desired_status is SessionDesiredStatus.RUNNING
            waits = member.status is PENDING_SCHEDULING and member.id not in self._had_prospects
            _keep(self._alone_since, member.id, now, is_begun and waits and is_wanted)
        if after.is_ended:
            self._alone_since.pop(after.id, None)

    def on_sent(self, process: Process, method: str, path: str, body: bytes | None) -> None:
        snapshot = self._snapshots.get(_life(process))
        if path != SCHEDULE or snapshot is None:
            return
        orders = msgspec.json.decode(body or b"", type=PlacementOrders).orders
        ordered = {order.session_id for order in orders}
        classes = {s.batch.id for s in snapshot.sessions if s.id in ordered and s.batch is not None}
        mates = [s for s in snapshot.sessions if s.batch is not None and s.batch.id in classes]
        now = ProcessClock(process).now()
        for mate in (each for each in mates if each.id not in ordered):
            if PlacementEngine.decide(snapshot, mate, now).nomination is not None:
                self._had_prospects.add(mate.id)

    def on_call(self, process: Process, call: Call) -> None:
        for session_id, since in self._alone_since.items():
            age = self.healthy_seconds(since)
            self.require(age <= 60.0, f"{session_id} is left out of its class for {age:.0f} s")
