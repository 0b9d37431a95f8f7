"""The rules that configuration sets for commands and queries."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from lcm.domain.addresses import Network
from lcm.domain.idle import ControllerTerms, IdlePolicy
from lcm.domain.lablet.lab_standing import LeakPolicy
from lcm.domain.lablet.ports import PortRange
from lcm.domain.lablet.session_changes import MAX_RETRIES
from lcm.domain.lablet.timeslot import TimeslotPolicy
from lcm.domain.scaling import ScalingPolicy


@dataclass(frozen=True, kw_only=True)
class Policies:
    """Fixed from start to stop of a process; what operators set at run time is in the records."""

    regions: tuple[str, ...]
    """AWS regions in which workers may be created."""
    default_region: str
    """The region of a worker whose request names none."""
    disk_usd_per_gb_month: Mapping[str, float] = field(default_factory=dict)
    """By region, where it is known."""
    idle: IdlePolicy = field(default_factory=IdlePolicy)
    own_terms: ControllerTerms = field(default_factory=ControllerTerms)
    """What is set here of what the worker controller states when it claims its epoch."""
    scaling: ScalingPolicy = field(default_factory=ScalingPolicy)
    drain_timeout: timedelta = timedelta(hours=4)
    """For templates that set none."""
    activity_events_kept: int = 10
    """Activity events stored with each worker."""
    ports: PortRange = field(default_factory=PortRange)
    """The ports of a worker that sessions may be granted."""
    times: TimeslotPolicy = field(default_factory=TimeslotPolicy)
    gives_private_ip: bool = False
    """Whether people reach the labs of sessions at the private addresses of workers."""
    cml_port: int = 443
    """CML's HTTPS port on workers."""
    refuses_overbooking: bool = False
    """Whether a session that does not fit its timeslot is refused; otherwise it is only said."""
    can_replace_lost: bool = True
    """Whether a session that loses its worker after READY is placed again, once."""
    worker_networks: tuple[Network, ...] = ()
    """Where addresses of workers must be; none: anywhere."""
    headroom_percent: float = 0.0
    """How much more than its sessions need a new worker must have."""
    leaked_labs: LeakPolicy = LeakPolicy.REMOVE
    max_retries: int = MAX_RETRIES
    """Failed placements after which a session fails or, if it is booked, is tried only now and then."""
