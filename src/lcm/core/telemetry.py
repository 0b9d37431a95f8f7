"""Metrics and logs of one process: OpenTelemetry instruments, read out in Prometheus' format.

Counts are kept as plain integers where things happen and read by callbacks at the time of a scrape, so
a hot path never pays for an instrument and a series ends with the thing it describes.
"""

import asyncio
import logging
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import accumulate
from typing import Literal, TextIO, cast

import structlog
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricReader, MetricsData
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from lcm.core.clock import Clock
from lcm.core.hosted_service import HostedService
from lcm.core.ids import Ids, RandomIds
from lcm.core.redaction import RedactingStream, redactor
from lcm.core.tracing import add_what_is_done

log = structlog.get_logger(__name__)

_DURATION_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_FEW_DURATION_BUCKETS = (0.01, 0.1, 1.0, 10.0, 60.0)
WAIT_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 900.0, 1800.0, 3600.0)
"""For what is done at once if there is room, and after the start of a worker if there is none."""

Labels = Mapping[str, str]
Reading = tuple[float, Labels]


@cache
def _resource() -> Resource:
    """What this process is; the SDK asks for it in threads of their own, which takes its time."""
    return Resource.create()


class Telemetry:
    """The instruments of one service; several services in one process do not mix."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, trace_ids: Ids | None = None) -> None:
        """Trace ids are random by default."""
        self.trace_ids: Ids = trace_ids or RandomIds()
        self._registry = CollectorRegistry()
        reader = PrometheusMetricReader(
            disable_target_info=True, scope_info_enabled=False, registry=self._registry
        )
        self._snapshots = _SnapshotReader()
        self._provider = MeterProvider(
            metric_readers=[reader, self._snapshots], resource=_resource(), shutdown_on_exit=False
        )
        self._meter = self._provider.get_meter("lcm")

    def gauge(self, name: str, description: str, read: Callable[[], Iterable[Reading]]) -> None:
        """Register a value that goes up and down, read at the time of a scrape."""
        self._meter.create_observable_gauge(name, [_callback(read)], description=description)

    def counter(self, name: str, description: str, read: Callable[[], Iterable[Reading]]) -> None:
        """Register a total that only grows, read at the time of a scrape."""
        self._meter.create_observable_counter(name, [_callback(read)], description=description)

    def durations(
        self, name: str, description: str, buckets: tuple[float, ...] = _DURATION_BUCKETS
    ) -> "Durations":
        """A histogram of seconds, from a millisecond to a minute unless other buckets are given."""
        histogram = Durations(name, description, buckets)
        self._registry.register(histogram)
        return histogram

    def durations_by(
        self, label: str, name: str, description: str, buckets: tuple[float, ...] = _FEW_DURATION_BUCKETS
    ) -> "DurationsBy":
        """A histogram of seconds for each value of the label, ten milliseconds to a minute by default."""
        histogram = DurationsBy(label, name, description, buckets)
        self._registry.register(histogram)
        return histogram

    def render(self) -> bytes:
        """Everything, as a Prometheus scrape wants it."""
        return generate_latest(self._registry)

    def snapshot(self) -> MetricsData | None:
        """Gauges and counters as they are now, as OTLP wants them."""
        return self._snapshots.read()


class _SnapshotReader(MetricReader):
    """Collects when it is asked to, in the thread that asks: the callbacks read what only that one may."""

    def __init__(self) -> None:
        super().__init__()
        self._newest: MetricsData | None = None

    def read(self) -> MetricsData | None:
        self.collect()
        newest, self._newest = self._newest, None
        return newest

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 0, **_: object) -> None:
        self._newest = metrics_data

    def shutdown(self, timeout_millis: float = 30_000, **_: object) -> None:
        self._newest = None


class OtlpExport(HostedService):
    """Sends gauges and counters to an OTLP collector; one that does not answer costs only a warning."""

    name = "otlp-export"

    def __init__(
        self, telemetry: Telemetry, endpoint: str, clock: Clock, interval_seconds: float = 10.0
    ) -> None:
        # Imported here: it takes a third of a second that only an exporter is worth.
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        self._telemetry = telemetry
        self._exporter = OTLPMetricExporter(endpoint=f"{endpoint.rstrip('/')}/v1/metrics", timeout=5)
        self._clock = clock
        self._interval = interval_seconds

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._clock.sleep(self._interval)
                snapshot = self._telemetry.snapshot()
                if snapshot is not None:
                    # The exporter blocks: it works in a thread, on numbers that do not change any more.
                    await loop.run_in_executor(None, self._export, snapshot)
        finally:
            self._exporter.shutdown(timeout_millis=1_000)

    def _export(self, snapshot: MetricsData) -> None:
        if self._exporter.export(snapshot) is not MetricExportResult.SUCCESS:
            log.warning("metrics not exported")


class Durations(Collector):
    """A histogram in plain integers: the SDK's costs more to record than most of what it measures."""

    def __init__(self, name: str, description: str, buckets: tuple[float, ...] = _DURATION_BUCKETS) -> None:
        self._name = name
        self._description = description
        self._seconds = _Histogram(buckets)
        self.record = self._seconds.record

    def collect(self) -> Iterable[Metric]:
        yield HistogramMetricFamily(
            self._name, self._description, buckets=self._seconds.buckets(), sum_value=self._seconds.sum
        )


class DurationsBy(Collector):
    """The same by a label, in few buckets: a fleet has many values. What is forgotten is no longer shown."""

    def __init__(
        self, label: str, name: str, description: str, buckets: tuple[float, ...] = _FEW_DURATION_BUCKETS
    ) -> None:
        self._buckets = buckets
        self._label = label
        self._name = name
        self._description = description
        self._by_value: dict[str, _Histogram] = {}

    def record(self, value: str, seconds: float) -> None:
        histogram = self._by_value.get(value)
        if histogram is None:
            histogram = self._by_value[value] = _Histogram(self._buckets)
        histogram.record(seconds)

    def forget(self, value: str) -> None:
        self._by_value.pop(value, None)

    def clear(self) -> None:
        self._by_value.clear()

    def collect(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(self._name, self._description, labels=[self._label])
        for value, histogram in self._by_value.items():
            family.add_metric([value], histogram.buckets(), histogram.sum)
        yield family


class _Histogram:
    """Counts by bucket."""

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def record(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus wants them: each with all below it."""
        names = [*(str(bound) for bound in self._bounds), "+Inf"]
        return list(zip(names, map(float, accumulate(self._counts)), strict=True))


def _callback(read: Callable[[], Iterable[Reading]]) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(value, dict(labels)) for value, labels in read()]

    return observe


class LoopLagMonitor(HostedService):
    """Measures how late the event loop runs its timers: blocking calls show up here."""

    name = "loop-lag"

    def __init__(self, telemetry: Telemetry, clock: Clock, interval_seconds: float = 0.1) -> None:
        self._clock = clock
        self._interval = interval_seconds
        self._recent: list[float] = [0.0] * 100
        self.max_seconds = 0.0
        telemetry.gauge(
            "lcm_event_loop_lag_seconds",
            "Lateness of the event loop: newest sample, worst of the last ten seconds, worst since start.",
            lambda: [
                (self._recent[-1], {"window": "last"}),
                (self.recent_max_seconds, {"window": "10s"}),
                (self.max_seconds, {"window": "start"}),
            ],
        )

    @property
    def recent_max_seconds(self) -> float:
        """The worst of the last ten seconds."""
        return max(self._recent)

    async def run(self) -> None:
        while True:
            before = self._clock.monotonic()
            await self._clock.sleep(self._interval)
            lag = max(0.0, self._clock.monotonic() - before - self._interval)
            self._recent = [*self._recent[1:], lag]
            self.max_seconds = max(self.max_seconds, lag)


LogFormat = Literal["human", "json"]


def configure_logging(log_format: LogFormat, level: str = "INFO") -> None:
    """Write one line per event to stderr, as text or JSON; other libraries only from WARNING on."""
    stream = cast(TextIO, RedactingStream(sys.stderr, redactor))
    logging.basicConfig(stream=stream, level=logging.WARNING, format="%(message)s")
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            add_what_is_done,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
