"""What must hold where people work: nobody is thrown out, nobody gets in, nothing is done twice."""

import base64
import json
from collections import defaultdict
from datetime import datetime
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec

from lcm.control_plane.store.port import Document, Fence
from lcm.domain.idle import EVIDENCE_MAX_AGE, idle_since
from lcm.domain.lifecycle import (
    FAILED,
    PENDING,
    PROVISIONING,
    RUNNING,
    STARTING,
    STOPPED,
    STOPPING,
    DesiredStatus,
)
from lcm.domain.worker import Worker
from lcm.rest.schemas import LiveReceipt, LiveReports
from simulation.invariants.base import Invariant
from simulation.strangers import WRONG_TOKENS
from simulation.world.calls import Answer
from simulation.world.live_fleet import HARD_AT_WORK_PERCENT, Deed
from simulation.world.ports import LIVE_REPORTS
from simulation.world.processes import KEYS
from simulation.world.world import World

SAMPLE_SECONDS: Final = 60.0
BLIND_SECONDS: Final = 2 * SAMPLE_SECONDS
"""What people do after the last look at them cannot be known; a look this old proves nothing."""

LOOK_SECONDS: Final = 2 * EVIDENCE_MAX_AGE.total_seconds() + 5.0
"""From a look at CML to what follows from it: a drain follows from a verdict, and that from a look."""
ROUNDING_SECONDS: Final = 3.0
"""CML tells its time in whole seconds."""

AUTOMATIC: Final = ("idle detection", "worker-controller")
"""Who wants a worker stopped without a person asking."""


def is_stopped_by_itself(worker: Worker) -> bool:
    """Whether the newest wish is LCM's own: it stops the worker because nobody uses it."""
    wishes = (entry for entry in reversed(worker.state_history) if _is_wish(entry.by, entry.reason))
    newest = next(wishes, None)
    is_ours = newest is not None and newest.by in AUTOMATIC
    return is_ours and worker.desired_status is DesiredStatus.STOPPED


def _is_wish(by: str, reason: str) -> bool:
    return by not in AUTOMATIC or by == AUTOMATIC[0] or reason == "scale-down"


def is_new_wish(before: Worker | None, after: Worker) -> bool:
    """LCM wants a worker stopped by itself, from this commit on."""
    was_wanted = before is not None and before.desired_status is DesiredStatus.RUNNING
    return was_wanted and is_stopped_by_itself(after)


def is_stop_in_writing(before: Worker | None, after: Worker) -> bool:
    """From this commit on EC2 may be asked to stop a worker that LCM wants stopped by itself.

    Not if it was stopped already, and EC2 says that it runs all the same.
    """
    if before is None or not before.is_live or after.status is not STOPPING:
        return False
    resumed, paused, arrival = before.last_resumed_at, before.last_paused_at, before.arrival
    was_resumed = resumed is not None and paused is not None and resumed >= paused
    was_started_outside = arrival is not None and arrival.source is STOPPED
    was_carried_out = was_resumed or was_started_outside
    is_again = was_carried_out and before.desired_status is DesiredStatus.STOPPED and before.status is RUNNING
    return not is_again and is_stopped_by_itself(after)


def judged(world: World, worker: Worker) -> float:
    """When it was found that nobody uses the worker, by the clock of the control plane."""
    judged_at = worker.drain_started_at or worker.last_paused_at
    assert judged_at is not None
    return world.clock.monotonic() - (world.clock.now() - judged_at).total_seconds()


class I6PauseSafety(Invariant):
    """A worker is stopped by itself only if nobody used it for the whole timeout, as far as a look at it
    not older than two samples could tell, and nobody has a session on it. It takes two looks, and what CML
    said when it was asked counts."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._came: dict[str, float] = {}
        """When each worker was created, came up, or was started by a person."""

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        if is_new_wish(before, after):
            was_decided = before is not None and before.pause_decided_at is not None
            self.require(was_decided, f"{after.name} is to be stopped after a single look")
            self._on_wish(after)
        if is_stop_in_writing(before, after):
            self._on_stop(after)
        if before is None or _resumptions(before) != _resumptions(after) or _comes_up(before, after):
            self._came[after.id] = self.world.clock.monotonic()

    def _on_wish(self, worker: Worker) -> None:
        """CML was asked before the verdict, a moment ago at most."""
        judged_at, now = judged(self.world, worker), self.world.clock.monotonic()
        if judged_at > now:
            return  # the clock of the control plane is wrong
        asked_at = judged_at - LOOK_SECONDS
        told = [deed.at for deed in self._deeds(worker) if deed.at <= asked_at]
        unused = judged_at - max(told, default=float("-inf"))
        is_long = unused >= self.world.knobs.idle_timeout_seconds - ROUNDING_SECONDS
        self.require(is_long, f"{worker.name} is to be stopped {unused:.0f} s after a use that CML told")

    def _deeds(self, worker: Worker) -> list[Deed]:
        assert self.world.live is not None
        return [deed for deed in self.world.live.deeds if deed.instance_id == worker.ec2_instance_id]

    def _on_stop(self, worker: Worker) -> None:
        now, fleet = self.world.clock.monotonic(), self.world.live
        assert fleet is not None
        if now - self.world.plane.frozen_until < 1.0:
            return  # this write was on its way when its process was frozen, and lands as it wakes
        instance_id = worker.ec2_instance_id
        assert instance_id is not None
        patience = self.world.knobs.idle_timeout_seconds - BLIND_SECONDS
        uses = [deed.at for deed in self._deeds(worker) if deed.at <= now - BLIND_SECONDS]
        used = max([*uses, self._came[worker.id]])
        self.require(now - used >= patience, f"{worker.name} is stopped {now - used:.0f} s after its use")
        recorded = (self.world.clock.now() - idle_since(worker)).total_seconds()
        self.require(recorded >= patience, f"{worker.name} is stopped {recorded:.0f} s after its last sign")
        age = now - fleet.servers[instance_id].diary_read_at
        self.require(age <= BLIND_SECONDS, f"{worker.name} is stopped on evidence {age:.0f} s old")
        self.require(not worker.sessions, f"{worker.name} is stopped under {worker.sessions}")


class _Load(NamedTuple):
    """Full load, as the control plane was told."""

    measured_at: float
    confirmed_at: float
    plane_incarnation: int
    """It keeps loads in memory: the next one does not know."""


class I6BusyIsUsed(Invariant):
    """No stop by itself is decided while a license is changed on the worker, nor while its machine has
    worked hard ever since a measurement that the control plane had confirmed when it judged, and that was
    not older than a check interval then. (Of two clocks that differ nobody can tell when that was.)"""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.on_http_answer.append(self._on_answer)
        self._told: dict[str, list[_Load]] = defaultdict(list)
        """By worker."""

    def _on_answer(self, answer: Answer) -> None:
        if not (answer.path == LIVE_REPORTS and answer.status == 200 and self.world.knobs.people):
            return
        plane, now = self.world.plane, self.world.clock.monotonic()
        [sender] = [process for process in self.world.controllers if process.name == answer.sender]
        receipt = msgspec.json.decode(answer.body, type=LiveReceipt)
        if sender.skew != plane.skew or receipt.dropped:
            return
        for sample in msgspec.json.decode(answer.sent or b"{}", type=LiveReports).samples:
            if sample.cpu_utilization == HARD_AT_WORK_PERCENT:
                age = self.world.clock.now() + sender.skew - sample.collected_at
                load = _Load(now - age.total_seconds(), now, plane.incarnation)
                self._told[sample.worker_id].append(load)

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        if before is None or not is_new_wish(before, after):
            return
        license = before.license
        self.require(not license.operation_in_progress, f"{after.name} is to be stopped while it is licensed")
        judged_at = judged(self.world, after)
        known = [told for told in self._loads_of_this_work(after) if told.confirmed_at <= judged_at]
        age = judged_at - max((told.measured_at for told in known), default=float("-inf"))
        self.require(
            age > self.world.knobs.idle_check_seconds,
            f"{after.name} is to be stopped {age:.0f} s after it was seen hard at work",
        )

    def _loads_of_this_work(self, worker: Worker) -> list[_Load]:
        """What the control plane was told, and can have in memory, of the work that goes on now."""
        instance_id, fleet = worker.ec2_instance_id, self.world.live
        assert instance_id is not None
        assert fleet is not None
        since = fleet.servers[instance_id].at_work_since
        return [
            load
            for load in self._told.get(worker.id, ())
            if since is not None and load.measured_at >= since
            if load.plane_incarnation == self.world.plane.incarnation
        ]


def _comes_up(before: Worker, after: Worker) -> bool:
    return before.status in (PENDING, PROVISIONING, STARTING) and after.status is RUNNING


def _resumptions(worker: Worker) -> tuple[datetime | None, int]:
    return worker.last_resumed_at, worker.manual_resume_count


class I7PauseStillWanted(Invariant):
    """A stop by itself is put in writing only while no hold and no switched-off detection forbids it; the
    newest wish is what counts, whoever has it."""

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        if not is_stop_in_writing(before, after):
            return
        self.require(after.is_idle_detection_enabled, f"{after.name} is stopped and must never be")
        left = (after.hold.until - self.world.clock.now()).total_seconds() if after.hold else 0.0
        self.require(left <= BLIND_SECONDS, f"{after.name} is stopped and held for another {left:.0f} s")


class I9LastWorkersStay(Invariant):
    """By itself LCM never leaves fewer workers running than the minimum."""

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        if not is_new_wish(before, after):
            return
        left = [
            other
            for other in self.world.disk.peek_all()
            if other.status is RUNNING and other.desired_status is DesiredStatus.RUNNING
        ]
        minimum = self.world.knobs.min_workers
        self.require(len(left) >= minimum, f"{len(left)} workers are left running of at least {minimum}")


class I10PausesEnd(Invariant):
    """At rest no pause is half decided: a worker runs and is wanted running, or it is stopped."""

    def at_rest(self) -> None:
        for worker in self.world.disk.peek_all():
            if worker.status is RUNNING:
                self.require(worker.pause_decided_at is None, f"a pause of {worker.name} hangs in the air")
            if worker.status is STOPPED:
                self.require(worker.target_pause_at is None, f"{worker.name} is stopped and will be paused")


class I13OneEffectPerKey(Invariant):
    """A request that is sent again under its key changes nothing."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._carried_out: set[tuple[str, str]] = set()

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        if not after.recent_requests or (before and before.recent_requests == after.recent_requests):
            return
        newest = after.recent_requests[-1].key
        self.require((after.id, newest) not in self._carried_out, f"one request changed {after.name} twice")
        self._carried_out.add((after.id, newest))


class I11StopIsKept(Invariant):
    """A worker of which a person was told that it is to be stopped runs again only if somebody starts it."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.on_http_answer.append(self._on_answer)
        self._answered: set[tuple[str, str]] = set()
        self._told: set[str] = set()

    def _on_answer(self, answer: Answer) -> None:
        if not (answer.method == "POST" and answer.path.endswith("/stop") and answer.status == 202):
            return
        request = answer.path, answer.headers.get("Idempotency-Key", "")
        if request in self._answered:
            return  # sent again: what it did may have been replaced since
        if request[1]:
            self._answered.add(request)
        told = json.loads(answer.body)
        worker = self.world.disk.peek(told["id"])
        is_still_true = worker is not None and worker.generation == told["generation"]
        if is_still_true and told["desired_status"] == DesiredStatus.STOPPED:
            self._told.add(told["id"])

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        if before is None or after.desired_status is not DesiredStatus.RUNNING:
            return
        if after.manual_resume_count > before.manual_resume_count or before.status is FAILED:
            self._told.discard(after.id)
        self.require(after.id not in self._told, f"{after.name} is to run though it was stopped")


class I15NoSecret(Invariant):
    """No token is kept in a record or told in an answer, however it is written."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        if world.knobs.people:
            world.on_http_answer.append(self._on_answer)
        secrets = (KEYS.viewer, KEYS.operator, KEYS.admin, KEYS.controller, *WRONG_TOKENS)
        self._forms = sorted({form.encode() for secret in secrets for form in _forms_of(secret)})

    def on_document(self, before: Document | None, after: Document, fence: Fence | None) -> None:
        if self.world.knobs.people:
            self._scan(after.body, f"{after.kind} {after.id}")

    def _on_answer(self, answer: Answer) -> None:
        if "Authorization" in answer.headers:
            self._scan(answer.body, f"the answer to {answer.method} {answer.path}")

    def _scan(self, text: bytes, what: str) -> None:
        for form in self._forms:
            self.require(form not in text, f"{what} contains a secret")


def _forms_of(secret: str) -> list[str]:
    return [
        secret,
        base64.b64encode(secret.encode()).decode().rstrip("="),
        quote(secret, safe=""),
        json.dumps(secret)[1:-1],
    ]


class I22DefaultDeny(Invariant):
    """Only who shows a valid token with the role that a request needs gets anything but a refusal."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.on_http_answer.append(self._on_answer)

    def _on_answer(self, answer: Answer) -> None:
        if answer.status in (401, 403, 429) or answer.status >= 500:
            return
        self.require(
            _is_let_in(answer), f"{answer.method} {answer.path} by a stranger: answered with {answer.status}"
        )


def _is_let_in(answer: Answer) -> bool:
    if answer.path.startswith("/api/internal/"):
        return answer.headers.get("X-API-Key") == KEYS.controller
    token = answer.headers.get("Authorization", "").removeprefix("Bearer ")
    if answer.method == "GET":
        return token in (KEYS.viewer, KEYS.operator, KEYS.admin)
    is_deletion = answer.method == "DELETE" and not answer.path.endswith("/hold")
    is_for_admins = is_deletion or answer.path == "/api/workers"
    return token == KEYS.admin or (token == KEYS.operator and not is_for_admins)
