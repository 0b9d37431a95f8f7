"""What commands and queries work with; made once in main.py and passed in."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Self

from lcm.control_plane.audit import AuditLog
from lcm.control_plane.epochs import Epochs
from lcm.control_plane.idle_checks import IdleChecks
from lcm.control_plane.labs import Labs
from lcm.control_plane.live import LiveTable
from lcm.control_plane.roster import Roster
from lcm.control_plane.store.port import Store
from lcm.control_plane.templates import Templates
from lcm.control_plane.vault import Vault
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
    activity_events_kept: int = 10
    """Signs of people kept with each worker."""


@dataclass(frozen=True)
class ControlPlane:
    """The records, what is live, the time, and what is configured."""

    store: Store
    workers: Workers
    templates: Templates
    labs: Labs
    roster: Roster
    live: LiveTable
    epochs: Epochs
    clock: Clock
    ids: Ids
    regions: tuple[str, ...]
    default_region: str
    vault: Vault
    audit: AuditLog
    idle_checks: IdleChecks
    policies: Policies
    pause_turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Pauses are decided one at a time, so that two cannot share the last worker that may go."""
    scale_turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """The same for the last place in a region."""

    @classmethod
    def over(
        cls,
        store: Store,
        *,
        clock: Clock,
        ids: Ids,
        regions: tuple[str, ...],
        default_region: str,
        vault: Vault,
        policies: Policies | None = None,
    ) -> Self:
        """Everything that is kept in, or follows from, one store."""
        workers = Workers(store)
        roster = Roster(workers.list_all)
        workers.subscribe(roster.on_worker_commit)
        return cls(
            store=store,
            workers=workers,
            templates=Templates(store),
            labs=Labs(store, workers),
            roster=roster,
            live=LiveTable(roster),
            epochs=Epochs(store),
            clock=clock,
            ids=ids,
            regions=regions,
            default_region=default_region,
            vault=vault,
            idle_checks=IdleChecks(roster),
            audit=AuditLog(store, clock, ids),
            policies=policies or Policies(),
        )
