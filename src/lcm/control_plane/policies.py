"""The rules that configuration sets for commands and queries."""

from dataclasses import dataclass, field
from datetime import timedelta

from lcm.domain.idle import IdlePolicy
from lcm.domain.scaling import ScalingPolicy


@dataclass(frozen=True, kw_only=True)
class Policies:
    """Fixed from start to stop of a process; what operators set at run time is in the records."""

    regions: tuple[str, ...]
    """AWS regions in which workers may be created."""
    default_region: str
    """The region of a worker whose request names none."""
    idle: IdlePolicy = field(default_factory=IdlePolicy)
    scaling: ScalingPolicy = field(default_factory=ScalingPolicy)
    drain_timeout: timedelta = timedelta(hours=4)
    """For templates that set none."""
    activity_events_kept: int = 10
    """Activity events stored with each worker."""
