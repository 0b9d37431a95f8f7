"""The load of running workers, in memory only: the newest sample per source and a short history.

Hundreds of samples arrive each second and are worth nothing a minute later, so they never become
records. The samples of a worker are dropped when it stops running.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from math import isnan, nan
from typing import Final

from lcm.control_plane.records.worker_cache import WorkerCache
from lcm.domain.telemetry import LabStats, Sample, SampleSource
from lcm.rest.schemas import LoadPoint

POINTS: Final = 60
"""Kept for each worker: ten minutes while its websocket is connected."""

_VALUES: Final = 4
OVERLOAD_PERCENT: Final = 90.0
OVERLOADED_AFTER_SECONDS: Final = 300.0
"""A worker whose CPU or memory is used by more than the percentage for so long takes new sessions last."""
KNOWN_FOR_SECONDS: Final = 180.0
"""How long a load point says something; without a later one the load is unknown."""
CLOUDWATCH_WAITS_SECONDS: Final = 180.0
"""CloudWatch's averages of minutes join the chart only when CML itself has been silent this long."""


class _Load:
    """One worker's newest samples and its last points, packed: a thousand workers fit in 3 MB."""

    __slots__ = ("newest", "points")

    def __init__(self) -> None:
        self.newest: dict[SampleSource, Sample] = {}
        self.points = array("d")

    def take(self, sample: Sample) -> bool | None:
        """Return whether the sample is a point of the chart; None if it is not newer."""
        known = self.newest.get(sample.source)
        if known is not None and known.collected_at >= sample.collected_at:
            return None
        self.newest[sample.source] = sample
        at = sample.collected_at.timestamp()
        last = self.points[-_VALUES] if self.points else 0.0
        waits = CLOUDWATCH_WAITS_SECONDS if sample.source is SampleSource.CLOUDWATCH else 0.0
        is_point = at > last + waits
        if is_point:
            self.points.extend(
                (
                    at,
                    _packed(sample.cpu_utilization),
                    _packed(sample.memory_utilization),
                    _packed(sample.disk_utilization),
                )
            )
            del self.points[: -POINTS * _VALUES]
        return is_point

    def high_seconds(self, now: float) -> float:
        """Return for how long CPU or memory has been used above the limit without a break until now."""
        since, later = now, now
        for start in range(len(self.points) - _VALUES, -1, -_VALUES):
            at, cpu, memory, _ = self.points[start : start + _VALUES]
            is_high = cpu > OVERLOAD_PERCENT or memory > OVERLOAD_PERCENT
            if not is_high or later - at > KNOWN_FOR_SECONDS:
                break
            since = later = at
        return now - since

    def unpacked(self) -> list[LoadPoint]:
        values = [None if isnan(value) else value for value in self.points]
        return [
            LoadPoint(
                at=values[start] or 0.0,
                cpu_utilization=values[start + 1],
                memory_utilization=values[start + 2],
                disk_utilization=values[start + 3],
            )
            for start in range(0, len(values), _VALUES)
        ]


def _packed(value: float | None) -> float:
    return nan if value is None else value


class MetricsCache:
    """The newest load of every running worker. Await `worker_cache.load()` before any other call."""

    def __init__(self, worker_cache: WorkerCache) -> None:
        self._worker_cache = worker_cache
        self._loads: dict[str, _Load] = {}
        self._on_sample: list[Callable[[Sample], None]] = []
        self._on_lab_stats: list[Callable[[LabStats], None]] = []
        self._on_load: list[Callable[[Sample, bool], None]] = []
        self.reports: Counter[tuple[str, str]] = Counter()
        """How many of each kind were accepted and dropped."""

    def subscribe(
        self, on_sample: Callable[[Sample], None], on_lab_stats: Callable[[LabStats], None]
    ) -> None:
        self._on_sample.append(on_sample)
        self._on_lab_stats.append(on_lab_stats)

    def subscribe_to_load(self, on_load: Callable[[Sample, bool], None]) -> None:
        """Call on every new sample, with whether its CPU, memory and disk are a point of the chart."""
        self._on_load.append(on_load)

    def on_worker_end(self, worker_id: str) -> None:
        self._loads.pop(worker_id, None)

    def take_sample(self, sample: Sample) -> bool:
        """Return False if the worker does not run; a sample that is not newer changes nothing."""
        if not self._worker_cache.is_live(sample.worker_id):
            return False
        load = self._loads.get(sample.worker_id)
        if load is None:
            load = self._loads[sample.worker_id] = _Load()
        is_point = load.take(sample)
        if is_point is not None:
            for listener in self._on_sample:
                listener(sample)
            for keep in self._on_load:
                keep(sample, is_point)
        return True

    def take_lab_stats(self, stats: LabStats) -> bool:
        """Pass the stats of a lab on; they are not kept. Return False if the worker does not run."""
        if not self._worker_cache.is_live(stats.worker_id):
            return False
        for listener in self._on_lab_stats:
            listener(stats)
        return True

    def count(self, kind: str, *, accepted: int, of: int) -> int:
        """Count how many reports of a kind were accepted and dropped."""
        if of:
            self.reports[kind, "accepted"] += accepted
            self.reports[kind, "dropped"] += of - accepted
        return accepted

    def samples_of(self, worker_id: str) -> list[Sample]:
        """Return the newest sample of each source."""
        load = self._loads.get(worker_id)
        return list(load.newest.values()) if load else []

    def points_of(self, worker_id: str) -> list[LoadPoint]:
        """Return the points of a chart, oldest first."""
        load = self._loads.get(worker_id)
        return load.unpacked() if load else []

    def is_overloaded(self, worker_id: str, now: datetime) -> bool:
        """Return whether its load has been too high for minutes; a load that is not known is not."""
        load = self._loads.get(worker_id)
        return load is not None and load.high_seconds(now.timestamp()) >= OVERLOADED_AFTER_SECONDS

    def newest(self) -> Iterator[Sample]:
        """Yield the newest samples of all workers; workers may come and go meanwhile."""
        for worker_id in list(self._loads):
            yield from self.samples_of(worker_id)

    @property
    def worker_count(self) -> int:
        return len(self._loads)

    @property
    def point_count(self) -> int:
        return sum(len(load.points) for load in self._loads.values()) // _VALUES
