"""What the fleet costs now, cost this month, and what pausing saved."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime

from lcm.control_plane.records.groups import Records
from lcm.domain.cost import BILLED, MonthlyUse, book, month_of
from lcm.domain.worker import Worker
from lcm.rest.schemas import CostLine, CostReport


async def cost_report(records: Records) -> CostReport:
    now = records.clock.now()
    prices = {t.name: t.usd_per_hour for t in await records.templates.list_all()}
    workers = await records.workers.list_all()
    lines = {w.id: _line(w, prices.get(w.template_name, 0.0), now) for w in workers}

    def grouped(key: Callable[[Worker], str]) -> list[CostLine]:
        groups: dict[str, list[CostLine]] = defaultdict(list)
        for worker in workers:
            groups[key(worker)].append(lines[worker.id])
        return [_sum(name, groups[name]) for name in sorted(groups)]

    costly = [line for line in lines.values() if line.running_hours_this_month or line.usd_per_hour]
    return CostReport(
        month=month_of(now),
        total=_sum("total", lines.values()),
        by_worker=sorted(costly, key=lambda line: (-line.usd_this_month, line.key)),
        by_template=grouped(lambda worker: worker.template_name),
        by_region=grouped(lambda worker: worker.aws_region),
    )


def _line(worker: Worker, usd_per_hour: float, now: datetime) -> CostLine:
    use = book(
        worker.use,
        worker.status,
        was_paused=worker.pause.is_automatic,
        since=worker.status_since,
        until=now,
    )
    month = month_of(now)
    this_month = next((entry for entry in use if entry.month == month), MonthlyUse(month=month))
    ran, paused = this_month.running_seconds / 3600, this_month.paused_seconds / 3600
    return CostLine(
        key=worker.id,
        usd_per_hour=usd_per_hour if worker.status in BILLED else 0.0,
        usd_this_month=ran * usd_per_hour,
        usd_saved_this_month=paused * usd_per_hour,
        running_hours_this_month=ran,
        paused_hours_this_month=paused,
    )


def _sum(key: str, lines: Iterable[CostLine]) -> CostLine:
    lines = list(lines)

    figures = [name for name in CostLine.__struct_fields__ if name != "key"]
    return CostLine(key=key, **{name: sum(getattr(line, name) for line in lines) for name in figures})
