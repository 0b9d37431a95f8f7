"""One run of a lab: the record, and how one is created. How it changes is in `session_changes`."""

import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from lcm.domain.errors import Conflict
from lcm.domain.idempotency import KeyedRequest
from lcm.domain.lablet.definition import Collect, DefinitionStatus, Demand, LabletDefinition
from lcm.domain.lablet.evidence import Evidence
from lcm.domain.lablet.lab import (
    NOT_CLEANED,
    NOT_PROBED,
    LabCleanup,
    LabStep,
    ProbedPorts,
    SessionLab,
    StepRecord,
)
from lcm.domain.lablet.states import (
    ENDED,
    FAILED,
    PENDING,
    PENDING_SCHEDULING,
    EndReason,
    SessionStatus,
)
from lcm.domain.lablet.timeslot import DEFAULTS, Timeslot, TimeslotPolicy, check_booking


class SessionDesiredStatus(StrEnum):
    """What people want of a session."""

    RUNNING = "running"
    TERMINATED = "terminated"


class WaitCode(StrEnum):
    """Why a session is not placed yet."""

    WINDOW_NOT_OPEN = "window_not_open"
    AHEAD_IN_QUEUE = "ahead_in_queue"
    NO_ROOM = "no_room"
    WAITS_FOR_RELEASE = "waits_for_release"
    WAITS_FOR_WORKER = "waits_for_worker"
    SCALE_UP_REFUSED = "scale_up_refused"
    HELD_BACK_BY_GANG = "held_back_by_gang"
    NO_WORKER_FITS = "no_worker_fits"
    BACKOFF = "backoff"
    SCHEDULER_DOWN = "scheduler_down"
    """Known only to the control plane: a scheduler that is down reports nothing."""


class SessionHistoryEntry(
    msgspec.Struct, frozen=True, kw_only=True, rename={"source": "from", "target": "to"}
):
    """One change of status."""

    source: SessionStatus | None
    target: SessionStatus
    by: str
    """The name that was shown then."""
    reason: str
    at: datetime
    principal_id: str | None = None
    """Who it was; None: LCM itself, or a line from before ids were kept."""


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where a claim of the session may be: stored before the claim is."""

    worker_id: str
    attempt: int
    at: datetime
    epoch: int


class Nomination(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that is expected to take the session, and when."""

    worker_id: str
    ready_at: datetime


class WaitsFor(msgspec.Struct, frozen=True, kw_only=True):
    """Why the session waits, since when."""

    code: WaitCode
    text: str
    since: datetime


class EndWarning(msgspec.Struct, frozen=True, kw_only=True):
    """The last warning that the session ends soon."""

    minutes: int
    """How long before the end it was due."""
    ends_at: datetime
    """The end that it announced."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """The class that a session belongs to."""

    id: str
    name: str = ""
    index: int
    size: int = 1
    is_all_or_nothing: bool = False


class LabletSession(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a definition on one worker. Everything of the definition is a copy."""

    id: str
    definition_id: str
    definition_name: str
    definition_version: str
    lab_yaml_hash: str
    demand: Demand
    max_duration_minutes: int
    latest_start_minutes: int
    collect: Collect = Collect.NONE
    boot_timeout_seconds: int | None = None
    owner_id: str
    reservation_id: str | None = None
    batch: Batch | None = None
    priority: int = 0
    timeslot: Timeslot | None = None
    """None: as soon as possible."""
    lab_lead: timedelta = timedelta()
    """How long before its timeslot its lab is started at least: what its definition says, and what labs of
    its topology took. The setting may be more."""

    version: int = 1
    generation: int = 1
    status: SessionStatus
    desired_status: SessionDesiredStatus = SessionDesiredStatus.RUNNING
    status_reason: str = ""
    state_history: tuple[SessionHistoryEntry, ...] = ()
    created_at: datetime
    updated_at: datetime
    scheduled_at: datetime | None = None
    ready_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None

    attempt: int = 0
    """Counts placements, so that a late claim of an older one is known as such."""
    placement: Placement | None = None
    worker_id: str | None = None
    ports: dict[str, int] = {}
    nominated: Nomination | None = None
    waits_for: WaitsFor | None = None
    place_attempts: int = 0
    """Failed commands; waiting for room is none."""
    next_try_at: datetime | None = None
    avoided_workers: Mapping[str, datetime] = {}
    """Workers that failed this session, and until when they are its last choice."""
    replacements: int = 0
    """How often it lost its worker after it was READY."""
    lab_generation: int = 0
    """Counts imports over all attempts."""
    lab: SessionLab | None = None
    """None as long as this attempt cannot have a lab."""
    steps: dict[LabStep, StepRecord] = {}
    nodes: dict[str, str] = {}
    """The state of each node by its label."""
    probed: ProbedPorts = NOT_PROBED
    cleanup: LabCleanup = NOT_CLEANED
    evidence: tuple[Evidence, ...] = ()
    restarts_wanted: int = 0
    """People want the lab in use to have been started again so often."""
    end_warning: EndWarning | None = None
    end_reason: EndReason | None = None
    end_text: str = ""
    """Why it ends, in the words of the request."""
    end_asked_by: str | None = None
    end_asked_at: datetime | None = None
    retry_of: str | None = None
    """The failed session that this one repeats."""
    request_digest: str | None = None
    """Digest of the request under the idempotency key from which its id was derived."""
    recent_requests: tuple[KeyedRequest, ...] = ()
    """The last requests with an idempotency key that were carried out on it."""

    @property
    def is_ended(self) -> bool:
        return self.status in ENDED

    @property
    def status_since(self) -> datetime:
        return self.state_history[-1].at if self.state_history else self.created_at

    @property
    def due_at(self) -> datetime:
        """When it is to start: its place in the queue."""
        return self.timeslot.start if self.timeslot else self.created_at

    @property
    def waiting_since(self) -> datetime:
        """When it began to wait for a worker, the last time; its creation if it never did."""
        arrivals = (line.at for line in reversed(self.state_history) if line.target is PENDING_SCHEDULING)
        return next(arrivals, self.created_at)

    @property
    def ends_at(self) -> datetime | None:
        """When its time is over; unknown for one without a timeslot until it is READY."""
        if self.timeslot is not None:
            return self.timeslot.end
        return self.ready_at and self.ready_at + timedelta(minutes=self.max_duration_minutes)

    def latest_arrival(self, times: TimeslotPolicy) -> datetime | None:
        """A worker that is ready before this moment is in time; None is any.

        A lab that takes longer is started earlier; no worker comes too late because of that.
        """
        if self.timeslot is None:
            return None
        return self.timeslot.latest_start(self.latest_start_minutes, times) - times.lab_lead

    def lab_due_at(self, at_least: timedelta) -> datetime | None:
        """When its lab is started, given the setting; None: when it has a worker."""
        return None if self.timeslot is None else self.timeslot.start - max(self.lab_lead, at_least)

    @property
    def ending_soon_minutes(self) -> int | None:
        """The last warning of its end as it is now; None if there was none, or if it ends later since."""
        warning = self.end_warning
        return warning.minutes if warning is not None and warning.ends_at == self.ends_at else None


def create_session(
    definition: LabletDefinition,
    *,
    session_id: str,
    owner_id: str,
    now: datetime,
    timeslot: Timeslot | None = None,
    reservation_id: str | None = None,
    batch: Batch | None = None,
    region: str | None = None,
    priority: int | None = None,
    request_digest: str | None = None,
    lab_takes: timedelta = timedelta(),
    policy: TimeslotPolicy = DEFAULTS,
) -> LabletSession:
    """Book a timeslot, or a start as soon as possible. Raises Conflict or InvalidTimeslot.

    `lab_takes` is how long labs of the topology took to boot.
    """
    if definition.status is not DefinitionStatus.ACTIVE:
        raise Conflict(
            f"{definition.name} {definition.version} is {definition.status}; use its newest version"
        )
    options = definition.options
    if timeslot is not None:
        check_booking(timeslot, max_minutes=options.max_duration_minutes, now=now, policy=policy)
    is_open = timeslot is None or timeslot.opens_at(policy) <= now
    status = PENDING_SCHEDULING if is_open else PENDING
    reason = "created"
    return LabletSession(
        id=session_id,
        definition_id=definition.id,
        definition_name=definition.name,
        definition_version=definition.version,
        lab_yaml_hash=definition.lab_yaml_hash,
        demand=replace(definition.demand, region=region),
        max_duration_minutes=options.max_duration_minutes,
        latest_start_minutes=options.latest_start_minutes,
        collect=options.collect,
        boot_timeout_seconds=options.boot_timeout_seconds,
        owner_id=owner_id,
        reservation_id=reservation_id,
        batch=batch,
        priority=options.priority if priority is None else priority,
        timeslot=timeslot,
        lab_lead=lab_lead(definition, lab_takes, policy),
        status=status,
        status_reason=reason,
        state_history=(SessionHistoryEntry(source=None, target=status, by=owner_id, reason=reason, at=now),),
        created_at=now,
        updated_at=now,
        request_digest=request_digest,
    )


def lab_lead(definition: LabletDefinition, takes: timedelta, policy: TimeslotPolicy) -> timedelta:
    """How long before a timeslot a lab is started that takes so long; never before the window opens."""
    stated = timedelta(minutes=definition.options.boot_lead_time_minutes)
    return min(policy.lead, max(stated, takes))


def retry_session(
    failed: LabletSession, *, session_id: str, by: str, now: datetime, policy: TimeslotPolicy = DEFAULTS
) -> LabletSession:
    """A new session with everything that the failed one copied of its definition.

    It keeps a timeslot that has not begun; otherwise it starts as soon as possible. It belongs to its class,
    and no seat waits for it.
    """
    if failed.status is not FAILED:
        raise Conflict(f"the session is {failed.status}; only a failed one is retried, create another one")
    timeslot = failed.timeslot if failed.timeslot and failed.timeslot.start > now else None
    status = PENDING if timeslot and timeslot.opens_at(policy) > now else PENDING_SCHEDULING
    reason = f"retry of {failed.id}"
    return LabletSession(
        id=session_id,
        definition_id=failed.definition_id,
        definition_name=failed.definition_name,
        definition_version=failed.definition_version,
        lab_yaml_hash=failed.lab_yaml_hash,
        demand=failed.demand,
        max_duration_minutes=failed.max_duration_minutes,
        latest_start_minutes=failed.latest_start_minutes,
        collect=failed.collect,
        boot_timeout_seconds=failed.boot_timeout_seconds,
        owner_id=failed.owner_id,
        reservation_id=failed.reservation_id,
        batch=failed.batch and replace(failed.batch, is_all_or_nothing=False),
        priority=failed.priority,
        timeslot=timeslot,
        lab_lead=failed.lab_lead,
        status=status,
        status_reason=reason,
        state_history=(SessionHistoryEntry(source=None, target=status, by=by, reason=reason, at=now),),
        created_at=now,
        updated_at=now,
        retry_of=failed.id,
    )


def seat_id(batch_id: str, index: int) -> str:
    """The id of a session of a class: a request that is repeated finds the seats that it created."""
    return str(uuid.uuid5(uuid.UUID(batch_id), str(index)))


def retry_id(session_id: str) -> str:
    """The id of the session that repeats a failed one; each is repeated once."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"retry of {session_id}"))
