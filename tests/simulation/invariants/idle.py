"""Invariants of idle detection, idempotency and access control."""

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
from lcm.domain.readiness import READY_WITHIN
from lcm.domain.worker import Worker
from lcm.rest.schemas import LiveReceipt, LiveReports
from simulation.invariants.base import Invariant
from simulation.strangers import WRONG_TOKENS
from simulation.world.calls import Answer
from simulation.world.live_fleet import BUSY_PERCENT, UserAction
from simulation.world.ports import LIVE_REPORTS
from simulation.world.processes import KEYS
from simulation.world.world import World

SAMPLE_SECONDS: Final = 60.0
UNOBSERVED_SECONDS: Final = 2 * SAMPLE_SECONDS
"""User actions after the last read of CML are unknown; a read this old proves nothing."""

READ_TO_STOP_SECONDS: Final = 2 * EVIDENCE_MAX_AGE.total_seconds() + 5.0
"""From a read at CML to its follows from it: a drain follows from a verdict, and that from a read."""
ROUNDING_SECONDS: Final = 3.0
"""CML reports its time in whole seconds."""

AUTOMATIC: Final = ("idle detection", "worker-controller")
"""The actors that stop a worker without a person's request."""


def is_stopped_automatically(worker: Worker) -> bool:
    """Whether the newest request is LCM's own: it stops the worker because it is idle."""
    requests = (entry for entry in reversed(worker.state_history) if _is_request(entry.by, entry.reason))
    newest = next(requests, None)
    is_ours = newest is not None and newest.by in AUTOMATIC
    return is_ours and worker.desired_status is DesiredStatus.STOPPED


def _is_request(by: str, reason: str) -> bool:
    return by not in AUTOMATIC or by == AUTOMATIC[0] or reason == "scale-down"


def is_new_stop_request(before: Worker | None, after: Worker) -> bool:
    """Whether LCM requests a worker's stop by itself with this commit."""
    was_wanted = before is not None and before.desired_status is DesiredStatus.RUNNING
    return was_wanted and is_stopped_automatically(after)


def is_stop_recorded(before: Worker | None, after: Worker) -> bool:
    """Whether this commit allows a stop at EC2 that LCM requested by itself.

    Not if the worker was stopped already, and EC2 reports that it runs all the same.
    """
    if before is None or not before.is_live or after.status is not STOPPING:
        return False
    resumed, paused, arrival = before.pause.last_resumed_at, before.pause.last_paused_at, before.arrival
    was_resumed = resumed is not None and paused is not None and resumed >= paused
    was_started_outside = arrival is not None and arrival.source is STOPPED
    was_carried_out = was_resumed or was_started_outside
    is_again = was_carried_out and before.desired_status is DesiredStatus.STOPPED and before.status is RUNNING
    return not is_again and is_stopped_automatically(after)


def judged(world: World, worker: Worker) -> float:
    """When the worker was found idle, by the clock of the control plane."""
    judged_at = worker.pause.since or worker.pause.last_paused_at
    assert judged_at is not None
    return world.clock.monotonic() - (world.clock.now() - judged_at).total_seconds()


class I6PauseSafety(Invariant):
    """A worker is stopped automatically only if it was unused for the whole timeout, as far as a read not
    older than two samples could show, and has no session. It takes two idle checks, and what CML answered
    to them counts."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._came: dict[str, float] = {}
        """When each worker was created, came up, or was started by a person."""

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        if is_new_stop_request(before, after):
            was_decided = before is not None and before.pause.decided_at is not None
            self.require(was_decided, f"{after.name} is to be stopped after a single idle check")
            if not is_never_ready(after):
                self._on_request(after)
        if before is not None and is_stop_recorded(before, after) and not is_never_ready(before):
            self._on_stop(after)
        if before is None or _resumptions(before) != _resumptions(after) or _comes_up(before, after):
            self._came[after.id] = self.world.clock.monotonic()

    def _on_request(self, worker: Worker) -> None:
        """CML was read before the idle check, a moment ago at most."""
        judged_at, now = judged(self.world, worker), self.world.clock.monotonic()
        if judged_at > now:
            return  # the clock of the control plane is wrong
        asked_at = judged_at - READ_TO_STOP_SECONDS
        reported = [action.at for action in self._actions(worker) if action.at <= asked_at]
        unused = judged_at - max(reported, default=float("-inf"))
        is_long = unused >= self.world.knobs.idle_timeout_seconds - ROUNDING_SECONDS
        self.require(is_long, f"{worker.name} is to be stopped {unused:.0f} s after a use that CML reported")

    def _actions(self, worker: Worker) -> list[UserAction]:
        assert self.world.live is not None
        actions = self.world.live.user_actions
        return [action for action in actions if action.instance_id == worker.instance.id]

    def _on_stop(self, worker: Worker) -> None:
        now, fleet = self.world.clock.monotonic(), self.world.live
        assert fleet is not None
        if now - self.world.plane.frozen_until < 1.0:
            return  # this write was on its way when its process was frozen, and lands as it wakes
        instance_id = worker.instance.id
        assert instance_id is not None
        patience = self.world.knobs.idle_timeout_seconds - UNOBSERVED_SECONDS
        uses = [action.at for action in self._actions(worker) if action.at <= now - UNOBSERVED_SECONDS]
        used = max([*uses, self._came[worker.id]])
        self.require(now - used >= patience, f"{worker.name} is stopped {now - used:.0f} s after its use")
        recorded = (self.world.clock.now() - idle_since(worker)).total_seconds()
        self.require(recorded >= patience, f"{worker.name} is stopped {recorded:.0f} s after its activity")
        age = now - fleet.servers[instance_id].telemetry_read_at
        self.require(age <= UNOBSERVED_SECONDS, f"{worker.name} is stopped on evidence {age:.0f} s old")
        self.require(not worker.sessions, f"{worker.name} is stopped under {worker.sessions}")


class _Load(NamedTuple):
    """Full load, as reported to the control plane."""

    measured_at: float
    confirmed_at: float
    plane_incarnation: int
    """Loads are kept in memory: the next incarnation does not have them."""


def is_never_ready(worker: Worker) -> bool:
    """Whether LCM has reached no CML that was ready since the worker runs: it cannot know of its use."""
    return worker.cml.wait is not None and worker.cml.wait.proves_unused


class I24NeverReady(Invariant):
    """A worker is stopped for a CML that never became ready only after the time that CML has and the idle
    timeout, and while CML is tried all along (D-24)."""

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        if before is None or not is_stop_recorded(before, after) or not is_never_ready(before):
            return
        now = self.world.clock.monotonic()
        if now - self.world.plane.frozen_until < 1.0:
            return  # this write was on its way when its process was frozen, and lands as it wakes
        assert before.came_up_at is not None
        ran = (self.world.clock.now() - before.came_up_at).total_seconds()
        patience = READY_WITHIN.total_seconds() + self.world.knobs.idle_timeout_seconds - UNOBSERVED_SECONDS
        self.require(ran >= patience, f"{after.name} is stopped {ran:.0f} s after its start, CML not ready")
        hosts = (before.instance.public_ip, before.instance.private_ip)
        tried_at = max(self.world.cml_tried_at.get(host or "", float("-inf")) for host in hosts)
        self.require(now - tried_at <= UNOBSERVED_SECONDS, f"{after.name} is stopped, and CML was not tried")
        is_unused = not after.sessions and after.is_idle_detection_enabled
        self.require(is_unused, f"{after.name} is stopped although it is to run")


class I6BusyIsUsed(Invariant):
    """No automatic stop is decided while a license is changed on the worker, nor while its instance has
    been busy ever since a measurement that the control plane had confirmed at the idle check, and that was
    not older than a check interval then. (Between two clocks that differ that time is unknown.)"""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.on_http_answer.append(self._on_answer)
        self._reported: dict[str, list[_Load]] = defaultdict(list)
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
            if sample.cpu_utilization == BUSY_PERCENT:
                age = self.world.clock.now() + sender.skew - sample.collected_at
                load = _Load(now - age.total_seconds(), now, plane.incarnation)
                self._reported[sample.worker_id].append(load)

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        if before is None or not is_new_stop_request(before, after):
            return
        license = before.license
        self.require(not license.operation_in_progress, f"{after.name} is to be stopped while it is licensed")
        judged_at = judged(self.world, after)
        known = [load for load in self._loads_of_this_work(after) if load.confirmed_at <= judged_at]
        age = judged_at - max((load.measured_at for load in known), default=float("-inf"))
        self.require(
            age > self.world.knobs.idle_check_seconds,
            f"{after.name} is to be stopped {age:.0f} s after it was measured busy",
        )

    def _loads_of_this_work(self, worker: Worker) -> list[_Load]:
        """Reported loads of the work under way, as far as the control plane can have them in memory."""
        instance_id, fleet = worker.instance.id, self.world.live
        assert instance_id is not None
        assert fleet is not None
        server = fleet.servers.get(instance_id)  # none has been up on an instance whose CML does not boot
        since = server.at_work_since if server is not None else None
        return [
            load
            for load in self._reported.get(worker.id, ())
            if since is not None and load.measured_at >= since
            if load.plane_incarnation == self.world.plane.incarnation
        ]


def _comes_up(before: Worker, after: Worker) -> bool:
    return before.status in (PENDING, PROVISIONING, STARTING) and after.status is RUNNING


def _resumptions(worker: Worker) -> tuple[datetime | None, int]:
    return worker.pause.last_resumed_at, worker.pause.manual_resume_count


class I7PauseStillWanted(Invariant):
    """An automatic stop is recorded only while no hold and no disabled detection forbids it; the newest
    request counts, by a person or by LCM."""

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        if not is_stop_recorded(before, after):
            return
        self.require(after.is_idle_detection_enabled, f"{after.name} is stopped and must never be")
        left = (after.hold.until - self.world.clock.now()).total_seconds() if after.hold else 0.0
        self.require(left <= UNOBSERVED_SECONDS, f"{after.name} is stopped and held for another {left:.0f} s")


class I9LastWorkersStay(Invariant):
    """Automatic stops never leave fewer workers running than the minimum."""

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        if not is_new_stop_request(before, after):
            return
        left = [
            other
            for other in self.world.disk.peek_all()
            if other.status is RUNNING and other.desired_status is DesiredStatus.RUNNING
        ]
        minimum = self.world.knobs.min_workers
        self.require(len(left) >= minimum, f"{len(left)} workers are left running of at least {minimum}")


class I10PausesEnd(Invariant):
    """At rest no pause is half decided: a worker runs and should run, or it is stopped."""

    def at_rest(self) -> None:
        for worker in self.world.disk.peek_all():
            if worker.status is RUNNING:
                self.require(worker.pause.decided_at is None, f"a pause of {worker.name} is still undecided")
            if worker.status is STOPPED:
                self.require(worker.pause.due_at is None, f"{worker.name} is stopped and will be paused")


class I13OneEffectPerKey(Invariant):
    """A request that is sent again with its idempotency key changes nothing."""

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
    """A worker whose stop was acknowledged to a person runs again only if a person starts it."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.on_http_answer.append(self._on_answer)
        self._answered: set[tuple[str, str]] = set()
        self._reported: set[str] = set()

    def _on_answer(self, answer: Answer) -> None:
        if not (answer.method == "POST" and answer.path.endswith("/stop") and answer.status == 202):
            return
        request = answer.path, answer.headers.get("Idempotency-Key", "")
        if request in self._answered:
            return  # sent again: what it did may have been replaced since
        if request[1]:
            self._answered.add(request)
        acknowledged = json.loads(answer.body)
        worker = self.world.disk.peek(acknowledged["id"])
        is_still_true = worker is not None and worker.generation == acknowledged["generation"]
        if is_still_true and acknowledged["desired_status"] == DesiredStatus.STOPPED:
            self._reported.add(acknowledged["id"])

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        if before is None or after.desired_status is not DesiredStatus.RUNNING:
            return
        if after.pause.manual_resume_count > before.pause.manual_resume_count or before.status is FAILED:
            self._reported.discard(after.id)
        self.require(after.id not in self._reported, f"{after.name} is to run though it was stopped")


class I15NoSecret(Invariant):
    """No token is in a record or in an answer, in whatever encoding."""

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
    """Every request without a valid token of the required role is refused."""

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
