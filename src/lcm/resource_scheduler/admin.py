"""The scheduler's own pages and actions under `/admin`, beside those that every controller has."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lcm.core.health import Health
from lcm.resource_scheduler.reconciler import QUEUE, SchedulerReconciler
from lcm.resource_scheduler.service import SchedulerHostedService
from lcm.resource_scheduler.stats import Stats
from lcm.rest.lablets import WindowDue
from lcm.web.operations import ControllerOperations, KeyCheck, MetricsPage, json_answer

DOES: Final = "places lablet sessions on workers and requests the workers that are missing"


class StatsView(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since this process started."""

    successful_placements: int
    failed_placements: int
    """Placements that the control plane refused."""
    scale_up_requests: int
    """Workers requested."""
    retries: int
    max_retries: int
    """Sessions that used the last of their retries."""
    decisions: dict[str, int]
    """By what followed from them."""
    failures: dict[str, int]
    """Refused placements by the filter that refused them."""
    pending_instances: int
    """Sessions that wait for a worker now."""
    last_cycle_at: datetime | None


class TimeslotsView(msgspec.Struct, frozen=True, kw_only=True):
    """What the clock of the control plane changes next, as of the last scan of a leader."""

    next_at: datetime | None
    upcoming: tuple[WindowDue, ...]
    """The first of them, in their order."""
    approaching_count: int
    expired_count: int


def scheduler_operations(
    service: SchedulerHostedService,
    reconciler: SchedulerReconciler,
    stats: Stats,
    health: Health,
    metrics: MetricsPage,
    api_key: KeyCheck,
) -> ControllerOperations:
    """Everything that an operator can see of a scheduler and do to it."""
    own = SchedulerPages(service, reconciler, stats)
    return ControllerOperations(
        service,
        health,
        metrics,
        api_key,
        health_facts=lambda: {
            "pending_instances": stats.pending_instances,
            "last_reconciliation": stats.last_cycle_at,
        },
        info_facts=lambda: {"does": DOES},
        pages={"stats": own.show_stats, "timeslots/next": own.show_timeslots},
        actions={"timeslots/scan": own.scan_timeslots},
    )


@dataclass(frozen=True)
class SchedulerPages:
    """Read from where things are kept, when they are requested."""

    service: SchedulerHostedService
    reconciler: SchedulerReconciler
    stats: Stats

    async def show_stats(self, _: Request) -> Response:
        stats = self.stats
        view = StatsView(
            successful_placements=stats.successful_placements,
            failed_placements=stats.failed_placements.total(),
            scale_up_requests=stats.scale_up_requests.total(),
            retries=stats.retries,
            max_retries=stats.max_retries,
            decisions=dict(sorted(stats.decisions.items())),
            failures=dict(sorted(stats.failed_placements.items())),
            pending_instances=stats.pending_instances,
            last_cycle_at=stats.last_cycle_at,
        )
        return json_answer(view)

    async def show_timeslots(self, _: Request) -> Response:
        windows = self.reconciler.windows
        view = TimeslotsView(
            next_at=windows.next_at,
            upcoming=windows.upcoming,
            approaching_count=self.stats.timeslots_approaching,
            expired_count=self.stats.timeslots_expired,
        )
        return json_answer(view)

    async def scan_timeslots(self, _: Request) -> Response:
        """Have the control plane open and close windows now, and decide about the queue."""
        self.reconciler.scan_soon()
        self.service.loop.trigger(QUEUE)
        return json_answer({"queued": 1}, 202)
