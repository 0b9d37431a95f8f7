"""What commands and queries work with; made once in main.py and passed in."""

from dataclasses import dataclass
from typing import Self

from lcm.control_plane.epochs import Epochs
from lcm.control_plane.labs import Labs
from lcm.control_plane.live import LiveTable
from lcm.control_plane.roster import Roster
from lcm.control_plane.store.port import Store
from lcm.control_plane.templates import Templates
from lcm.control_plane.workers import Workers
from lcm.core.chance import Ids
from lcm.core.clock import Clock

ACTIVITY_EVENTS_KEPT = 10


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
    activity_events_kept: int

    @classmethod
    def over(
        cls,
        store: Store,
        *,
        clock: Clock,
        ids: Ids,
        regions: tuple[str, ...],
        default_region: str,
        activity_events_kept: int = ACTIVITY_EVENTS_KEPT,
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
            activity_events_kept=activity_events_kept,
        )
