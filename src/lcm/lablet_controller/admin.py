"""The lablet controller's own pages and actions under `/admin`, beside those that every controller has."""

from dataclasses import dataclass
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lcm.core.controller import WatchTriggeredHostedService
from lcm.core.health import Health
from lcm.domain.lablet.session import LabletSession
from lcm.lablet_controller.stats import Stats
from lcm.web.operations import ControllerOperations, KeyCheck, MetricsPage, json_answer

DOES: Final = "runs the labs of sessions on their workers, and removes them"


class StatsView(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since this process started."""

    labs_imported: int
    labs_adopted: int
    """Labs whose import had no answer, found again by their marker."""
    labs_started: int
    labs_stopped: int
    labs_deleted: int
    lab_sync_count: int
    """Listings of the labs of a worker."""
    instances_managed: int
    """Sessions that it works on now."""
    instances_running: int


def lablet_operations(
    service: WatchTriggeredHostedService[LabletSession],
    stats: Stats,
    health: Health,
    metrics: MetricsPage,
    api_key: KeyCheck,
) -> ControllerOperations:
    """Everything that an operator can see of a lablet controller and do to it."""
    return ControllerOperations(
        service,
        health,
        metrics,
        api_key,
        health_facts=lambda: {
            "instances_managed": stats.instances_managed,
            "instances_running": stats.instances_running,
        },
        info_facts=lambda: {"does": DOES},
        pages={"stats": LabletPages(stats).show_stats},
    )


@dataclass(frozen=True)
class LabletPages:
    """Read from where things are kept, when they are requested."""

    stats: Stats

    async def show_stats(self, _: Request) -> Response:
        labs = self.stats.labs
        view = StatsView(
            labs_imported=labs["imported"],
            labs_adopted=labs["adopted"],
            labs_started=labs["started"],
            labs_stopped=labs["stopped"],
            labs_deleted=labs["deleted"],
            lab_sync_count=self.stats.discoveries.total(),
            instances_managed=self.stats.instances_managed,
            instances_running=self.stats.instances_running,
        )
        return json_answer(view)
