"""The worker record and every change it can go through, as pure functions from record to record.

The control plane calls these inside a compare-and-set; nobody else changes a worker.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from lcm.domain.capacity import Capacity, total
from lcm.domain.cost import MonthlyUse, book
from lcm.domain.errors import ActionRefused, Conflict, IllegalTransition, TooSoon
from lcm.domain.launch import (
    MAX_UNATTENDED_LAUNCHES,
    InstanceId,
    LaunchIntent,
    LaunchSpec,
    WorkerId,
    client_token,
)
from lcm.domain.license import License, give_back, is_due, lose
from lcm.domain.lifecycle import (
    DRAINING,
    FAILED,
    PENDING,
    PROVISIONING,
    RUNNING,
    STOPPED,
    STOPPING,
    TERMINATED,
    TERMINATING,
    UNKNOWN,
    DesiredStatus,
    WorkerStatus,
    allowed_targets,
    is_allowed,
)
from lcm.domain.live import ActivityEvent, ActivityMark, MonitorState
from lcm.domain.once import KeyedRequest

HISTORY_LIMIT = 100
"""Entries of `state_history` kept with the record; the newest ones win."""


ENDED_BY_PEOPLE = ("Client.UserInitiatedShutdown", "Client.InstanceInitiatedShutdown")
"""EC2's codes for an instance that somebody ended, from outside or from inside."""


class Action(StrEnum):
    """What people can do to a worker."""

    START = "start"
    STOP = "stop"
    DRAIN = "drain"
    CANCEL_DRAIN = "cancel-drain"
    DELETE = "delete"
    RETRY = "retry"


class PauseReason(StrEnum):
    """Why a worker was stopped last."""

    IDLE_TIMEOUT = "idle_timeout"
    MANUAL = "manual"
    EXTERNAL = "external"


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody wants the worker left running, used or not, until then."""

    until: datetime
    by: str
    reason: str = ""


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "from", "target": "to"}):
    """One line of a worker's timeline."""

    source: WorkerStatus | None
    target: WorkerStatus
    by: str
    reason: str
    at: datetime


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """An EC2 instance as EC2 describes it."""

    id: InstanceId
    region: str
    state: str
    instance_type: str
    image_id: str
    private_ip: str | None = None
    public_ip: str | None = None
    state_reason: str | None = None
    state_reason_code: str | None = None
    client_token: str | None = None
    """The launch that made it, if its launcher named one."""
    tags: dict[str, str] = {}

    @property
    def is_gone(self) -> bool:
        """Whether it can never run again."""
        return self.state in {"shutting-down", "terminated"}

    @property
    def was_given_up_by_ec2(self) -> bool:
        """Whether it ended for a reason of EC2's own: an internal error, a volume limit."""
        return self.is_gone and self.state_reason_code not in (None, *ENDED_BY_PEOPLE)

    @property
    def has_address(self) -> bool:
        return bool(self.public_ip or self.private_ip)


class CmlHealth(msgspec.Struct, frozen=True, kw_only=True):
    """What CML's own health check says; None is unknown."""

    valid: bool | None = None
    is_licensed: bool | None = None
    is_enterprise: bool | None = None
    failing: tuple[str, ...] = ()
    """The checks that fail, as `<host>: <check>`."""


class CmlLicense(msgspec.Struct, frozen=True, kw_only=True):
    """What CML says about its licence; never a token."""

    registration_status: str | None = None
    authorization_status: str | None = None
    product_license: str | None = None


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """One CML server: what people want (`desired_status`) and what is true (`status`)."""

    id: WorkerId
    name: str
    template_name: str
    aws_region: str
    tags: dict[str, str] = {}
    retired_tags: tuple[str, ...] = ()
    """Tags it had once and must not have any more, newest last."""
    created_at: datetime
    created_by: str
    updated_at: datetime

    version: int = 1
    """Counts every commit of this record."""
    generation: int = 1
    """Counts every change of what people want."""
    desired_status: DesiredStatus = DesiredStatus.RUNNING
    status: WorkerStatus = PENDING
    status_reason: str = ""
    pending_since: datetime | None = None
    """Start of the way from PENDING to RUNNING; None once it is over."""

    launch_generation: int = 0
    unattended_launches: int = 0
    launch: LaunchIntent | None = None

    ec2_instance_id: InstanceId | None = None
    instance_type: str | None = None
    ami_id: str | None = None
    ami_name: str | None = None
    ami_description: str | None = None
    ami_creation_date: str | None = None
    public_ip: str | None = None
    private_ip: str | None = None

    cml_version: str | None = None
    cml_ready: bool = False
    cml_certificate_sha256: str | None = None
    cml_system_info: dict[str, str | int | float | bool | None] = {}
    cml_health: CmlHealth | None = None
    cml_license: CmlLicense | None = None
    labs_count: int | None = None
    lab_discovery_requested_at: datetime | None = None

    ws_connected: bool = False
    ws_status: MonitorState | None = None
    ws_reason: str = ""
    ws_connected_at: datetime | None = None
    ws_disconnected_at: datetime | None = None
    ws_told_connected: bool | None = None
    """Which was told last, `worker.ws.connected` or `.disconnected`: a reconnection tells neither (D-7)."""
    ws_mark: ActivityMark | None = None

    last_activity_at: datetime | None = None
    last_activity_check_at: datetime | None = None
    recent_activity_events: tuple[ActivityEvent, ...] = ()
    """Newest first."""
    activity_listed_since: datetime | None = None
    """Signs of people up to here gave way to newer ones; None while the list has all of them."""
    activity_mark: ActivityMark | None = None

    state_history: tuple[HistoryEntry, ...] = ()
    use: tuple[MonthlyUse, ...] = ()
    """How long it ran and was paused, by month."""

    is_idle_detection_enabled: bool = True
    hold: Hold | None = None
    target_pause_at: datetime | None = None
    """When it will be paused unless somebody uses it."""
    pause_decided_at: datetime | None = None
    """An automatic pause was decided then and waits for its second look."""
    pause_reason: PauseReason | None = None
    last_paused_at: datetime | None = None
    last_paused_by: str | None = None
    last_resumed_at: datetime | None = None
    auto_pause_count: int = 0
    manual_pause_count: int = 0
    auto_resume_count: int = 0
    manual_resume_count: int = 0

    sessions: tuple[str, ...] = ()
    """Lablet sessions placed on it; while there is one, nothing stops it by itself."""
    session_needs: dict[str, Capacity] = {}
    """What was promised to each of them, as far as it was said."""
    declared_capacity: Capacity | None = None
    """What it can carry; None if its template is not known."""
    allocated_capacity: Capacity = Capacity()
    """What is promised to sessions."""
    license: License = License()
    drain_started_at: datetime | None = None
    drain_deadline_at: datetime | None = None
    """A drain that is not over by then is ended by a stop."""
    refresh_requested_at: datetime | None = None

    imported: bool = False
    """Not launched by LCM, only found: never launched anew, never swept away."""

    purge_when_terminated: bool = False
    """Nobody wants the record kept once the machine is gone."""

    request_digest: str | None = None
    """What was asked for under the idempotency key that made this worker's id."""
    recent_requests: tuple[KeyedRequest, ...] = ()
    """The last requests with an idempotency key that were carried out on this worker."""

    @property
    def has_unresolved_launch(self) -> bool:
        """A launch was promised and its instance is not known yet: it may exist."""
        return self.launch is not None and self.ec2_instance_id is None

    @property
    def status_since(self) -> datetime:
        """When it entered its present status."""
        arrivals = (e.at for e in reversed(self.state_history) if e.source is not e.target)
        return next(arrivals, self.created_at)

    @property
    def may_have_instance(self) -> bool:
        is_over = self.status is TERMINATED
        return not is_over and (self.ec2_instance_id is not None or self.launch is not None)

    @property
    def is_live(self) -> bool:
        """Whether somebody watches it, so that reports of its load and labs can be true."""
        return self.status in (RUNNING, DRAINING)

    @property
    def is_license_due(self) -> bool:
        """Whether it stays, its CML can be asked, and a license it should have is missing."""
        stays = self.status is RUNNING and self.desired_status is DesiredStatus.RUNNING
        return stays and self.cml_ready and is_due(self.license)


def new_worker(
    *,
    worker_id: WorkerId,
    name: str,
    template_name: str,
    aws_region: str,
    tags: Mapping[str, str],
    by: str,
    now: datetime,
    request_digest: str | None = None,
    declared_capacity: Capacity | None = None,
    licensed: bool = False,
) -> Worker:
    """A worker that people have just asked for."""
    reason = "created"
    return Worker(
        id=worker_id,
        name=name,
        template_name=template_name,
        aws_region=aws_region,
        tags=dict(tags),
        created_at=now,
        created_by=by,
        updated_at=now,
        pending_since=now,
        status_reason=reason,
        state_history=(HistoryEntry(source=None, target=PENDING, by=by, reason=reason, at=now),),
        request_digest=request_digest,
        declared_capacity=declared_capacity,
        license=License(declared=licensed),
    )


def possible_actions(worker: Worker) -> frozenset[Action]:
    """What a person may ask of this worker now. Asking for what is already wanted is always fine."""
    if worker.status is TERMINATED:
        return frozenset()
    if worker.desired_status is DesiredStatus.TERMINATED or worker.status is TERMINATING:
        return frozenset({Action.DELETE})
    if worker.status is FAILED:
        return frozenset({Action.RETRY, Action.DELETE})
    if worker.status is DRAINING:
        return frozenset({Action.START, Action.CANCEL_DRAIN, Action.STOP, Action.DELETE})
    if worker.status is RUNNING and worker.desired_status is DesiredStatus.RUNNING:
        return frozenset({Action.START, Action.STOP, Action.DRAIN, Action.DELETE})
    return frozenset({Action.START, Action.STOP, Action.DELETE})


_WANTED_BY = {
    Action.START: DesiredStatus.RUNNING,
    Action.CANCEL_DRAIN: DesiredStatus.RUNNING,
    Action.STOP: DesiredStatus.STOPPED,
    Action.DELETE: DesiredStatus.TERMINATED,
}


def request(worker: Worker, action: Action, *, by: str, now: datetime) -> Worker:
    """Carry out what a person asked for: change the wish, never the truth (except `retry`)."""
    if action is Action.DELETE and worker.status is TERMINATED:
        return worker
    if action not in possible_actions(worker):
        raise ActionRefused(action, worker.status, possible_actions(worker))
    if action is Action.RETRY:
        retried = replace(worker, desired_status=DesiredStatus.RUNNING, generation=worker.generation + 1)
        return replace(
            move(retried, PENDING, by=by, reason="retried", now=now), unattended_launches=0, pending_since=now
        )
    desired = _WANTED_BY[action]
    is_cut_short = action is Action.STOP and worker.status is DRAINING
    if desired is worker.desired_status and not is_cut_short:
        return worker
    changed = replace(
        worker,
        desired_status=desired,
        generation=worker.generation + 1,
        unattended_launches=0,
        status_reason=f"{action} requested" if worker.status is PENDING else worker.status_reason,
        updated_at=now,
        state_history=_remember(worker, worker.status, by=by, reason=f"{action} requested", now=now),
    )
    if desired is DesiredStatus.STOPPED:
        # A drain that somebody cuts short by a stop waits for nobody any more.
        return _paused(replace(changed, drain_deadline_at=now), PauseReason.MANUAL, by=by, now=now)
    if desired is DesiredStatus.TERMINATED and worker.license.changed_at is not None:
        return replace(changed, license=give_back(worker.license, now=now))
    if desired is DesiredStatus.RUNNING and worker.desired_status is DesiredStatus.STOPPED:
        return replace(
            changed,
            manual_resume_count=worker.manual_resume_count + 1,
            pause_decided_at=None,
            # Back in time to be kept: it is left alone as one that had been stopped.
            last_resumed_at=now if worker.is_live else worker.last_resumed_at,
        )
    return changed


def delete_for_good(worker: Worker, *, by: str, now: datetime) -> Worker:
    """Like a delete, and the record goes too: not before its machine, which would be left behind unseen."""
    if worker.status is TERMINATED:
        return worker
    return replace(request(worker, Action.DELETE, by=by, now=now), purge_when_terminated=True)


def drain(
    worker: Worker,
    *,
    deadline: datetime,
    by: str,
    reason: str,
    now: datetime,
    why: PauseReason = PauseReason.MANUAL,
) -> Worker:
    """Let people finish until the deadline, take nobody new, then stop. Draining twice changes nothing.

    The status changes here and not by a report: from this commit on nobody may be placed on it.
    """
    if worker.status is DRAINING and worker.desired_status is DesiredStatus.STOPPED:
        return worker
    if Action.DRAIN not in possible_actions(worker):
        raise ActionRefused(Action.DRAIN, worker.status, possible_actions(worker))
    drained = replace(worker, desired_status=DesiredStatus.STOPPED, generation=worker.generation + 1)
    drained = move(drained, DRAINING, by=by, reason=reason, now=now)
    return replace(
        drained, drain_started_at=now, drain_deadline_at=deadline, pause_reason=why, last_paused_by=by
    )


def assign_session(
    worker: Worker, session_id: str, *, needs: Capacity | None = None, now: datetime
) -> Worker:
    """Place a session. Shares its compare-and-set with drain and pause: one of them comes first."""
    if session_id in worker.sessions:
        return worker
    is_open = worker.status is RUNNING and worker.desired_status is DesiredStatus.RUNNING
    if not is_open:
        raise Conflict(f"worker {worker.id} takes no session: it is {worker.status}, place it elsewhere")
    placed = replace(worker, sessions=(*worker.sessions, session_id), pause_decided_at=None, updated_at=now)
    return recalculate(
        replace(placed, session_needs={**worker.session_needs, session_id: needs or Capacity()})
    )


def release_session(worker: Worker, session_id: str, *, now: datetime) -> Worker:
    left = tuple(session for session in worker.sessions if session != session_id)
    return recalculate(replace(worker, sessions=left, updated_at=now)) if left != worker.sessions else worker


def recalculate(worker: Worker, declared: Capacity | None = None) -> Worker:
    """Promised is what the sessions that are there need, no more and no less; `declared` may be news."""
    needs = {session: worker.session_needs.get(session, Capacity()) for session in worker.sessions}
    return replace(
        worker,
        session_needs=needs,
        allocated_capacity=total(needs.values()),
        declared_capacity=declared or worker.declared_capacity,
    )


def pause(worker: Worker, *, by: str, reason: str, now: datetime) -> Worker:
    """Stop a worker because nobody uses it. The caller has asked `idle.pause_guard` first."""
    paused = replace(
        worker,
        desired_status=DesiredStatus.STOPPED,
        generation=worker.generation + 1,
        updated_at=now,
        state_history=_remember(worker, worker.status, by=by, reason=reason, now=now),
    )
    return _paused(paused, PauseReason.IDLE_TIMEOUT, by=by, now=now)


def cancel_pause(worker: Worker, *, by: str, reason: str, now: datetime) -> Worker:
    """Somebody used the worker after LCM decided to pause it and before EC2 was asked to."""
    if worker.pause_decided_at is not None:
        worker = replace(worker, pause_decided_at=None)
    was_paused_by_us = (
        worker.pause_reason is PauseReason.IDLE_TIMEOUT and worker.desired_status is DesiredStatus.STOPPED
    )
    if not was_paused_by_us or not worker.is_live:
        return worker
    return replace(
        worker,
        desired_status=DesiredStatus.RUNNING,
        generation=worker.generation + 1,
        pause_reason=None,
        auto_pause_count=worker.auto_pause_count - (worker.status is RUNNING),
        updated_at=now,
        state_history=_remember(worker, worker.status, by=by, reason=reason, now=now),
    )


REFRESH_INTERVAL: Final = timedelta(seconds=10)


MAX_RETIRED_TAGS: Final = 50


def retag(worker: Worker, tags: Mapping[str, str], *, by: str, now: datetime) -> Worker:
    """It has these tags and no others, besides LCM's own; the controller puts that right at EC2."""
    if worker.desired_status is DesiredStatus.TERMINATED or worker.status is TERMINATED:
        raise ActionRefused("tag", worker.status, possible_actions(worker))
    if dict(tags) == worker.tags:
        return worker
    retired = [key for key in (*worker.retired_tags, *worker.tags) if key not in tags]
    return replace(
        worker,
        tags=dict(tags),
        retired_tags=tuple(dict.fromkeys(retired))[-MAX_RETIRED_TAGS:],
        generation=worker.generation + 1,
        updated_at=now,
        state_history=_remember(worker, worker.status, by=by, reason="tags changed", now=now),
    )


def refresh(worker: Worker, *, now: datetime) -> Worker:
    """Ask the controller to look at everything again, now."""
    since = now - worker.refresh_requested_at if worker.refresh_requested_at else REFRESH_INTERVAL
    if since < REFRESH_INTERVAL:
        left = (REFRESH_INTERVAL - since).total_seconds()
        raise TooSoon(f"it was refreshed a moment ago; ask again in {left:.0f} s", left)
    return replace(worker, refresh_requested_at=now, generation=worker.generation + 1)


def _paused(worker: Worker, why: PauseReason, *, by: str, now: datetime) -> Worker:
    is_automatic = why is PauseReason.IDLE_TIMEOUT
    return replace(
        worker,
        pause_reason=why,
        last_paused_at=now,
        last_paused_by=by,
        pause_decided_at=None,
        target_pause_at=None,
        auto_pause_count=worker.auto_pause_count + is_automatic,
        manual_pause_count=worker.manual_pause_count + (why is PauseReason.MANUAL),
    )


def move(
    worker: Worker, target: WorkerStatus, *, by: str, reason: str, now: datetime, observed: bool = False
) -> Worker:
    """Change what is true of a worker, if the table has the row; a new reason for the same status is a note.

    An observed jump that no row foresees becomes UNKNOWN: a surprise at EC2 never blocks the loop.
    """
    if target is worker.status:
        return replace(worker, status_reason=reason, updated_at=now)
    if not is_allowed(worker.status, target, observed=observed):
        if not observed or worker.status in (TERMINATED, PENDING):
            raise IllegalTransition(worker.status, target, allowed_targets(worker.status, observed=observed))
        reason = f"unforeseen: EC2 went from {worker.status} to {target}"
        if worker.status is UNKNOWN:
            return replace(worker, status_reason=reason, updated_at=now)
        target = UNKNOWN
    moved = replace(
        worker,
        status=target,
        status_reason=reason,
        updated_at=now,
        state_history=_remember(worker, target, by=by, reason=reason, now=now),
        use=book(
            worker.use,
            worker.status,
            was_paused=worker.pause_reason is PauseReason.IDLE_TIMEOUT,
            since=worker.status_since,
            until=now,
        ),
    )
    is_on_its_way_down = target in (STOPPING, STOPPED) and worker.status not in (STOPPING, STOPPED)
    if observed and is_on_its_way_down and worker.desired_status is DesiredStatus.RUNNING:
        moved = _paused(moved, PauseReason.EXTERNAL, by=by, now=now)
    return _settle_fields(worker, moved, now)


def _settle_fields(before: Worker, after: Worker, now: datetime) -> Worker:
    """What a status implies about the other fields."""
    if not after.is_live:
        after = replace(after, cml_ready=False, labs_count=None)
        if after.ws_status is not None:
            after = note_connection(
                after, MonitorState.DISCONNECTED, reason=f"worker is {after.status}", at=now
            )
    if after.status is STOPPED:
        after = replace(after, public_ip=None, pending_since=None)
    if after.status in (RUNNING, FAILED, TERMINATING):
        after = replace(after, pending_since=None)
    if after.status is RUNNING and _was_paused(after):
        # What somebody stopped outside and nobody asked back came back by LCM itself.
        is_by_itself = after.pause_reason is PauseReason.EXTERNAL
        after = replace(after, last_resumed_at=now, auto_resume_count=after.auto_resume_count + is_by_itself)
    if after.status is not RUNNING:
        after = replace(after, pause_decided_at=None, target_pause_at=None)
    if before.status is DRAINING:
        after = replace(after, drain_started_at=None, drain_deadline_at=None)
    if before.status is DRAINING and after.status is STOPPING and not _was_paused(after):
        # Whoever starts it again is about to use it, as after any other pause.
        after = replace(after, last_paused_at=now)
    if after.status in (STOPPED, TERMINATED, PENDING):
        after = recalculate(replace(after, sessions=()))
    if after.status is TERMINATED:
        after = replace(
            after,
            desired_status=DesiredStatus.TERMINATED,
            license=lose(after.license, is_final=True, now=now),
            public_ip=None,
            private_ip=None,
            pending_since=None,
        )
    if after.status is PENDING and before.status is not FAILED:
        # The old instance is proven gone: whatever comes next is a new machine.
        after = replace(
            after,
            # A machine that never came up is replaced on the time of the first.
            pending_since=before.pending_since if before.status is PROVISIONING else now,
            launch=None,
            ec2_instance_id=None,
            public_ip=None,
            private_ip=None,
            cml_certificate_sha256=None,
            license=lose(after.license, is_final=False, now=now),
        )
    return after


def _was_paused(worker: Worker) -> bool:
    """Whether the last pause has not been followed by a resumption yet."""
    if worker.last_paused_at is None:
        return False
    return worker.last_resumed_at is None or worker.last_resumed_at < worker.last_paused_at


def plan_launch(worker: Worker, spec: LaunchSpec, *, now: datetime) -> Worker:
    """Promise a launch in writing, under a new generation and token."""
    if worker.status is not PENDING:
        raise IllegalTransition(worker.status, "a new launch", allowed_targets(worker.status))
    if worker.imported:
        raise Conflict("imported workers are never launched by LCM; create a worker instead")
    if worker.has_unresolved_launch:
        raise Conflict("an earlier launch of this worker is unresolved; repeat that one")
    if worker.ec2_instance_id is not None:
        raise Conflict(f"instance {worker.ec2_instance_id} is not proven gone; void its launch first")
    if worker.unattended_launches >= MAX_UNATTENDED_LAUNCHES:
        raise Conflict(
            f"{worker.unattended_launches} launches without a person asking; retry to launch again"
        )
    generation = worker.launch_generation + 1
    return replace(
        worker,
        launch_generation=generation,
        unattended_launches=worker.unattended_launches + 1,
        launch=LaunchIntent(
            generation=generation,
            client_token=client_token(worker.id, generation),
            spec=spec,
            requested_at=now,
        ),
        ec2_instance_id=None,
        public_ip=None,
        private_ip=None,
        cml_certificate_sha256=None,
        updated_at=now,
    )


def void_launch(worker: Worker, *, reason: str, now: datetime, refused: bool = False) -> Worker:
    """Forget a launch whose instance is proven gone, so that a new generation may follow.

    One that EC2 `refused` made no machine, so it does not count as one that did not last.
    """
    launches = worker.unattended_launches - 1 if refused and worker.launch else worker.unattended_launches
    return replace(
        worker,
        unattended_launches=max(0, launches),
        launch=None,
        ec2_instance_id=None,
        public_ip=None,
        private_ip=None,
        cml_certificate_sha256=None,
        license=lose(worker.license, is_final=False, now=now),
        status_reason=reason,
        updated_at=now,
    )


def attach_instance(worker: Worker, instance: Instance, *, now: datetime) -> Worker:
    """Record which instance this worker is, and where it can be reached."""
    image = worker.launch.spec.image if worker.launch else None
    is_same_image = image is not None and image.id == instance.image_id
    return replace(
        worker,
        ec2_instance_id=instance.id,
        instance_type=instance.instance_type,
        ami_id=instance.image_id,
        ami_name=image.name if image and is_same_image else worker.ami_name,
        ami_description=image.description if image and is_same_image else worker.ami_description,
        ami_creation_date=image.creation_date if image and is_same_image else worker.ami_creation_date,
        public_ip=instance.public_ip,
        private_ip=instance.private_ip,
        updated_at=now,
    )


_TOLD_BY_CML = (
    "cml_system_info",
    "cml_health",
    "cml_license",
    "labs_count",
    "ws_connected",
    "ws_status",
    "ws_reason",
    "ws_connected_at",
    "ws_disconnected_at",
    "ws_told_connected",
    "ws_mark",
    "last_activity_at",
    "last_activity_check_at",
    "recent_activity_events",
    "activity_listed_since",
    "activity_mark",
)


def is_only_news(before: Worker, after: Worker) -> bool:
    """Whether nothing changed but what a running worker told of itself: no controller has to act on it."""
    told = {name: getattr(after, name) for name in _TOLD_BY_CML}
    return replace(before, version=after.version, **told) == after


def note_connection(
    worker: Worker, status: MonitorState, *, reason: str, at: datetime, mark: ActivityMark | None = None
) -> Worker:
    """The live connection stands elsewhere now, unless a report with a later mark has come before.

    Only a connection that was not told of yet, and the end of one, are told: `ws_told_connected`
    changes with them and stays as it is through reconnections.
    """
    if mark is not None:
        if _is_overtaken(mark, worker.ws_mark):
            return worker
        worker = replace(worker, ws_mark=mark)
    if not worker.is_live:
        status = MonitorState.DISCONNECTED if status is not MonitorState.DISABLED else status
    is_connected = status is MonitorState.CONNECTED
    noted = replace(worker, ws_connected=is_connected, ws_status=status, ws_reason=reason)
    if is_connected:
        if worker.ws_told_connected:
            return noted
        return replace(noted, ws_told_connected=True, ws_connected_at=at)
    never_worked = worker.ws_told_connected is None and status is MonitorState.FAILED
    if status in _CONNECTION_OVER and (worker.ws_told_connected or never_worked):
        return replace(noted, ws_told_connected=False, ws_disconnected_at=at)
    return noted


def _is_overtaken(mark: ActivityMark, by: ActivityMark | None) -> bool:
    return by is not None and by.stream == mark.stream and mark.last_sequence <= by.last_sequence


_CONNECTION_OVER = frozenset({MonitorState.FAILED, MonitorState.DISCONNECTED, MonitorState.DISABLED})


def note_activity(
    worker: Worker,
    events: Sequence[ActivityEvent],
    *,
    mark: ActivityMark | None,
    now: datetime,
    keep: int,
) -> Worker:
    """Somebody looked for signs of people, and found these, in the order they were seen.

    What the mark covers was told before and counts once. `last_activity_at` never moves back, and never
    beyond now: a worker's clock may be wrong.
    """
    fresh = list(events)
    known = worker.activity_mark
    if mark is not None and known is not None and mark.stream == known.stream:
        unseen = mark.last_sequence - known.last_sequence
        fresh = fresh[-unseen:] if unseen > 0 else []
        mark = max(mark, known, key=lambda seen: seen.last_sequence)
    fresh = [event for event in fresh if event not in worker.recent_activity_events]
    newest_first = sorted((*fresh, *worker.recent_activity_events), key=lambda event: event.at, reverse=True)
    moments = [min(event.at, now) for event in fresh]
    if worker.last_activity_at is not None:
        moments.append(worker.last_activity_at)
    return replace(
        worker,
        last_activity_at=max(moments, default=None),
        last_activity_check_at=now,
        recent_activity_events=tuple(newest_first[:keep]),
        activity_listed_since=newest_first[keep].at
        if len(newest_first) > keep
        else worker.activity_listed_since,
        activity_mark=mark or known,
    )


def _remember(
    worker: Worker, target: WorkerStatus, *, by: str, reason: str, now: datetime
) -> tuple[HistoryEntry, ...]:
    entry = HistoryEntry(source=worker.status, target=target, by=by, reason=reason, at=now)
    return (*worker.state_history, entry)[-HISTORY_LIMIT:]
