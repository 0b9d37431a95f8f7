"""What the fleet costs now, cost in a month and on each of its days, and what pausing saved."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Records
from lcm.domain.cost import BILLED, MonthlyUse, bounds_of, month_of, usd_of_disk, use_in
from lcm.domain.worker import Worker
from lcm.rest.schemas import CostDay, CostLine, CostReport

CSV_COLUMNS: Final = (
    "month", "worker_id", "name", "template", "region",
    "running_hours", "usd", "paused_hours", "usd_saved", "disk_gb", "disk_hours", "usd_disk",
)  # fmt: skip
DAY_CSV_COLUMNS: Final = ("day", "usd", "usd_disk", "usd_saved")

_IS_ROUNDING: Final = 1e-6
_LONGEST_MONTH: Final = 31
_AT_ONCE: Final = 200


async def cost_report(records: Records, policies: Policies, month: str | None = None) -> CostReport:
    """Report a month, the present one if none is named; only that one has costs per hour now."""
    costs = await _costs(records, policies, month)
    total = _sum("total", (each.line for each in costs.workers))
    days = list(_days(costs))
    without_day = total.usd_this_month - sum(day.usd for day in days)

    def grouped(key: Callable[[Worker], str]) -> list[CostLine]:
        groups: dict[str, list[CostLine]] = defaultdict(list)
        for each in costs.workers:
            groups[key(each.worker)].append(each.line)
        return [_sum(name, groups[name]) for name in sorted(groups)]

    return CostReport(
        month=costs.month,
        months=costs.months,
        total=total,
        by_worker=[each.line for each in costs.costly()],
        by_template=grouped(lambda worker: worker.template_name),
        by_region=grouped(lambda worker: worker.aws_region),
        days=days,
        usd_of_unknown_day=without_day if without_day > _IS_ROUNDING else 0.0,
    )


async def cost_table(
    records: Records, policies: Policies, month: str | None = None
) -> list[tuple[object, ...]]:
    """Return the columns above for each worker that ran, was paused or kept a disk, dearest first."""
    costs = await _costs(records, policies, month)
    return [_row(costs.month, each) for each in costs.costly()]


async def cost_days_table(
    records: Records, policies: Policies, month: str | None = None
) -> list[tuple[object, ...]]:
    """Return the columns above for each day of the month up to today."""
    days = _days(await _costs(records, policies, month))
    return [(day.day, round(day.usd, 4), round(day.usd_disk, 4), round(day.usd_saved, 4)) for day in days]


async def costs_by_template_and_region(
    records: Records, policies: Policies, workers: Sequence[Worker]
) -> list[tuple[CostLine, Mapping[str, str]]]:
    """Return the present month of every template in every region, for Prometheus."""
    groups: dict[tuple[str, str], list[CostLine]] = defaultdict(list)
    for each in (await _costs_of(workers, records, policies, None)).workers:
        groups[each.worker.template_name, each.worker.aws_region].append(each.line)
    return [
        (_sum(f"{template} {region}", group), {"template": template, "region": region})
        for (template, region), group in groups.items()
    ]


class _Prices(NamedTuple):
    """Those of a worker; None: not known."""

    usd_per_hour: float
    disk_gb: float | None
    disk_usd_per_gb_month: float | None


class _WorkerCost(NamedTuple):
    worker: Worker
    prices: _Prices
    use: MonthlyUse
    line: CostLine


class _Costs(NamedTuple):
    month: str
    now: datetime
    workers: Sequence[_WorkerCost]
    months: list[str]
    """Every one that is known, newest first."""

    def costly(self) -> list[_WorkerCost]:
        return sorted(
            (each for each in self.workers if _is_costly(each.line)),
            key=lambda each: (-each.line.usd_this_month, each.line.key),
        )


async def _costs(records: Records, policies: Policies, month: str | None) -> _Costs:
    return await _costs_of(await records.workers.list_all(), records, policies, month)


async def _costs_of(
    workers: Sequence[Worker], records: Records, policies: Policies, month: str | None
) -> _Costs:
    now = records.clock.now()
    month = month or month_of(now)
    per_hour = {t.name: t.usd_per_hour for t in await records.templates.list_all()}
    known = {month_of(now)} | {entry.month for worker in workers for entry in worker.use}
    costs = []
    for number, worker in enumerate(workers, start=1):
        prices = _Prices(
            per_hour.get(worker.template_name, 0.0),
            _disk_gb(worker),
            policies.disk_usd_per_gb_month.get(worker.aws_region),
        )
        use = use_in(month, worker.use, worker.stretch_until(now))
        is_billed = month == month_of(now) and worker.status in BILLED
        costs.append(_WorkerCost(worker, prices, use, _line(worker, prices, use, is_billed=is_billed)))
        if number % _AT_ONCE == 0:
            await records.clock.sleep(0)  # a large fleet must not hold up other requests
    return _Costs(month, now, costs, sorted(known, reverse=True))


def _disk_gb(worker: Worker) -> float | None:
    """Return the size that LCM launched it with; the disk of an imported instance is not known."""
    if worker.imported or worker.declared_capacity is None:
        return None
    return worker.declared_capacity.storage_gb


def _line(worker: Worker, prices: _Prices, use: MonthlyUse, *, is_billed: bool) -> CostLine:
    ran, paused = use.running_seconds / 3600, use.paused_seconds / 3600
    disk = _usd_of_disk(prices, use.disk_seconds, use.month)
    return CostLine(
        key=worker.id,
        usd_per_hour=prices.usd_per_hour if is_billed else 0.0,
        usd_this_month=ran * prices.usd_per_hour + (disk or 0.0),
        usd_saved_this_month=paused * prices.usd_per_hour,
        running_hours_this_month=ran,
        paused_hours_this_month=paused,
        usd_disk_this_month=disk,
        disk_hours_this_month=use.disk_seconds / 3600,
        unknown_disks=int(disk is None),
    )


def _usd_of_disk(prices: _Prices, seconds: float, month: str) -> float | None:
    return usd_of_disk(seconds, gb=prices.disk_gb, usd_per_gb_month=prices.disk_usd_per_gb_month, month=month)


def _is_costly(line: CostLine) -> bool:
    return bool(
        line.running_hours_this_month
        or line.paused_hours_this_month
        or line.disk_hours_this_month
        or line.usd_per_hour
    )


def _days(costs: _Costs) -> Iterator[CostDay]:
    """Yield every day of the month that has begun; none of a month to come."""
    start, end = bounds_of(costs.month)
    begun = -(-(min(end, costs.now) - start) // timedelta(days=1))
    running, disks, saved = ([0.0] * (_LONGEST_MONTH + 1) for _ in range(3))
    for each in costs.workers:
        per_second = each.prices.usd_per_hour / 3600
        per_disk_second = _usd_of_disk(each.prices, 1.0, costs.month) or 0.0
        for used in each.use.days:
            running[used.day] += used.running_seconds * per_second
            saved[used.day] += used.paused_seconds * per_second
            disks[used.day] += used.disk_seconds * per_disk_second
    for day in range(1, begun + 1):
        yield CostDay(
            day=f"{costs.month}-{day:02}",
            usd=running[day] + disks[day],
            usd_disk=disks[day],
            usd_saved=saved[day],
        )


def _row(month: str, cost: _WorkerCost) -> tuple[object, ...]:
    worker, line = cost.worker, cost.line
    disk = line.usd_disk_this_month
    return (
        month, worker.id, worker.name, worker.template_name, worker.aws_region,
        round(line.running_hours_this_month, 4), round(line.usd_this_month, 4),
        round(line.paused_hours_this_month, 4), round(line.usd_saved_this_month, 4),
        "" if cost.prices.disk_gb is None else cost.prices.disk_gb, round(line.disk_hours_this_month, 4),
        "" if disk is None else round(disk, 4),
    )  # fmt: skip


def _sum(key: str, lines: Iterable[CostLine]) -> CostLine:
    lines = list(lines)
    priced = [line.usd_disk_this_month for line in lines if line.usd_disk_this_month is not None]
    is_known = any(line.disk_hours_this_month and not line.unknown_disks for line in lines)
    has_unknown = any(line.unknown_disks for line in lines)
    figures = [name for name in CostLine.__struct_fields__ if name not in ("key", "usd_disk_this_month")]
    return CostLine(
        key=key,
        usd_disk_this_month=None if has_unknown and not is_known else sum(priced),
        **{name: sum(getattr(line, name) for line in lines) for name in figures},
    )
