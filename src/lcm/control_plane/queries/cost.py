"""What the fleet costs now, cost in a month, and what pausing saved."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from lcm.control_plane.records.groups import Records
from lcm.domain.cost import BILLED, MonthlyUse, book, month_of
from lcm.domain.launch import WorkerId
from lcm.domain.worker import Worker
from lcm.rest.schemas import CostLine, CostReport

CSV_COLUMNS: Final = (
    "month", "worker_id", "name", "template", "region",
    "running_hours", "usd", "paused_hours", "usd_saved",
)  # fmt: skip


async def cost_report(records: Records, month: str | None = None) -> CostReport:
    """Report a month, the present one if none is named; only that one has costs per hour now."""
    return _report(*await _lines(records, month))


async def cost_table(records: Records, month: str | None = None) -> list[tuple[object, ...]]:
    """Return the columns above for each worker that ran or was paused in the month, dearest first."""
    month, workers, lines, _ = await _lines(records, month)
    names = {worker.id: worker for worker in workers}
    rows = [(names[WorkerId(line.key)], line) for line in _costly(lines)]
    return [
        (
            month, worker.id, worker.name, worker.template_name, worker.aws_region,
            round(line.running_hours_this_month, 4), round(line.usd_this_month, 4),
            round(line.paused_hours_this_month, 4), round(line.usd_saved_this_month, 4),
        )
        for worker, line in rows
    ]  # fmt: skip


async def costs_by_template_and_region(records: Records) -> list[tuple[CostLine, Mapping[str, str]]]:
    """Return the present month of every template in every region, for Prometheus."""
    _, workers, lines, _ = await _lines(records, None)
    groups: dict[tuple[str, str], list[CostLine]] = defaultdict(list)
    for worker in workers:
        groups[worker.template_name, worker.aws_region].append(lines[worker.id])
    return [
        (_sum(f"{template} {region}", group), {"template": template, "region": region})
        for (template, region), group in groups.items()
    ]


Lines = dict[WorkerId, CostLine]


async def _lines(records: Records, month: str | None) -> tuple[str, Sequence[Worker], Lines, list[str]]:
    """Return the month, the workers, their lines, and every month that is known."""
    now = records.clock.now()
    month = month or month_of(now)
    prices = {t.name: t.usd_per_hour for t in await records.templates.list_all()}
    workers = await records.workers.list_all()
    lines = {w.id: _line(w, prices.get(w.template_name, 0.0), now, month) for w in workers}
    known = {month_of(now)} | {entry.month for worker in workers for entry in worker.use}
    return month, workers, lines, sorted(known, reverse=True)


def _costly(lines: Lines) -> list[CostLine]:
    costly = [
        line
        for line in lines.values()
        if line.running_hours_this_month or line.paused_hours_this_month or line.usd_per_hour
    ]
    return sorted(costly, key=lambda line: (-line.usd_this_month, line.key))


def _report(month: str, workers: Sequence[Worker], lines: Lines, months: list[str]) -> CostReport:

    def grouped(key: Callable[[Worker], str]) -> list[CostLine]:
        groups: dict[str, list[CostLine]] = defaultdict(list)
        for worker in workers:
            groups[key(worker)].append(lines[worker.id])
        return [_sum(name, groups[name]) for name in sorted(groups)]

    return CostReport(
        month=month,
        months=months,
        total=_sum("total", lines.values()),
        by_worker=_costly(lines),
        by_template=grouped(lambda worker: worker.template_name),
        by_region=grouped(lambda worker: worker.aws_region),
    )


def _line(worker: Worker, usd_per_hour: float, now: datetime, month: str) -> CostLine:
    use = book(
        worker.use,
        worker.status,
        was_paused=worker.pause.is_automatic,
        since=worker.status_since,
        until=now,
    )
    is_now = month == month_of(now)
    this_month = next((entry for entry in use if entry.month == month), MonthlyUse(month=month))
    ran, paused = this_month.running_seconds / 3600, this_month.paused_seconds / 3600
    return CostLine(
        key=worker.id,
        usd_per_hour=usd_per_hour if is_now and worker.status in BILLED else 0.0,
        usd_this_month=ran * usd_per_hour,
        usd_saved_this_month=paused * usd_per_hour,
        running_hours_this_month=ran,
        paused_hours_this_month=paused,
    )


def _sum(key: str, lines: Iterable[CostLine]) -> CostLine:
    lines = list(lines)

    figures = [name for name in CostLine.__struct_fields__ if name != "key"]
    return CostLine(key=key, **{name: sum(getattr(line, name) for line in lines) for name in figures})
