"""The fleet for Prometheus: how many workers there are, what they cost, and how long they take to come up."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

import structlog

from lcm.control_plane.policies import Policies
from lcm.control_plane.queries.cost import costs_by_template_and_region
from lcm.control_plane.records.groups import Caches, Records
from lcm.control_plane.store.port import StoreUnavailable
from lcm.core.health import Health
from lcm.core.hosted_service import HostedService
from lcm.core.telemetry import WAIT_BUCKETS, Labels, Reading, Telemetry
from lcm.domain.cost import month_of
from lcm.domain.launch import WorkerId
from lcm.domain.worker import Worker
from lcm.rest.schemas import CostLine

log = structlog.get_logger(__name__)

INTERVAL_SECONDS: Final = 60.0


class CostFigures(HostedService):
    """Computes once a minute what `lcm cost` shows: the cost of a month needs the terminated workers, too."""

    name = "cost-figures"

    def __init__(self, records: Records, policies: Policies, telemetry: Telemetry, health: Health) -> None:
        self._records = records
        self._policies = policies
        self._health = health
        self._lines: list[tuple[CostLine, Labels]] = []
        self._month: str | None = None
        self._live: frozenset[WorkerId] = frozenset()
        self._ended: dict[WorkerId, Worker] = {}
        telemetry.gauge(
            "lcm_fleet_usd_per_hour",
            "What the instances that run now cost per hour, by the prices of their templates.",
            lambda: [(line.usd_per_hour, labels) for line, labels in self._lines],
        )
        telemetry.gauge(
            "lcm_fleet_month_usd",
            "Cost of this calendar month (UTC) so far, of instances and disks of known price.",
            lambda: [(line.usd_this_month, labels) for line, labels in self._lines],
        )
        telemetry.gauge(
            "lcm_fleet_month_saved_usd",
            "What pauses of idle workers saved in this calendar month (UTC) so far.",
            lambda: [(line.usd_saved_this_month, labels) for line, labels in self._lines],
        )

    async def run(self) -> None:
        while True:
            self._health.tick(self.name, INTERVAL_SECONDS)
            await self.compute()
            await self._records.clock.sleep(INTERVAL_SECONDS)

    async def compute(self) -> None:
        """Take the figures of now. While the store is away there are none: old ones would look like new."""
        try:
            workers = await self._workers()
            self._lines = await costs_by_template_and_region(self._records, self._policies, workers)
        except StoreUnavailable as error:
            self._lines = []
            log.warning("cost figures not computed; the next pass tries again", error=str(error))

    async def _workers(self) -> list[Worker]:
        """Return the live workers, and those terminated ones that cost something in this month.

        All terminated workers are read once a month, because there may be very many. One that comes and goes
        between two passes counts after the next start.
        """
        records, month = self._records.workers, month_of(self._records.clock.now())
        live = {worker.id: worker for worker in await records.list_live()}
        if month != self._month:
            self._ended = {w.id: w async for w in records.each() if w.id not in live and _has_use(w, month)}
        else:
            gone = [await records.find(worker_id) for worker_id in sorted(self._live - live.keys())]
            self._ended |= {worker.id: worker for worker in gone if worker is not None}
        self._month, self._live = month, frozenset(live)
        return [*live.values(), *self._ended.values()]


def _has_use(worker: Worker, month: str) -> bool:
    return any(use.month == month for use in worker.use)


def register_fleet_metrics(telemetry: Telemetry, caches: Caches) -> None:
    """Register what is counted from memory when it is asked for."""
    telemetry.gauge("lcm_workers", "Workers that are not terminated.", lambda: _workers(caches))
    caches.boot_times.on_running = telemetry.durations_by(
        "template",
        "lcm_worker_running_seconds",
        "From the request to launch or start a worker until its instance runs.",
        WAIT_BUCKETS,
    ).record
    caches.boot_times.on_ready = telemetry.durations_by(
        "template",
        "lcm_worker_ready_seconds",
        "From the request to launch or start a worker until its CML answers.",
        WAIT_BUCKETS,
    ).record


def _workers(caches: Caches) -> Iterable[Reading]:
    counts = Counter((known.status, known.template_name, known.region) for known in caches.worker_cache)
    return [
        (count, {"status": status, "template": template, "region": region})
        for (status, template, region), count in counts.items()
    ]
