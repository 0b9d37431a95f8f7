"""Status changes of a worker, with its launches and instances."""

from datetime import datetime

from msgspec.structs import replace

from lcm.domain.cost import book
from lcm.domain.errors import Conflict, IllegalTransition
from lcm.domain.launch import (
    MAX_UNATTENDED_LAUNCHES,
    LaunchIntent,
    LaunchSpec,
    client_token,
)
from lcm.domain.license import lose_instance
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
from lcm.domain.observed import record_connection
from lcm.domain.sessions import recalculate
from lcm.domain.telemetry import MonitorState
from lcm.domain.worker import Instance, PauseReason, Worker, extend_history


def move(
    worker: Worker, target: WorkerStatus, *, by: str, reason: str, now: datetime, observed: bool = False
) -> Worker:
    """Change a worker's status, if the table has the row; the same status only gets the new reason.

    An observed change without a row becomes UNKNOWN: a surprise at EC2 never blocks the loop.
    """
    if target is worker.status:
        return replace(worker, status_reason=reason, updated_at=now)
    if not is_allowed(worker.status, target, observed=observed):
        if not observed or worker.status in (TERMINATED, PENDING):
            raise IllegalTransition(worker.status, target, allowed_targets(worker.status, observed=observed))
        reason = f"unexpected: EC2 changed from {worker.status} to {target}"
        if worker.status is UNKNOWN:
            return replace(worker, status_reason=reason, updated_at=now)
        target = UNKNOWN
    moved = replace(
        worker,
        status=target,
        status_reason=reason,
        updated_at=now,
        state_history=extend_history(worker, target, by=by, reason=reason, now=now),
        use=book(
            worker.use,
            worker.status,
            was_paused=worker.pause_reason is PauseReason.IDLE_TIMEOUT,
            since=worker.status_since,
            until=now,
        ),
    )
    is_newly_stopped = target in (STOPPING, STOPPED) and worker.status not in (STOPPING, STOPPED)
    if observed and is_newly_stopped and worker.desired_status is DesiredStatus.RUNNING:
        moved = mark_paused(moved, PauseReason.EXTERNAL, by=by, now=now)
    return _settle_fields(worker, moved, now)


def _settle_fields(before: Worker, after: Worker, now: datetime) -> Worker:
    """Set the fields that the new status implies."""
    if not after.is_live:
        after = replace(after, cml_ready=False, labs_count=None)
        if after.ws_status is not None:
            after = record_connection(
                after, MonitorState.DISCONNECTED, reason=f"worker is {after.status}", at=now
            )
    if after.status is STOPPED:
        after = replace(after, public_ip=None, pending_since=None)
    if after.status in (RUNNING, FAILED, TERMINATING):
        after = replace(after, pending_since=None)
    if after.status is RUNNING and after.desired_status is DesiredStatus.RUNNING and _was_paused(after):
        # A worker stopped outside LCM whose desired status is still running was resumed by LCM.
        is_by_itself = after.pause_reason is PauseReason.EXTERNAL
        after = replace(after, last_resumed_at=now, auto_resume_count=after.auto_resume_count + is_by_itself)
    if after.status is not RUNNING:
        after = replace(after, pause_decided_at=None, target_pause_at=None)
    if before.status is DRAINING:
        after = replace(after, drain_started_at=None, drain_deadline_at=None)
    if before.status is DRAINING and after.status is STOPPING and not _was_paused(after):
        # Like any other pause: after the next start it is snoozed, because it is about to be used.
        after = replace(after, last_paused_at=now)
    if after.status in (STOPPED, TERMINATED, PENDING):
        after = recalculate(replace(after, sessions=()))
    if after.status is TERMINATED:
        after = replace(
            after,
            desired_status=DesiredStatus.TERMINATED,
            license=lose_instance(after.license, is_final=True, now=now),
            public_ip=None,
            private_ip=None,
            pending_since=None,
        )
    if after.status is PENDING and before.status is not FAILED:
        # The old instance is proven gone: the next launch creates a new one.
        after = replace(
            after,
            # The replacement of an instance that never ran uses the timeout of the first.
            pending_since=before.pending_since if before.status is PROVISIONING else now,
            launch=None,
            ec2_instance_id=None,
            public_ip=None,
            private_ip=None,
            cml_certificate_sha256=None,
            license=lose_instance(after.license, is_final=False, now=now),
        )
    return after


def _was_paused(worker: Worker) -> bool:
    """Whether the last pause has not been followed by a resumption yet."""
    if worker.last_paused_at is None:
        return False
    return worker.last_resumed_at is None or worker.last_resumed_at < worker.last_paused_at


def mark_paused(worker: Worker, why: PauseReason, *, by: str, now: datetime) -> Worker:
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


def with_launch_intent(worker: Worker, spec: LaunchSpec, *, now: datetime) -> Worker:
    """Record the intent to launch, under a new generation and client token."""
    if worker.status is not PENDING:
        raise IllegalTransition(worker.status, "a new launch", allowed_targets(worker.status))
    if worker.imported:
        raise Conflict("imported workers are never launched by LCM; create a worker instead")
    if worker.has_unresolved_launch:
        raise Conflict("an earlier launch of this worker is unresolved; repeat that one")
    if worker.ec2_instance_id is not None:
        raise Conflict(f"instance {worker.ec2_instance_id} is not proven gone; withdraw its intent first")
    if worker.unattended_launches >= MAX_UNATTENDED_LAUNCHES:
        raise Conflict(
            f"{worker.unattended_launches} launches without a request of a person; retry to launch again"
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


def without_launch_intent(worker: Worker, *, reason: str, now: datetime, refused: bool = False) -> Worker:
    """Withdraw an intent whose instance is proven gone, so that a new generation may follow.

    A launch that EC2 `refused` created no instance, so it does not count as an unattended launch.
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
        license=lose_instance(worker.license, is_final=False, now=now),
        status_reason=reason,
        updated_at=now,
    )


def attach_instance(worker: Worker, instance: Instance, *, now: datetime) -> Worker:
    """Record the worker's instance and its addresses."""
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
