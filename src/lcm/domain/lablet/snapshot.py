"""What the placement engine knows: workers, waiting sessions, templates, and how far the fleet may grow."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from lcm.domain.capacity import Capacity
from lcm.domain.lablet.claim import Claim, Reserve, allocatable
from lcm.domain.lablet.definition import LicenseTier
from lcm.domain.lablet.ports import PortRange
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.timeslot import TimeslotPolicy
from lcm.domain.lifecycle import DesiredStatus, WorkerStatus


class Stage(StrEnum):
    """What stands between a worker and a new session."""

    READY = "ready"
    COMING = "coming"
    DRAINING = "draining"
    STOPPED = "stopped"
    CLOSED = "closed"


class PlacementWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as placement sees it. None is not known."""

    id: str
    name: str
    region: str
    status: WorkerStatus
    desired_status: DesiredStatus = DesiredStatus.RUNNING
    is_ready: bool = True
    """CML answers."""
    declared: Capacity | None
    reserve: Reserve = Reserve()
    claims: tuple[Claim, ...] = ()
    foreign_ports: frozenset[int] = frozenset()
    """Ports of labs without a claim."""
    foreign_load: Capacity = Capacity()
    """What the running nodes of those labs need: CML does not know claims, and claims not them."""
    license: LicenseTier | None = None
    is_licensed: bool | None = None
    cml_version: str | None = None
    node_definitions: frozenset[str] | None = None
    images: frozenset[str] | None = None
    has_nested_virtualization: bool | None = None
    has_patty: bool | None = None
    is_drained_by_scale_down: bool = False
    is_overloaded: bool = False
    """Its CPU or memory was above 90 % for five minutes."""
    quarantined: Mapping[str, datetime] = {}
    """Hashes of topologies that its CML refused, and until when they are not tried on it again."""
    usd_per_hour: float | None = None
    ready_at: datetime | None = None
    """When a worker that comes up is expected."""
    early_at: datetime | None = None
    """When half of such workers were ready."""

    @property
    def room(self) -> Capacity | None:
        """What claims may take in all."""
        return None if self.declared is None else allocatable(self.declared, self.reserve)

    @property
    def stage(self) -> Stage:
        if self.status is WorkerStatus.DRAINING:
            return Stage.DRAINING if self.is_drained_by_scale_down else Stage.CLOSED
        if self.status is WorkerStatus.STOPPED:
            return Stage.STOPPED
        if self.desired_status is not DesiredStatus.RUNNING:
            return Stage.CLOSED
        if self.status is WorkerStatus.RUNNING:
            return Stage.READY if self.is_ready else Stage.COMING
        coming = (WorkerStatus.PENDING, WorkerStatus.PROVISIONING, WorkerStatus.STARTING)
        return Stage.COMING if self.status in coming else Stage.CLOSED


class PlacementTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A template as placement sees it. None is not known, and then refuses nothing."""

    name: str
    declared: Capacity
    reserve: Reserve = Reserve()
    usd_per_hour: float
    is_enabled: bool = True
    license: LicenseTier | None = None
    """The tier that new workers get."""
    cml_version: str | None = None
    has_nested_virtualization: bool | None = None
    boot: timedelta | None = None
    """In which nine of ten of its launches were ready."""
    early_boot: timedelta | None = None
    """In which half of them were."""


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """How many workers a region may gain now."""

    count: int
    max_workers: int | None = None
    """How many it may have in all; None if there is no limit to be known."""
    refusal: str = ""
    retry_at: datetime | None = None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One consistent state of everything; the same one always leads to the same decisions."""

    revision: str = ""
    workers: tuple[PlacementWorker, ...] = ()
    sessions: tuple[LabletSession, ...] = ()
    incomplete_batches: tuple[str, ...] = ()
    """Classes that start as a whole, of which a session is not created or its window not open yet."""
    templates: tuple[PlacementTemplate, ...] = ()
    growth: Mapping[str, Growth] = {}
    """By region; a session that names none is launched in the first by name that may grow."""
    ports: PortRange = PortRange()
    times: TimeslotPolicy = TimeslotPolicy()
    queue_limit: int = 500
    headroom_percent: float = 0.0
