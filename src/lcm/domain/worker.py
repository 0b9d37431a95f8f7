"""The worker record and every change it can go through, as pure functions from record to record.

The control plane calls these inside a compare-and-set; nobody else changes a worker.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from lcm.domain.errors import ActionRefused, Conflict, IllegalTransition
from lcm.domain.launch import (
    MAX_UNATTENDED_LAUNCHES,
    InstanceId,
    LaunchIntent,
    LaunchSpec,
    WorkerId,
    client_token,
)
from lcm.domain.lifecycle import (
    DRAINING,
    FAILED,
    PENDING,
    PROVISIONING,
    RUNNING,
    STOPPED,
    TERMINATED,
    TERMINATING,
    UNKNOWN,
    DesiredStatus,
    WorkerStatus,
    allowed_targets,
    is_allowed,
)

HISTORY_LIMIT = 100
"""Entries of `state_history` kept with the record; the newest ones win."""


ENDED_BY_PEOPLE = ("Client.UserInitiatedShutdown", "Client.InstanceInitiatedShutdown")
"""EC2's codes for an instance that somebody ended, from outside or from inside."""


class Action(StrEnum):
    """What people can do to a worker."""

    START = "start"
    STOP = "stop"
    DELETE = "delete"
    RETRY = "retry"


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


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """One CML server: what people want (`desired_status`) and what is true (`status`)."""

    id: WorkerId
    name: str
    template_name: str
    aws_region: str
    tags: dict[str, str] = {}
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

    state_history: tuple[HistoryEntry, ...] = ()

    imported: bool = False
    """Not launched by LCM, only found: never launched anew, never swept away."""

    request_digest: str | None = None
    """What was asked for under the idempotency key that made this worker's id."""

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
    )


def possible_actions(worker: Worker) -> frozenset[Action]:
    """What a person may ask of this worker now. Asking for what is already wanted is always fine."""
    if worker.status is TERMINATED:
        return frozenset()
    if worker.desired_status is DesiredStatus.TERMINATED or worker.status is TERMINATING:
        return frozenset({Action.DELETE})
    if worker.status is FAILED:
        return frozenset({Action.RETRY, Action.DELETE})
    return frozenset({Action.START, Action.STOP, Action.DELETE})


_WANTED_BY = {
    Action.START: DesiredStatus.RUNNING,
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
    if desired is worker.desired_status:
        return worker
    return replace(
        worker,
        desired_status=desired,
        generation=worker.generation + 1,
        unattended_launches=0,
        status_reason=f"{action} requested" if worker.status is PENDING else worker.status_reason,
        updated_at=now,
        state_history=_remember(worker, worker.status, by=by, reason=f"{action} requested", now=now),
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
    )
    return _settle_fields(worker, moved, now)


def _settle_fields(before: Worker, after: Worker, now: datetime) -> Worker:
    """What a status implies about the other fields."""
    if after.status not in (RUNNING, DRAINING):
        after = replace(after, cml_ready=False)
    if after.status is STOPPED:
        after = replace(after, public_ip=None, pending_since=None)
    if after.status in (RUNNING, FAILED, TERMINATING):
        after = replace(after, pending_since=None)
    if after.status is TERMINATED:
        after = replace(
            after,
            desired_status=DesiredStatus.TERMINATED,
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
        )
    return after


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


def _remember(
    worker: Worker, target: WorkerStatus, *, by: str, reason: str, now: datetime
) -> tuple[HistoryEntry, ...]:
    entry = HistoryEntry(source=worker.status, target=target, by=by, reason=reason, at=now)
    return (*worker.state_history, entry)[-HISTORY_LIMIT:]
