"""What commands and queries work with; made once in main.py and passed in."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property

from lcm.control_plane.audit import AuditLog
from lcm.control_plane.store.port import Store
from lcm.control_plane.templates import Templates
from lcm.control_plane.workers import Workers
from lcm.core.chance import Ids
from lcm.core.clock import Clock
from lcm.domain.idle import IdlePolicy
from lcm.domain.scaling import ScalingPolicy


@dataclass(frozen=True)
class Policies:
    """What is decided by configuration rather than by people at work."""

    idle: IdlePolicy = field(default_factory=IdlePolicy)
    scaling: ScalingPolicy = field(default_factory=ScalingPolicy)
    drain_timeout: timedelta = timedelta(hours=4)
    """For templates that name none."""


@dataclass(frozen=True)
class ControlPlane:
    """The records, the time, and what is configured."""

    store: Store
    workers: Workers
    templates: Templates
    clock: Clock
    ids: Ids
    regions: tuple[str, ...]
    default_region: str
    policies: Policies = field(default_factory=Policies)
    pause_turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Pauses are decided one at a time, so that two cannot share the last worker that may go."""
    scale_turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """The same for the last place in a region."""

    @cached_property
    def audit(self) -> AuditLog:
        return AuditLog(self.store, self.clock, self.ids)
